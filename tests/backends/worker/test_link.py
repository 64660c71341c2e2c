"""The server's end of the line, against whatever a worker may say, and one that does not listen."""

import asyncio
import gc
import math

import msgspec
import pytest
from line_peer import PATIENCE_S, SIZE, Peer, packed, taken_count

from inferd.backends.worker.link import CLOSED, DEAF, GARBLED, Link, LinkClosed
from inferd_worker import packet
from inferd_worker.arena import ArenaFull
from inferd_worker.packet import Payload
from inferd_worker.pb_utils.error import TritonModelException


class Ends:
    """A Link, its peer, and what came of it."""

    def __init__(self, most_bytes=1 << 20):
        self.peer = Peer()
        self.heard = []
        self.lost = []
        self.fails = None
        peer = self.peer
        self.link = Link(
            peer.socket, peer.arena, peer.received, self._receive, self.lost.append, most_bytes
        )

    def _receive(self, kind, document, data, *_):
        if self.fails is not None:
            raise self.fails
        self.heard.append((kind, bytes(document), data))


@pytest.fixture
def ends():
    made = []

    def make(**more):
        made.append(Ends(**more))
        return made[-1]

    yield make
    for one in made:
        one.link.close()
        one.heard.clear()
        one.peer.close()


def payload_of(*parts):
    payload = Payload()
    for part in parts:
        payload.add(memoryview(part))
    return payload


# --- what is said in order ---


@pytest.mark.parametrize("size", [1, 63, 64, 65, packet.INLINE_BYTES, 200_000, SIZE + 1])
def test_what_is_sent_arrives(ends, size):
    one = ends()
    one.link.send(packet.EXECUTE, ["x"], payload_of(b"a" * size, b"b"))
    kind, document, data = one.peer.hear()
    assert (kind, document) == (packet.EXECUTE, ["x"])
    assert bytes(data[:size]) == b"a" * size
    assert bytes(data[size + -size % packet.ALIGN :])[:1] == b"b"


def test_nothing_is_held_back_where_no_event_loop_would_send_it(ends):
    one = ends()
    one.link.send(packet.EXECUTE, ["x"], holds=True)
    assert one.peer.hear()[:2] == (packet.EXECUTE, ["x"])


@pytest.mark.parametrize("size", [1, 200_000])
def test_what_the_worker_sends_arrives(ends, size):
    one = ends()
    payload = Payload()
    payload.add(b"c" * size)
    one.peer.line.send(packet.RESULT, [7], payload)
    assert one.link.wait(PATIENCE_S)
    [(kind, document, data)] = one.heard
    assert (kind, document) == (packet.RESULT, b"[[],7]")
    assert bytes(data[:size]) == b"c" * size


