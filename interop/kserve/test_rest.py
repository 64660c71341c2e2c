"""KServe's InferenceRESTClient, whole."""

import ssl
from contextlib import asynccontextmanager

import httpx
import numpy as np
import pytest
from kserve import InferenceRESTClient
from kserve.inference_client import RESTConfig
from kserve.protocol.infer_type import RequestedOutput

NAMES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
NAMES += ["FP16", "FP32", "FP64", "BYTES"]
FLOATS = np.array([[1.5, -2.25], [0.0, 3e38]], np.float32)


@asynccontextmanager
async def client_of(server, **more):
    verify = ssl.create_default_context(cafile=server.ca)
    client = InferenceRESTClient(RESTConfig(protocol="v2", verify=verify, **more))
    try:
        yield client
    finally:
        await client.close()


async def test_the_server_is_live_and_ready(anywhere):
    async with client_of(anywhere) as client:
        assert await client.is_server_live(anywhere.url) is True
        assert await client.is_server_ready(anywhere.url) is True


async def test_models_are_ready_or_not(anywhere):
    async with client_of(anywhere) as client:
        assert await client.is_model_ready(anywhere.url, "echo_FP32") is True
        assert await client.is_model_ready(anywhere.url, "nobody") is False


@pytest.mark.parametrize("datatype", NAMES)
@pytest.mark.parametrize("binary", [False, True])
async def test_every_datatype_comes_back(two_ports, ask, samples, values, datatype, binary):
    if datatype == "FP16":
        binary = True  # the client itself refuses to put it into JSON
    request = ask(samples[datatype], datatype, binary=binary)
    async with client_of(two_ports) as client:
        answer = await client.infer(two_ports.url, request, model_name=request.model_name)
    assert answer.model_name == f"echo_{datatype}"
    [output] = answer.outputs
    shape = list(samples[datatype].shape)
    assert (output.name, output.datatype, output.shape) == ("OUTPUT0", datatype, shape)
    assert values(output.as_numpy()) == values(samples[datatype])


@pytest.mark.parametrize("wanted", [None, False, True])
async def test_outputs_come_as_they_are_asked_for(two_ports, ask, wanted):
    outputs = [RequestedOutput("OUTPUT0", None if wanted is None else {"binary_data": wanted})]
    request = ask(FLOATS, binary=True, request_outputs=outputs, request_id="42")
    headers = {}
    async with client_of(two_ports) as client:
        answer = await client.infer(
            two_ports.url, request, model_name="echo_FP32", response_headers=headers
        )
    assert answer.id == "42"
    assert ("inference-header-content-length" in headers) == bool(wanted)
    assert np.array_equal(answer.get_output_by_name("OUTPUT0").as_numpy(), FLOATS)


async def test_a_dictionary_and_parameters_are_sent_as_json(anywhere):
    request = {
        "id": "a dictionary",
        "inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [[0.5, 1]]}],
        "parameters": {"anything": "goes", "count": 3, "yes": True},
    }
    async with client_of(anywhere) as client:
        answer = await client.infer(anywhere.url, request, model_name="echo_FP32")
    assert answer.id == "a dictionary"
    assert answer.outputs[0].data == [0.5, 1.0]


async def test_http_2_is_spoken_where_it_is_agreed_on(tls, ask):
    async with client_of(tls, http2=True) as client:
        request = ask(FLOATS, binary=True)
        answer = await client.infer(tls.url, request, model_name="echo_FP32")
    assert np.array_equal(answer.outputs[0].as_numpy(), FLOATS)


async def test_the_words_of_an_error_reach_the_user(two_ports, ask):
    async with client_of(two_ports) as client:
        with pytest.raises(httpx.HTTPStatusError, match=r"nobody.* '404 Not Found'"):
            await client.infer(two_ports.url, ask(FLOATS, binary=False), model_name="nobody")
        wrong = ask(np.array([[1, 2]], np.int32), "INT32", binary=True)
        with pytest.raises(httpx.HTTPStatusError, match=r"INPUT0.*INT32.*FP32.* '400 Bad Request'"):
            await client.infer(two_ports.url, wrong, model_name="echo_FP32")
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            await client.infer(
                two_ports.url + "/elsewhere", ask(FLOATS, binary=True), model_name="echo_FP32"
            )
