"""From bytes to requests, and what is kept meanwhile."""

import msgspec
import pytest

from inferd.config.server import ServerConfig
from inferd.errors import TooLarge
from inferd.http.h1.reader import RequestReader
from inferd.http.head_template import NO_VARIATIONS
from inferd.http.message import HttpError
from inferd.http.router import Router
from inferd.http.routes import Routes
from inferd.memory.capacity import Capacity
from inferd.server.options import http_options

ROUTES = Routes(Router([]), forward=None, refusable="", variations=NO_VARIATIONS)
LIMITS = http_options(ServerConfig())
GET = b"GET /%b HTTP/1.1\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b"
CHUNKED = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Transport:
    """A transport that can be told to read or not."""

    def __init__(self):
        self.calls = []

    def pause_reading(self):
        self.calls.append("pause")

    def resume_reading(self):
        self.calls.append("resume")


def reader_of(*pieces, max_bytes=None, **changes):
    """Return a reader that has received `pieces`."""
    capacity = Capacity() if max_bytes is None else Capacity(max_bytes=max_bytes)
    reader = RequestReader(msgspec.structs.replace(LIMITS, **changes), ROUTES, capacity)
    reader.transport = Transport()
    for piece in pieces:
        receive(reader, piece)
    return reader


def receive(reader, data):
    while data:
        room = reader.room()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        reader.end += count
        data = data[count:]


def test_requests_are_read_in_order_with_the_bodies_that_are_there():
    reader = reader_of(GET % b"x", POST % (3, b"abc"), GET % b"y")
    found = []
    while (request := reader.read()) is not None:
        assert reader.is_whole
        found.append((request.target, bytes(request.body)))
    assert found == [(b"/x", b""), (b"/a", b"abc"), (b"/y", b"")]
    assert reader.start == reader.end == 0


@pytest.mark.parametrize("count", range(1, len(GET % b"")))
def test_part_of_a_head_is_no_request_yet(count):
    whole = GET % b""
    reader = reader_of(whole[:count])
    assert reader.read() is None
    receive(reader, whole[count:])
    assert reader.read().target == b"/"


def test_the_rest_of_a_body_goes_into_memory_of_its_own():
    reader = reader_of(POST % (6, b"ab"))
    request = reader.read()
    assert not reader.is_whole
    reader.request = request
    reader.begin_body(6)
    assert reader.start == reader.end == 0
    for piece in (b"cd", b"ef"):
        room = reader.body.room()
        room[:2] = piece
        answered = reader.fill_body(2)
    assert answered is request
    assert bytes(request.body) == b"abcdef"
    assert reader.request is None


def test_chunks_are_put_together_and_what_follows_is_kept():
    reader = reader_of(CHUNKED, b"2\r\nab\r\n")
    request = reader.request = reader.read()
    assert not reader.is_whole
    reader.begin_body(-1)
    assert reader.read_chunks() is None
    receive(reader, b"1\r\nc\r\n0\r\n\r\n" + GET % b"next")
    assert reader.read_chunks() is request
    assert bytes(request.body) == b"abc"
    assert reader.read().target == b"/next"


def test_a_head_up_to_the_limit_has_room_and_no_more():
    reader = reader_of(max_header_bytes=20_000)
    start = b"GET / HTTP/1.1\r\nx: "
    receive(reader, start + bytes(b"a" * (20_000 - len(start))))
    assert reader.read() is None
    receive(reader, b"a")
    with pytest.raises(HttpError) as refused:
        reader.read()
    assert refused.value.status == 431
    assert len(reader.buffer) <= 20_000 + 8192


def test_memory_that_views_refer_to_is_not_written_again():
    first, second = POST % (5000, bytes(5000)), POST % (5000, b"x" * 5000)
    reader = reader_of(first)
    body = reader.read().body
    receive(reader, second)
    assert bytes(body) == bytes(5000)


def test_a_request_that_is_given_up_is_known_as_far_as_it_has_come():
    assert reader_of(b"GET /there HT").give_up().target == b"/there"
    reader = reader_of(POST % (6, b"ab"))
    reader.request = reader.read()
    reader.begin_body(6)
    assert reader.give_up().target == b"/a"
    assert reader.request is None
    assert reader.body.memory is None
    assert reader.start == reader.end == 0


def test_a_body_there_is_never_room_for_is_refused():
    reader = reader_of(POST % (100, b"ab" * 20), max_bytes=10)
    reader.request = reader.read()
    with pytest.raises(TooLarge):
        reader.begin_body(100)


def test_the_first_bytes_are_known_until_there_has_been_a_head():
    reader = reader_of(b"PRI * HTT")
    assert reader.first_bytes() == b"PRI * HTT"
    reader = reader_of(GET % b"x", GET % b"y")
    reader.read()
    assert reader.first_bytes() == b""
    assert reader.has_more()


def test_the_transport_is_told_once_to_stop_and_to_go_on():
    reader = reader_of()
    for _ in range(2):
        reader.stop()
    for _ in range(2):
        reader.go_on()
    assert reader.transport.calls == ["pause", "resume"]


def test_there_is_news_if_something_came_or_could_not_come_meanwhile():
    assert not reader_of().has_news()
    assert reader_of(b"x").has_news()
    reader = reader_of()
    reader.stop()
    assert reader.has_news()
    reader = reader_of()
    reader.has_ended = True
    assert reader.has_news()
