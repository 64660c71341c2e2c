"""The scripts of tools/, and copies of the repository to build in."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
BUILT = (
    ".gitignore",
    "src",
    "tools",
    "packages",
    ".importlinter",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
)


@pytest.fixture
def copy_of_repository(tmp_path):
    """Return a function that copies what is built into a folder of that name, with new times."""

    def copy(name):
        folder = tmp_path / name
        folder.mkdir()
        for one in BUILT:
            source = ROOT / one
            if source.is_dir():
                unwanted = shutil.ignore_patterns("__pycache__", "*_cache")
                shutil.copytree(source, folder / one, ignore=unwanted, copy_function=shutil.copy)
            else:
                shutil.copy(source, folder / one)
        return folder

    return copy


@pytest.fixture
def build():
    """Return a function that builds the project in a folder and returns the path of the file."""

    def run(folder, kind, out):
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
        environ = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
        subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True)
        [made] = out.iterdir()
        return made

    return run
