"""Requests over HTTP/1.1: where answers end, and which are errors."""

import pytest

from inferd.bench.generator.rest import RestLoadConnection

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*pieces):
    return CHUNKS + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (*pieces, b""))


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize(
    "answer",
    [OK, OK.replace(b"Content-Length", b"content-length"), chunked(b"he", b"llo"),
     b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
     b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"],
)  # fmt: skip
def test_an_answer_ends_where_its_head_says_however_it_comes(opened, receive, answer, size):
    connection, transport, ends = opened(RestLoadConnection)
    for number in range(1, 4):
        connection.send(b"request")
        assert connection.is_busy
        receive(connection, answer, size)
        assert ends == [""] * number and not connection.is_busy
    assert transport.sent == b"request" * 3 and not connection.is_lost


@pytest.mark.parametrize(
    ("head", "body", "error"),
    [
        (b"400 Bad Request", b'{"error":"no such input"}', "400: no such input"),
        (b"503 Unavailable", b"busy", "503: busy"),
        (b"404 Not Found", b"[1]", "404: [1]"),
        (b"404 Not Found", b"[" * 50_000, f"404: {'[' * 295}"),
        (b"500 Oops", b"", "500: "),
    ],
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_error_is_its_status_and_text(opened, receive, head, body, error, is_chunked):
    connection, _, ends = opened(RestLoadConnection)
    connection.send(b"request")
    if is_chunked:
        answer = chunked(*([body] if body else [])).replace(b"200 OK", head)
    else:
        answer = b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
    receive(connection, answer, 5)
    assert ends == [error] and not connection.is_lost


def test_a_connection_that_the_server_ends_is_not_used_again(opened, receive):
    connection, transport, ends = opened(RestLoadConnection)
    connection.send(b"request")
    receive(connection, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert ends == [""] and connection.is_lost and transport.is_closed


def test_a_lost_connection_and_another_protocol_are_errors(opened, receive):
    connection, _, ends = opened(RestLoadConnection)
    connection.send(b"request")
    connection.connection_lost(None)
    assert ends == ["the connection was lost"]
    connection, transport, ends = opened(RestLoadConnection)
    connection.send(b"request")
    receive(connection, b"SSH-2.0-OpenSSH\r\n", 3)
    assert ends == ["what listens there does not speak HTTP/1.1"] and transport.is_closed


def test_events_are_the_answers_of_a_stream(opened, receive):
    connection, _, ends = opened(RestLoadConnection, is_stream=True)
    connection.send(b"request")
    start = CHUNKS + b"c\r\ndata: {}\r\n\r\n\r\n"
    receive(connection, start)
    assert connection.answers == 1 and connection.first_ns and not ends
    first_ns = connection.first_ns
    receive(connection, b"18\r\ndata: {}\r\n\r\ndata: {}\r\n\r\n\r\n0\r\n\r\n")
    assert connection.answers == 3 and connection.first_ns == first_ns and ends == [""]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 15])
def test_events_are_counted_wherever_they_are_cut(opened, receive, size):
    connection, _, ends = opened(RestLoadConnection, is_stream=True)
    connection.send(b"request")
    text = b'data: {"a":"data:"}\n\ndata: {}\r\n\r\ndata: {"error":"it broke"}\n\n'
    receive(connection, chunked(*(text[at : at + size] for at in range(0, len(text), size))))
    assert connection.answers == 3 and ends == ["200: it broke"]


def test_an_error_in_a_stream_is_one(opened, receive):
    connection, _, ends = opened(RestLoadConnection, is_stream=True)
    connection.send(b"request")
    receive(connection, chunked(b"data: {}\n\n", b'data: {"error":"it broke"}\n\n'))
    assert ends == ["200: it broke"]
