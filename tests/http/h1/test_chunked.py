"""Chunked bodies: every way to cut them, and every way to get them wrong."""

import pytest

from inferd.http.h1.body import MAX_CHUNKS, ChunkedBody
from inferd.http.message import HttpError

GOOD = (
    b'5\r\nhello\r\n00A;name="va;lue" \r\n0123456789\r\n1\t;x\r\n!\r\n000\r\nA: b\r\nC: d\r\n\r\n'
)
BODY = b"hello0123456789!"


def read(data, cuts=(), max_bytes=1000):
    """Return (body, what came after it), or None when the body has not ended."""
    body = ChunkedBody(max_bytes)
    finished = None
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        assert finished is None
        finished = body.feed(memoryview(data)[start:end])
    return finished and (bytes(finished[0]), finished[1])


def test_chunks_make_one_body():
    assert read(GOOD) == (BODY, b"")


def test_what_comes_after_the_body_is_given_back():
    assert read(GOOD + b"GET /") == (BODY, b"GET /")


def test_a_size_may_have_any_number_of_leading_zeros():
    assert read(b"0" * 900 + b"5\r\nhello\r\n" + b"0" * 900 + b"\r\n\r\n") == (b"hello", b"")


def test_an_empty_body_has_no_chunks():
    assert read(b"0\r\n\r\n") == (b"", b"")


@pytest.mark.parametrize("first", range(len(GOOD)))
def test_a_body_may_be_cut_anywhere(first):
    for second in range(first, len(GOOD)):
        assert read(GOOD, (first, second)) == (BODY, b"")


@pytest.mark.parametrize("end", range(len(GOOD)))
def test_part_of_a_body_is_not_the_end(end):
    assert read(GOOD[:end]) is None


def test_the_size_so_far_is_known():
    body = ChunkedBody(1000)
    body.feed(memoryview(b"5\r\nhel"))
    assert len(body.body) == 3
    body.feed(memoryview(b"lo\r\n3\r\na"))
    assert len(body.body) == 6


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\r\n", 400),
        (b" 5\r\nhello\r\n", 400),
        (b"5 5\r\nhello\r\n", 400),
        (b"+5\r\nhello\r\n", 400),
        (b"0x5\r\nhello\r\n", 400),
        (b"5_0\r\nhello\r\n", 400),
        (b";a\r\n", 400),
        (b"5;a\rb\r\nhello\r\n", 400),
        (b"5\nhello\r\n", 400),
        (b"5\r\nhello!\r\n", 400),
        (b"5\r\nhello\r\r", 400),
        (b"5\r\nhello\n\n", 400),
        (b"0\r\nA: b\n\r\n", 400),
        (b"1" * 16 + b"\r\n", 413),
        (b"5;" + b"x" * 1100, 400),
        (b"5;" + b"x" * 1100 + b"\r\n", 400),
        (b"0\r\n" + b"x" * 1100, 400),
        (b"3E9\r\n", 413),
        (b"FFFFFFFFFFFFFFFF\r\n", 413),
        (b"F" * 1000 + b"\r\n", 413),
        (b"3E8\r\n" + b"x" * 1000 + b"\r\n1\r\n", 413),
        (b"0\r\n" + (b"A: " + b"x" * 1000 + b"\r\n") * 9, 431),
    ],
)
def test_bad_framing_is_refused(data, status):
    with pytest.raises(HttpError) as caught:
        read(data)
    assert caught.value.status == status
    with pytest.raises(HttpError) as caught:
        read(data, range(1, len(data)))
    assert caught.value.status == status


def test_a_body_of_the_largest_size_is_taken():
    body = b"x" * 1000
    assert read(b"3e8\r\n" + body + b"\r\n0\r\n\r\n") == (body, b"")


@pytest.mark.slow
def test_more_chunks_than_allowed_are_refused():
    data = b"1\r\nx\r\n" * MAX_CHUNKS
    assert read(data + b"0\r\n\r\n", max_bytes=1 << 20) == (b"x" * MAX_CHUNKS, b"")
    with pytest.raises(HttpError, match="65536 chunks"):
        read(data + b"1\r\n", max_bytes=1 << 20)
