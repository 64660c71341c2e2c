"""What is sent again, and what is not."""

import numpy as np
import pytest
from scripted import ScriptedServer, answer

from inferd.client import Busy, ClientError, ConnectFailed, ConnectionLost, Denied, ServerError
from inferd.client.errors import InvalidArgument
from inferd.client.retry import MOST_S, delay_s
from inferd.client.settings import read_settings
from inferd.errors import Code
from inferd.http.h2 import frames
from inferd.http.h2.frames import encode_frame
from inferd.http.h2.hpack import encode_fields

X = {"x": np.zeros(1, np.float32)}
GOOD = answer(200, b'{"model_name":"m","outputs":[]}')
META = answer(200, b'{"name":"s","version":"1","extensions":[]}')
LATER = answer(503, b'{"error":"busy"}', "Retry-After: 0")


def infer(kind, answers, *, closes=False, **options):
    """Return how many requests an inference takes, and the error's class, if any."""
    with (
        ScriptedServer(*answers, closes=closes) as server,
        kind(server.url, binary=True, timeout_s=20, **options) as client,
    ):
        error = None
        try:
            client.infer("m", X)
        except Exception as raised:  # noqa: BLE001  it is compared
            error = type(raised)
        return len(server.calls), error


def test_an_inference_that_was_refused_for_now_is_sent_again(kind):
    assert infer(kind, [LATER, GOOD]) == (2, None)
    assert infer(kind, [answer(429, b""), GOOD]) == (2, None)
    assert infer(kind, [answer(429, b"")], retries=1) == (2, Busy)
    assert infer(kind, [answer(429, b"")], retries=0) == (1, Busy)


def test_an_inference_that_may_have_been_executed_is_not_sent_again_unless_allowed(kind):
    assert infer(kind, [None, GOOD]) == (1, ConnectionLost)
    assert infer(kind, [None, GOOD], resend=True) == (2, None)
    half = GOOD[:-3]
    assert infer(kind, [half, GOOD], closes=True) == (1, ConnectionLost)
    assert infer(kind, [answer(503, b"a gateway"), GOOD]) == (1, Busy)
    assert infer(kind, [answer(503, b"a gateway"), GOOD], resend=True) == (2, None)
    assert infer(kind, [answer(500, b"broke"), GOOD], resend=True) == (1, ServerError)


def test_calls_that_change_nothing_are_sent_again(kind):
    with ScriptedServer(None, META) as server, kind(server.url) as client:
        assert client.server_metadata().name == "s"
        assert len(server.calls) == 2


def test_a_connection_that_the_server_closed_meanwhile_is_not_used(kind):
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 31\r\n\r\n" + GOOD[-31:]
    with ScriptedServer(last) as server, kind(server.url, binary=True) as client:
        for _ in range(3):
            client.infer("m", X)
        assert server.connections == 3
    with ScriptedServer(GOOD) as server, kind(server.url, binary=True) as client:
        for _ in range(3):
            client.infer("m", X)
        assert server.connections == 1


def test_a_connection_with_more_than_the_answer_is_not_used(kind):
    with ScriptedServer(GOOD + LATER, GOOD) as server, kind(server.url, binary=True) as client:
        client.infer("m", X)
        client.infer("m", X)
        assert (len(server.calls), server.connections) == (2, 2)


def test_questions_of_health_are_answered_by_a_refusal(kind):
    with ScriptedServer(LATER) as server, kind(server.url) as client:
        assert not client.is_ready()
        assert len(server.calls) == 1


SETTINGS = encode_frame(frames.SETTINGS, 0, 0)
OK = encode_fields([(b":status", b"200"), (b"content-type", b"application/grpc")])


def grpc_answer(stream, *fields, message=None):
    """Return HEADERS, if there is a `message` DATA, and trailers."""
    data = encode_frame(frames.HEADERS, 4, stream, OK)
    if message is not None:
        body = len(message).to_bytes(5, "big") + message
        data += encode_frame(frames.DATA, 0, stream, body)
    return data + encode_frame(frames.HEADERS, 5, stream, encode_fields(fields))


GRPC_GOOD = SETTINGS + grpc_answer(1, (b"grpc-status", b"0"), message=b"\x0a\x01m")


def refused(status, *more):
    answered = grpc_answer(1, (b"grpc-status", b"%d" % status), *more)
    return SETTINGS + answered + frames.encode_goaway(1, frames.ErrorCode.NO_ERROR)


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (refused(14), 2),
        (refused(14, (b"grpc-retry-pushback-ms", b"0")), 2),
        (refused(14, (b"grpc-retry-pushback-ms", b"-1")), 1),
        (refused(8, (b"grpc-retry-pushback-ms", b"1")), 2),
        (refused(8), 1),
        (refused(13), 1),
        (SETTINGS + frames.encode_rst_stream(1, frames.ErrorCode.REFUSED_STREAM), 2),
        (SETTINGS + frames.encode_rst_stream(1, frames.ErrorCode.CANCEL), 1),
        (SETTINGS + frames.encode_goaway(0, frames.ErrorCode.NO_ERROR), 2),
    ],
)
def test_inferences_over_grpc_are_sent_again_if_nobody_took_them(kind, first, count):
    with (
        ScriptedServer(first, GRPC_GOOD, greets=True) as server,
        kind(server.url.replace("http", "grpc"), timeout_s=20) as client,
    ):
        if count == 2:
            assert client.infer("m", X).model_name == "m"
        else:
            with pytest.raises(ClientError):
                client.infer("m", X)
        assert server.connections == count


def settings(**options):
    return read_settings("http://h", options)


def test_delays_grow_and_end():
    error = ConnectFailed("no server")
    found = [delay_s(error, at, settings=settings(retries=9), is_safe=False) for at in range(9)]
    assert all(0 < one <= MOST_S for one in found)
    assert found[0] < found[3] < found[8]
    assert delay_s(error, 9, settings=settings(retries=9), is_safe=True) is None


def test_the_server_says_when():
    def busy(after_s):
        return Busy("UNAVAILABLE", "x", Code.UNAVAILABLE, {}, after_s)

    assert delay_s(busy(3.0), 0, settings=settings(), is_safe=False) == 3.0
    assert delay_s(busy(-1.0), 0, settings=settings(), is_safe=True) is None
    assert delay_s(busy(0.0), 0, settings=settings(), is_safe=False) == 0
    assert delay_s(busy(None), 0, settings=settings(), is_safe=False) is None
    assert delay_s(busy(None), 0, settings=settings(), is_safe=True)


@pytest.mark.parametrize("kind_of_error", [InvalidArgument, Denied, ServerError])
def test_other_refusals_are_final(kind_of_error):
    error = kind_of_error("400", "x", Code.INVALID_ARG, {})
    assert delay_s(error, 0, settings=settings(resend=True), is_safe=True) is None
