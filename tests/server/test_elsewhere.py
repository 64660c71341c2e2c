"""Servers as on macOS and Windows: run.py takes away what those lack."""

import http.client
import json
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from server_process import LIVE, ON_FREE_PORTS, Process
from tritonclient.utils import InferenceServerException

RUN = Path(__file__).parents[1] / "support/elsewhere/run.py"
SYSTEMS = ("macos", "windows")
MODELS = Path(__file__).parents[2] / "examples/digits/models"

DOUBLE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", 2 * self.values(one))])
            for one in requests
        ]

    def values(self, request):
        return pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
"""
IN_PYTHON = """
backend: "python"
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
"""
BATCHED = """
backend: "identity"
max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 500 }
input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }
"""


@contextmanager
def serving(system, *arguments):
    """A server as on `system`: (process, its HTTP port, its gRPC port)."""
    process = Process(*arguments, *ON_FREE_PORTS, command=(str(RUN), system, "serve"))
    try:
        live = process.wait_for(LIVE)
        process.wait_for(r"\b(ready$|not ready)")
        yield process, int(live[1]), int(live[2])
        process.process.send_signal(signal.SIGINT)
        assert process.end() == 0, process.said
    finally:
        process.process.kill()
        process.process.wait()
        process.process.stdout.close()


def put(port, path, body, headers=None):
    """POST; return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def given(module, values):
    """The input of a model, for the client in `module`."""
    one = module.InferInput("INPUT0", list(values.shape), "FP32")
    one.set_data_from_numpy(values)
    return one


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_server_answers_over_all_protocols(system, repository, echo):
    with serving(system, repository(echo=echo(), batched=BATCHED)) as (_, port, grpc_port):
        body = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[7]}]}'
        status, answer = put(port, "/v2/models/echo/infer", body)
        assert (status, json.loads(answer)["outputs"][0]["data"]) == (200, [7.0])
        one = np.array([[1.5]], np.float32)
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}") as client:
            result = client.infer("batched", [given(tritonclient.http, one)])
            assert result.as_numpy("OUTPUT0").tolist() == [[1.5]]
            assert "system_shared_memory" not in client.get_server_metadata()["extensions"]
            with pytest.raises(InferenceServerException, match="needs a server on 64-bit Linux"):
                client.register_system_shared_memory("region", "/key", 64)
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
            result = client.infer("batched", [given(tritonclient.grpc, one)])
            assert result.as_numpy("OUTPUT0").tolist() == [[1.5]]
        old = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }'
        status, answer = put(port, "/api/infer/echo", bytes(4), {"NV-InferRequest": old})
        assert (status, answer[:4]) == (200, bytes(4))


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_onnx_model_is_served(system):
    with (
        serving(system, MODELS) as (_, port, _),
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}") as client,
    ):
        metadata = client.get_model_metadata("digits")
        [image], [digit, *_] = metadata["inputs"], metadata["outputs"]
        shape = [1, *image["shape"][1:]]
        wanted = tritonclient.http.InferInput(image["name"], shape, "FP32")
        wanted.set_data_from_numpy(np.zeros(shape, np.float32))
        assert client.infer("digits", [wanted]).as_numpy(digit["name"]).size


def test_models_in_python_have_processes_on_macos(repository):
    folder = repository(double=IN_PYTHON)
    (folder / "double/1/model.py").write_text(DOUBLE)
    with (
        serving("macos", folder) as (_, port, _),
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}", concurrency=8) as client,
    ):
        # More than the socket holds, and more than the memory that is always mapped.
        for count in (1, 4_000, 200_000, 20_000_000):
            values = np.arange(count, dtype=np.float32)
            result = client.infer("double", [given(tritonclient.http, values)])
            assert (result.as_numpy("OUTPUT0") == values * 2).all()
        several = [np.full(3_000 + n, n, np.float32) for n in range(32)]
        calls = [client.async_infer("double", [given(tritonclient.http, one)]) for one in several]
        for call, values in zip(calls, several, strict=True):
            assert (call.get_result().as_numpy("OUTPUT0") == values * 2).all()


def test_models_in_python_need_another_system_than_windows(repository):
    folder = repository(double=IN_PYTHON)
    (folder / "double/1/model.py").write_text(DOUBLE)
    with serving("windows", folder, "--exit-on-error=false") as (process, port, _):
        status, answer = put(port, "/v2/models/double/infer", b"{}")
        assert status in (400, 404, 503)
        assert b"need Linux or macOS" in answer
        assert "need Linux or macOS" in process.said


@pytest.mark.parametrize("system", SYSTEMS)
def test_several_processes_need_linux(system, repository, echo):
    process = Process(
        repository(echo=echo()), "--workers=2", *ON_FREE_PORTS, command=(str(RUN), system, "serve")
    )
    assert process.end() != 0
    process.process.stdout.close()
    assert "--workers=2 needs Linux" in process.said


def test_unix_sockets_need_another_system_than_windows(repository, echo, tmp_path):
    path = f"--http-unix-socket={tmp_path / 'socket'}"
    process = Process(
        repository(echo=echo()), path, *ON_FREE_PORTS, command=(str(RUN), "windows", "serve")
    )
    assert process.end() == 1
    process.process.stdout.close()
    assert "--http-unix-socket" in process.said
    assert "address family not supported" in process.said
    assert "Traceback" not in process.said


@pytest.mark.parametrize(("system", "told"), [("macos", "darwin"), ("windows", "win32")])
def test_confined_workers_need_linux(system, told, repository, echo):
    arguments = (repository(echo=echo()), "--confine-workers=on", *ON_FREE_PORTS)
    process = Process(*arguments, command=(str(RUN), system, "serve"))
    assert process.end() == 1
    process.process.stdout.close()
    assert f"--confine-workers=on needs Linux 6.12 or newer with Landlock: this is {told}" in (
        process.said
    )
    assert "Traceback" not in process.said


@pytest.mark.parametrize("system", SYSTEMS)
def test_routing_needs_linux(system, tmp_path):
    places = tmp_path / "places.json"
    places.write_text('{"places": [{"host": "127.0.0.1", "http_port": 1, "grpc_port": 2}]}')
    process = Process(f"--places={places}", command=(str(RUN), system, "route"))
    assert process.end() != 0
    process.process.stdout.close()
    assert "inferd route needs Linux" in process.said
    assert "Traceback" not in process.said


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("verb", ["check", "config", "infer", "bench", "tune", "replay", "models"])
def test_every_command_is_there(system, verb):
    process = Process("--help", command=(str(RUN), system, verb), program=sys.executable)
    assert process.end() == 0, process.said
    process.process.stdout.close()
