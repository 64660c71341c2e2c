"""What time does to an HTTP/2 connection: an injected clock, raw frames, real sockets."""

import asyncio
import functools
import inspect
import socket
import struct
from contextlib import suppress

import msgspec
import pytest

from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.http.grpc.handler import Stream, Unary
from inferd.http.h2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    ErrorCode,
    encode_frame,
    encode_window_update,
)
from inferd.http.h2.hpack import encode_fields
from inferd.http.http2_connection import LINGER_BYTES, LINGER_S
from inferd.server.options import grpc_options
from inferd.transport.http2_server import Http2Server

HOUR_MS = 3_600_000


async def wait_for_ever(data, call):
    await asyncio.Event().wait()


async def fill(messages, call):
    """Send for as long as anybody reads."""
    async for _ in messages:
        while True:
            yield [bytes(60_000)]


async def one(messages, call):
    """Send one small answer at once, and no end."""
    yield [b"small"]
    async for _ in messages:
        pass


async def large(data, call):
    return [bytes(1_000_000)]


METHODS = {
    "/t.T/Wait": Unary(wait_for_ever),
    "/t.T/Fill": Stream(fill),
    "/t.T/Large": Unary(large),
    "/t.T/One": Stream(one),
}


class Bench:
    """A server whose clock stands still until it is told, and one client."""

    def __init__(self, **changes):
        self.now = 1000.0
        self.cancelled = asyncio.Event()
        options = msgspec.structs.replace(grpc_options(ServerConfig()), **changes)
        methods = METHODS | {"/t.T/Tell": Unary(self.tell_when_cancelled)}
        self.server = Http2Server(Engine(), options, methods, clock=lambda: self.now)

    async def __aenter__(self):
        port = await self.server.start("127.0.0.1", 0)
        self.port = port
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def __aexit__(self, *error):
        self.writer.close()
        await self.server.stop(0)

    async def tell_when_cancelled(self, data, call):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def send(self, *frames):
        self.writer.write(b"".join(frames))

    async def greet(self):
        self.send(PREFACE, encode_frame(SETTINGS, 0, 0))
        await self.until(SETTINGS, ACK)

    def call(self, stream_id, path, ends=END_STREAM, fields=()):
        self.head(stream_id, path, fields)
        self.send(encode_frame(DATA, ends, stream_id, bytes(5)))

    def head(self, stream_id, path, fields):
        head = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path),
            (b"content-type", b"application/grpc"),
            *fields,
        ]
        self.send(encode_frame(HEADERS, END_HEADERS, stream_id, encode_fields(head)))

    def pass_time(self, seconds):
        self.now += seconds
        self.server.sweep()

    async def frame(self):
        """The next frame, None at the end."""
        try:
            head = await self.reader.readexactly(9)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        high, low, kind, flags, stream_id = struct.unpack(">HBBBL", head)
        return kind, flags, stream_id, await self.reader.readexactly(high << 8 | low)

    async def until(self, kind, flags=None):
        """The payload of the next frame of that kind."""
        while True:
            frame = await self.frame()
            assert frame is not None, "the connection ended"
            if frame[0] == kind and flags in (None, frame[1]):
                return frame[3]

    async def goaway(self):
        last, code = struct.unpack(">LL", (await self.until(GOAWAY))[:8])
        return last, ErrorCode(code)

    async def frames(self):
        """All frames up to the end."""
        while (frame := await self.frame()) is not None:
            yield frame

    async def ended(self):
        while await self.frame() is not None:
            pass


async def true(condition):
    """Wait until `condition()` is true, in the server's loop."""
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.001)


def timed(**changes):
    """Make a test of a coroutine that takes a Bench."""

    def wrap(test):
        @functools.wraps(test)
        def run(**given):
            async def use():
                async with Bench(**changes) as bench:
                    await asyncio.wait_for(test(bench, **given), 30)

            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(use())

        # What pytest is to give is all but the first argument.
        run.__signature__ = inspect.Signature([*inspect.signature(test).parameters.values()][1:])
        return run

    return wrap


@timed(handshake_timeout_s=5)
async def test_who_says_nothing_is_sent_away(bench):
    bench.pass_time(4)
    bench.send(PREFACE)
    bench.pass_time(2)
    assert (await bench.goaway())[1] is ErrorCode.SETTINGS_TIMEOUT
    await bench.ended()


