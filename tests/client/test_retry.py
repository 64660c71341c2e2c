"""What is sent again, and what is not."""

import numpy as np
import pytest
from scripted import ScriptedServer, answer

from inferd.client import Busy, ConnectFailed, ConnectionLost, Denied, ServerError
from inferd.client.errors import InvalidArgument
from inferd.client.retry import MOST_S, delay_s
from inferd.client.settings import read_settings
from inferd.errors import Code

X = {"x": np.zeros(1, np.float32)}
GOOD = answer(200, b'{"model_name":"m","outputs":[]}')
META = answer(200, b'{"name":"s","version":"1","extensions":[]}')
LATER = answer(503, b'{"error":"busy"}', "Retry-After: 0")


def infer(kind, answers, **options):
    """Return how many requests an inference takes, and the error's class, if any."""
    with (
        ScriptedServer(*answers, closes=True) as server,
        kind(server.url, binary=True, timeout_s=20, **options) as client,
    ):
        error = None
        try:
            client.infer("m", X)
        except Exception as raised:  # noqa: BLE001  it is compared
            error = type(raised)
        return len(server.calls), error


def test_an_inference_that_was_refused_for_now_is_sent_again(kind):
    soon = answer(503, b'{"error":"busy"}', "Retry-After: 1")
    assert infer(kind, [soon, GOOD]) == (2, None)
    assert infer(kind, [answer(429, b""), GOOD]) == (2, None)
    assert infer(kind, [answer(429, b"")], retries=1) == (2, Busy)
    assert infer(kind, [answer(429, b"")], retries=0) == (1, Busy)


def test_an_inference_that_may_have_been_executed_is_not_sent_again_unless_allowed(kind):
    assert infer(kind, [None, GOOD]) == (1, ConnectionLost)
    assert infer(kind, [None, GOOD], resend=True) == (2, None)
    half = GOOD[:-3]
    assert infer(kind, [half, GOOD]) == (1, ConnectionLost)
    assert infer(kind, [answer(503, b"a gateway"), GOOD]) == (1, Busy)
    assert infer(kind, [answer(503, b"a gateway"), GOOD], resend=True) == (2, None)
    assert infer(kind, [answer(500, b"broke"), GOOD], resend=True) == (1, ServerError)


def test_calls_that_change_nothing_are_sent_again(kind):
    with ScriptedServer(None, META, closes=True) as server, kind(server.url) as client:
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


def settings(**options):
    return read_settings("http://h", options)


def test_delays_grow_and_end():
    error = ConnectFailed("no server")
    found = [delay_s(error, at, settings=settings(retries=9), is_safe=False) for at in range(9)]
    assert all(0 < one <= MOST_S for one in found)
    assert found[0] < found[3] < found[8]
    assert delay_s(error, 9, settings=settings(retries=9), is_safe=True) is None


def test_the_server_says_when():
    def busy(retry_s):
        return Busy("UNAVAILABLE", "x", Code.UNAVAILABLE, {}, retry_s)

    assert delay_s(busy(3.0), 0, settings=settings(), is_safe=False) == 3.0
    assert delay_s(busy(-1.0), 0, settings=settings(), is_safe=True) is None
    assert delay_s(busy(0.0), 0, settings=settings(), is_safe=False) is None
    assert delay_s(busy(0.0), 0, settings=settings(), is_safe=True)


@pytest.mark.parametrize("kind_of_error", [InvalidArgument, Denied, ServerError])
def test_other_refusals_are_final(kind_of_error):
    error = kind_of_error("400", "x", Code.INVALID_ARG, {})
    assert delay_s(error, 0, settings=settings(resend=True), is_safe=True) is None
