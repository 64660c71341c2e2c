"""An API beside V2 is a mount: without its folders the rest serves, has its types and conforms."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "inferd"
PARTS = ("api/trtis", "wire/trtis", "client/trtis.py")
"""All there is of the mount, below src/inferd."""

SAYS_TRTIS = {
    "config/sections/ignored.py": "options of its own server, listed after that one",
    "config/sections/protocols.py": "the option that turns it off, as any option is declared there",
    "schedulers/sequence_parts/sequences.py": "an error: how clients of either API spell an id",
}
"""The modules that name it all the same, each with its reason."""


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """A copy of the repository without the mount."""
    tree = tmp_path_factory.mktemp("without") / "tree"
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("src", "conformance", "tools", "docs/reference"):
        shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    for part in PARTS:
        path = tree / "src" / "inferd" / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(tree / "conformance" / "trtis")
    return tree


def run(tree, *command):
    """Run a module of Python in `tree`, with the inferd that is there; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=tree, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def test_the_rest_has_no_word_of_it():
    named = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if not str(path.relative_to(SOURCE)).startswith(PARTS)
        and re.search(r"trtis", path.read_text(), re.IGNORECASE)
    }
    assert named == SAYS_TRTIS.keys()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_server_conforms_without_it(without):
    assert str(without) in run(without, "inspect", "--details", "inferd")
    said = run(without, "pytest", "conformance", "-q", "-x", "-p", "no:cacheprovider")
    assert int(re.search(r"(\d+) passed", said)[1]) > 250


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_rest_has_its_types_without_it(without):
    run(without, "mypy", "--cache-dir", str(without / "cache"))
