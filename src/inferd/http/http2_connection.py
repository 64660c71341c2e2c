"""One HTTP/2 connection on a socket: reads, gathered writes, keepalive, age limits, drain.

http/h2/connection.py handles the protocol itself. Small reads go through one buffer that all
connections share, since each read is consumed before the loop reads again; a large message is
received directly into its own memory. The output of a round of turns is written in one call.
"""

import asyncio
import random
from typing import Final, cast

from inferd.compiled import mypyc_attr
from inferd.http.grpc.call import prepare
from inferd.http.grpc.endpoint import Carrier, GrpcEndpoint
from inferd.http.grpc.exchange import StreamExchange
from inferd.http.grpc.frame_writer import JOIN_BYTES, FrameWriter
from inferd.http.grpc.handler import Stream
from inferd.http.grpc.keepalive import Keepalive
from inferd.http.grpc.messages import GrpcHead, is_grpc
from inferd.http.grpc.stream_call import StreamCall
from inferd.http.grpc.unary_call import UnaryCall
from inferd.http.h2.connection import H2Connection
from inferd.http.h2.frames import DEFAULT_FRAME_BYTES, ErrorCode
from inferd.http.h2.request import trimmed
from inferd.http.h2.stream import H2Stream, StreamHandler
from inferd.http.receive_low_water import ReceiveLowWater
from inferd.http.request_log import RequestLog
from inferd.http.rest_exchange import RestExchange, WrongExchange
from inferd.http.turns import NO_TRANSPORT, Connection

WRITE_BUFFER_BYTES: Final = 1 << 20
"""With more than this unsent, reading and framing stop."""

LINGER_S: Final = 2.0
"""How long a client may go on sending after the last GOAWAY before the connection is cut."""

LINGER_BYTES: Final = 1 << 20
"""How much such a client may send."""

_DRAIN_PING: Final = b"draining"
_NOT_REACHED: Final = float("inf")


