"""One HTTP/2 connection on a socket: reads, gathered writes, keepalive, age limits, drain.

http/h2/connection.py handles the protocol itself. Small reads go through one buffer that all
connections share, since each read is consumed before the loop reads again; a large message is
received directly into its own memory. The output of a round of turns is written in one call.
"""

import asyncio
import random
from typing import Any, Final, cast

from inferd.compiled import mypyc_attr
from inferd.http.grpc.call import QUEUED_BYTES, GrpcCall, prepare
from inferd.http.grpc.endpoint import Carrier, GrpcEndpoint
from inferd.http.grpc.logged import LoggedGrpcCall
from inferd.http.grpc.messages import is_grpc
from inferd.http.h2.connection import H2Connection
from inferd.http.h2.frames import DEFAULT_FRAME_BYTES, ErrorCode
from inferd.http.h2.request import RequestHead, trimmed
from inferd.http.h2.stream import H2Stream
from inferd.http.receive_low_water import ReceiveLowWater
from inferd.http.request_log import ClientLog, RequestLog, address_of
from inferd.http.rest_exchange import RestExchange, WrongExchange
from inferd.http.turns import Connection

JOIN_BYTES: Final = 16384
"""Buffers written together are joined up to this total size."""

WRITE_BUFFER_BYTES: Final = 1 << 20
"""With more than this unsent, reading and framing stop."""

LINGER_S: Final = 2.0
"""How long a client that violated the protocol may go on sending before the connection is cut."""

LINGER_BYTES: Final = 1 << 20
"""How much such a client may send."""

PING_WITHOUT_CALLS_S: Final = 7200.0
"""Minimum time between a client's pings while it has no calls (gRPC keepalive, ping strikes)."""

_DRAIN_PING: Final = b"draining"
_KEEPALIVE_PING: Final = b"areuhere"
_NOT_REACHED: Final = float("inf")


