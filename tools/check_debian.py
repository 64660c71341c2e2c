"""Installs what tools/build_wheels.py made in Debian systems with nothing in them, and serves.

    python tools/check_debian.py [--dist FOLDER] [SUITE | FOLDER]...

Each suite, such as trixie, is made by mmdebstrap, with its own Python; a folder is such a system.
As users do, one command installs (inferd from the folder, the rest from the package index) and one
serves; then a model is asked. Needs root, and the network of a machine that may fetch packages.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITES = ("bookworm", "trixie")
LIMIT_S = 60
GIVEN = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", os.environ.get("PIP_CERT", ""))
"""What lets pip reach the index, as on this machine."""

# Mounts of its own, which end with it.
ENTER = 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$@"'
INSTALL = "python3 -m venv /v && /v/bin/pip install -q --find-links /dist {}"
SERVE = "/v/bin/inferd serve /models --http-address=127.0.0.1 --http-port=0 --grpc-port=0"


def make_system(suite: str, folder: Path) -> Path:
    """Make the smallest Debian that has Python and can make environments."""
    packages = "--include=python3,python3-venv"
    subprocess.run(["mmdebstrap", "-q", "--variant=minbase", packages, suite, folder], check=True)
    return folder


def inside(system: Path, command: str) -> list[str]:
    """Return the command that runs `command` in `system`, with no variables of this machine."""
    variables = [f"{name}={os.environ[name]}" for name in ("PIP_CERT",) if name in os.environ]
    clean = ["env", "-i", "HOME=/root", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", *variables]
    entered = ["unshare", "--mount", "sh", "-c", ENTER, "sh", str(system)]
    return [*entered, *clean, "sh", "-c", command]


def ask(url: str) -> None:
    """Have the server recognise a digit."""
    with urllib.request.urlopen(f"{url}/v2/models/digits") as answer:
        image = json.load(answer)["inputs"][0]
    values = {"name": image["name"], "shape": [1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}
    request = json.dumps({"inputs": [values]}).encode()
    with urllib.request.urlopen(f"{url}/v2/models/digits/infer", request) as answer:
        assert json.load(answer)["outputs"]


def serve_and_ask(system: Path) -> None:
    """Serve the example models and ask one, as soon as the server is ready."""
    said: list[str] = []
    command = inside(system, f"exec {SERVE}")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line)
                if line.rstrip().endswith(" ready"):
                    [url, *_] = re.findall(r"is live at (http://\S+) ", "".join(said))
                    ask(url)
                    break
            else:
                sys.exit(f"the server ended before it was ready:\n{''.join(said)}")
        finally:
            process.terminate()
            process.communicate()


def cpu_s() -> float:
    """Return the processor time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(name: str, system: Path, dist: Path) -> bool:
    """Install, serve and ask in `system`; print what it took, return whether that is enough."""
    for given in filter(None, GIVEN):
        if Path(given).is_file():
            target = system / given.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(given, target)
    shutil.copytree(dist, system / "dist", dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples" / "digits" / "models", system / "models", dirs_exist_ok=True)
    [archive] = dist.glob("inferd-*.tar.gz")
    version = archive.name.removesuffix(".tar.gz").removeprefix("inferd-")

    began_s, began_cpu_s = time.monotonic(), cpu_s()
    subprocess.run(inside(system, INSTALL.format(f"inferd=={version}")), check=True)
    installed_s = time.monotonic() - began_s
    serve_and_ask(system)
    took_s, took_cpu_s = time.monotonic() - began_s, cpu_s() - began_cpu_s

    version_of = inside(system, "/v/bin/inferd --version")
    said = subprocess.run(version_of, check=True, capture_output=True, text=True).stdout.strip()
    took = f"installed in {installed_s:.1f} s, first answer after {took_s:.1f} s"
    print(f"{name}: {said}: {took}, with {took_cpu_s:.1f} s of processor", flush=True)
    python = re.search(r"CPython (\d+)\.(\d+)", said)
    assert python is not None, said
    has_wheel = any(dist.glob(f"inferd-*-cp{python[1]}{python[2]}-*.whl"))
    return took_s < LIMIT_S and ("(compiled" in said) is has_wheel


def main() -> None:
    """Check each system, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("systems", nargs="*", default=SUITES, help="a suite, or the folder of one")
    given = parser.parse_args()
    failed = 0
    for name in given.systems:
        with tempfile.TemporaryDirectory() as folder:
            is_made = Path(name).is_dir()
            system = Path(name) if is_made else make_system(name, Path(folder) / name)
            failed += not check(Path(name).name, system, given.dist.resolve())
    print(f"{len(given.systems) - failed} passed, {failed} failed")
    sys.exit(failed)


if __name__ == "__main__":
    main()
