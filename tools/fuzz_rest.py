"""Drives the REST surface with requests that schemathesis makes from its OpenAPI document.

    python tools/fuzz_rest.py [--st PROGRAM] [--seconds N] [-- OPTIONS OF st run]

Fails if an answer does not match the document, if the server fails, or if it is not live at the
end. tools/schemathesis.toml says what is checked, tools/fuzz_hooks.py what is let pass.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "tools" / "schemathesis.toml"
HOOKS = ROOT / "tools" / "fuzz_hooks.py"
REPOSITORY = ROOT / "conformance" / "repos" / "v2"

sys.path.insert(0, str(ROOT))


CHANGES = "/(load|unload)$"
"""The calls that load and unload models; they have a round of their own."""


def rounds(folder: str) -> list[tuple[list[str], list[str]]]:
    """Return for each round the options of the server, with all calls enabled, and schemathesis."""
    server = [f"--log-directory={folder}", f"--trace-config=triton,file={folder}/trace.json"]
    server += ["--allow-client-shm=true"]
    explicit = ["--model-control-mode=explicit", "--load-model=*"]
    return [
        (server, [f"--exclude-path-regex={CHANGES}"]),
        ([*server, *explicit], ["--include-path-regex=/v2/repository/"]),
    ]


def drive(st: str, seconds: int, server: list[str], more: list[str]) -> int:
    """Drive one server and return the exit code."""
    from conformance.launch import serve
    from conformance.rest import Rest

    with tempfile.TemporaryDirectory() as scratch, serve(REPOSITORY, *server) as target:
        command = [st, "--config-file", str(SETTINGS), "run", f"{target.url}/v2/openapi.json"]
        command += ["--max-time", str(seconds), *more]
        hooks = {"SCHEMATHESIS_HOOKS": str(HOOKS)}
        code = subprocess.run(command, cwd=scratch, env=os.environ | hooks, check=False).returncode
        if Rest(target.url).get("/v2/health/live").status != 200:
            print("the server does not live any more")
            code = 1
    return code


def main() -> int:
    """Drive a server in each round, and return the highest exit code."""
    text = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--st", default="st", help="the program of schemathesis")
    parser.add_argument("--seconds", type=int, default=30, help="how long each round takes")
    parser.add_argument("more", nargs="*", help="further options of st run")
    given = parser.parse_args()
    if (st := shutil.which(given.st)) is None:
        parser.error(f"there is no program {given.st}; make fuzz-rest installs it")
    with tempfile.TemporaryDirectory() as folder:
        return max(
            drive(os.path.abspath(st), given.seconds, server, [*more, *given.more])
            for server, more in rounds(folder)
        )


if __name__ == "__main__":
    sys.exit(main())
