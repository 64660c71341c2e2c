"""The client that is generated from the protocol's OpenAPI file, whole, and its errors."""

import ssl

import httpx
import pytest
from open_inference.openapi.client import AsyncOpenInferenceClient, OpenInferenceClient
from open_inference.openapi.core.api_error import ApiError
from open_inference.openapi.errors import BadRequestError, NotFoundError
from open_inference.openapi.types import InferenceRequest, RequestInput, RequestOutput, TensorData

VALUES = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, 2**32 - 1],
    "UINT64": [0, 2**53],
    "INT8": [-128, 127],
    "INT16": [-(2**15), 2**15 - 1],
    "INT32": [-(2**31), 2**31 - 1],
    "INT64": [-(2**53), 2**53],
    "FP16": [1.5, -2.0],
    "FP32": [1.5, -2.0],
    "FP64": [0.1, 1e300],
    "BYTES": ["one", "é"],
}
"""As the client sends them: every number as a float, and so true and false."""


def echo(datatype="FP32", data=(1.5, 2.5), shape=(1, 2), **more):
    values = TensorData(__root__=list(data))
    tensor = RequestInput(name="INPUT0", shape=list(shape), datatype=datatype, data=values)
    return InferenceRequest(inputs=[tensor], **more)


@pytest.fixture
def client(anywhere):
    """A client of each server."""
    context = ssl.create_default_context(cafile=anywhere.ca)
    with httpx.Client(verify=context, timeout=30) as transport:
        yield OpenInferenceClient(base_url=anywhere.url, httpx_client=transport)


def test_health_says_nothing_but_yes(client):
    client.check_server_liveness()
    client.check_server_readiness()
    client.check_model_readiness("echo_FP32")
    client.check_model_version_readiness("echo_FP32", "1")
    with pytest.raises(NotFoundError):
        client.check_model_readiness("nobody")


def test_metadata_has_its_types(client):
    assert "binary_tensor_data" in client.read_server_metadata().extensions
    metadata = client.read_model_metadata("echo_FP32")
    assert (metadata.name, metadata.versions) == ("echo_FP32", ["1"])
    [tensor] = metadata.inputs
    assert (tensor.name, tensor.datatype, tensor.shape) == ("INPUT0", "FP32", [-1, -1])
    assert client.read_model_version_metadata("echo_FP32", "1") == metadata
    with pytest.raises(ApiError) as caught:
        client.read_model_metadata("nobody")
    assert caught.value.status_code == 404
    assert "nobody" in caught.value.body["error"]


@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype_comes_back(client, datatype):
    answer = client.model_infer(f"echo_{datatype}", request=echo(datatype, VALUES[datatype]))
    [output] = answer.outputs
    assert (output.name, output.datatype, output.shape) == ("OUTPUT0", datatype, [1, 2])
    assert output.data.__root__ == VALUES[datatype]


def test_a_version_an_id_and_outputs_are_told(client):
    request = echo(id="42", outputs=[RequestOutput(name="OUTPUT0")], parameters={"mine": True})
    answer = client.model_version_infer("echo_FP32", "1", request=request)
    assert (answer.model_name, answer.model_version, answer.id) == ("echo_FP32", "1", "42")


def test_a_wrong_request_is_a_bad_request(client):
    with pytest.raises(BadRequestError) as caught:
        client.model_infer("echo_FP32", request=echo(shape=(1, 3)))
    assert "INPUT0" in caught.value.body["error"]


async def test_the_asynchronous_client_asks_the_same(two_ports):
    client = AsyncOpenInferenceClient(base_url=two_ports.url)
    await client.check_server_readiness()
    answer = await client.model_infer("echo_FP32", request=echo())
    assert answer.outputs[0].data.__root__ == [1.5, 2.5]
    await client._client_wrapper.httpx_client.aclose()
