"""KServe's InferenceGRPCClient, whole."""

from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest
from kserve import InferenceGRPCClient

TYPED = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
TYPED += ["FP32", "FP64"]
FLOATS = np.array([[1.5, -2.25], [0.0, 3e38]], np.float32)


@asynccontextmanager
async def client_of(server, **more):
    if server.ca:
        more |= {"use_ssl": True, "root_certificates": server.ca}
    async with InferenceGRPCClient(server.grpc, **more) as client:
        yield client


async def test_server_and_models_are_live_and_ready(anywhere):
    async with client_of(anywhere) as client:
        assert await client.is_server_live() is True
        assert await client.is_server_ready() is True
        assert await client.is_model_ready("echo_FP32") is True


async def test_a_model_nobody_has_is_not_ready(two_ports):
    async with client_of(two_ports) as client:
        assert await client.is_model_ready("nobody") is False


@pytest.mark.parametrize("datatype", [*TYPED, "FP16", "BYTES"])
@pytest.mark.parametrize("binary", [False, True])
async def test_every_datatype_comes_back(two_ports, ask, samples, values, datatype, binary):
    if datatype not in TYPED:
        binary = True  # the client cannot put these two into typed contents
    request = ask(samples[datatype], datatype, binary=binary, request_id="42")
    async with client_of(two_ports) as client:
        answer = await client.infer(request)
    assert (answer.id, answer.model_name) == ("42", f"echo_{datatype}")
    [output] = answer.outputs
    shape = list(samples[datatype].shape)
    assert (output.name, output.datatype, list(output.shape)) == ("OUTPUT0", datatype, shape)
    assert values(output.as_numpy()) == values(samples[datatype])


async def test_deadlines_headers_and_limits_are_taken(anywhere, ask):
    request = ask(np.zeros((1000, 1000), np.float32), binary=True)
    async with client_of(anywhere, timeout=5, retries=0) as client:
        answer = await client.infer(request, timeout=30, headers=(("x-request-id", "1"),))
    assert not answer.outputs[0].as_numpy().any()


async def test_errors_are_statuses_with_words(two_ports, ask):
    async with client_of(two_ports) as client:
        request = ask(FLOATS, binary=True)
        request.model_name = "nobody"
        with pytest.raises(grpc.aio.AioRpcError, match="nobody") as caught:
            await client.infer(request)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        wrong = ask(np.array([[1, 2]], np.int32), "INT32", binary=True)
        wrong.model_name = "echo_FP32"
        with pytest.raises(grpc.aio.AioRpcError, match="INT32") as caught:
            await client.infer(wrong)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
