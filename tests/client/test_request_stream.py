"""Many requests over one stream."""

import asyncio
import contextlib

import numpy as np
import pytest
from scripted import ScriptedServer

from inferd.client import (
    AsyncClient,
    Client,
    ClientError,
    ConnectionLost,
    DeadlineExceeded,
    Denied,
    InvalidTarget,
    ServerError,
)
from inferd.client.incoming import PREFIX
from inferd.http.h2 import frames
from inferd.http.h2.frames import encode_frame
from inferd.http.h2.hpack import encode_fields

X = np.arange(4, dtype=np.float32).reshape(1, 4)
REPEAT = {"DELAY": np.zeros(2, np.uint32), "WAIT": np.zeros(1, np.uint32)}


@contextlib.contextmanager
def stream_of(client):
    """Open a stream; it has the calls of a synchronous one."""
    if isinstance(client, Client):
        with client.open_stream() as opened:
            yield opened
    else:
        with client.block(client.client.open_stream()) as opened:
            yield client.of(opened)


@pytest.fixture
def stream(kind, served):
    with kind(served.grpc_url, connections=1, timeout_s=20) as client, stream_of(client) as opened:
        yield opened


def test_requests_are_answered_in_their_order(stream):
    opened = stream
    for number in range(30):
        opened.send("m", {"INPUT0": X + number, "INPUT1": X}, id=str(number))
    for number in range(30):
        result = opened.receive()
        assert (result.id, result.final) == (str(number), True)
        np.testing.assert_array_equal(result["OUTPUT0"], 2 * X + number)
    opened.end()
    assert opened.receive() is None
    assert opened.receive() is None


def test_a_decoupled_model_says_when_it_is_done(stream):
    opened = stream
    opened.send("repeat", REPEAT | {"IN": np.array([4, 5], np.int32)}, id="a")
    found = [opened.receive()]
    while not found[-1].final:
        found.append(opened.receive())
    assert [one["OUT"].tolist() for one in found if len(one)] == [[4], [5]]
    opened.end()
    assert opened.receive() is None


def test_the_error_of_one_request_does_not_end_the_stream(stream):
    opened = stream
    opened.send("nothing", {"x": X})
    opened.send("m", {"INPUT0": X, "INPUT1": X})
    with pytest.raises(ServerError, match="nothing"):
        opened.receive()
    np.testing.assert_array_equal(opened.receive()["OUTPUT0"], 2 * X)


def test_a_sequence(stream):
    opened = stream
    for at in range(3):
        inputs = {"INPUT": np.array([[at]], np.int32)}
        opened.send("seq", inputs, sequence_id=9, sequence_start=not at, sequence_end=at == 2)
    assert [int(opened.receive()["STARTED"][0, 0]) for _ in range(3)] == [1, 0, 0]


def test_large_requests_are_sent_while_answers_come(stream):
    opened = stream
    arrays = [np.full(1_000_000, number, np.float32) for number in range(6)]
    for array in arrays:
        opened.send("all", {"IN_FP32": array}, outputs=["OUT_FP32"])
    for array in arrays:
        np.testing.assert_array_equal(opened.receive()["OUT_FP32"], array)


def test_the_connection_is_free_again_after_the_block(kind, served):
    with kind(served.grpc_url, connections=1, timeout_s=20) as client:
        for is_ended in (True, False):
            with stream_of(client) as opened:
                opened.send("m", {"INPUT0": X, "INPUT1": X})
                if is_ended:
                    opened.end()
                    assert len(opened.receive()) == 2
                    assert opened.receive() is None
            assert client.is_live()
        with pytest.raises(ClientError, match="outside"):
            opened.receive()


def test_rest_has_no_stream_of_requests(kind, served):
    with (
        kind(served.http_url) as client,
        pytest.raises(InvalidTarget, match="grpc://"),
        stream_of(client),
    ):
        pass


def test_each_step_has_its_time(kind):
    with ScriptedServer(ScriptedServer.HANG, greets=True) as server:
        url = server.url.replace("http", "grpc")
        with kind(url, timeout_s=0.05) as client, stream_of(client) as opened:
            opened.send("m", {"x": X})
            with pytest.raises(DeadlineExceeded):
                opened.receive()


def test_asynchronous_iteration(served):
    async def ask():
        async with AsyncClient(served.grpc_url) as client, client.open_stream() as opened:
            for number in range(3):
                await opened.send("m", {"INPUT0": X, "INPUT1": X}, id=str(number))
            await opened.end()
            return [result.id async for result in opened]

    assert asyncio.run(ask()) == ["0", "1", "2"]


def test_a_stream_that_the_server_has_ended_says_so_to_who_goes_on(kind):
    status = encode_fields([(b":status", b"200"), (b"grpc-status", b"7")])
    data = encode_frame(frames.SETTINGS, 0, 0) + encode_frame(frames.HEADERS, 5, 1, status)
    with ScriptedServer(data, greets=True) as server:
        url = server.url.replace("http", "grpc")
        with kind(url, timeout_s=20) as client, stream_of(client) as opened:
            opened.send("m", {"x": X})
            with pytest.raises(Denied):
                opened.receive()
            opened.send("m", {"x": X})
            with pytest.raises(Denied):
                opened.receive()
        assert len(server.calls) == 1


def test_a_stream_does_not_go_on_in_the_middle_of_an_answer(kind):
    message = encode_frame(frames.DATA, 0, 1, PREFIX.pack(0, 900) + bytes(900))
    start = encode_frame(frames.SETTINGS, 0, 0) + message[:200]
    with ScriptedServer(start, message[200:], greets=True) as server:
        url = server.url.replace("http", "grpc")
        with kind(url, timeout_s=0.2) as client, stream_of(client) as opened:
            opened.send("m", {"x": X})
            with pytest.raises(DeadlineExceeded):
                opened.receive()
            # The rest would be read as frames of its own.
            for step in (opened.receive, opened.end, lambda: opened.send("m", {"x": X})):
                with pytest.raises(ConnectionLost, match="given up in the middle"):
                    step()


def test_a_stream_does_not_go_on_in_the_middle_of_a_request(kind):
    # No window for more than the first 64 KiB of it.
    with ScriptedServer(ScriptedServer.HANG, greets=True) as server:
        url = server.url.replace("http", "grpc")
        with kind(url, timeout_s=0.2) as client, stream_of(client) as opened:
            with pytest.raises(DeadlineExceeded):
                opened.send("m", {"x": np.zeros(100_000, np.float32)})
            with pytest.raises(ConnectionLost, match="given up in the middle"):
                opened.send("m", {"x": X})


def test_a_stream_goes_on_after_an_answer_that_was_late(kind):
    status = encode_fields([(b":status", b"200"), (b"grpc-status", b"7")])
    data = encode_frame(frames.SETTINGS, 0, 0) + encode_frame(frames.HEADERS, 5, 1, status)
    with ScriptedServer(ScriptedServer.HANG, data, greets=True) as server:
        url = server.url.replace("http", "grpc")
        with kind(url, timeout_s=0.2) as client, stream_of(client) as opened:
            opened.send("m", {"x": X})
            with pytest.raises(DeadlineExceeded):
                opened.receive()
            opened.send("m", {"x": X})
            with pytest.raises(Denied):
                opened.receive()
