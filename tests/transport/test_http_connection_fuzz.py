"""HTTP/1.1 connections without sockets: any bytes, in any pieces, with a reader of any speed."""

import asyncio

import pytest
from http_wire import Wire
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inferd.http.h1.connection import PROBE_S
from inferd.http.turns import Turns

TROUBLE = [
    *(b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"0", b"chunked", b"\r\n\r\n"),
    *(b"Content-Length: 7\r\n", b"Transfer-Encoding: chunked\r\n", b"x" * 500),
]


@pytest.fixture(scope="module")
def engine(models):
    return models()[0]


def pieces(data, cuts):
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


CUTS = st.lists(st.integers(0, 1 << 20), max_size=20)
SPEEDS = st.lists(st.booleans(), max_size=20)


def play(wire, data, cuts, speeds):
    """Send `data` cut into pieces; between them the reader stalls or goes on."""
    speeds = list(speeds)
    for piece in pieces(data, cuts):
        wire.send(piece)
        stalls = bool(speeds) and speeds.pop()
        if wire.transport.is_closed:
            break
        if stalls and not wire.connection._writer.is_stalled:
            wire.connection.pause_writing()
        elif not stalls and wire.connection._writer.is_stalled:
            wire.connection.resume_writing()
    if not wire.transport.is_closed and wire.connection._writer.is_stalled:
        wire.connection.resume_writing()
    wire.send(b"")


class Requests(list):
    """Requests; failures tell which by number, not all of them."""

    def __repr__(self):
        return "Requests"


