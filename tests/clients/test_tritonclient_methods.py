"""Every public method of all four of tritonclient's InferenceServerClients, called and checked.

The table is `CHECKS`; a method that a new tritonclient brings fails until it has a line there.
"""

import asyncio
import http.client
import inspect
import json
import os
import queue
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

import inferd

FLAVOURS = {
    "http": tritonclient.http,
    "http.aio": tritonclient.http.aio,
    "grpc": tritonclient.grpc,
    "grpc.aio": tritonclient.grpc.aio,
}
ECHO = """
backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
"""
KEY = f"/test_inferd_methods_{os.getpid()}"
VALUES = np.array([1.5, -2.25, 3e38], np.float32)


def methods_of(flavour):
    client = FLAVOURS[flavour].InferenceServerClient
    return [name for name, _ in inspect.getmembers(client, callable) if name[0] != "_"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory, start_for_module):
    """Servers whose models and settings change, by their gRPC transport."""
    root = tmp_path_factory.mktemp("methods")
    for name in ("echo", "spare"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(ECHO)
    flags = ("--model-control-mode=explicit", "--load-model=echo")
    return {
        transport: start_for_module(*flags, f"--grpc-transport={transport}", models=root)
        for transport in ("own", "grpcio")
    }


class Watched:
    """A client as if it were blocking and answered in dictionaries, whichever flavour it is.

    `called` are the methods that were called. Coroutines run to their end.
    """

    def __init__(self, flavour, server):
        self.flavour = flavour
        self.module = FLAVOURS[flavour]
        self.server = server
        self.is_http = flavour.startswith("http")
        self.called = set()
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._made())

    async def _made(self):
        address = self.server.http if self.is_http else self.server.grpc
        return self.module.InferenceServerClient(address)

    def __getattr__(self, name):
        method = getattr(self._client, name)
        as_json = {"as_json": True} if "as_json" in inspect.signature(method).parameters else {}

        def call(*args, **kwargs):
            self.called.add(name)
            found = method(*args, **as_json, **kwargs)
            if inspect.isawaitable(found):
                return self._runner.run(_finished(found))
            if hasattr(found, "__aiter__"):
                return self._runner.run(_all_of(found))
            return found

        return call

    def end(self):
        """Leave nothing open."""
        found = self._client.close()
        if inspect.isawaitable(found):
            self._runner.run(found)
        self._runner.close()

    def input(self, values=VALUES):
        made = self.module.InferInput("INPUT0", [len(values)], "FP32")
        made.set_data_from_numpy(values)
        return made

    def output(self):
        return self.module.InferRequestedOutput("OUTPUT0")


async def _finished(awaitable):
    return await awaitable


async def _all_of(answers):
    return [answer async for answer in answers]


@contextmanager
def refused(*words):
    with pytest.raises(InferenceServerException) as caught:
        yield
    for word in words:
        assert word in caught.value.message()


def settings(told):
    """Trace or log settings as HTTP has them, wherever they come from."""
    if "settings" not in told:
        return told
    found = {}
    for name, value in told["settings"].items():
        [one] = value.values() or [[]]
        found[name] = one[0] if isinstance(one, list) and len(one) == 1 else one
    return found


def regions(told):
    """Status of shared memory regions by name, wherever it comes from."""
    return {one["name"]: one for one in told} if isinstance(told, list) else told["regions"]


def are_the_values(result):
    return np.array_equal(result.as_numpy("OUTPUT0"), VALUES)


# --- health, metadata ---


def is_server_live(client):
    assert client.is_server_live() is True


def is_server_ready(client):
    assert client.is_server_ready() is True


def is_model_ready(client):
    assert client.is_model_ready("echo") is True
    assert client.is_model_ready("echo", "1") is True
    assert client.is_model_ready("echo", "7") is False
    assert client.is_model_ready("nobody") is False


def get_server_metadata(client):
    told = client.get_server_metadata()
    assert (told["name"], told["version"]) == ("inferd", inferd.__version__)
    assert {"model_repository", "statistics", "binary_tensor_data"} <= set(told["extensions"])


