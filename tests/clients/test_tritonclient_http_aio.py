"""Unmodified tritonclient.http.aio against a real server.

It asks for "gzip, deflate" with every request and decodes only answers of inference. What it
itself refuses is what tritonclient.http refuses.
"""

import asyncio
import contextlib
import ssl

import aiohttp
import numpy as np
import pytest
import tritonclient.http.aio as triton
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.http.auth import BasicAuth
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import inferd

# aiohttp's advice to its caller, here the client.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


@pytest.fixture
def with_client(server):
    """with_client(coroutine function, ...) runs it with a client and returns what it returns."""

    def run(scenario, **options):
        async def scene():
            async with triton.InferenceServerClient(server.http, **options) as client:
                return await scenario(client)

        return asyncio.run(scene())

    return run


def tensor(name, array, **options):
    """Return an input."""
    datatype = np_to_triton_dtype(array.dtype)
    return InferInput(name, list(array.shape), datatype).set_data_from_numpy(array, **options)


@contextlib.contextmanager
def refused(status, *words):
    """Expect an InferenceServerException of this status whose message has these words."""
    with pytest.raises(InferenceServerException) as caught:
        yield
    assert caught.value.status() == str(status)
    for word in words:
        assert word in caught.value.message()


def test_the_server_tells_of_itself_and_its_models(with_client):
    async def scenario(client):
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("mymodel")
        assert await client.is_model_ready("mymodel", "2")
        assert not await client.is_model_ready("mymodel", "3")
        assert not await client.is_model_ready("nobody")
        metadata = await client.get_server_metadata()
        assert (metadata["name"], metadata["version"]) == ("inferd", inferd.__version__)
        metadata = await client.get_model_metadata("mymodel", "1")
        assert metadata["versions"] == ["1"]
        assert metadata["inputs"][0] == {"name": "input0", "datatype": "UINT32", "shape": [2, 2]}
        with refused(404, "nobody"):
            await client.get_model_metadata("nobody")

    with_client(scenario)


def test_metadata_of_a_model_with_a_long_answer_is_not_compressed(with_client):
    async def scenario(client):
        name = "nobody" * 300  # named in the answer: long enough to be worth compressing
        with refused(404, name):
            await client.get_model_metadata(name)
        assert await client.get_model_metadata("three")

    with_client(scenario)


