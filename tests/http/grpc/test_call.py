"""Compressed messages on our own transport: how far they inflate, and what that counts as."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import msgspec
import pytest

from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest, Restricted
from inferd.http.access import Guard, Secret
from inferd.http.grpc.call import prepare
from inferd.http.grpc.handler import Stream, Unary
from inferd.http.h2.request import BaseHead, decode_request_head
from inferd.memory.capacity import UNLIMITED
from inferd.server.options import grpc_options
from inferd.transport.http2_server import Http2Server

SIZES = [100, 100_000, 600_000]
"""Zeros that inflate on the loop to bytes, there to a view, and in a thread."""


class Methods:
    """Handlers that give back what they got; `Hold` when it is let."""

    def __init__(self):
        self.started = asyncio.Semaphore(0)
        self.release = asyncio.Event()

    def table(self):
        return {
            "/t.T/Echo": Unary(self.echo),
            "/t.T/Now": Unary(self.now),
            "/t.T/Hold": Unary(self.hold),
            "/t.T/Chat": Stream(self.chat),
            "/t.T/Linger": Stream(self.linger),
        }

    async def echo(self, data, call):
        return [data]

    def now(self, data, call):
        if not data:
            msg = "there is nothing to give back"
            raise InvalidRequest(msg)
        return [data]

    async def hold(self, data, call):
        self.started.release()
        await self.release.wait()
        return [data]

    async def chat(self, messages, call):
        async for data in messages:
            yield [data]

    async def linger(self, messages, call):
        """Do as `chat`, and end when it is let."""
        try:
            async for data in messages:
                yield [data]
        finally:
            self.started.release()
            await self.release.wait()


class Site:
    """A server, its methods, and a client that compresses."""

    def __init__(self, server, methods, channel):
        self.server = server
        self.methods = methods
        self._channel = channel

    def call(self, name, data, **more):
        return self._channel.unary_unary(f"/t.T/{name}")(data, **more)

    def chat(self, messages, name="Chat"):
        return self._channel.stream_stream(f"/t.T/{name}")(iter(messages))


@asynccontextmanager
async def serving(max_inflight_bytes=UNLIMITED, **changes):
    options = msgspec.structs.replace(grpc_options(ServerConfig()), **changes)
    methods = Methods()
    engine = Engine()
    engine.capacity.max_bytes = max_inflight_bytes
    server = Http2Server(engine, options, methods.table())
    port = await server.start("127.0.0.1", 0)
    limits = [("grpc.max_receive_message_length", -1)]
    coded = grpc.Compression.Gzip
    try:
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=limits, compression=coded
        ) as channel:
            yield Site(server, methods, channel)
        assert server.endpoint.capacity.buffered_bytes == 0
    finally:
        await server.stop(0)


async def failure(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


@pytest.mark.parametrize("size", SIZES)
async def test_compressed_messages_arrive(size):
    async with serving() as site:
        assert await site.call("Echo", bytes(size)) == bytes(size)
        assert [data async for data in site.chat([bytes(size)] * 3)] == [bytes(size)] * 3


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("coded", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_handler_may_answer_at_once(size, coded):
    async with serving() as site:
        assert await site.call("Now", bytes(size), compression=coded) == bytes(size)


async def test_a_handler_may_refuse_at_once():
    async with serving() as site:
        code, details = await failure(site.call("Now", b""))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert details == "there is nothing to give back"
        assert await site.call("Now", b"alive") == b"alive"


@pytest.mark.parametrize("size", SIZES)
async def test_what_inflates_too_far_is_refused(size):
    async with serving(max_inflated_bytes=size - 1) as site:
        code, details = await failure(site.call("Echo", bytes(size)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"inflates to more than {size - 1} bytes" in details
        assert "--grpc-max-inflated-bytes" in details
        call = site.chat([b"", bytes(size)])
        assert await call.read() == b""
        code, _ = await failure(call.read())
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await site.call("Echo", b"alive") == b"alive"


async def test_the_limit_of_messages_holds_for_inflated_ones_as_well():
    async with serving(max_message_bytes=1000) as site:
        code, _ = await failure(site.call("Echo", bytes(1001)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_what_is_inflated_counts_as_request_data_until_its_answer():
    async with serving(max_inflight_bytes=1 << 20) as site:
        waiting = site.call("Hold", bytes(600_000))
        await site.methods.started.acquire()
        assert 600_000 <= site.server.endpoint.capacity.buffered_bytes < 610_000
        code, details = await failure(site.call("Hold", bytes(600_000)))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "as much request data as it may" in details
        site.methods.release.set()
        assert await waiting == bytes(600_000)
        assert site.server.endpoint.capacity.buffered_bytes == 0
        assert await site.call("Hold", bytes(600_000)) == bytes(600_000)


async def test_a_stream_lets_go_of_each_message_before_the_next():
    async with serving(max_inflight_bytes=1 << 20) as site:
        assert [data async for data in site.chat([bytes(600_000)] * 5)] == [bytes(600_000)] * 5


async def test_streams_that_fail_together_are_told_each_its_own_error():
    async with serving(max_send_bytes=10) as site:
        calls = {size: site.chat([bytes(size)], "Linger") for size in (20, 30, 40)}
        for call in calls.values():
            call.add_done_callback(lambda _: None)
            await site.methods.started.acquire()
        site.methods.release.set()
        for size, call in calls.items():
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert f"an answer has {size} bytes" in await call.details()


async def test_a_client_that_leaves_takes_its_inflated_message_along():
    async with serving() as site:
        call = site.call("Hold", bytes(600_000))
        await site.methods.started.acquire()
        call.cancel()
        while site.server.endpoint.capacity.buffered_bytes:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)


async def test_a_large_answer_is_compressed():
    async with serving(compression_level="low") as site:
        assert await site.call("Echo", bytes(600_000)) == bytes(600_000)
        assert [data async for data in site.chat([bytes(600_000)] * 2)] == [bytes(600_000)] * 2


async def test_answers_that_cannot_be_compressed_now_fail_alone(monkeypatch):
    monkeypatch.setattr("inferd.aio.offload.MAX_WAITING", 0)
    async with serving(compression_level="low") as site:
        plain = grpc.Compression.NoCompression
        code, _ = await failure(site.call("Echo", bytes(100_000), compression=plain))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert await site.call("Echo", b"alive") == b"alive"


PSEUDO = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/t.T/Echo")]
CALL = [*PSEUDO, (b"content-type", b"application/grpc"), (b"grpc-timeout", b"9S"), (b"key", b"1")]


class Heads:
    """The heads of one connection, each made of the first; `open` prepares one with `changes`."""

    def __init__(self, guard=None, max_bytes=1000):
        self._methods = {b"/t.T/Echo": Unary(Methods().echo, guard)}
        self._max_bytes = max_bytes
        self._base = decode_request_head(CALL, 100)
        self._base.use = self._prepare(self._base)

    def open(self, size=100, **changes):
        told = {name.replace("_", "-").encode(): value for name, value in changes.items()}
        fields = [(name, told.get(name, value)) for name, value in CALL]
        head = BaseHead(CALL, self._base).renewed(fields, size)
        assert head.base is self._base
        return self._prepare(head)

    def _prepare(self, head):
        return prepare(head, self._methods, self._max_bytes)


def test_a_head_made_of_another_has_its_own_deadline():
    heads = Heads()
    assert heads.open(grpc_timeout=b"20m").timeout_s == 0.02
    assert heads.open(key=b"2").timeout_s == 9
    assert heads.open(grpc_timeout=b"soon").fault.status == 13
    assert heads.open(grpc_timeout=b"1S").fault is None


def test_a_head_made_of_another_is_checked_by_its_own_key():
    heads = Heads(Guard("inference", Secret(b"key", b"1"), None))
    heads.open(grpc_timeout=b"1S").check_access()
    with pytest.raises(Restricted):
        heads.open(key=b"2").check_access()
    heads.open(key=b"1", grpc_timeout=b"2S").check_access()


def test_a_head_made_of_another_may_be_too_large_by_itself():
    heads = Heads()
    assert heads.open(size=1001, key=b"x" * 900).fault.status == 8
    assert heads.open(size=1000, key=b"x" * 900).fault is None


def test_a_head_made_of_another_may_be_no_call_of_grpc():
    heads = Heads()
    assert heads.open(content_type=b"application/json") is None
    assert heads.open(content_type=b"application/grpc+proto").fault is None