def get_model_metadata(client):
    told = client.get_model_metadata("echo")
    assert (told["name"], told["versions"]) == ("echo", ["1"])
    for tensors, name in ((told["inputs"], "INPUT0"), (told["outputs"], "OUTPUT0")):
        [tensor] = tensors
        assert (tensor["name"], tensor["datatype"]) == (name, "FP32")
        assert [int(size) for size in tensor["shape"]] == [-1]
    with refused("nobody"):
        client.get_model_metadata("nobody")


def get_model_config(client):
    told = client.get_model_config("echo", "1")
    config = told if client.is_http else told["config"]
    assert (config["name"], config["backend"]) == ("echo", "identity")
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    with refused("nobody"):
        client.get_model_config("nobody")


# --- repository ---


def get_model_repository_index(client):
    told = client.get_model_repository_index()
    rows = told if client.is_http else told["models"]
    [row] = [row for row in rows if row["name"] == "echo"]
    assert (row["version"], row["state"]) == ("1", "READY")
    assert any(row["name"] == "spare" for row in rows)


def load_model(client):
    assert client.load_model("spare") is None
    assert client.is_model_ready("spare")
    config = {"backend": "identity", "max_batch_size": 4}
    tensor = {"data_type": "TYPE_FP32", "dims": [2]}
    config["input"] = [{"name": "INPUT0", **tensor}]
    config["output"] = [{"name": "OUTPUT0", **tensor}]
    client.load_model("spare", config=json.dumps(config))
    told = client.get_model_config("spare")
    assert (told if client.is_http else told["config"])["max_batch_size"] == 4
    client.load_model("sent", config=json.dumps(config), files={"file:1/anything": b"content"})
    assert client.is_model_ready("sent", "1")
    client.unload_model("sent")
    client.unload_model("spare")
    with refused("nobody"):
        client.load_model("nobody")


def unload_model(client):
    client.load_model("spare")
    assert client.unload_model("spare") is None
    assert not client.is_model_ready("spare")
    client.unload_model("spare", unload_dependents=True)


# --- statistics, traces, logs ---


def get_inference_statistics(client):
    def count():
        [row] = client.get_inference_statistics("echo", "1")["model_stats"]
        assert (row["name"], row["version"]) == ("echo", "1")
        return int(row.get("inference_count", 0))

    before = count()
    client.infer("echo", [client.input()])
    assert count() == before + 1
    assert [row["name"] for row in client.get_inference_statistics()["model_stats"]] == ["echo"]


def get_trace_settings(client):
    told = settings(client.get_trace_settings())
    assert told["trace_level"] in ("OFF", ["OFF"])
    assert int(told["trace_rate"]) > 0
    assert settings(client.get_trace_settings(model_name="echo")).keys() == told.keys()


def update_trace_settings(client):
    told = client.update_trace_settings(settings={"trace_rate": "7"})
    assert settings(told)["trace_rate"] == "7"
    told = client.update_trace_settings(model_name="echo", settings={"trace_rate": "9"})
    assert settings(told)["trace_rate"] == "9"
    assert settings(client.get_trace_settings())["trace_rate"] == "7"
    assert settings(client.get_trace_settings("echo"))["trace_rate"] == "9"
    for model_name, rate in (("echo", "7"), (None, "1000")):
        client.update_trace_settings(model_name, {"trace_rate": None})
        assert settings(client.get_trace_settings(model_name))["trace_rate"] == rate


def get_log_settings(client):
    told = settings(client.get_log_settings())
    assert (told["log_info"], told["log_error"]) == (True, True)
    assert told["log_format"] == "default"


def update_log_settings(client):
    told = settings(client.update_log_settings({"log_verbose_level": 1, "log_info": False}))
    assert (told["log_verbose_level"], told.get("log_info", False)) == (1, False)
    client.update_log_settings({"log_verbose_level": 0, "log_info": True})
    assert settings(client.get_log_settings())["log_info"] is True
    with refused("log_format"):
        client.update_log_settings({"log_format": "rhymes"})


# --- shared memory ---


