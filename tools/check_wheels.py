"""Installs what tools/build_wheels.py made, as users do, and serves a model with it.

    python tools/check_wheels.py [--dist FOLDER] [--python PATH]...

For each CPython that is found, two environments with nothing in them: one for the server, which
must be the compiled wheel if the folder has one for that Python, one for the client alone. Both
packages come from the folder and from nowhere else, what they depend on from the package index.
Of the last one the bill of materials is written beside the wheels (tools/describe_wheels.py).
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pythons import Python, find_pythons, look_at

ROOT = Path(__file__).resolve().parent.parent
PORTS_OF_SERVER = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
EXAMPLE = ROOT / "examples" / "run.py"
ASK = """
import sys
from inferd_client import connect
import numpy as np

assert not any(name.split(".")[0] == "inferd" for name in sys.modules)
with connect(sys.argv[1]) as client:
    image = client.metadata("digits").inputs[0]
    client.infer("digits", {image.name: np.zeros((1, 8, 8), np.float32)})
print(f"inferd_client in {sys.prefix} asked {sys.argv[1]}")
"""


def run(*command: object) -> str:
    """Run a command outside the repository; return what it printed. Exits if it fails."""
    done = subprocess.run([*map(str, command)], cwd="/", stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def environment(python: Python, folder: Path, dist: Path, package: str) -> Path:
    """Make an environment with one package of `dist`; return its folder of programs."""
    run(python.path, "-m", "venv", "--without-pip", folder)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    pip += ["--python", str(folder / "bin" / "python"), "install", "-qq"]
    run(*pip, "--no-index", "--no-deps", "--find-links", dist, package)
    run(*pip, "--only-binary", ":all:", package)
    run(*pip[:-2], "check")
    return folder / "bin"


def check(python: Python, dist: Path, *, is_described: bool) -> str:
    """Install, serve, infer; return the version and how long it took. May describe the whole."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        server = environment(python, Path(folder) / "server", dist, "inferd")
        said = run(server / "inferd", "--version").strip()
        is_compiled = any(dist.glob(f"inferd-*-{python.tag}-{python.tag}-*.whl"))
        if ("(compiled" in said) is not is_compiled:
            sys.exit(f"{said}, and {dist} has {'a' if is_compiled else 'no'} wheel for it")
        run(server / "python", "-I", EXAMPLE, "digits")
        took_s = time.monotonic() - began_s
        client = environment(python, Path(folder) / "client", dist, "inferd-client")
        ask_alone(server, client)
        if is_described:
            describe = [ROOT / "tools" / "describe_wheels.py", "--environment", server / "python"]
            print(run(sys.executable, *describe, "--dist", dist), end="")
        return f"{said}: from nothing to an answer in {took_s:.1f} s"


def ask_alone(server: Path, client: Path) -> None:
    """Have the client that knows nothing of inferd ask a server."""
    models = EXAMPLE.with_name("digits") / "models"
    addresses = [f"--{one}-address=127.0.0.1" for one in ("http", "grpc")]
    words = [server / "inferd", "serve", models, *addresses, *PORTS_OF_SERVER]
    with subprocess.Popen(
        [*map(str, words)], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if live := re.search(r"is live at (http://\S+) ", line):
                    url = live[1]
                elif line.rstrip().endswith(" ready"):
                    print(run(client / "python", "-I", "-c", ASK, url), end="")
                    break
            else:
                sys.exit("the server ended before it was ready")
        finally:
            process.terminate()
            process.communicate()


def main() -> None:
    """Check each Python, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", default=[], help="check on this one")
    given = parser.parse_args()
    pythons = [one for one in map(look_at, given.python) if one] or find_pythons()
    dist = given.dist.resolve()
    said = [check(one, dist, is_described=one is pythons[-1]) for one in pythons]
    print(*said, sep="\n")
    # A closing line that says how many there were: a run without any would prove nothing.
    print(f"{len(said)} passed, 0 failed")
    if not said:
        sys.exit("no Python was found to install the wheels on")


if __name__ == "__main__":
    main()