@timed()
async def test_a_handler_hears_of_a_client_that_cancels_in_the_same_breath(bench):
    await bench.greet()
    bench.call(1, b"/t.T/Tell")
    bench.send(encode_frame(RST_STREAM, 0, 1, ErrorCode.CANCEL.to_bytes(4, "big")))
    await bench.cancelled.wait()


@timed()
async def test_what_a_client_says_in_the_midst_of_a_large_message_is_heard(bench):
    await bench.greet()
    bench.head(1, b"/t.T/Wait", ())
    message = b"\0" + (1 << 20).to_bytes(4, "big") + bytes(300_000)
    for start in range(0, len(message), 16384):
        bench.send(encode_frame(DATA, 0, 1, message[start : start + 16384]))
    bench.send(encode_frame(PING, 0, 0, bytes(8)))
    await bench.until(PING, ACK)
    bench.call(3, b"/t.T/Tell")
    bench.send(encode_frame(RST_STREAM, 0, 3, ErrorCode.CANCEL.to_bytes(4, "big")))
    await bench.cancelled.wait()


@timed(keepalive_time_ms=60_000, keepalive_timeout_ms=10_000, http2_max_pings_without_data=2)
async def test_a_quiet_client_with_a_call_is_pinged_and_given_up(bench):
    await bench.greet()
    bench.pass_time(100)  # no call, no ping
    bench.call(1, b"/t.T/Wait")
    bench.send(encode_frame(PING, 0, 0, bytes(8)))
    await bench.until(PING, ACK)
    for _ in range(2):
        bench.pass_time(61)
        payload = await bench.until(PING, 0)
        bench.pass_time(9)
        bench.send(encode_frame(PING, ACK, 0, payload), encode_frame(SETTINGS, 0, 0))
        await bench.until(SETTINGS, ACK)
        bench.pass_time(1)
    bench.pass_time(200)  # two pings without data between them are enough
    bench.send(encode_frame(SETTINGS, 0, 0))
    await bench.until(SETTINGS, ACK)


@timed(keepalive_time_ms=60_000, keepalive_timeout_ms=10_000, keepalive_permit_without_calls=True)
async def test_a_client_that_does_not_answer_a_ping_is_cut(bench):
    await bench.greet()
    bench.pass_time(61)
    await bench.until(PING, 0)
    bench.pass_time(11)
    await bench.ended()


@timed(http2_min_recv_ping_interval_without_data_ms=1000, keepalive_permit_without_calls=True)
async def test_pings_in_time_are_welcome_and_too_many_are_not(bench):
    await bench.greet()
    for _ in range(5):
        bench.now += 1
        bench.send(encode_frame(PING, 0, 0, bytes(8)))
        await bench.until(PING, ACK)
    for _ in range(3):
        bench.send(encode_frame(PING, 0, 0, bytes(8)))
    _, code = await bench.goaway()
    assert code is ErrorCode.ENHANCE_YOUR_CALM
    await bench.ended()


@timed(max_connection_age_ms=HOUR_MS, max_connection_age_grace_ms=5000)
async def test_an_old_connection_is_drained_and_then_cut(bench):
    await bench.greet()
    bench.call(1, b"/t.T/Wait")
    bench.pass_time(4000)
    assert await bench.goaway() == (2**31 - 1, ErrorCode.NO_ERROR)
    bench.send(encode_frame(PING, ACK, 0, await bench.until(PING, 0)))
    assert await bench.goaway() == (1, ErrorCode.NO_ERROR)
    bench.pass_time(6)
    block = await bench.until(HEADERS)
    assert b"grpc-status" in block and b"14" in block
    await bench.ended()


@timed(max_connection_age_ms=HOUR_MS)
async def test_what_comes_after_the_last_goaway_resets_nothing(bench):
    await bench.greet()
    bench.pass_time(4000)
    bench.send(encode_frame(PING, ACK, 0, await bench.until(PING, 0)))
    await bench.goaway()
    await bench.ended()
    # A proxy, which reads what it was answered later, would lose those answers with a reset.
    for stream_id in (1, 3):
        bench.call(stream_id, b"/t.T/One")
        await asyncio.sleep(0)
        client = bench.writer.get_extra_info("socket")
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert bench.server.endpoint.connections
    bench.pass_time(3)
    await true(lambda: not bench.server.endpoint.connections)