@contextmanager
def shared_region(client):
    """A region `in` with VALUES and room for them behind; it is known to the server."""
    size = VALUES.nbytes
    handle = shm.create_shared_memory_region("in", KEY, 2 * size, create_only=True)
    try:
        shm.set_shared_memory_region(handle, [VALUES])
        assert client.register_system_shared_memory("in", KEY, 2 * size) is None
        yield handle
    finally:
        client.unregister_system_shared_memory("in")
        shm.destroy_shared_memory_region(handle)
        assert not Path(f"/dev/shm{KEY}").exists()


def register_system_shared_memory(client):
    size = VALUES.nbytes
    with shared_region(client) as handle:
        given, wanted = client.input(), client.output()
        given.set_shared_memory("in", size)
        wanted.set_shared_memory("in", size, size)
        client.infer("echo", [given], outputs=[wanted])
        assert np.array_equal(shm.get_contents_as_numpy(handle, np.float32, [3], size), VALUES)
        with refused("in"):
            client.register_system_shared_memory("in", KEY, size)
    with refused("Unable to open shared memory region"):
        client.register_system_shared_memory("none", "/test_inferd_no_such_key", 64)


def get_system_shared_memory_status(client):
    with shared_region(client):
        for told in (
            client.get_system_shared_memory_status(),
            client.get_system_shared_memory_status("in"),
        ):
            [one] = regions(told).values()
            assert (one["name"], one["key"]) == ("in", KEY)
            assert int(one["byte_size"]) == 2 * VALUES.nbytes
    with refused("gone"):
        client.get_system_shared_memory_status("gone")


def unregister_system_shared_memory(client):
    with shared_region(client):
        assert client.unregister_system_shared_memory("in") is None
        assert not client.get_system_shared_memory_status()
        client.unregister_system_shared_memory()


def register_cuda_shared_memory(client):
    with refused("gpu"):  # no GPU, or not a handle one has given
        client.register_cuda_shared_memory("gpu", b"A" * 88, 0, 64)


def get_cuda_shared_memory_status(client):
    assert not client.get_cuda_shared_memory_status()
    with refused("gone"):
        client.get_cuda_shared_memory_status("gone")


def unregister_cuda_shared_memory(client):
    assert client.unregister_cuda_shared_memory("gone") is None
    assert client.unregister_cuda_shared_memory() is None


# --- inference ---


def infer(client):
    coded = (
        {"request_compression_algorithm": "gzip", "response_compression_algorithm": "deflate"}
        if client.is_http
        else {"compression_algorithm": "gzip"}
    )
    result = client.infer(
        "echo",
        [client.input()],
        model_version="1",
        outputs=[client.output()],
        request_id="42",
        priority=1,
        timeout=10_000_000,
        headers={"x-test": "yes"},
        parameters={"text": "a", "count": 3, "yes": True},
        **coded,
    )
    assert are_the_values(result)
    told = result.get_response() if client.is_http else result.get_response(as_json=True)
    assert (told["id"], told["model_name"], told["model_version"]) == ("42", "echo", "1")
    with refused("nobody"):
        client.infer("nobody", [client.input()])


def async_infer(client):
    if client.is_http:
        asked = [client.async_infer("echo", [client.input()]) for _ in range(3)]
        assert all(are_the_values(one.get_result()) for one in asked)
        return
    answers = queue.Queue()
    for _ in range(3):
        client.async_infer(
            "echo", [client.input()], lambda result, error: answers.put((result, error))
        )
    for _ in range(3):
        result, error = answers.get(timeout=20)
        assert error is None and are_the_values(result)


def generate_request_body(client):
    client.called.add("generate_request_body")
    body, json_size = client.module.InferenceServerClient.generate_request_body(
        [client.input()], request_id="by hand"
    )
    connection = http.client.HTTPConnection(client.server.http, timeout=20)
    headers = {"Inference-Header-Content-Length": str(json_size)}
    connection.request("POST", "/v2/models/echo/infer", body, headers)
    answer = connection.getresponse()
    client.called.add("parse_response_body")
    result = client.module.InferenceServerClient.parse_response_body(
        answer.read(), header_length=int(answer.headers["Inference-Header-Content-Length"])
    )
    connection.close()
    assert result.get_response()["id"] == "by hand" and are_the_values(result)