@mypyc_attr(allow_interpreted_subclasses=True)
class Http2Connection(Connection):
    """One client's connection: like HttpConnection, an asyncio.BufferedProtocol in all but name.

    Event loops that check the class get AsyncioHttp2Connection.
    """

    def __init__(self, endpoint: GrpcEndpoint) -> None:
        self._endpoint = endpoint
        self._limits = limits = endpoint.limits
        self._carrier = Carrier(endpoint, self.flush, self._take_turn_soon)
        self._receive_low_water: ReceiveLowWater | None = None
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        rest_header_bytes = endpoint.rest.limits.max_header_bytes if endpoint.rest else 0
        self._h2 = H2Connection(
            self._open_stream,
            max_streams=limits.max_concurrent_streams,
            max_header_bytes=max(limits.max_metadata_bytes, rest_header_bytes),
            on_ping=self._on_ping,
            on_pong=self._on_pong,
        )
        self._scratch = endpoint.scratch
        self._came = b""
        self._is_direct = False
        self._is_closing = False
        self._is_write_due = False
        # times by the clock of the server's sweep
        self._made = self._read_at = self._busy_at = endpoint.now
        self._closing_since: float | None = None
        self._dropped_bytes = 0
        self._unsent = 0
        self._age_limit_s = _NOT_REACHED
        if (age_ms := limits.max_connection_age_ms) is not None:
            self._age_limit_s = age_ms / 1000 * random.uniform(0.9, 1.1)
        self._draining_since: float | None = None
        # keepalive and the ping policy
        self._pinged_at: float | None = None
        self._pings_without_data = 0
        self._sent_at_ping = 0
        self._client_pinged_at = -_NOT_REACHED
        self._sent_at_client_ping = 0
        self._strikes = 0

    # --- asyncio calls these ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BufferedProtocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._receive_low_water = ReceiveLowWater(transport, self._carrier.loop)
        self._carrier.peer = _peer(transport.get_extra_info("peername"))
        endpoint = self._endpoint
        endpoint.connections.add(self)
        endpoint.open_count += 1
        if endpoint.open_count > self._limits.max_connections:
            # Without our SETTINGS, gRPC clients fail their calls and wait before they come back.
            # After SETTINGS and GOAWAY, they would come back at once, and their calls would hang.
            self.abort()  # over TLS, close() would wait for the client to close first
            return
        self.flush()

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio.BufferedProtocol."""
        self._is_closing = True
        self._h2.lose()
        if self._closing_since is None:
            self._endpoint.open_count -= 1
        self._endpoint.forget(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        if (
            self._h2.data_left >= DEFAULT_FRAME_BYTES
            and not self._came
            and (room := self._h2.room()) is not None
        ):
            self._is_direct = True
            return room
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self._read_at = self._endpoint.now
        if self._closing_since is not None:
            self._drop(nbytes)
            return
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
            self._h2.filled(nbytes)
        else:
            self._take_what_came()
            self._h2.receive(self._scratch[:nbytes])
            if self._carrier.hurried:
                self._watch_deadlines()
        if self._receive_low_water is not None:
            self._receive_low_water.note_read(self._h2.data_stream_id, self._h2.missing_bytes())
        self.flush()

    def eof_received(self) -> bool:
        """See asyncio.BufferedProtocol; input received before is answered if it need not wait."""
        if self._came:
            self.take_turn()
        self.write_pending()
        self._is_closing = True
        return False

    def pause_writing(self) -> None:
        """See asyncio.BufferedProtocol."""
        self._h2.is_paused = True
        # Input that is not read causes no more answers and no more acknowledgements.
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """See asyncio.BufferedProtocol."""
        self._h2.is_paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._h2.pump()
            self.flush()

    def take(self, data: bytes) -> None:
        """Take the bytes received before this became the connection's protocol."""
        self._came = data
        self._endpoint.turns.answer_soon(self)

    # --- turns call these ---

    def take_turn(self) -> None:
        """Resume the calls whose wait is over and process the input."""
        carrier = self._carrier
        if carrier.resumed:
            resumed, carrier.resumed = carrier.resumed, []
            for stream in resumed:
                stream.go_on()
        if came := self._came:
            self._came = b""
            self._h2.receive(came)
        if self._carrier.hurried:
            self._watch_deadlines()
        self.flush()

    def _take_turn_soon(self) -> None:
        self._endpoint.turns.answer_soon(self)

    def write_pending(self) -> None:
        """Write the pending output; close the connection when nothing is left to do."""
        self._is_write_due = False
        h2 = self._h2
        while h2.out and not self._is_closing and self._closing_since is None:
            out, size = h2.out, h2.out_bytes
            h2.out, h2.out_bytes = [], 0
            if self._transport.is_closing():
                return
            if len(out) == 1:
                self._transport.write(out[0])
            elif size <= JOIN_BYTES:
                self._transport.write(b"".join(out))
            else:
                self._transport.writelines(out)
            if h2.blocked:
                h2.pump()
        if h2.is_failed:
            self._linger()
        elif h2.is_going_away and not h2.streams:
            self._close()

    def _take_what_came(self) -> None:
        if came := self._came:
            self._came = b""
            self._h2.receive(came)

    def _watch_deadlines(self) -> None:
        """Give timers to the new streams that were not answered at once; most are."""
        hurried, self._carrier.hurried = self._carrier.hurried, []
        for stream in hurried:
            stream.watch_deadline()

    # --- writing ---

    def flush(self) -> None:
        """Have pending output written soon, together with that of other connections.

        Without output nothing is scheduled: while a large message is received, that would cost one
        event loop round per read.
        """
        h2 = self._h2
        if not self._is_write_due and (h2.out or h2.is_failed or h2.is_going_away):
            self._is_write_due = True
            self._endpoint.turns.write_soon(self)

    def _close(self) -> None:
        self._is_closing = True
        self._transport.close()

    def _linger(self) -> None:
        """Close our sending half; for a while, drop what the client still sends.

        Closing at once would reset the connection, and the client might never see the GOAWAY.
        """
        if self._closing_since is not None or self._is_closing:
            return
        self._closing_since = self._endpoint.now
        self._endpoint.open_count -= 1
        self._is_direct = False
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._close()

    def _drop(self, nbytes: int) -> None:
        self._dropped_bytes += nbytes
        if self._dropped_bytes > LINGER_BYTES:
            self.abort()

    # --- streams ---

    def _open_stream(self, h2: H2Connection, stream_id: int, head: RequestHead) -> H2Stream:
        if head.use is None:
            most = self._limits.max_metadata_bytes
            head.use = prepare(head, self._endpoint.methods, most) or False
            if head.use is False:
                head.fields = trimmed(head.fields)
        if head.use is not False:
            return GrpcCall(h2, stream_id, head, self._carrier)
        rest = self._endpoint.rest
        if rest is None or is_grpc(head):
            return WrongExchange(h2, stream_id, head)
        return RestExchange(h2, stream_id, head, self._carrier, rest)

    # --- pings ---

    def _on_ping(self) -> None:
        """Count pings that come more often than the options allow (gRPC keepalive)."""
        now, limits, h2 = self._endpoint.clock(), self._limits, self._h2
        may_ping = bool(h2.streams) or limits.keepalive_permit_without_calls
        least_s = limits.http2_min_recv_ping_interval_without_data_ms / 1000
        if h2.frames_sent != self._sent_at_client_ping:
            self._strikes = 0
        elif now - self._client_pinged_at < (least_s if may_ping else PING_WITHOUT_CALLS_S):
            self._strikes += 1
            if 0 < limits.http2_max_ping_strikes < self._strikes:
                h2.fail(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
        self._client_pinged_at = now
        self._sent_at_client_ping = h2.frames_sent

    def _on_pong(self, payload: bytes) -> None:
        if payload == _DRAIN_PING and self._draining_since is not None:
            self._h2.go_away()

    # --- the endpoint calls these ---

    def drain(self) -> None:
        """Ask the client to open no more streams, and close once those it has are done.

        The final GOAWAY follows once the client has seen the first one (RFC 9113, section 6.8).
        """
        if self._draining_since is not None or self._h2.is_failed:
            return
        if not self._h2.is_ready:
            return  # told now, a client would give up its first calls; `check_time` drains it soon
        self._draining_since = self._endpoint.now
        self._h2.announce_end()
        self._h2.ping(_DRAIN_PING)
        self.flush()

    def cut(self) -> None:
        """See Connection.cut; the calls end as UNAVAILABLE."""
        if self._closing_since is not None:
            self.abort()
            return
        self._h2.go_away()
        for stream in list(self._h2.streams.values()):
            stream.cut()
        self.write_pending()
        self._close()

    def abort(self) -> None:
        """See Connection.abort."""
        self._is_closing = True
        self._transport.abort()

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
        elif self._closing_since is not None:
            if now - self._closing_since > LINGER_S:
                self.abort()
        elif not h2.is_ready:
            if now - self._made > self._handshake_s():
                h2.fail(ErrorCode.SETTINGS_TIMEOUT, "no HTTP/2 within the time for it")
                self.flush()
        else:
            self._check_calls(now)
            self._check_age(now)
            self._check_alive(now)

    def _handshake_s(self) -> float:
        """Return how long the client may take until it speaks HTTP/2."""
        limits = self._limits
        if self._endpoint.is_draining:
            return min(limits.handshake_timeout_s, limits.drain_window_s)
        return limits.handshake_timeout_s

    def _check_calls(self, now: float) -> None:
        """End calls past their deadline, and calls whose client does not read the answer."""
        for stream in list(self._h2.streams.values()):
            stream.check_pace(now, self._limits.message_timeout_s)
            if stream.deadline_s is not None and stream.deadline_s < now:
                stream.expire()
            elif stream.sent_bytes != stream.moved_bytes or not _is_waited_for(stream):
                stream.moved_bytes, stream.moved_at = stream.sent_bytes, now
            elif now - stream.moved_at > self._limits.write_timeout_s:
                self._h2.reset(stream.id, ErrorCode.CANCEL)
        self.flush()

    def _check_age(self, now: float) -> None:
        limits, grace_ms = self._limits, self._limits.max_connection_age_grace_ms
        if self._draining_since is None:
            is_old = now - self._made > self._age_limit_s
            if self._endpoint.is_draining or is_old or self._is_idle_for_long(now):
                self.drain()
            return
        lasts_s = now - self._draining_since
        if lasts_s >= limits.drain_window_s and not self._h2.is_going_away:
            self._h2.go_away()  # the client has not answered the ping
            self.flush()
        if grace_ms is not None and not self._endpoint.is_draining and lasts_s > grace_ms / 1000:
            self.cut()

    def _is_idle_for_long(self, now: float) -> bool:
        idle_ms = self._limits.max_connection_idle_ms
        is_idle = idle_ms is not None and not self._h2.streams
        return is_idle and now - self._read_at > cast("int", idle_ms) / 1000

    def _check_alive(self, now: float) -> None:
        """Ping a client that has been quiet; abort if it does not answer."""
        limits, h2 = self._limits, self._h2
        if self._pinged_at is not None:
            if self._read_at >= self._pinged_at:
                self._pinged_at = None
            elif now - self._pinged_at > limits.keepalive_timeout_ms / 1000:
                self.abort()
                return
        if h2.frames_sent != self._sent_at_ping:
            self._pings_without_data, self._sent_at_ping = 0, h2.frames_sent
        limit = limits.http2_max_pings_without_data
        if (
            self._pinged_at is None
            and now - self._read_at > limits.keepalive_time_ms / 1000
            and (h2.streams or limits.keepalive_permit_without_calls)
            and not 0 < limit <= self._pings_without_data
        ):
            self._pinged_at = now
            self._pings_without_data += 1
            h2.ping(_KEEPALIVE_PING)
            self.flush()


@mypyc_attr(allow_interpreted_subclasses=True)
class LoggedHttp2Connection(Http2Connection):
    """A connection with a line in `log` for each call."""

    def __init__(self, endpoint: GrpcEndpoint, log: RequestLog) -> None:
        super().__init__(endpoint)
        self._log = log
        self._client = ClientLog()  # until the client is known

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BufferedProtocol."""
        address = address_of(transport.get_extra_info("peername"))
        self._client = self._log.client(address, "gRPC")
        super().connection_made(transport)

    def _open_stream(self, h2: H2Connection, stream_id: int, head: RequestHead) -> H2Stream:
        if not head.use:  # the first one like it, or no call
            stream = super()._open_stream(h2, stream_id, head)
            if not head.use:
                return stream
        return LoggedGrpcCall(h2, stream_id, head, self._carrier, self._client)


def _is_waited_for(stream: H2Stream) -> bool:
    """Return whether `stream` needs the client to read before it can go on or end.

    A stream of answers may be idle as long as its handler is not held up.
    """
    if stream.ending is None:
        return stream.pending_bytes > QUEUED_BYTES
    return stream.pending_bytes > 0


def _peer(name: Any) -> str:
    """Return a peer's address in gRPC's notation."""
    if not isinstance(name, tuple):
        return "unix:"
    host, port = name[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
