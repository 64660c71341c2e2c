"""Writes beside the wheels what they are made of, and how: a bill of materials and a provenance.

    python tools/describe_wheels.py [--dist FOLDER] [--environment PATH]

`sbom.cdx.json` (CycloneDX) lists what an environment with the wheel in it has: the dependencies in
the versions that were tested. `provenance.intoto.json` is an in-toto statement with SLSA's
predicate: from which commit, with which tools, these files, by their digests, were built. It is
not signed: whoever builds for others does that (.github/workflows/release.yml).
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SBOM, PROVENANCE = "sbom.cdx.json", "provenance.intoto.json"
CONSTRAINTS = ROOT / "tools" / "build_constraints.txt"
BUILT = ("*.whl", "*.tar.gz")
BUILD_TYPE = "https://github.com/pypa/build"
LOCAL_BUILDER = "urn:inferd:make-wheels"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pinned() -> list[str]:
    """Return what builds, each as name==version: the tools, and what compiles."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    tools = [one.partition(";")[0].strip() for one in groups["release"]]
    compiling = CONSTRAINTS.read_text().splitlines()
    return sorted({one for one in (*tools, *compiling) if "==" in one})


def statement(dist: Path, commit: str, epoch: str) -> dict[str, Any]:
    """Return the in-toto statement on all wheels and archives in `dist`.

    Nothing in it depends on when or where it is made, beside the machine's kind: the same commit
    gives the same statement, and anybody can compare.
    """
    files = sorted(path for pattern in BUILT for path in dist.glob(pattern))
    if not files:
        msg = f"{dist} has neither wheels nor archives"
        raise SystemExit(msg)
    source = {"uri": "git+file:inferd", "digest": {"gitCommit": commit}, "name": "inferd"}
    packages = [
        {"uri": f"pkg:pypi/{name}@{version}"}
        for name, _, version in (one.partition("==") for one in pinned())
    ]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": one.name, "digest": {"sha256": digest(one)}} for one in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"command": "make wheels", "SOURCE_DATE_EPOCH": epoch},
                "internalParameters": {"system": platform.system(), "machine": platform.machine()},
                "resolvedDependencies": [source, *packages],
            },
            "runDetails": {"builder": {"id": os.environ.get("BUILDER_ID", LOCAL_BUILDER)}},
        },
    }


def write_sbom(dist: Path, environment: Path) -> None:
    """Write the bill of materials of an environment, checked against CycloneDX's schema."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    command += ["--spec-version", "1.6", "--mc-type", "application", "--validate"]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--of", "JSON"]
    command += ["--output-file", str(dist / SBOM), str(environment)]
    subprocess.run(command, check=True)


def main() -> None:
    """Describe what lies in the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--environment", type=Path, help="the Python of one that has the wheel")
    given = parser.parse_args()
    command = ["git", "log", "-1", "--format=%H %ct"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    commit, time = said.split()
    epoch = os.environ.get("SOURCE_DATE_EPOCH", time)
    text = json.dumps(statement(given.dist, commit, epoch), indent=1, sort_keys=True)
    (given.dist / PROVENANCE).write_text(f"{text}\n")
    print(f"wrote {given.dist / PROVENANCE}")
    if given.environment is not None:
        write_sbom(given.dist, given.environment)
        print(f"wrote {given.dist / SBOM}")


if __name__ == "__main__":
    main()
