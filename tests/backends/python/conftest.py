"""Servers with Python models, for the tests of this folder."""

import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from serving import running, write_model

PATIENCE_S = 60


@pytest.fixture
def models(tmp_path):
    """models(name=source or (source, config), ...) writes models and returns the repository."""
    root = tmp_path / "models"
    root.mkdir()

    def write(**given):
        for name, one in given.items():
            write_model(root, name, *(one if isinstance(one, tuple) else (one,)))
        return root

    return write


@pytest.fixture
def serve(models):
    """serve(options, name=source, ...) is a context: a server with these models."""

    def start(options=None, **given):
        return running(models(**given), **(options or {}))

    return start


@pytest.fixture
def eventually():
    """eventually(function) calls it until it is true, and fails when that takes too long."""

    def wait(is_so):
        deadline = time.monotonic() + PATIENCE_S
        pause = threading.Event()
        while not (found := is_so()):
            assert time.monotonic() < deadline, "it never came true"
            pause.wait(0.01)
        return found

    return wait