@timed(max_connection_age_ms=HOUR_MS)
async def test_who_does_not_answer_the_draining_ping_is_drained_all_the_same(bench):
    await bench.greet()
    bench.pass_time(4000)
    await bench.until(PING, 0)
    bench.pass_time(1)
    assert await bench.goaway() == (0, ErrorCode.NO_ERROR)
    await bench.ended()


@timed()
async def test_who_has_just_connected_when_the_server_stops_is_answered(bench):
    stopping = asyncio.create_task(bench.server.stop(60))
    await bench.greet()  # no GOAWAY before that: a client would give up its first calls
    bench.pass_time(0.5)
    assert await bench.goaway() == (2**31 - 1, ErrorCode.NO_ERROR)
    bench.call(1, b"/t.T/One")  # sent before the client knew
    bench.send(encode_frame(PING, ACK, 0, await bench.until(PING, 0)))
    assert await bench.goaway() == (1, ErrorCode.NO_ERROR)
    await bench.until(HEADERS)
    await bench.ended()
    bench.writer.close()
    await stopping


@timed()
async def test_who_does_not_speak_while_the_server_stops_does_not_hold_it_up(bench):
    stopping = asyncio.create_task(bench.server.stop(60))
    while not bench.server.endpoint.connections:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    bench.pass_time(2)
    _, code = await bench.goaway()
    assert code is ErrorCode.SETTINGS_TIMEOUT
    await bench.ended()
    bench.writer.close()
    await stopping


@timed(max_connection_idle_ms=60_000)
async def test_an_idle_connection_is_closed(bench):
    await bench.greet()
    bench.pass_time(59)
    bench.pass_time(2)
    assert await bench.goaway() == (2**31 - 1, ErrorCode.NO_ERROR)
    bench.send(encode_frame(PING, ACK, 0, await bench.until(PING, 0)))
    await bench.ended()


@pytest.mark.parametrize("came", [b"", bytes(3), b"\0\0\0\1\0" + bytes(100)])
@timed()
async def test_a_deadline_ends_a_call_whose_message_never_comes(bench, came):
    await bench.greet()
    bench.head(1, b"/t.T/Wait", [(b"grpc-timeout", b"20m")])
    bench.send(encode_frame(DATA, 0, 1, came))
    assert b"4" in await bench.until(HEADERS)  # the clock stands still: no sweep has done that
    [connection] = bench.server.endpoint.connections
    assert not connection._carrier.hurried


@timed()
async def test_a_deadline_is_kept_when_much_comes_at_once(bench):
    await bench.greet()
    for stream_id in (1, 3, 5):
        bench.head(stream_id, b"/t.T/Wait", [(b"grpc-timeout", b"20m")])
        bench.send(encode_frame(DATA, 0, stream_id, b"\0\0\1\0\0" + bytes(16_000)))
    for _ in range(3):
        assert b"4" in await bench.until(HEADERS)


@timed()
async def test_a_deadline_ends_a_call_whose_answer_nobody_takes(bench):
    await bench.greet()
    bench.call(1, b"/t.T/Large", fields=[(b"grpc-timeout", b"1S")])
    await bench.until(DATA)
    bench.now += 10**9  # past any deadline of the real clock
    bench.server.sweep()
    assert await bench.until(RST_STREAM) == struct.pack(">L", ErrorCode.CANCEL)


@timed()
async def test_the_longest_deadline_there_is_does_no_harm(bench):
    await bench.greet()
    bench.head(1, b"/t.T/Wait", [(b"grpc-timeout", b"99999999H")])
    bench.call(3, b"/t.T/Wait", fields=[(b"grpc-timeout", b"99999999H")])
    bench.send(encode_frame(PING, 0, 0, bytes(8)))
    await bench.until(PING, ACK)


@timed()
async def test_a_deadline_of_nothing_has_passed(bench):
    await bench.greet()
    bench.call(1, b"/t.T/Wait", fields=[(b"grpc-timeout", b"0n")])
    assert b"4" in await bench.until(HEADERS)


def coming(bench, stream_id):
    """How much is held of what came on a stream."""
    [connection] = bench.server.endpoint.connections
    stream = connection._sender.handlers.get(stream_id)
    return -1 if stream is None else stream._held_bytes


def begun(bench, stream_id):
    """How many messages of a stream have begun to come."""
    [connection] = bench.server.endpoint.connections
    return connection._sender.handlers[stream_id]._reader.begun_count


