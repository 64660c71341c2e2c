"""One server for all attacks: it must be as sound after each as it was before."""

import sys
from pathlib import Path

import pytest

# Test folders are no packages: this is how the tests here find what they share.
sys.path.insert(0, str(Path(__file__).parent))

from target import start_target


@pytest.fixture(scope="session")
def _server(tmp_path_factory):
    target = start_target(tmp_path_factory.mktemp("target"))
    yield target
    assert target.process.poll() is None, target.log()
    target.process.kill()
    target.process.wait()


@pytest.fixture
def target(_server):
    """A server to attack; afterwards it answers, and nothing was unexpected to it."""
    yield _server
    _server.check_sound()


@pytest.fixture
def another_target(tmp_path):
    """another_target(options...) is a server of its own."""
    started = []

    def start(*options):
        started.append(start_target(tmp_path, *options))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
