"""Messages in many DATA frames of one size, as clients send large ones: raw frames, a socket."""

import asyncio
import functools
import struct

import pytest
from call_site import CallSite

from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest
from inferd.http.grpc.handler import Stream, Unary
from inferd.http.grpc.messages import PREFIX
from inferd.http.grpc.stream_call import StreamCall
from inferd.http.h2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADER_BYTES,
    HEADERS,
    PREFACE,
    Setting,
    encode_frame,
    encode_settings,
    encode_window_update,
)
from inferd.http.h2.hpack import HeaderDecoder, encode_fields
from inferd.server.options import grpc_options
from inferd.transport.http2_server import Http2Server

FRAME = 1000


async def echo(data, call):
    return [data]


async def each(messages, call):
    async for data in messages:
        yield [data]


def message(data, flag=0):
    return PREFIX.pack(flag, len(data)) + data


def call(stream_id, method, body, *, ends=True):
    """The frames of a call whose body comes in frames of FRAME bytes, the end in one of its own."""
    head = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/t.T/" + method),
        (b"content-type", b"application/grpc"),
    ]
    frames = [encode_frame(HEADERS, END_HEADERS, stream_id, encode_fields(head))]
    for at in range(0, len(body), FRAME):
        piece = body[at : at + FRAME]
        frames.append(encode_frame(DATA, 0, stream_id, piece))
    if ends:
        frames.append(encode_frame(DATA, END_STREAM, stream_id))
    return b"".join(frames)


class Client:
    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._decoder = HeaderDecoder(16384)
        settings = encode_settings({Setting.INITIAL_WINDOW_SIZE: 2**24})
        writer.write(PREFACE + settings + encode_window_update(0, 2**24))

    def send(self, *calls):
        self._writer.write(b"".join(calls))

    async def answers(self, *stream_ids):
        """The DATA and the status of each stream."""
        bodies, found = dict.fromkeys(stream_ids, b""), {}
        while len(found) < len(bodies):
            frame = await self._reader.readexactly(HEADER_BYTES)
            high, low, kind, flags, stream_id = FRAME_HEADER.unpack(frame)
            payload = await self._reader.readexactly(high << 8 | low)
            if kind == DATA:
                bodies[stream_id] += payload
            elif kind == HEADERS:
                fields = dict(self._decoder.decode(payload)[0])
                if flags & END_STREAM:
                    found[stream_id] = bodies[stream_id], int(fields[b"grpc-status"])
        return [found[stream_id] for stream_id in stream_ids]


def in_loop(test):
    """Run `test` on a server's event loop, with a client of a server that has Echo and Each."""

    @functools.wraps(test)
    def run():
        async def go():
            methods = {"/t.T/Echo": Unary(echo), "/t.T/Each": Stream(each)}
            server = Http2Server(Engine(), grpc_options(ServerConfig()), methods)
            port = await server.start("127.0.0.1", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                async with asyncio.timeout(30):
                    await test(Client(reader, writer))
            finally:
                writer.close()
                await server.stop(0)

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(go())

    del run.__wrapped__  # pytest would take its argument for a fixture
    return run


@in_loop
async def test_a_large_message_is_put_together(client):
    data = bytes(range(256)) * 500
    client.send(call(1, b"Echo", message(data)), call(3, b"Echo", message(b"small")))
    assert await client.answers(1, 3) == [(message(data), 0), (message(b"small"), 0)]


@pytest.mark.parametrize("size", [FRAME - 5, 10, 3 * FRAME - 5, 777])
def test_messages_of_a_stream_keep_their_order(size):
    @in_loop
    async def go(client):
        body = b"".join(message(struct.pack(">H", number) * (size // 2)) for number in range(200))
        client.send(call(1, b"Each", body))
        assert await client.answers(1) == [(body, 0)]

    go()


@in_loop
async def test_a_second_message_ends_a_unary_call_and_no_other(client):
    second = message(b"x" * (FRAME - 5)) * 20
    client.send(call(1, b"Echo", second), call(3, b"Echo", message(b"fine")))
    assert await client.answers(1, 3) == [(b"", 12), (message(b"fine"), 0)]


@in_loop
async def test_a_prefix_that_means_nothing_ends_the_call_and_no_other(client):
    for stream_id, method in ((1, b"Echo"), (3, b"Each")):
        good = message(b"x" * (FRAME - 5))
        client.send(call(stream_id, method, good + b"\7" * FRAME * 9, ends=False))
        [(_, status)] = await client.answers(stream_id)
        assert status == 13
    client.send(call(5, b"Echo", message(b"fine")))
    assert await client.answers(5) == [(message(b"fine"), 0)]


async def test_what_comes_after_the_end_of_the_handler_is_not_kept():
    async def once(messages, call):
        yield [bytes(100)]
        msg = "that was all"
        raise InvalidRequest(msg)

    site = CallSite(StreamCall, Stream(once), window=10)
    site.head()
    site.data(message(b"first"))
    while site.calls[1].stream.ending is None:  # noqa: ASYNC110  nothing else tells
        await asyncio.sleep(0)
    for _ in range(3):
        site.data(message(bytes(1000)))
    assert site.capacity.buffered_bytes == 0
    site.widen(1000)
    body, fields = site.got()
    assert (body, fields[b"grpc-status"]) == (message(bytes(100)), b"3")
    assert not site.sender.handlers
    assert site.capacity.buffered_bytes == 0
