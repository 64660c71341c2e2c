"""Drives the REST surface with requests made from its OpenAPI document, by schemathesis.

    python tools/fuzz_rest.py [--st PROGRAM] [--seconds N] [-- OPTIONS OF st run]

Fails when an answer is not as the document says, when the server fails, and when it does not live
on. tools/schemathesis.toml says what is checked.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "tools" / "schemathesis.toml"
REPOSITORY = ROOT / "conformance" / "repos" / "v2"

sys.path.insert(0, str(ROOT))


def options(folder: str) -> list[str]:
    """Return the server's options that leave no call turned off."""
    return [f"--log-directory={folder}", f"--trace-config=triton,file={folder}/trace.json"]


def main() -> int:
    """Start a server, drive it, and return the exit code."""
    from conformance.launch import serve
    from conformance.rest import Rest

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--st", default="st", help="the program of schemathesis")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("more", nargs="*", help="further options of st run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, serve(REPOSITORY, *options(scratch)) as target:
        command = [given.st, "--config-file", str(SETTINGS), "run", f"{target.url}/v2/openapi.json"]
        command += ["--max-time", str(given.seconds), *given.more]
        code = subprocess.run(command, cwd=scratch, check=False).returncode
        if Rest(target.url).get("/v2/health/ready").status != 200:
            print("the server is not ready any more")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
