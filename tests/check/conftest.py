"""Model repositories in temporary folders, good ones and broken ones."""

import sys
from pathlib import Path

import pytest

# Test folders are no packages: this is how the tests here find what they share.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def repository(tmp_path):
    """A function that writes files, path -> content, into a repository and returns its folder."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / "models" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / "models"

    return write