@pytest.mark.parametrize("wanted", ["binary", "json", "unlisted"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_each_datatype_comes_back_bit_for_bit(with_client, same, sample, binary, wanted):
    binary = binary or sample.datatype == "BF16"
    outputs = None
    if wanted != "unlisted":
        outputs = [InferRequestedOutput("OUTPUT0", binary_data=wanted == "binary")]

    async def scenario(client):
        for kind in ("flat", "batch"):
            inputs = [tensor("INPUT0", sample.array, binary_data=binary)]
            result = await client.infer(f"{kind}_{sample.datatype}", inputs, outputs=outputs)
            same(result.as_numpy("OUTPUT0"), sample.array)

    with_client(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("form", [True, False], ids=["binary", "json"])
def test_compressed_bodies_small_and_large(with_client, same, form):
    async def scenario(client):
        for rows in (1, 60):
            array = np.arange(rows * 5000, dtype=np.float32).reshape(rows, 5000)
            for coding in (None, "gzip", "deflate"):
                result = await client.infer(
                    "flat_FP32",
                    [tensor("INPUT0", array, binary_data=form)],
                    outputs=[InferRequestedOutput("OUTPUT0", binary_data=form)],
                    request_compression_algorithm=coding,
                    response_compression_algorithm=coding,
                )
                same(result.as_numpy("OUTPUT0"), array)

    with_client(scenario)


@pytest.mark.slow
def test_twenty_megabytes_go_both_ways(with_client, same, big):
    async def scenario(client):
        result = await client.infer("flat_FP32", [tensor("INPUT0", big)])
        same(result.as_numpy("OUTPUT0"), big)

    with_client(scenario)


def test_all_arguments_are_accepted(with_client):
    async def scenario(client):
        client.register_plugin(BasicAuth("user", "password"))
        result = await client.infer(
            "flat_FP32",
            [tensor("INPUT0", np.ones((1, 1), np.float32))],
            model_version="1",
            request_id="ä 42",
            sequence_id=5,
            sequence_start=True,
            sequence_end=True,
            priority=1,
            timeout=1_000_000,
            headers={"X-Whatever": "1"},
            query_params={"a": "b"},
            parameters={"text": "x", "flag": True},
        )
        assert result.get_response()["id"] == "ä 42"
        assert result.as_numpy("OUTPUT0").tolist() == [[1.0]]

    with_client(scenario)


@pytest.mark.slow
def test_many_requests_at_once_get_their_own_answers(with_client, same):
    async def one(client, number):
        array = np.full((number % 8 + 1, 16), number, np.int32)
        inputs = [tensor("INPUT0", array), tensor("INPUT1", array)]
        result = await client.infer("add_sub", inputs, request_id=str(number))
        assert result.get_response()["id"] == str(number)
        same(result.as_numpy("OUTPUT0"), array * 2)

    async def scenario(client):
        await asyncio.gather(*(one(client, number) for number in range(400)))

    with_client(scenario, conn_limit=32)


@pytest.mark.slow
def test_a_slow_model_holds_up_nobody_else(with_client):
    async def scenario(client):
        is_overtaken = False
        for count in (20, 5, 1, 1, 1):  # a busy machine may take as long for twenty others
            slow = asyncio.ensure_future(
                client.infer("slow", [tensor("INPUT0", np.ones(1, np.float32))])
            )
            for _ in range(count):
                await client.infer("flat_FP32", [tensor("INPUT0", np.ones((1, 1), np.float32))])
            is_overtaken = not slow.done()
            assert (await slow).as_numpy("OUTPUT0").tolist() == [1.0]
            if is_overtaken:
                break
        assert is_overtaken

    with_client(scenario)


@pytest.mark.slow
def test_a_client_that_gives_up_leaves_the_server_healthy(with_client):
    slow = [tensor("INPUT0", np.ones(1, np.float32))]

    async def give_up(client):
        for _ in range(3):
            with pytest.raises((TimeoutError, aiohttp.ClientError)):
                await client.infer("endless", slow)

    async def stay(client):
        cancelled = asyncio.ensure_future(client.infer("endless", slow))
        await client.is_server_ready()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (await client.infer("slow", slow)).as_numpy("OUTPUT0").tolist() == [1.0]

    with_client(give_up, conn_timeout=0.05)
    with_client(stay)


def test_errors_carry_status_and_words(with_client):
    array = np.ones((1, 2), np.float32)

    async def scenario(client):
        with refused(404, "nobody"):
            await client.infer("nobody", [tensor("INPUT0", array)])
        with refused(400, "INPUT0", "FP64", "FP32"):
            await client.infer("flat_FP32", [tensor("INPUT0", array.astype(np.float64))])
        with refused(400, "INPUT0", "[2]"):
            await client.infer("flat_FP32", [tensor("INPUT0", array[0])])
        for fault in ("raise", "too_few", "wrong_shape"):
            with refused(500, "faulty"):
                inputs = [tensor("INPUT0", array[0])]
                await client.infer("faulty", inputs, parameters={"fault": fault})

    with_client(scenario)


@pytest.mark.slow
def test_https(start, certificates, same, big):
    server = start(
        "--http-use-ssl",
        f"--http-server-cert={certificates / 'server.pem'}",
        f"--http-server-key={certificates / 'server.key'}",
    )
    context = ssl.create_default_context(cafile=certificates / "ca.pem")

    async def scene():
        async with triton.InferenceServerClient(
            server.http, ssl=True, ssl_context=context
        ) as client:
            assert await client.is_server_ready()
            result = await client.infer("flat_FP32", [tensor("INPUT0", big)])
            same(result.as_numpy("OUTPUT0"), big)

    asyncio.run(scene())
