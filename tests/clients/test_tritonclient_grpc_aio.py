"""Unmodified tritonclient.grpc.aio against a real server.

What it itself refuses is what tritonclient.grpc refuses.
"""

import asyncio
import contextlib

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tritonclient.grpc import InferInput, InferRequestedOutput
from tritonclient.grpc.auth import BasicAuth
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import inferd


@pytest.fixture
def with_client(server):
    """with_client(coroutine function) runs it with a client and returns what it returns."""

    def run(scenario):
        async def scene():
            async with triton.InferenceServerClient(server.grpc) as client:
                return await scenario(client)

        return asyncio.run(scene())

    return run


def tensor(name, array):
    """Return an input."""
    datatype = np_to_triton_dtype(array.dtype)
    return InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


@contextlib.contextmanager
def refused(status, *words):
    """Expect an InferenceServerException of this status whose message has these words."""
    with pytest.raises(InferenceServerException) as caught:
        yield
    assert caught.value.status() == f"StatusCode.{status}"
    for word in words:
        assert word in caught.value.message()


def test_the_server_tells_of_itself_and_its_models(with_client):
    async def scenario(client):
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("mymodel")
        assert await client.is_model_ready("mymodel", "2")
        assert not await client.is_model_ready("nobody")
        metadata = await client.get_server_metadata(as_json=True)
        assert (metadata["name"], metadata["version"]) == ("inferd", inferd.__version__)
        metadata = await client.get_model_metadata("mymodel", "1")
        assert list(metadata.versions) == ["1"]
        with refused("NOT_FOUND", "nobody"):
            await client.get_model_metadata("nobody")
        with refused("NOT_FOUND", "mymodel", "7"):
            await client.get_model_metadata("mymodel", "7")

    with_client(scenario)


def test_each_datatype_comes_back_bit_for_bit(with_client, same, sample):
    async def scenario(client):
        for kind in ("flat", "batch"):
            for outputs in (None, [InferRequestedOutput("OUTPUT0")]):
                inputs = [tensor("INPUT0", sample.array)]
                result = await client.infer(f"{kind}_{sample.datatype}", inputs, outputs=outputs)
                same(result.as_numpy("OUTPUT0"), sample.array)

    with_client(scenario)


@pytest.mark.slow
def test_all_arguments_are_accepted(with_client):
    array = np.arange(300_000, dtype=np.float32).reshape(60, 5000)

    async def scenario(client):
        client.register_plugin(BasicAuth("user", "password"))
        for coding in (None, "gzip", "deflate"):
            result = await client.infer(
                "flat_FP32",
                [tensor("INPUT0", array)],
                model_version="1",
                request_id="ä 42",
                sequence_id="text",
                sequence_start=True,
                sequence_end=True,
                priority=1,
                timeout=1_000_000,
                client_timeout=30,
                headers={"x-whatever": "1"},
                compression_algorithm=coding,
                parameters={"text": "x", "flag": True, "number": 1, "float": 0.5},
            )
            assert result.get_response().id == "ä 42"
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array, strict=True)

    with_client(scenario)


@pytest.mark.slow
def test_twenty_megabytes_go_both_ways(with_client, same, big):
    async def scenario(client):
        result = await client.infer("flat_FP32", [tensor("INPUT0", big)])
        same(result.as_numpy("OUTPUT0"), big)

    with_client(scenario)


@pytest.mark.slow
def test_many_requests_at_once_get_their_own_answers(with_client, same):
    async def one(client, number):
        array = np.full((number % 8 + 1, 16), number, np.int32)
        inputs = [tensor("INPUT0", array), tensor("INPUT1", array)]
        result = await client.infer("add_sub", inputs, request_id=str(number))
        assert result.get_response().id == str(number)
        same(result.as_numpy("OUTPUT0"), array * 2)

    async def scenario(client):
        await asyncio.gather(*(one(client, number) for number in range(400)))

    with_client(scenario)


@pytest.mark.slow
def test_deadlines_and_cancelling_leave_the_server_healthy(with_client):
    slow = [tensor("INPUT0", np.ones(1, np.float32))]

    async def scenario(client):
        with refused("DEADLINE_EXCEEDED"):
            await client.infer("endless", slow, client_timeout=0.05)
        cancelled = asyncio.ensure_future(client.infer("endless", slow))
        assert await client.is_server_ready()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        is_overtaken = False
        for _ in range(5):  # a busy machine may take as long for the other one
            waiting = asyncio.ensure_future(client.infer("slow", slow))
            await client.infer("flat_FP32", [tensor("INPUT0", np.ones((1, 1), np.float32))])
            is_overtaken = is_overtaken or not waiting.done()
            assert (await waiting).as_numpy("OUTPUT0").tolist() == [1.0]
            if is_overtaken:
                break
        assert is_overtaken

    with_client(scenario)


def test_errors_carry_status_and_words(with_client):
    array = np.ones((1, 2), np.float32)

    async def scenario(client):
        with refused("NOT_FOUND", "nobody"):
            await client.infer("nobody", [tensor("INPUT0", array)])
        with refused("INVALID_ARGUMENT", "INPUT0", "FP64", "FP32"):
            await client.infer("flat_FP32", [tensor("INPUT0", array.astype(np.float64))])
        for fault in ("raise", "too_few", "wrong_shape"):
            with refused("INTERNAL", "faulty"):
                inputs = [tensor("INPUT0", array[0])]
                await client.infer("faulty", inputs, parameters={"fault": fault})

    with_client(scenario)