def streams(client):
    answers = queue.Queue()
    assert client.start_stream(lambda result, error: answers.put((result, error))) is None
    for number in range(5):
        client.async_stream_infer("echo", [client.input()], request_id=str(number))
    client.async_stream_infer("nobody", [client.input()])
    for number in range(5):
        result, error = answers.get(timeout=20)
        assert error is None and are_the_values(result)
        assert result.get_response().id == str(number)
    result, error = answers.get(timeout=20)
    assert result is None and "nobody" in str(error)
    assert client.stop_stream() is None


def stream_infer(client):
    async def questions():
        for number in range(5):
            yield {"model_name": "echo", "inputs": [client.input()], "request_id": str(number)}
        yield {"model_name": "nobody", "inputs": [client.input()]}

    *good, (result, error) = client.stream_infer(questions())
    assert [result.get_response().id for result, _ in good] == ["0", "1", "2", "3", "4"]
    assert all(are_the_values(result) for result, _ in good)
    assert result is None and "nobody" in str(error)


# --- the client's own affairs ---


def plugins(client):
    asked = []

    class Plugin(tritonclient.http.InferenceServerClientPlugin):
        def __call__(self, request):
            asked.append(dict(request.headers))
            request.headers["authorization"] = "Bearer token"

    plugin = Plugin()
    assert client.plugin() is None
    client.register_plugin(plugin)
    assert client.plugin() is plugin
    assert client.is_server_live() is True
    assert are_the_values(client.infer("echo", [client.input()], headers={"x-test": "yes"}))
    client.unregister_plugin()
    assert client.is_server_live() is True
    assert [one.get("x-test") for one in asked] == [None, "yes"]


def close(client):
    assert client.is_server_live() is True
    assert client.close() is None


CHECKS = {
    check.__name__: check
    for check in (
        is_server_live,
        is_server_ready,
        is_model_ready,
        get_server_metadata,
        get_model_metadata,
        get_model_config,
        get_model_repository_index,
        load_model,
        unload_model,
        get_inference_statistics,
        get_trace_settings,
        update_trace_settings,
        get_log_settings,
        update_log_settings,
        register_system_shared_memory,
        get_system_shared_memory_status,
        unregister_system_shared_memory,
        register_cuda_shared_memory,
        get_cuda_shared_memory_status,
        unregister_cuda_shared_memory,
        infer,
        async_infer,
        generate_request_body,
        stream_infer,
        close,
    )
}
CHECKS["parse_response_body"] = generate_request_body
CHECKS |= dict.fromkeys(("start_stream", "async_stream_infer", "stop_stream"), streams)
CHECKS |= dict.fromkeys(("plugin", "register_plugin", "unregister_plugin"), plugins)
"""What each method is asked, and what must come of it."""


CASES = [("own", flavour, method) for flavour in FLAVOURS for method in methods_of(flavour)]
CASES += [("grpcio", flavour, method) for _, flavour, method in CASES if flavour[:4] == "grpc"]


@pytest.mark.parametrize(("transport", "flavour", "method"), CASES)
def test_every_method_does_what_it_says(servers, transport, flavour, method):
    check = CHECKS.get(method)
    assert check is not None, f"tritonclient.{flavour} has a method nobody calls here: {method}"
    client = Watched(flavour, servers[transport])
    try:
        check(client)
    finally:
        client.end()
    assert method in client.called


def test_the_table_has_no_methods_that_no_client_has():
    assert set(CHECKS) == {method for flavour in FLAVOURS for method in methods_of(flavour)}


def test_a_method_without_a_line_is_found(monkeypatch):
    class Newer(tritonclient.http.InferenceServerClient):
        def get_something_new(self):
            """As a later version may have."""

    monkeypatch.setitem(FLAVOURS, "newer", SimpleNamespace(InferenceServerClient=Newer))
    assert set(methods_of("newer")) - set(CHECKS) == {"get_something_new"}
