"""The client, loaded once, and its contexts for both protocols."""

import importlib
import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.message import Message

HERE = Path(__file__).parent


def _parse_bytes(self, array):
    """The client hands over ctypes arrays: C++ protobuf reads them, Python's wants bytes."""
    self.Clear()
    return self.MergeFromString(bytes(array))


Message.ParseFromString = _parse_bytes


def _sibling(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def api(tmp_path_factory):
    """The module tensorrtserver.api."""
    package = Path(importlib.util.find_spec("tensorrtserver").origin).parent
    _sibling("old_openssl").load(package / "api", tmp_path_factory.mktemp("openssl"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its time
        return importlib.import_module("tensorrtserver.api")


@pytest.fixture(params=["http", "grpc"])
def place(request, api, two_ports):
    """(URL, protocol): where and how a context talks to the server, each way in turn."""
    if request.param == "http":
        return two_ports.url.split("//")[1], api.ProtocolType.HTTP
    return two_ports.grpc, api.ProtocolType.GRPC


@pytest.fixture
def context(api, place):
    """context(model, ...) is an InferContext, closed at the end."""
    opened = []

    def build(model, **more):
        opened.append(api.InferContext(*place, model, -1, **more))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


@pytest.fixture
def rows():
    """Eight rows of three numbers."""
    return list(np.arange(24, dtype=np.float32).reshape(8, 3))