def test_memory_is_used_again_when_the_worker_has_let_go(ends):
    one = ends()
    for _ in range(20):
        one.link.send(packet.EXECUTE, [], payload_of(b"a" * (SIZE // 2)))
        one.peer.hear()
        gc.collect()
        one.peer.line.release()
        while not one.heard:
            assert one.link.wait(PATIENCE_S)
        one.link.settle([0])
        one.heard.clear()
    assert taken_count(one.peer.arena) == 0


def test_what_finds_no_room_is_refused_and_takes_none(ends):
    one = ends()
    with pytest.raises(ArenaFull):
        one.link.send(packet.EXECUTE, [], payload_of(bytes(5 * SIZE)))
    assert taken_count(one.peer.arena) == 0
    one.link.send(packet.EXECUTE, ["small"])
    assert one.peer.hear()[1] == ["small"]


def test_what_cannot_be_said_by_the_server_forgets_no_memory(ends):
    one = ends()
    payload = Payload()
    payload.add(bytes(200_000))
    one.peer.line.send(packet.RESULT, [7], payload)
    assert one.link.wait(PATIENCE_S)
    one.heard.clear()
    with pytest.raises(TypeError):
        one.link.send(packet.REPLY, [object()])
    with pytest.raises(ArenaFull):
        one.link.send(packet.EXECUTE, [], payload_of(bytes(5 * SIZE)))
    one.link.release()
    one.link.send(packet.EXECUTE, ["small"])
    assert one.peer.hear()[1] == ["small"]
    assert taken_count(one.peer.workers_arena) == 0


@pytest.mark.parametrize(
    ("odd", "error"),
    [(object(), TypeError), (math.nan, TritonModelException), (math.inf, TritonModelException)],
)
def test_what_cannot_be_said_by_the_worker_forgets_no_memory(ends, odd, error):
    one = ends()
    one.link.send(packet.EXECUTE, [], payload_of(bytes(200_000)))
    one.peer.hear()
    gc.collect()
    with pytest.raises(error):
        one.peer.line.send(packet.LOG, [odd])
    one.peer.line.send(packet.LOG, ["small"])
    assert one.link.wait(PATIENCE_S)
    assert [document for _, document, _ in one.heard] == [b'[[0],"small"]']


# --- what no worker says ---

GARBAGE = {
    "a byte": b"x",
    "half a header": bytes(packet.HEADER.size - 1),
    "a header alone": bytes(packet.HEADER.size),
    "no JSON": packed(packet.RESULT, b"{nothing"),
    "no document": packed(packet.RESULT, b""),
    "a packet, then half a header": packed(packet.LOG, [[]]) + b"xyz",
    "a document longer than its packet": packed(packet.RESULT, [[]], sizes=(1 << 20, None)),
    "a payload longer than its packet": packed(packet.RESULT, [[], 1], sizes=(None, 1 << 63)),
    "a block before the arena": packed(packet.RESULT, [[]], offset=-64),
    "a block behind the arena": packed(packet.RESULT, [[]], offset=SIZE),
    "a block over the arena's end": packed(
        packet.RESULT, [[]], offset=SIZE - 64, sizes=(None, 4096)
    ),
    "a block of nothing": packed(packet.RESULT, [[]], offset=0, sizes=(None, 0)),
    "a block of everything": packed(packet.RESULT, [[]], offset=0, sizes=(None, (1 << 64) - 1)),
    "a block far away": packed(packet.RESULT, [[]], offset=(1 << 62), sizes=(None, 4096)),
    "a document without end": packed(
        packet.RESULT, [[]], offset=SIZE, sizes=((16 << 20) + 1, 17 << 20)
    ),
    "a block that is no document": packed(packet.RESULT, [[]], offset=0, sizes=(None, 4096)),
    "more than a datagram may hold": bytes(packet.MAX_PACKET * 2),
}
HARMLESS = {"a document longer than its packet", "a payload longer than its packet"}


@pytest.mark.parametrize("what", GARBAGE)
def test_what_no_worker_says_ends_the_line(ends, what):
    one = ends()

    def decode(kind, document, data, *_):
        assert len(bytes(document)) + len(data) <= packet.MAX_PACKET
        one.heard.append(msgspec.json.decode(document))

    one.link._receive = decode
    one.peer.say(packed(packet.LOG, [[], "before"]))
    one.peer.say(GARBAGE[what])
    for _ in range(2):
        assert one.link.wait(PATIENCE_S)
    assert one.heard[0] == [[], "before"]
    assert one.lost == ([] if what in HARMLESS else [GARBLED])


def test_the_same_block_twice_ends_the_line(ends):
    one = ends()
    payload = Payload()
    payload.add(bytes(50_000))
    one.peer.line.send(packet.RESULT, [1], payload)
    assert one.link.wait(PATIENCE_S)
    one.peer.say(packed(packet.RESULT, [[]], offset=0, sizes=(None, 50_000)))
    assert one.link.wait(PATIENCE_S)
    assert len(one.heard) == 1
    assert one.lost == [GARBLED]


@pytest.mark.parametrize("offsets", [[1], [-1], [10**30], [0, 0, 0]])
def test_memory_that_was_not_given_is_not_taken_back(ends, offsets):
    one = ends()
    one.link.settle(offsets)
    assert taken_count(one.peer.arena) == 0
    one.link.send(packet.EXECUTE, [], payload_of(bytes(50_000)))
    assert taken_count(one.peer.arena) == 1


@pytest.mark.parametrize(
    ("error", "why"), [(ValueError(), GARBLED), (KeyError(), GARBLED), (LinkClosed(), CLOSED)]
)
def test_what_the_receiver_raises_ends_the_line(ends, caplog, error, why):
    one = ends()
    one.fails = error
    one.peer.say(packed(packet.LOG, [[]]))
    one.peer.say(packed(packet.LOG, [[]]))
    assert one.link.wait(PATIENCE_S)
    assert one.link.wait(PATIENCE_S)
    assert one.lost == [why]
    assert bool(caplog.records) is isinstance(error, KeyError)
    one.fails = None


def test_what_was_said_before_the_end_is_heard_though_something_was_not_read(ends):
    one = ends()
    one.link.send(packet.EXECUTE, ["never read"])
    for number in (1, 2):
        one.peer.say(packed(packet.RESULT, [[], number]))
    one.peer.other.close()
    for _ in range(4):
        one.link.read()
    assert [document for _, document, _ in one.heard] == [b"[[], 1]", b"[[], 2]"]
    assert one.lost == [CLOSED]


def test_a_closed_end_is_told_once(ends):
    one = ends()
    one.peer.other.close()
    for _ in range(3):
        assert one.link.wait(PATIENCE_S)
    assert one.lost == [CLOSED]
    with pytest.raises(LinkClosed):
        one.link.send(packet.RELEASE, [])


# --- a worker that does not read ---


def test_what_waits_for_a_slow_worker_arrives_in_its_order(ends):
    one = ends()

    async def send():
        one.link.attach(asyncio.get_running_loop())
        for number in range(2000):
            one.link.send(packet.REPLY, [number, "x" * 300])
        assert one.link._backlog
        for number in range(2000):
            while not one.peer.is_told():  # noqa: ASYNC110  it is no task that tells
                await asyncio.sleep(0.001)
            assert one.peer.hear()[1][0] == number
        assert not one.link._backlog
        assert one.link._backlog_bytes == 0
        one.link.close()

    asyncio.run(asyncio.wait_for(send(), PATIENCE_S))
    assert one.lost == []


@pytest.mark.parametrize("is_attached", [False, True])
def test_a_worker_that_never_reads_is_given_up(ends, is_attached):
    one = ends(most_bytes=1 << 20)

    async def send():
        if is_attached:
            one.link.attach(asyncio.get_running_loop())
        sent_bytes = 0
        with pytest.raises(LinkClosed):  # noqa: PT012
            while sent_bytes < 8 << 20:
                one.link.send(packet.REPLY, ["x" * 10_000])
                sent_bytes += 10_000
        assert one.lost == [DEAF]
        assert not one.link._backlog
        with pytest.raises(LinkClosed):
            one.link.send(packet.REPLY, ["late"])
        assert one.lost == [DEAF]

    asyncio.run(asyncio.wait_for(send(), PATIENCE_S))