@pytest.mark.parametrize("came", [b"", bytes(3), b"\0\0\0\1\0" + bytes(100), bytes(5)])
@timed(message_timeout_s=10)
async def test_a_call_whose_message_stops_coming_is_given_up(bench, came):
    await bench.greet()
    bench.head(1, b"/t.T/Wait", ())
    bench.send(encode_frame(DATA, 0, 1, came))
    await true(lambda: bench.server.endpoint.connections and coming(bench, 1) == len(came))
    bench.pass_time(1)
    bench.pass_time(9)
    bench.send(encode_frame(PING, 0, 0, bytes(8)))
    await bench.until(PING, ACK)
    bench.pass_time(2)
    assert b"4" in await bench.until(HEADERS)
    assert bench.server.endpoint.capacity.buffered_bytes == 0


@timed(message_timeout_s=10)
async def test_a_message_may_take_its_time_but_not_trickle_in(bench):
    await bench.greet()
    bench.head(1, b"/t.T/Wait", ())
    bench.send(encode_frame(DATA, 0, 1, b"\0\0\1\0\0"))
    sent = 5
    for _ in range(20):
        bench.send(encode_frame(DATA, 0, 1, bytes(1100)))
        sent += 1100
        await true(lambda: coming(bench, 1) == sent)  # noqa: B023
        bench.pass_time(1)
    for second in range(20):
        if bench.pass_time(1) or coming(bench, 1) < 0:
            break
        bench.send(encode_frame(DATA, 0, 1, b"x"))
        await true(lambda: coming(bench, 1) == sent + second + 1)  # noqa: B023
    assert b"4" in await bench.until(HEADERS)
    assert 5 < second < 15


@timed(message_timeout_s=10)
async def test_a_stream_may_rest_between_its_messages_but_not_inside_one(bench):
    await bench.greet()
    bench.call(1, b"/t.T/One", ends=0)
    await bench.until(DATA)
    for _ in range(4):
        bench.pass_time(9)
    bench.send(encode_frame(DATA, 0, 1, b"\0\0\0\1\0" + bytes(100)))
    await true(lambda: coming(bench, 1) > 5)
    bench.pass_time(1)
    bench.pass_time(9)
    bench.send(encode_frame(DATA, 0, 1, bytes(156) + b"\0\0\0\1\0" + bytes(100)))
    await true(lambda: begun(bench, 1) == 2)
    bench.pass_time(9)
    bench.pass_time(9)
    bench.send(encode_frame(PING, 0, 0, bytes(8)))
    assert (await bench.frame())[0] == PING
    bench.pass_time(2)
    assert b"4" in await bench.until(HEADERS)


@timed(message_timeout_s=10)
async def test_a_call_whose_handler_waits_is_not_the_client_s_fault(bench):
    await bench.greet()
    bench.call(1, b"/t.T/Wait")
    bench.send(encode_frame(PING, 0, 0, bytes(8)))
    await bench.until(PING, ACK)
    for _ in range(4):
        bench.pass_time(9)
    bench.send(encode_frame(PING, 0, 0, bytes(8)))
    assert (await bench.frame())[0] == PING


@pytest.mark.parametrize("is_alone", [True, False])
@timed()
async def test_what_came_before_the_client_s_end_is_answered(bench, is_alone):
    if is_alone:
        await bench.greet()
    else:
        bench.send(PREFACE, encode_frame(SETTINGS, 0, 0))
    bench.call(1, b"/t.T/Large", fields=[(b"grpc-timeout", b"9S")])
    bench.call(3, b"/t.T/Nothing")
    bench.call(5, b"/t.T/Wait")
    bench.writer.write_eof()
    found = [frame async for frame in bench.frames()]
    assert {stream_id for _, _, stream_id, _ in found if stream_id} == {1, 3}
    await true(lambda: not bench.server.endpoint.connections)


@timed(write_timeout_s=10)
async def test_an_answer_that_nobody_takes_is_given_up(bench):
    await bench.greet()
    bench.call(1, b"/t.T/Large")
    await bench.until(DATA)
    bench.pass_time(1)
    bench.pass_time(9)
    bench.pass_time(2)
    assert await bench.until(RST_STREAM) == struct.pack(">L", ErrorCode.CANCEL)