@mypyc_attr(allow_interpreted_subclasses=True)
class Http2Connection(Connection):
    """One client's connection: like HttpConnection, an asyncio.BufferedProtocol in all but name.

    Each call leaves a line in `log`, if there is one. Event loops that check the class get
    AsyncioHttp2Connection.
    """

    def __init__(self, endpoint: GrpcEndpoint, log: RequestLog | None = None) -> None:
        self._endpoint = endpoint
        self._limits = limits = endpoint.limits
        self._receive_low_water: ReceiveLowWater | None = None
        self._transport = NO_TRANSPORT
        rest_header_bytes = endpoint.rest.limits.max_header_bytes if endpoint.rest else 0
        self._h2 = H2Connection(
            self._handle,
            max_streams=limits.max_concurrent_streams,
            max_header_bytes=max(limits.max_metadata_bytes, rest_header_bytes),
            on_ping=self._on_ping,
            on_pong=self._on_pong,
        )
        self._sender = sender = self._h2.sender
        self._receiver = self._h2.receiver
        self._keepalive = Keepalive(endpoint, sender)
        self._writer = writer = FrameWriter(endpoint, sender)
        self._carrier = Carrier(endpoint, sender, writer.flush, self._take_turn_soon, log)
        self._scratch = endpoint.scratch
        self._came = b""
        self._is_direct = False
        # times by the clock of the server's sweep
        self._made = self._read_at = self._busy_at = endpoint.now
        self._dropped_bytes = 0
        self._unsent = 0
        self._age_limit_s = _NOT_REACHED
        if (age_ms := limits.max_connection_age_ms) is not None:
            # gRPC's jitter of 10 %: connections that were made together do not end together.
            self._age_limit_s = age_ms / 1000 * random.uniform(0.9, 1.1)
        self._draining_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BufferedProtocol."""
        self._transport = self._writer.transport = cast("asyncio.Transport", transport)
        # More than the usual 64 KiB, so that writing large answers is paused less often.
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._receive_low_water = ReceiveLowWater(transport, self._carrier.loop)
        self._carrier.begin(transport.get_extra_info("peername"))
        endpoint = self._endpoint
        endpoint.connections.add(self)
        endpoint.open_count += 1
        if endpoint.open_count > self._limits.max_connections:
            # Without our SETTINGS, gRPC clients fail their calls and wait before they come back.
            # After SETTINGS and GOAWAY, they would come back at once, and their calls would hang.
            self.abort()  # over TLS, close() would wait for the client to close first
            return
        self._writer.flush()

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio.BufferedProtocol."""
        self._writer.is_closed = True
        self._sender.lose()
        # A lingering connection does not count any more.
        if self._writer.lingers_since is None:
            self._endpoint.open_count -= 1
        self._endpoint.forget(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        if (
            self._receiver.data_left >= DEFAULT_FRAME_BYTES
            and not self._came
            and (room := self._receiver.room()) is not None
        ):
            self._is_direct = True
            return room
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self._read_at = self._endpoint.now
        if self._writer.lingers_since is not None:
            self._dropped_bytes += nbytes
            if self._dropped_bytes > LINGER_BYTES:
                self.abort()
            return
        # Small reads are collected, and parsed when all connections of this turn have been read;
        # large ones at once, since they lie in the shared buffer.
        if not self._is_direct and nbytes <= JOIN_BYTES:
            data = bytes(self._scratch[:nbytes])
            if self._came:
                self._came += data
            else:
                self._came = data
                self._endpoint.turns.answer_read(self)
            return
        if self._is_direct:
            self._is_direct = False
            self._receiver.filled(nbytes)
        else:
            # In the order in which it came.
            self._take_what_came()
            self._h2.receive(self._scratch[:nbytes])
            if self._carrier.hurried:
                self._watch_deadlines()
        if self._receive_low_water is not None:
            receiver = self._receiver
            self._receive_low_water.note_read(receiver.data_stream_id, receiver.missing_bytes())
        self._writer.flush()

    def eof_received(self) -> bool:
        """See asyncio.BufferedProtocol; input received before is answered if it need not wait."""
        if self._came:
            self.take_turn()
        self._writer.write_pending()
        self._writer.is_closed = True
        # HTTP/2 has no half-closed connections: streams have halves.
        return False

    def pause_writing(self) -> None:
        """See asyncio.BufferedProtocol."""
        self._sender.is_paused = True
        # Input that is not read causes no more answers and no more acknowledgements.
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """See asyncio.BufferedProtocol."""
        self._sender.is_paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._sender.pump()
            self._writer.flush()

    def take(self, data: bytes) -> None:
        """Take the bytes received before this became the connection's protocol."""
        self._came = data
        self._endpoint.turns.answer_soon(self)

    def take_turn(self) -> None:
        """Resume the calls whose wait is over and process the input."""
        carrier = self._carrier
        if carrier.resumed:
            resumed, carrier.resumed = carrier.resumed, []
            for exchange in resumed:
                exchange.go_on()
        if came := self._came:
            self._came = b""
            self._h2.receive(came)
        if self._carrier.hurried:
            self._watch_deadlines()
        self._writer.flush()

    def _take_turn_soon(self) -> None:
        self._endpoint.turns.answer_soon(self)

    def _take_what_came(self) -> None:
        if came := self._came:
            self._came = b""
            self._h2.receive(came)

    def _watch_deadlines(self) -> None:
        """Give timers to the new streams that were not answered at once; most are."""
        hurried, self._carrier.hurried = self._carrier.hurried, []
        for exchange in hurried:
            exchange.watch_deadline()

    def _handle(self, stream: H2Stream) -> StreamHandler:
        """Return what handles a new stream."""
        head = stream.head
        if head.use is None:
            most = self._limits.max_metadata_bytes
            head.use = prepare(head, self._endpoint.methods, most) or False
            # For REST, whose fields have no spaces around them over HTTP/1.1 either.
            if head.use is False:
                head.fields = trimmed(head.fields)
        if head.use is not False:
            grpc = cast("GrpcHead", head.use)
            is_stream = grpc.handler is None and isinstance(grpc.method, Stream)
            return (StreamCall if is_stream else UnaryCall)(stream, self._carrier)
        rest = self._endpoint.rest
        if rest is None or is_grpc(head):
            return WrongExchange(stream, self._sender)
        return RestExchange(stream, self._carrier, rest)

    def _exchanges(self) -> list[StreamExchange]:
        """Return what `_handle` has made and has not ended."""
        return [one for one in self._sender.handlers.values() if isinstance(one, StreamExchange)]

    def _on_ping(self) -> None:
        self._keepalive.note_ping()

    def _on_pong(self, payload: bytes) -> None:
        # The answer shows that the client has seen the first GOAWAY.
        if payload == _DRAIN_PING and self._draining_since is not None:
            self._sender.go_away()

    def drain(self) -> None:
        """Ask the client to open no more streams, and close once those it has are done.

        The final GOAWAY follows once the client has seen the first one (RFC 9113, section 6.8).
        """
        if self._draining_since is not None or self._sender.is_failed:
            return
        if not self._h2.is_ready:
            return  # told now, a client would give up its first calls; `check_time` drains it soon
        self._draining_since = self._endpoint.now
        self._sender.announce_end()
        self._sender.ping(_DRAIN_PING)
        self._writer.flush()

    def cut(self) -> None:
        """See Connection.cut; the calls end as UNAVAILABLE."""
        if self._writer.lingers_since is not None:
            self.abort()
            return
        self._sender.go_away()
        for exchange in self._exchanges():
            exchange.cut()
        self._writer.finish()

    def abort(self) -> None:
        """See Connection.abort."""
        self._writer.abort()

    def check_time(self, now: float) -> None:
        """See Connection.check_time."""
        h2, limits = self._h2, self._limits
        h2.tick()
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent or not unsent:
            self._busy_at = now
        self._unsent = unsent
        if now - self._busy_at > limits.write_timeout_s:
            self.abort()
        elif self._writer.lingers_since is not None:
            if now - self._writer.lingers_since > LINGER_S:
                self.abort()
        elif not h2.is_ready:
            if now - self._made > self._handshake_s():
                self._sender.fail(ErrorCode.SETTINGS_TIMEOUT, "no HTTP/2 within the time for it")
                self._writer.flush()
        else:
            for exchange in self._exchanges():
                exchange.check_time(now, limits)
            self._check_age(now)
            if self._keepalive.is_alive(now, self._read_at):
                self._writer.flush()
            else:
                self.abort()

    def _handshake_s(self) -> float:
        """Return how long the client may take until it speaks HTTP/2."""
        limits = self._limits
        if self._endpoint.is_draining:
            return min(limits.handshake_timeout_s, limits.drain_window_s)
        return limits.handshake_timeout_s

    def _check_age(self, now: float) -> None:
        limits, grace_ms = self._limits, self._limits.max_connection_age_grace_ms
        if self._draining_since is None:
            is_old = now - self._made > self._age_limit_s
            if self._endpoint.is_draining or is_old or self._is_idle_for_long(now):
                self.drain()
            return
        lasts_s = now - self._draining_since
        if lasts_s >= limits.drain_window_s and not self._sender.is_going_away:
            self._sender.go_away()  # the client has not answered the ping
            self._writer.flush()
        if grace_ms is not None and not self._endpoint.is_draining and lasts_s > grace_ms / 1000:
            self.cut()

    def _is_idle_for_long(self, now: float) -> bool:
        idle_ms = self._limits.max_connection_idle_ms
        is_idle = idle_ms is not None and not self._sender.handlers
        return is_idle and now - self._read_at > cast("int", idle_ms) / 1000
