"""The APIs beside V2: which there are, and a server without them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inferd.api.mount import Mount, load_mount, mount_names

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src/inferd"


def test_a_subpackage_with_a_module_mount_is_one():
    assert list(mount_names()) == ["trtis"]
    assert issubclass(load_mount("trtis"), Mount)


def test_nothing_else_says_its_name():
    said = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if not any(part.startswith("trtis") for part in path.relative_to(SRC).parts)
        if re.search(r"trtis|old api", path.read_text(), re.IGNORECASE)
    }
    assert said == {
        "config/sections/ignored.py",  # options
        "config/sections/protocols.py",
        "schedulers/sequence_parts/sequences.py",  # the text of an error
    }


@pytest.fixture
def without(tmp_path):
    """A copy of the sources and of the conformance suite without the API; runs Python there."""
    others = shutil.ignore_patterns("trtis*", "__pycache__", "*.so")
    shutil.copytree(SRC.parent, tmp_path / "src", ignore=others)
    shutil.copytree(ROOT / "conformance", tmp_path / "conformance", ignore=others)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}

    def run(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_it_the_sources_are_typed(without):
    checked = without("-m", "mypy")
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_it_v2_is_served_as_its_suite_wants_it(without):
    suites = ("v2_rest", "v2_grpc", "binary")
    tested = without("-m", "pytest", "-q", "-n", "0", *(f"conformance/{one}" for one in suites))
    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout


@pytest.mark.slow
def test_without_it_there_is_no_mount_and_none_of_its_messages(without):
    script = (
        "from inferd.api.mount import mount_names; from inferd.wire.documents import proto_files\n"
        "print(list(mount_names()), 'trtis.proto' in proto_files(), len(proto_files()))"
    )
    assert without("-c", script).stdout == "[] False 5\n"
