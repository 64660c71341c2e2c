"""Model repositories, and calls to servers on this machine, for the tests of whole servers."""

import http.client
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

_ECHO = """
backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }
"""
_REQUEST = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [7.0]}]}


@pytest.fixture
def repository(tmp_path):
    """repository(name=config.pbtxt text) writes models with a version 1 and returns the path."""
    root = tmp_path / "models"
    root.mkdir()

    def write(**configs):
        for name, text in configs.items():
            (root / name / "1").mkdir(parents=True)
            (root / name / "config.pbtxt").write_text(text)
        return root

    return write


@pytest.fixture
def echo():
    """echo(parameter=value) is the configuration of a model that gives back what it gets."""
    return lambda **parameters: _ECHO + _parameters(parameters)


@pytest.fixture
def broken():
    """The configuration of a model that cannot be loaded."""
    return 'backend: "faulty"' + _parameters({"fault": "load"})


@pytest.fixture
def body():
    """An inference request for the echo model."""
    return json.dumps(_REQUEST).encode()


@pytest.fixture
def ask():
    """ask(port, path, body) returns status and parsed body; a body makes it a POST."""

    def send(port, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET" if body is None else "POST", path, body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    return send


def _parameters(given):
    return "".join(
        f'\nparameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}'
        for key, value in given.items()
    )
