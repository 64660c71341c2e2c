"""Heads: what is seen of one that cannot be read. How whole ones are read: test_http_connection."""

import pytest

from inferd.transport.http_head import HeadReader, unread_request
from inferd.transport.http_message import HttpError

HEAD = b"POST /api/infer/m HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "target"),
    [
        (HEAD, b"/api/infer/m"),
        (HEAD[:12], b"/api/in"),
        (b"POST /a b c", b"/a"),
        (b"GET\t/a", b"/a"),
        (b"POST ", b""),
        (b"POST\r\n/a", b""),
        (b"", b""),
        (b"\0\xff \xfe", b"\xfe"),
    ],
)
def test_an_unfinished_head_shows_its_target_so_far(head, target):
    request = unread_request(bytearray(head))
    assert (request.target, request.headers, len(request.body)) == (target, {}, 0)


def test_a_head_that_was_read_is_kept_and_one_that_was_not_is_not():
    heads = HeadReader(100, 100, None)
    request, length = heads.read(HEAD)
    assert (request.target, length) == (b"/api/infer/m", 0)
    with pytest.raises(HttpError):
        heads.read(b"GARBAGE\r\n\r\n")
    assert (heads.head, heads.request, heads.length) == (HEAD, request, 0)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"x" * 100, 414),
        (HEAD[:-2] + b"x" * 100, 431),
        (b"GET / HTTP/1.1\n\n", 400),
        (b"\x16\3\1", 400),
    ],
)
def test_what_cannot_become_a_head_is_refused_before_it_ends(data, status):
    heads = HeadReader(100, 100, None)
    with pytest.raises(HttpError) as caught:
        heads.check_partial(bytearray(b"??" + data), 2, 2 + len(data))
    assert caught.value.status == status
