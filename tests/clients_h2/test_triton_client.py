"""Triton's gRPC clients, blocking and asyncio, against a whole server."""

import asyncio
import queue

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException


def tensor(values):
    asked = triton.InferInput("INPUT0", [len(values)], "FP32")
    asked.set_data_from_numpy(np.asarray(values, np.float32))
    return [asked]


@pytest.fixture
def client(inferd):
    with triton.InferenceServerClient(inferd.address) as opened:
        yield opened


def test_the_small_calls_answer(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("echo")
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata().name == "inferd"
    assert client.get_model_metadata("echo").inputs[0].name == "INPUT0"


@pytest.mark.parametrize(
    "count", [1, 1000, 100_000, pytest.param(3_000_000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
def test_an_inference_comes_back(client, count, coding):
    values = np.arange(count, dtype=np.float32)
    answer = client.infer("echo", tensor(values), request_id="7", compression_algorithm=coding)
    assert answer.get_response().id == "7"
    assert np.array_equal(answer.as_numpy("OUTPUT0"), values)


def test_inferences_run_at_once(client):
    done = queue.SimpleQueue()
    for number in range(100):
        client.async_infer(
            "echo",
            tensor([float(number)] * 100),
            lambda result, error, n=number: done.put((n, result, error)),
        )
    for _ in range(100):
        number, result, error = done.get(timeout=20)
        assert error is None
        assert np.array_equal(result.as_numpy("OUTPUT0"), np.full(100, number, np.float32))


def test_errors_have_their_status(client):
    with pytest.raises(InferenceServerException) as caught:
        client.infer("nobody", tensor([1.0]))
    assert caught.value.status() == "StatusCode.NOT_FOUND"
    with pytest.raises(InferenceServerException) as caught:
        client.get_model_metadata("100% nobody \u00fc")
    assert "100% nobody \u00fc" in caught.value.message()


def test_a_client_timeout_is_kept(client):
    with pytest.raises(InferenceServerException) as caught:
        client.infer("endless", tensor([1.0]), client_timeout=0.1)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert client.is_server_live()


def test_a_cancelled_inference_is_cancelled(client):
    done = queue.SimpleQueue()
    running = client.async_infer(
        "endless", tensor([1.0]), lambda result, error: done.put((result, error))
    )
    running.cancel()
    result, error = done.get(timeout=20)
    assert result is None and "Locally cancelled" in str(error)


def test_headers_are_taken(client):
    answer = client.infer("echo", tensor([1.0]), headers={"x-key": "value"})
    assert answer.as_numpy("OUTPUT0")[0] == 1.0


def test_the_asyncio_client_works(inferd):
    async def talk():
        async with triton_aio.InferenceServerClient(inferd.address) as client:
            assert await client.is_server_ready()
            values = [np.full(1000, number, np.float32) for number in range(50)]
            asked = [client.infer("echo", tensor(each)) for each in values]
            for value, answer in zip(values, await asyncio.gather(*asked), strict=True):
                assert np.array_equal(answer.as_numpy("OUTPUT0"), value)
            with pytest.raises(InferenceServerException) as caught:
                await client.infer("endless", tensor([1.0]), client_timeout=0.1)
            assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"

    asyncio.run(talk())


def in_stream(client, ask, count, **options):
    """Open a stream, let `ask` send requests, and return `count` answers: (result, error)."""
    done = queue.SimpleQueue()
    client.start_stream(lambda result, error: done.put((result, error)), **options)
    ask(client.async_stream_infer)
    found = [done.get(timeout=20) for _ in range(count)]
    client.stop_stream()
    assert done.empty()
    return found


def whole(values):
    asked = triton.InferInput("IN", [len(values)], "INT32")
    asked.set_data_from_numpy(np.asarray(values, np.int32))
    return [asked]


@pytest.mark.slow
def test_a_stream_answers_in_order(client):
    def ask(infer):
        for number, model in enumerate(["slow", "echo", "echo", "slow", "echo"]):
            infer(model, tensor([float(number)] * 10_000), request_id=str(number))

    found = in_stream(client, ask, 5)
    assert [error for _, error in found] == [None] * 5
    assert [result.get_response().id for result, _ in found] == list("01234")
    assert [result.as_numpy("OUTPUT0")[9999] for result, _ in found] == [0, 1, 2, 3, 4]
    for result, _ in found:
        assert result.get_response().parameters["triton_final_response"].bool_param


def test_an_error_stays_in_the_stream(client):
    def ask(infer):
        infer("nobody", tensor([1.0]), request_id="wrong")
        infer("echo", tensor([2.0]), request_id="right")

    (_, error), (result, none) = in_stream(client, ask, 2)
    assert "nobody" in str(error) and none is None
    assert result.as_numpy("OUTPUT0")[0] == 2.0 and result.get_response().id == "right"


def test_an_error_ends_a_stream_that_asked_for_it(client):
    def ask(infer):
        infer("nobody", tensor([1.0]), request_id="wrong")

    [(_, error)] = in_stream(client, ask, 1, headers={"triton_grpc_error": "true"})
    assert error.status() == "StatusCode.NOT_FOUND"


@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_decoupled_model_answers_often(client, count):
    def ask(infer):
        infer("repeat", whole(range(count)), request_id="7", enable_empty_final_response=True)

    found = [result.get_response() for result, _ in in_stream(client, ask, count + 1)]
    assert [answer.id for answer in found] == ["7"] * (count + 1)
    final = [answer.parameters["triton_final_response"].bool_param for answer in found]
    assert final == [False] * count + [True]
    assert not found[-1].outputs


def test_a_decoupled_model_may_answer_with_nothing_but_the_end(client):
    def ask(infer):
        infer("repeat", whole([]), request_id="7", enable_empty_final_response=True)

    [(result, _)] = in_stream(client, ask, 1)
    assert not result.get_response().outputs
    assert result.get_response().parameters["triton_final_response"].bool_param


@pytest.mark.slow
def test_a_stream_is_left_in_the_middle(client):
    done = queue.SimpleQueue()
    client.start_stream(lambda result, error: done.put((result, error)))
    for _ in range(20):
        client.async_stream_infer("slow", tensor([1.0]))
    assert done.get(timeout=20)[1] is None
    client.stop_stream(cancel_requests=True)
    assert client.infer("echo", tensor([1.0])).as_numpy("OUTPUT0")[0] == 1.0


def test_the_asyncio_client_streams(inferd):
    async def talk():
        async with triton_aio.InferenceServerClient(inferd.address) as client:

            async def questions():
                for number in range(30):
                    yield {
                        "model_name": "echo",
                        "inputs": tensor([float(number)] * 50),
                        "request_id": str(number),
                    }

            ids = []
            async for result, error in client.stream_infer(questions()):
                assert error is None and result.as_numpy("OUTPUT0")[0] == float(len(ids))
                ids.append(result.get_response().id)
            assert ids == [str(number) for number in range(30)]

    asyncio.run(talk())


@pytest.mark.slow
def test_an_inference_runs_over_tls(start, transport, certificates):
    flags = ["--http-port=0", "--grpc-port=0", f"--grpc-transport={transport}"]
    flags += ["--grpc-use-ssl-mutual=true", f"--grpc-server-cert={certificates / 'server.pem'}"]
    flags += [f"--grpc-server-key={certificates / 'server.key'}"]
    flags += [f"--grpc-root-cert={certificates / 'ca.pem'}"]
    files = {
        "root_certificates": certificates / "ca.pem",
        "private_key": certificates / "client.key",
        "certificate_chain": certificates / "client.pem",
    }
    with start(*flags) as server:
        named = {name: str(file) for name, file in files.items()}
        with triton.InferenceServerClient(server.address, ssl=True, **named) as client:
            values = np.arange(1_000_000, dtype=np.float32)
            answer = client.infer("echo", tensor(values))
            assert np.array_equal(answer.as_numpy("OUTPUT0"), values)
        strange = triton.InferenceServerClient(
            server.address, ssl=True, root_certificates=named["root_certificates"]
        )
        with strange, pytest.raises(InferenceServerException):
            strange.is_server_live()


def test_keepalive_options_are_taken(inferd):
    options = triton.KeepAliveOptions(keepalive_time_ms=1000, keepalive_permit_without_calls=True)
    with triton.InferenceServerClient(inferd.address, keepalive_options=options) as client:
        assert client.is_server_live()


def test_a_plain_grpc_channel_with_other_options_works(inferd):
    options = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.max_frame_size", 16_384)]
    options += [("grpc.http2.hpack_table_size.encoder", 0)]
    with grpc.insecure_channel(inferd.address, options=options) as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        for _ in range(10):
            assert call(b"", timeout=10) == b"\x08\1"