@timed(write_timeout_s=10)
async def test_an_answer_has_its_time_from_when_it_was_made(bench):
    await bench.greet()
    bench.send(encode_frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 0)))  # no windows
    bench.pass_time(1000)
    bench.call(1, b"/t.T/Large")
    await bench.until(HEADERS)
    bench.pass_time(1)
    bench.pass_time(9)
    bench.send(encode_frame(PING, 0, 0, bytes(8)))
    await bench.until(PING, ACK)
    assert bench.server.endpoint.connections
    [connection] = bench.server.endpoint.connections
    assert 1 in connection._sender.handlers
    bench.pass_time(2)
    assert await bench.until(RST_STREAM) == struct.pack(">L", ErrorCode.CANCEL)


@timed(write_timeout_s=10)
async def test_an_answer_that_moves_is_waited_for_though_others_move_too(bench):
    await bench.greet()
    bench.send(encode_window_update(0, 2**30))
    bench.call(1, b"/t.T/Large")
    bench.call(3, b"/t.T/Large")
    await bench.until(DATA)
    for _ in range(3):
        bench.pass_time(8)
        bench.send(encode_window_update(3, 100))  # one of them is read, slowly
        bench.send(encode_frame(PING, 0, 0, bytes(8)))
        await bench.until(PING, ACK)
    [connection] = bench.server.endpoint.connections
    assert set(connection._sender.handlers) == {3}


@timed(write_timeout_s=10)
async def test_a_stream_whose_handler_waits_for_its_client_is_given_up_too(bench):
    await bench.greet()
    bench.call(1, b"/t.T/Fill", ends=0)
    await bench.until(DATA)
    bench.pass_time(1)
    bench.pass_time(11)
    assert await bench.until(RST_STREAM) == struct.pack(">L", ErrorCode.CANCEL)


@timed(write_timeout_s=10)
async def test_a_stream_whose_handler_need_not_wait_may_rest(bench):
    await bench.greet()
    bench.send(encode_frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 0)))  # no windows
    bench.call(1, b"/t.T/One", ends=0)
    await bench.until(HEADERS)
    for _ in range(5):
        bench.pass_time(11)
    bench.send(encode_window_update(1, 100))
    assert await bench.until(DATA)


@timed(write_timeout_s=10)
async def test_who_does_not_read_at_all_is_cut(bench):
    await bench.greet()
    window = struct.pack(">L", 2**30)
    bench.call(1, b"/t.T/Fill", ends=0)
    bench.send(encode_frame(8, 0, 0, window), encode_frame(8, 0, 1, window))
    [connection] = bench.server.endpoint.connections
    await true(lambda: connection._sender.is_paused)
    bench.pass_time(1)
    bench.pass_time(11)
    await true(lambda: not bench.server.endpoint.connections)


@timed()
async def test_who_goes_on_after_goaway_is_cut_by_time_or_by_size(bench):
    bench.send(b"x" * 24)
    assert (await bench.goaway())[1] is ErrorCode.PROTOCOL_ERROR
    bench.pass_time(LINGER_S + 1)
    await true(lambda: not bench.server.endpoint.connections)
    _, writer = await asyncio.open_connection("127.0.0.1", bench.port)
    writer.write(b"x" * 24 + bytes(4 * LINGER_BYTES))
    await true(lambda: bench.server.endpoint.connections)
    await true(lambda: not bench.server.endpoint.connections)
    writer.transport.abort()  # what is not sent yet is not sent when the loop has closed
    with suppress(ConnectionError):
        await writer.wait_closed()


@timed(max_connections=1)
async def test_more_connections_than_may_be_are_closed_before_they_speak_http2(bench):
    await bench.greet()
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    bench.send(encode_frame(SETTINGS, 0, 0))
    await bench.until(SETTINGS, ACK)


@timed()
async def test_stopping_ends_calls_and_linger_alike(bench):
    await bench.greet()
    bench.call(1, b"/t.T/Wait")
    _, writer = await asyncio.open_connection("127.0.0.1", bench.port)
    writer.write(b"x" * 24)
    await true(
        lambda: any(
            one._writer.lingers_since is not None for one in bench.server.endpoint.connections
        )
    )
    await bench.server.stop(0)
    assert not bench.server.endpoint.connections
    writer.close()


@pytest.mark.parametrize(
    ("changes", "interval_s"),
    [({}, 1.0), ({"keepalive_timeout_ms": 400}, 0.1), ({"max_connection_age_ms": 1}, 0.02)],
)
def test_the_sweep_is_as_often_as_the_shortest_time_needs(changes, interval_s):
    assert Bench(**changes).server.sweep_s == pytest.approx(interval_s)