@pytest.fixture(scope="module")
def valid(infer, binary):
    """Requests with the status each must get."""
    requests = [
        (b"GET /v2/health/live HTTP/1.1\r\n\r\n", 200),
        (b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n", 200),
        (b"\r\nGET /v2/models/none/ready HTTP/1.1\r\n\r\n", 404),
        (b"PUT /v2 HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (infer([1.5, 2.5]), 200),
        (infer([1.5], "Expect: 100-continue"), 200),
        (infer([0.5] * 300, as_chunks=100), 200),
        (binary(bytes(2400)), 200),
        (binary(bytes(2800), as_chunks=2000), 200),
        (binary(bytes(5)), 400),
    ]
    return Requests(requests)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(
    which=st.lists(st.integers(0, 9), min_size=1, max_size=25),
    cuts=CUTS,
    speeds=SPEEDS,
)
def test_valid_requests_are_answered_one_for_one(engine, valid, which, cuts, speeds):
    wire = Wire(engine)
    play(wire, b"".join(valid[one][0] for one in which), cuts, speeds)
    assert [status for status, _ in wire.answers()] == [valid[one][1] for one in which]
    assert not wire.transport.is_closed
    wire.end()


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    which=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    changes=st.lists(
        st.tuples(
            st.integers(0, 1 << 20),
            st.integers(0, 30),
            st.one_of(
                st.binary(max_size=20),
                st.sampled_from(TROUBLE),
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    cuts=CUTS,
    speeds=SPEEDS,
)
def test_broken_requests_are_answered_or_closed(engine, valid, which, changes, cuts, speeds):
    stream = b"".join(valid[one][0] for one in which)
    for place, removed, inserted in changes:
        at = place % (len(stream) + 1)
        stream = stream[:at] + inserted + stream[at + removed :]
    wire = Wire(engine)
    play(wire, stream, cuts, speeds)
    wire.now += 11
    wire.server.sweep()
    statuses = [status for status, _ in wire.answers()]
    assert 500 not in statuses
    wire.end()


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(data=st.binary(max_size=2000), cuts=CUTS, speeds=SPEEDS)
def test_any_bytes_are_answered_or_closed(engine, data, cuts, speeds):
    wire = Wire(engine)
    play(wire, data, cuts, speeds)
    assert {status for status, _ in wire.answers()} <= {400, 414, 431, 505}
    wire.end()


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(sizes=st.lists(st.integers(1, 900), min_size=1, max_size=30), cuts=CUTS)
def test_chunks_of_any_sizes_make_one_body(engine, sizes, cuts):
    sizes = [size * 4 for size in sizes]
    body = b"".join(bytes([at % 251]) * size for at, size in enumerate(sizes))
    stream, at = b"", 0
    for size in sizes:
        stream += b"%X ; a=b\r\n%b\r\n" % (size, body[at : at + size])
        at += size
    head = b"POST /v2/models/id/infer HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n"
    head += b"Inference-Header-Content-Length: 0\r\n\r\n"
    size = len(body)
    wire = Wire(engine, max_body_bytes=size, max_input_bytes=size, max_inflight_bytes=2 * size)
    play(wire, head + stream + b"0\r\nA: b\r\n\r\n" + head + b"0\r\n\r\n", cuts, [])
    (status, answer), (empty_status, _) = wire.answers()
    assert (status, empty_status) == (200, 200)
    assert answer.endswith(body)
    wire.end()


EVENTS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 400)),
    st.tuples(
        st.sampled_from(
            ["release", "hold", "pause", "resume", "end", "sweep", "wait", "stop", "idle", "lose"]
        ),
        st.just(0),
    ),
)


class Story:
    """One connection with a model that may be slow; each method is something that can happen."""

    def __init__(self, engine, held, stream):
        self.wire = Wire(engine)
        self.wire.connection._writer.turns = Turns()  # the real ones, which write later
        self.held = held
        self.stream = stream
        self.is_lost = False
        self.is_ended = False

    def send(self, size):
        if not self.is_ended:
            self.wire.send(self.stream[:size])
            self.stream = self.stream[size:]

    def release(self, _):
        self.held.release.set()

    def hold(self, _):
        self.held.release.clear()

    def pause(self, _):
        if not self.wire.connection._writer.is_stalled:
            self.wire.connection.pause_writing()

    def resume(self, _):
        if self.wire.connection._writer.is_stalled:
            self.wire.connection.resume_writing()
            self.wire.send(b"")

    def end(self, _):
        transport = self.wire.transport
        if not self.is_ended and transport.is_reading and not self.wire.unread:
            self.is_ended = True
            transport.is_reading = False
            if not self.wire.connection.eof_received():
                transport.close()

    def sweep(self, _):
        self.wire.now += 6
        self.wire.server.sweep()

    def stop(self, _):
        self.wire.server.endpoint.drain()

    def idle(self, _):
        self.wire.connection.drain()

    def lose(self, _):
        self.wire.transport.close()

    def wait(self, _):
        pass

    async def play(self, events):
        for name, size in events:
            if self.is_lost:
                break
            getattr(self, name)(size)
            if self.wire.transport.is_closed:
                self.is_lost = True
                self.wire.end()
            if name == "wait" or self.is_lost:
                for _ in range(5):
                    await asyncio.sleep(0)
                self.wire.send(b"")
        if not self.is_lost:
            self.wire.transport.close()
            self.wire.end()
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert self.wire.server.endpoint.capacity.buffered_bytes == 0
        assert not self.wire.transport.is_misused


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    which=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    events=st.lists(EVENTS, max_size=40),
)
@example(which=[0], events=[("pause", 0), ("end", 0)])
def test_whatever_happens_in_whatever_order_nothing_breaks(models, valid, binary, which, events):
    slow = [binary(bytes(400), model="held"), binary(bytes(800), model="held", as_chunks=300)]
    streams = [stream for stream, _ in valid] + slow + [b"GARBAGE\r\n\r\n"]
    engine, held = models()
    story = Story(engine, held, b"".join(streams[one] for one in which))
    failures = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
        await story.play(events)

    asyncio.run(main())
    assert failures == []
    statuses = [status for status, _ in story.wire.answers()]
    assert 500 not in statuses


def test_a_half_closed_client_that_stalls_after_each_answer_gets_them_all(engine):
    wire = Wire(engine)
    wire.connection.pause_writing()
    wire.send(b"GET /v2 HTTP/1.1\r\n\r\n" * 3)
    assert wire.connection.eof_received()
    write = wire.transport.write
    wire.transport.write = lambda data: (write(data), wire.connection.pause_writing())
    for count in (1, 2, 3):
        assert not wire.transport.is_closed
        wire.connection.resume_writing()
        assert [status for status, _ in wire.answers()] == [200] * count
    wire.connection.resume_writing()
    assert wire.transport.is_closed
    wire.end()


async def has_answered(wire):
    """Wait until there is an answer that is still to be written."""
    while not wire.connection._writer.pending:  # noqa: ASYNC110  nothing else tells
        await asyncio.sleep(0)


