"""Header blocks of one connection: what is remembered of them, and for how long."""

import tracemalloc

import hpack
import pytest

from inferd.http.h2.frames import ConnectionFault, ErrorCode
from inferd.http.h2.heads import HeaderBlocks
from inferd.http.h2.hpack import encode_fields
from inferd.http.h2.request import MalformedRequest

HEAD = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/p"), (b":authority", b"h")]


class Client:
    """Sends heads, and holds what is read against what was sent."""

    def __init__(self, max_bytes=16384):
        self._encoder = hpack.Encoder()
        self._blocks = HeaderBlocks(max_bytes)

    def send(self, *fields, pseudo=HEAD):
        head = self._blocks.head(self._encoder.encode([*pseudo, *fields]))
        assert isinstance(head, MalformedRequest) or head.fields == list(fields)
        return head


def test_a_block_that_repeats_is_the_same_head():
    client = Client()
    client.send((b"a", b"1"))
    head = client.send((b"a", b"1"))
    assert client.send((b"a", b"1")) is head


def test_a_head_with_other_values_is_made_of_the_first():
    client = Client()
    first = client.send((b"id", b"1"), (b"te", b"trailers"))
    for number in range(200):  # far more than the table holds
        head = client.send((b"id", b"%d" % number * 20), (b"te", b"trailers"))
        assert head.base is first
        assert head.changed == [(b"id", b"%d" % number * 20)]


def test_heads_of_several_kinds_by_turns_keep_their_bases():
    client = Client()
    others = [HEAD[0], HEAD[1], (b":path", b"/q"), HEAD[3]]
    first, second, third = (
        client.send((b"id", b"1")),
        client.send((b"id", b"1"), pseudo=others),
        client.send((b"id", b"1"), (b"more", b"1")),
    )
    for number in range(50):
        value = b"n%d" % number
        assert client.send((b"id", value)).base is first
        assert client.send((b"id", value), pseudo=others).base is second
        assert client.send((b"id", value), (b"more", value)).base is third


def test_more_kinds_of_heads_than_are_remembered_are_read():
    client = Client()
    for number in range(20):
        pseudo = [*HEAD[:2], (b":path", b"/%d" % number), HEAD[3]]
        first = client.send((b"id", b"1"), pseudo=pseudo)
        assert first.base is None
        assert client.send((b"id", b"2"), pseudo=pseudo).base is first


def test_a_large_head_is_read_anew_each_time():
    client = Client()
    large = (b"large", b"x" * 5000)
    client.send(large)
    head = client.send(large, (b"id", b"1"))
    assert head.base is None
    assert client.send(large, (b"id", b"1")) is not head


def test_metadata_with_the_same_name_twice_are_decoded_each_time():
    client = Client()
    client.send((b"id", b"1"), (b"id", b"2"))
    assert client.send((b"id", b"3"), (b"id", b"2")).base is None


def test_what_is_malformed_stays_so_beside_a_base():
    client = Client()
    client.send((b"id", b"1"), (b"te", b"trailers"))
    assert isinstance(client.send((b"id", b"1\n"), (b"te", b"trailers")), MalformedRequest)
    assert isinstance(client.send((b"id", b"1"), (b"te", b"gzip")), MalformedRequest)
    assert not isinstance(client.send((b"id", b"1"), (b"te", b"trailers")), MalformedRequest)


@pytest.mark.slow
def test_what_is_remembered_is_limited():
    """A megabyte of heads of which no two are alike; Python's objects are a few times as large."""
    blocks = HeaderBlocks(16384)
    tracemalloc.start()
    try:
        for number in range(300):
            more = [(b"%d" % at, b"%d" % number) for at in range(100)]
            blocks.head(encode_fields([*HEAD, *more]))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000


def test_a_block_in_too_many_pieces_ends_the_connection():
    blocks = HeaderBlocks(1000)
    blocks.begin(b"")
    for _ in range(8):
        blocks.go_on(b"")
    with pytest.raises(ConnectionFault) as caught:
        blocks.go_on(b"")
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM
