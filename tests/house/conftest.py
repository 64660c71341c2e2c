"""The files of the repository, for rules that hold for all of them."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def texts():
    """Path below the root -> text, of every file that git has or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    names = sorted({name for name in listed.decode().split("\0") if name})
    contents = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    return {name: data.decode() for name, data in contents.items() if not _is_binary(data)}


def _is_binary(data):
    return b"\0" in data[:8000]  # what git takes for binary
