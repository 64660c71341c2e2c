"""Tests with real frameworks: `make test-platforms` runs them where each is installed.

A file here is collected only where what it needs is there, so `make test` passes over all of them.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from inferd.config.server import ServerConfig
from inferd.server.thread import server_in_thread

EXAMPLES = Path(__file__).parents[2] / "examples" / "platforms"

NEEDS = {
    "test_pytorch.py": "torch",
}
"""Test file -> the package it needs."""

EXPORTERS = {"to_pytorch": "torch"}
"""Module in examples/platforms -> the package it needs."""

collect_ignore = [name for name, package in NEEDS.items() if find_spec(package) is None]
_present = [name for name, package in EXPORTERS.items() if find_spec(package) is not None]
if not _present:
    collect_ignore.append("test_digits.py")


def example(name):
    """Return a module of examples/platforms."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return import_module(name)


def pytest_generate_tests(metafunc):
    if "digits_model" in metafunc.fixturenames:
        names = [model for name in _present for model in example(name).MODELS]
        metafunc.parametrize("digits_model", names)


@pytest.fixture(scope="session")
def digits():
    """The classifier as numpy computes it."""
    return example("digits")


@pytest.fixture(scope="session")
def digits_server(tmp_path_factory):
    """A server with the classifier on every platform whose framework is installed."""
    repository = tmp_path_factory.mktemp("digits")
    for name in _present:
        example(name).export(repository)
    with serve(repository) as server:
        yield server


def serve(repository):
    """Return a context with a server of the models in `repository`, broken ones among them."""
    return server_in_thread(
        ServerConfig(
            model_repository=(str(repository),),
            http_port=0,
            grpc_port=0,
            allow_metrics=False,
            strict_readiness=False,
            exit_on_error=False,
        )
    )


@pytest.fixture
def served():
    """serve(repository) as a fixture for tests that write their own models."""
    return serve


def random_array(dtype, shape, seed=0):
    """Return an array of any dtype with values all over its range."""
    numbers = np.random.default_rng(seed)
    return numbers.integers(0, 100, shape).astype(dtype)
