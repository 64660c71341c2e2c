"""Runs tests with the oldest version that each direct dependency may have.

    python tools/test_lowest.py [--environment FOLDER] [--python PATH] [OPTIONS OF pytest...]

uv finds the versions from pyproject.toml: those of the core and of the extras below, whose packages
are small. Tests that import what wants newer ones (Triton's client wants a newer grpcio), or what
is not among them, are left out, and counted.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("cloud", "environments", "otel", "redis", "pictures", "signatures", "tables", "terminal")
FOLDERS = ("config", "core", "formats", "http", "tensor", "values", "wire")
"""Of tests/: whatever reads and writes what others send, which is where versions differ."""
NEEDS_CLIENT = "tests/config/test_proto.py::test_the_schema_is_that_of_the_clients"

ELSEWHERE = re.compile(
    r"No module named '(tritonclient|grpc_health|grpc_reflection|grpc_tools|sklearn|"
    r"lightgbm|ray|h2)\b"
)
_FAILED = re.compile(r"^ERROR (tests/\S+)", re.MULTILINE)
_REASON = re.compile(r"^E +(\w*Error: .*|\w*Exception: .*)$", re.MULTILINE)
_TESTED = ("pytest>=8", "pytest-timeout", "pytest-xdist>=3.6", "hypothesis>=6.120", "hatchling")
_TESTED += ("jsonschema>=4.20", "prometheus-client>=0.21", "onnx>=1.18")


def resolve(uv: str, python: str, to: Path) -> list[str]:
    """Write the lowest versions as constraints; return those of direct dependencies."""
    extras = [f"--extra={one}" for one in EXTRAS]
    command = [uv, "pip", "compile", "-q", "--resolution", "lowest-direct", "--python", python]
    command += ["--no-header", "--no-annotate", "-o", str(to), *extras, "pyproject.toml"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return to.read_text().split()


def install(uv: str, python: str, environment: Path, constraints: Path) -> None:
    """Make the environment with inferd, its extras and what tests need."""
    subprocess.run([uv, "venv", "-q", "--clear", "--python", python, environment], check=True)
    what = ["-e", f".[{','.join(EXTRAS)}]", *_TESTED]
    command = [uv, "pip", "install", "-q", "--python", str(environment / "bin/python"), *what]
    subprocess.run([*command, "-c", str(constraints)], cwd=ROOT, check=True)


def left_out(pytest: list[str]) -> list[str]:
    """Return the tests that cannot be collected here. Exits if one fails for another reason."""
    command = [*pytest, "--collect-only", "-q", "-p", "no:xdist"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    odd = [one for one in _REASON.findall(said) if not ELSEWHERE.search(one)]
    if odd:
        sys.exit(f"{said[-6000:]}\ntests cannot be collected: {odd}")
    return sorted(set(_FAILED.findall(said)))


def main() -> int:
    """Install, test; return pytest's exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-lowest")
    parser.add_argument("--python", default=sys.executable)
    given, options = parser.parse_known_args()
    uv = str(Path(sys.executable).with_name("uv"))
    constraints = given.environment.with_suffix(".txt")
    versions = resolve(uv, given.python, constraints)
    install(uv, given.python, given.environment, constraints)
    pytest = [str(given.environment / "bin/python"), "-m", "pytest"]
    pytest += [f"tests/{one}" for one in FOLDERS] + ["-m", "not slow"]
    ignored = left_out(pytest)
    print(f"{len(versions)} packages, {len(ignored)} test files left out:", *ignored, flush=True)
    command = [*pytest, "-q", *(f"--ignore={one}" for one in ignored), *options]
    command += ["--deselect", NEEDS_CLIENT]
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