async def test_an_answer_is_not_lost_when_the_client_ends_before_it_is_written(models, infer):
    engine, held = models()
    wire = Wire(engine)
    wire.connection._writer.turns = Turns()
    wire.send(infer([1.5], model="held"))
    await held.started.acquire()
    held.release.set()
    await has_answered(wire)
    assert wire.answers() == []
    assert not wire.connection.eof_received()
    assert [status for status, _ in wire.answers()] == [200]
    wire.transport.close()
    await asyncio.sleep(0)
    wire.end()


async def test_a_request_is_answered_though_its_client_ends_before_its_turn(engine):
    wire = Wire(engine)
    wire.connection._writer.turns = Turns()
    wire.send(b"GET /v2 HTTP/1.1\r\n\r\n")
    assert wire.answers() == []
    assert not wire.connection.eof_received()
    assert [status for status, _ in wire.answers()] == [200]
    wire.transport.close()
    await asyncio.sleep(0)
    wire.end()


async def test_an_answer_of_a_lost_connection_is_not_written(models, infer, caplog):
    engine, held = models()
    for lose in ("end", "abort"):
        wire = Wire(engine)
        wire.connection._writer.turns = Turns()
        held.release.clear()
        wire.send(infer([1.5], model="held"))
        await held.started.acquire()
        held.release.set()
        await has_answered(wire)
        wire.end() if lose == "end" else wire.connection.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert wire.answers() == []
    assert caplog.text == ""


async def test_a_half_closed_client_with_many_slow_requests_is_probed_once_at_a_time(models, infer):
    engine, held = models()
    wire = Wire(engine)
    began = asyncio.get_running_loop().time()
    wire.send(infer([1.5], model="held") * 5)
    assert wire.connection.eof_received()
    for _ in range(5):
        await held.started.acquire()
        held.release.set()
        held.release.clear()  # the next one is slow again
    while not wire.transport.is_closed:  # noqa: ASYNC110  nothing else tells that all is done
        await asyncio.sleep(0)
    took_s = asyncio.get_running_loop().time() - began
    probes = b"".join(wire.transport.written).count(b"102 Processing")
    assert 1 <= probes <= 2 + took_s / PROBE_S  # five at once would be five in no time
    assert [status for status, _ in wire.answers()] == [200] * 5
    wire.end()


async def test_a_reader_may_stall_and_go_on_while_a_model_runs(models, infer):
    engine, held = models()
    wire = Wire(engine)
    wire.send(infer([1.5], model="held"))
    await held.started.acquire()
    wire.connection.pause_writing()
    wire.connection.resume_writing()
    assert wire.answers() == []
    held.release.set()
    while not wire.transport.written:  # noqa: ASYNC110  nothing else tells that it has answered
        await asyncio.sleep(0)
    assert [status for status, _ in wire.answers()] == [200]
    wire.end()


async def test_an_answer_that_comes_as_the_connection_is_cut_is_dropped(models, infer):
    engine, held = models()
    wire = Wire(engine)
    wire.send(infer([1.5], model="held"))
    await held.started.acquire()
    task = wire.connection._driver._task
    held.release.set()
    wire.server.close()
    await task
    assert wire.answers() == []
    wire.end()


def test_a_body_that_is_refused_is_not_asked_for(engine, binary):
    wire = Wire(engine, max_inflight_bytes=10)
    wire.send(binary(bytes(400), "Expect: 100-continue")[:-100])
    assert b"".join(wire.transport.written).startswith(b"HTTP/1.1 413")
    assert len(wire.transport.written) == 1
    wire.end()


def test_bytes_after_a_refusal_are_dropped_in_little_memory(engine):
    wire = Wire(engine)
    wire.send(b"GARBAGE\r\n\r\n" + bytes(8000))
    wire.send(bytes(1_000_001))
    assert len(wire.connection.get_buffer(65536)) >= 8192  # so that dropping costs little
    assert [status for status, _ in wire.answers()] == [400]
    assert len(wire.connection._reader.buffer) <= 16384
    assert wire.transport.is_ended and not wire.transport.is_closed
    wire.end()


def test_a_client_that_sends_on_without_reading_is_not_read(engine, infer):
    wire = Wire(engine)
    wire.connection.pause_writing()
    wire.send(infer([1.5]) * 1000)
    assert not wire.transport.is_reading
    assert len(wire.connection._reader.buffer) <= 16384
    while wire.unread:
        wire.connection.resume_writing()
        wire.connection.pause_writing()
        wire.send(b"")
    wire.connection.resume_writing()
    assert [status for status, _ in wire.answers()] == [200] * 1000
    wire.end()
