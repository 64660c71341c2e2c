"""Bodies: where they go, and what counts of them until when."""

from copy import copy

import pytest

from inferd.errors import Overloaded, TooLarge
from inferd.http.h1.body import MIN_BODY_RATE, BodyReader, pace_fault
from inferd.http.message import NO_REQUEST
from inferd.memory.capacity import Capacity

NOTHING = memoryview(b"")


def test_a_body_of_known_length_fills_its_memory():
    capacity = Capacity()
    body = BodyReader(capacity, 1000)
    body.begin(5, memoryview(b"ab"))
    body.memory[body.filled :] = b"cde"
    assert not body.add(2)
    assert body.add(1)
    request = copy(NO_REQUEST)
    body.give(request)
    assert bytes(request.body) == b"abcde" and body.memory is None
    assert capacity.buffered_bytes == 5  # until it is answered
    body.release()
    assert capacity.buffered_bytes == 0


def test_a_body_in_chunks_is_put_together():
    capacity = Capacity()
    body = BodyReader(capacity, 1000)
    body.begin(-1, NOTHING)
    assert body.feed(memoryview(b"3\r\nab")) is None
    assert (body.filled, capacity.buffered_bytes) == (2, 2)
    whole, rest = body.feed(memoryview(b"c\r\n0\r\n\r\nnext"))
    assert (bytes(whole), rest, body.chunks, capacity.buffered_bytes) == (b"abc", b"next", None, 3)
    body.release()
    assert capacity.buffered_bytes == 0


def test_the_next_body_begins_anew():
    body = BodyReader(Capacity(), 1000)
    for length in (4, -1, 2):
        body.begin(length, NOTHING)
        assert body.filled == 0
        body.add(1)
        body.release()
        assert body.memory is None and body.chunks is None


def test_too_much_together_may_come_again_and_too_much_alone_may_not():
    capacity = Capacity(max_bytes=10)
    first, second = BodyReader(capacity, 1000), BodyReader(capacity, 1000)
    first.begin(8, memoryview(bytes(8)))
    with pytest.raises(Overloaded):
        second.begin(5, memoryview(bytes(3)))
    second.release()
    with pytest.raises(TooLarge):
        first.add(3)
    first.release()
    assert capacity.buffered_bytes == 0


def test_memory_there_is_none_of_is_overload():
    with pytest.raises(Overloaded):
        BodyReader(Capacity(), 1000).begin(2**60, NOTHING)


def test_a_body_may_be_slow_for_a_while():
    assert pace_fault(1, 5, 5) is None
    fault = pace_fault(1, 6, 5)
    assert fault is not None
    assert (fault.status, fault.message) == (408, "the body came too slowly: 1 bytes in 6 s")
    assert pace_fault(1 + MIN_BODY_RATE, 6, 5) is None
