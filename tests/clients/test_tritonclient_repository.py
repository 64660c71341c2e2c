"""Repository control and configuration with all four of Triton's unmodified clients."""

import asyncio
import json

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from google.protobuf.json_format import MessageToJson
from tritonclient.utils import InferenceServerException

FLAVOURS = {
    "http": (tritonclient.http, tritonclient.http),
    "http.aio": (tritonclient.http.aio, tritonclient.http),
    "grpc": (tritonclient.grpc, tritonclient.grpc),
    "grpc.aio": (tritonclient.grpc.aio, tritonclient.grpc),
}
CONFIG = json.dumps(
    {
        "backend": "identity",
        "max_batch_size": 8,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [2]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [2]}],
    }
)
WRONG = 'parameters { key: "execute_delay_ms" value: { string_value: "no number" } }'
NOT_LOADABLE = {"http": "500", "grpc": "StatusCode.INTERNAL"}
LOAD_FAILED = {"http": "400", "grpc": "StatusCode.INVALID_ARGUMENT"}
UNAVAILABLE = {"http": "503", "grpc": "StatusCode.UNAVAILABLE"}


class Client:
    """One client of any flavour, each method called and waited for."""

    def __init__(self, flavour, server):
        self.kind = flavour.partition(".")[0]
        module, self._tensors = FLAVOURS[flavour]
        self._runner = asyncio.Runner()
        self._client = self._wait(self._made(module, getattr(server, self.kind)))

    async def _made(self, module, address):
        return module.InferenceServerClient(address)  # the aio ones want a running loop

    def _wait(self, outcome):
        if not asyncio.iscoroutine(outcome):
            return outcome
        return self._runner.run(outcome)

    def __getattr__(self, name):
        return lambda *args, **more: self._wait(getattr(self._client, name)(*args, **more))

    def infer(self, model, values):
        array = np.array(values, np.float32)
        tensor = self._tensors.InferInput("INPUT0", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        result = self._wait(self._client.infer(model, [tensor]))
        return result.as_numpy("OUTPUT0").tolist()

    def rows(self, model):
        """The index rows of one model, as dicts."""
        if self.kind == "http":
            found = self.get_model_repository_index()
        else:
            found = self.get_model_repository_index(as_json=True).get("models", [])
        return [row for row in found if row["name"] == model]

    def config(self, model, version=""):
        """The configuration of a model, as a dict."""
        if self.kind == "http":
            return self.get_model_config(model, version)
        return self.get_model_config(model, version, as_json=True)["config"]

    def has_unloaded(self, model):
        """Wait until the model is UNAVAILABLE, because unloaded."""
        for _ in range(10_000):
            [row] = self.rows(model)
            if row["state"] != "UNLOADING":
                return (row["state"], row["reason"]) == ("UNAVAILABLE", "unloaded")
        return False

    def end(self):
        self.close()
        self._runner.close()


@pytest.fixture(params=FLAVOURS)
def flavour(request):
    return request.param


@pytest.fixture
def client(flavour, explicit_server):
    client = Client(flavour, explicit_server)
    yield client
    client.end()


@pytest.fixture
def model(flavour, write_identity):
    """A model in the repository, not loaded, whose name no other test uses."""
    name = f"model of {flavour}"
    write_identity(name)
    return name


def refused(call, status):
    with pytest.raises(InferenceServerException) as caught:
        call()
    assert caught.value.status() == status
    return caught.value.message()


def test_a_model_is_loaded_answers_and_is_unloaded(client, model):
    client.unload_model(model)
    assert not client.is_model_ready(model)
    client.load_model(model)
    assert client.is_model_ready(model)
    [row] = client.rows(model)
    assert (row["version"], row["state"]) == ("1", "READY")
    assert client.infer(model, [7]) == [7]
    client.unload_model(model)
    assert not client.is_model_ready(model)
    assert client.has_unloaded(model)
    assert client.is_server_ready()


def test_a_model_that_never_was_loaded_is_listed_by_its_name(client, flavour, write_identity):
    write_identity(f"lazy {flavour}")
    assert client.rows(f"lazy {flavour}") == [{"name": f"lazy {flavour}"}]


def test_a_load_may_bring_a_configuration(client, model):
    client.load_model(model, config=CONFIG)
    config = client.config(model)
    assert config["max_batch_size"] == 8
    assert client.infer(model, [[1, 2], [3, 4]]) == [[1, 2], [3, 4]]
    client.load_model(model)
    assert client.config(model).get("max_batch_size", 0) == 0
    assert client.infer(model, [5]) == [5]
    client.unload_model(model)


def test_a_load_may_bring_the_files(client, flavour):
    name = f"sent over {flavour}"
    files = {"file:1/weights": b"abc", "file:3/weights": bytes(200_000)}
    client.load_model(name, config=CONFIG, files=files)
    assert client.infer(name, [[1, 2]]) == [[1, 2]]
    [row] = client.rows(name)
    assert (row["version"], row["state"]) == ("3", "READY")
    client.unload_model(name)
    assert not client.is_model_ready(name)


@pytest.mark.parametrize("dependents", [True, False])
def test_unloading_may_take_the_dependents_with_it(client, model, dependents):
    client.load_model(model)
    client.unload_model(model, unload_dependents=dependents)
    assert client.has_unloaded(model)


def test_the_configuration_is_that_of_the_protocol(client, model):
    client.load_model(model)
    for version in ("", "1"):
        config = client.config(model, version)
        assert (config["name"], config["backend"]) == (model, "identity")
        [tensor] = config["input"]
        assert (tensor["name"], tensor["data_type"]) == ("INPUT0", "TYPE_FP32")
        assert [int(dim) for dim in tensor["dims"]] == [1]
        assert config["instance_group"][0]["kind"] == "KIND_CPU"
    client.unload_model(model)


def test_the_configuration_that_is_told_can_be_loaded(client, model):
    client.load_model(model, config=CONFIG)
    told = client.config(model)
    told["instance_group"][0]["count"] = 2
    client.load_model(model, config=json.dumps(told))
    assert client.config(model) == told
    assert client.infer(model, [[1, 2]]) == [[1, 2]]
    client.unload_model(model)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_configuration_may_be_as_protobuf_writes_it(explicit_server, write_identity, is_whole):
    """With names in camel case and 64-bit numbers as strings."""
    model = "as protobuf writes it"
    write_identity(model)
    client = Client("grpc", explicit_server)
    client.load_model(model, config=CONFIG)
    told = client.get_model_config(model).config
    written = MessageToJson(told, always_print_fields_with_no_presence=is_whole)
    assert '"maxBatchSize": 8' in written
    assert '"2"' in written
    client.load_model(model, config=written)
    assert client.get_model_config(model).config == told
    assert client.infer(model, [[1, 2]]) == [[1, 2]]
    client.unload_model(model)
    client.end()


def test_an_unload_of_what_is_not_there_is_no_error(client):
    client.unload_model("nobody")


def test_a_load_of_what_is_not_there_is_an_error(client):
    message = refused(lambda: client.load_model("nobody"), NOT_LOADABLE[client.kind])
    assert "failed to load 'nobody'" in message


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "a/b", "..%2fsecret"])
def test_a_path_is_not_loaded(client, name):
    with pytest.raises(InferenceServerException) as caught:
        client.load_model(name)
    words = caught.value.message()
    assert "is no name of a model" in words or "there is no" in words


def test_a_failed_reload_keeps_what_serves(client, flavour, model, write_identity):
    client.load_model(model)
    write_identity(
        model, "1", 'parameters { key: "execute_delay_ms" value: { string_value: "x" } }'
    )
    message = refused(lambda: client.load_model(model), LOAD_FAILED[client.kind])
    assert "load failed for model" in message
    assert client.infer(model, [7]) == [7]
    client.unload_model(model)


@pytest.mark.parametrize("config", ["{", "[]", '{"max_batch_size": "many"}', '{"zz": 1}'])
def test_a_configuration_that_is_none_is_refused(client, model, config):
    refused(lambda: client.load_model(model, config=config), LOAD_FAILED[client.kind])
    assert not client.is_model_ready(model)


def test_the_configuration_of_what_is_not_there_is_an_error(client):
    status = {"http": "404", "grpc": "StatusCode.NOT_FOUND"}[client.kind]
    refused(lambda: client.get_model_config("nobody"), status)


def test_where_clients_do_not_control_models_they_are_told_so(flavour, server):
    client = Client(flavour, server)
    for call in (client.load_model, client.unload_model):
        message = refused(lambda: call("add_sub"), UNAVAILABLE[client.kind])  # noqa: B023
        assert "--model-control-mode=explicit" in message
    [row] = client.rows("add_sub")
    assert row["state"] == "READY"
    client.end()
