"""Heads of answers."""

import pytest

from inferd.client import BadAnswer
from inferd.client.connection.http1 import CHUNKED, UNTIL_CLOSED, chunk_size, parse_answer_head


def test_a_head():
    head = parse_answer_head(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b \r\nx-a: c")
    assert (head.status, head.length, head.is_last) == (200, 5, False)
    assert head.headers == {"content-length": "5", "x-a": "b, c"}


@pytest.mark.parametrize(
    ("text", "length", "is_last"),
    [
        (b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nContent-Length: 3", CHUNKED, False),
        (b"HTTP/1.1 200 OK", UNTIL_CLOSED, True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1", 1, True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive", 1, False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Close", 1, True),
        (b"HTTP/1.1 204 Nothing\r\nContent-Length: 9", 0, False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2", 2, False),
    ],
)
def test_where_a_body_ends(text, length, is_last):
    head = parse_answer_head(text)
    assert (head.length, head.is_last) == (length, is_last)


def test_sizes_of_chunks():
    assert chunk_size(b"1F;a=b") == 31
    for text in (b"", b"-1", b"0x1", b"1 1", b"f" * 16):
        with pytest.raises(BadAnswer):
            chunk_size(text)
