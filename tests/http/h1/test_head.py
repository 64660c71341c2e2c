"""Heads: what is seen of one that cannot be read. How whole ones are read: test_http_connection."""

import re

import pytest

from inferd.http.h1.head import (
    MOST_HEADS,
    MOST_REMEMBERED_BYTES,
    MOST_TEXTS,
    HeadReader,
    unread_request,
)
from inferd.http.head_template import Variations
from inferd.http.header_forward import HeaderForward
from inferd.http.message import HttpError, parse_head

VARIATIONS = Variations(b"nv-inferrequest")
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


def head_to(model, length=0, more=b""):
    return b"POST /%b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (model, more, length)


def test_a_head_that_was_read_is_kept_and_one_that_was_not_is_not():
    heads = HeadReader(100, 100, None)
    heads.read(HEAD)
    kept = heads.request
    assert (kept.target, heads.length) == (b"/api/infer/m", 0)
    for bad in (b"GARBAGE\r\n\r\n", b"GET /%b HTTP/1.1\r\n\r\n" % (b"x" * 100), head_to(b"m", 101)):
        with pytest.raises(HttpError):
            heads.read(bad)
    assert (heads.head, heads.request, heads.length) == (HEAD, kept, 0)


def test_heads_to_many_models_and_of_many_lengths_are_read_by_turns():
    heads = HeadReader(1000, 1000, None)
    for length in range(30):
        for model in (b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"j"):
            heads.read(head := head_to(model, length % 20 * 7))
            assert (heads.head, heads.length) == (head, length % 20 * 7)
            assert heads.request == parse_head(head)
    assert len(heads._templates) == MOST_HEADS
    assert len(heads._texts) <= MOST_TEXTS


def test_the_same_head_is_not_read_again_nor_one_with_another_length_parsed():
    heads = HeadReader(1000, 100, None)
    seen = {}
    for length in (1, 22, 1, 22):
        heads.read(head_to(b"m", length))
        assert heads.length == length
        assert heads.request is seen.setdefault(length, heads.request)
    for length, request in seen.items():
        assert request == parse_head(head_to(b"m", length))
    assert len(heads._templates) == 1
    with pytest.raises(HttpError) as caught:
        heads.read(head_to(b"m", 101))
    assert caught.value.status == 413


def test_heads_with_ids_are_known_until_another_comes():
    heads = HeadReader(1000, 100, None, VARIATIONS)
    with_id = head_to(b"m", 7, b"NV-InferRequest: id: 1\r\n")
    for _ in range(2):
        heads.read(with_id)
        assert (heads.head, heads.length) == (b"", 7) and heads.changing is not None
        heads.read(head_to(b"m", 8))
        assert (heads.head, heads.length) == (head_to(b"m", 8), 8) and heads.changing is None
    assert len(heads._templates) == 2


def test_heads_with_ids_to_many_models_are_read_by_turns():
    heads = HeadReader(5000, 1000, None, VARIATIONS)
    for number in range(30):
        for model in (b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"j")[: number % 11]:
            line = b"NV-InferRequest: id: %d\r\n" % number
            heads.read(head := head_to(model, 7, line))
            assert (heads.head, heads.length) == (b"", 7) and heads.changing is not None
            assert heads.request == parse_head(head)
            buffer = bytearray(head_to(model, 7, b"NV-InferRequest: id: 77\r\n"))
            assert heads.changing.read(buffer, 0, len(buffer)) == len(buffer)
            assert heads.request == parse_head(bytes(buffer))
    assert len(heads._templates) == MOST_HEADS


def test_a_long_head_is_kept_only_as_the_last_one():
    heads = HeadReader(10000, 100, None)
    heads.read(long := head_to(b"m", more=b"A: " + b"b" * MOST_REMEMBERED_BYTES + b"\r\n"))
    assert heads.head == long
    assert not heads._templates and not heads._texts


def test_headers_that_are_forwarded_are_those_of_each_head():
    heads = HeadReader(
        1000, 100, HeaderForward(re.compile("content.*", re.IGNORECASE).search, frozenset())
    )
    for length in (1, 2, 1):
        heads.read(head_to(b"m", length))
        assert heads.request.forwarded == {"Content-Length": f"{length}"}


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


def test_any_first_byte_of_a_method_may_become_a_head():
    heads = HeadReader(100, 100, None)
    begins = [first for first in range(256) if _is_let_wait(heads, bytes([first]) + b"OST /")]
    assert (
        bytes(begins)
        == b"!#$%&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~"
    )


def _is_let_wait(heads, data):
    try:
        heads.check_partial(bytearray(data), 0, len(data))
    except HttpError:
        return False
    return True
