"""The small client of HTTP: whole answers, pieces, and what is cut short."""

import asyncio

import pytest

from inferd.route.http_client import HttpTarget, exchange, fetch

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


def fetched(site, answer, *arguments):
    async def test():
        async with site({"/": answer}) as server:
            return await fetch(HttpTarget("127.0.0.1", server.port), *arguments), server.requests

    return asyncio.run(test())


def test_an_answer_has_status_headers_and_body(site):
    answer, [(head, body)] = fetched(site, (200, b"abc"), "POST", "/", [("X-A", "b")], b"hello")
    assert (answer.status, answer.headers, answer.body) == (200, {"content-length": "3"}, b"abc")
    assert head.startswith("POST / HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "\r\nX-A: b\r\n" in head
    assert body == b"hello"


def test_chunks_are_joined(site):
    answer, _ = fetched(site, CHUNKED, "GET", "/")
    assert answer.body == b"abcde"


def test_an_answer_without_a_length_ends_with_its_connection(site):
    answer, _ = fetched(site, b"HTTP/1.1 200 OK\r\n\r\nabc", "GET", "/")
    assert answer.body == b"abc"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "before an answer"),
        (b"HTTP/1.1 200", "before an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "before the end"),
        (CHUNKED[:-5], "before the end"),
        (b"nonsense\r\n\r\n", "not valid HTTP"),
    ],
)
def test_what_is_cut_short_or_no_http_is_an_error(site, answer, message):
    with pytest.raises(ConnectionError, match=message):
        fetched(site, answer, "GET", "/")


def test_pieces_are_there_before_the_end(site):
    async def test():
        async with (
            site({"/": CHUNKED}) as server,
            exchange(HttpTarget("127.0.0.1", server.port), "GET", "/") as answer,
        ):
            return [piece async for piece in answer.pieces()]

    assert asyncio.run(test()) == [b"abc", b"de"]
