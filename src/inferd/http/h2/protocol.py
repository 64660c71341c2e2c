"""One HTTP/2 connection on a socket: reads, gathered writes, keepalive, age limits, drain.

http/h2/connection.py handles the protocol itself. Small reads go through one buffer that all
connections share, since each read is consumed before the loop reads again; a large message is
received directly into its own memory. The output of a round of turns is written in one call.
"""

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final, cast

from inferd.compiled import mypyc_attr
from inferd.http.grpc.call import LEVELS, QUEUED_BYTES, GrpcCall, prepare
from inferd.http.grpc.input import SMALL_BYTES
from inferd.http.grpc.messages import PREFIX_BYTES
from inferd.http.h2.connection import H2Connection
from inferd.http.h2.frames import DEFAULT_FRAME_BYTES, ErrorCode
from inferd.http.h2.request import RequestHead
from inferd.http.h2.stream import H2Stream
from inferd.http.receive_low_water import ReceiveLowWater

if TYPE_CHECKING:
    from inferd.transport.http2_server import Http2Server

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
class Http2Connection:
    """One client's connection: like HttpConnection, an asyncio.BufferedProtocol in all but name.

    Event loops that check the class get AsyncioHttp2Connection.
    """

    def __init__(self, server: "Http2Server") -> None:
        self.server = server
        self.options = server.options
        self.loop = asyncio.get_running_loop()
        self.level = LEVELS[server.options.compression_level]
        self.peer = ""
        self._receive_low_water: ReceiveLowWater | None = None
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._h2 = H2Connection(
            self._open_stream,
            max_streams=server.options.max_streams,
            max_header_bytes=max(server.options.max_metadata_bytes, server.max_header_bytes),
            on_ping=self._on_ping,
            on_pong=self._on_pong,
        )
        self._scratch = server.scratch
        self.small_bytes = min(SMALL_BYTES, server.max_message_bytes)
        # Answers up to this size are sent in one piece; none are if they might be compressed.
        self.small_answer_bytes = min(SMALL_BYTES - PREFIX_BYTES, server.options.max_send_bytes)
        if self.level:
            self.small_answer_bytes = -1
        self._came = b""
        self._is_direct = False
        self._is_closing = False
        self._is_write_due = False
        self.hurried: list[GrpcCall] = []  # calls with a deadline that arrived in this turn
        self._resumed: list[GrpcCall] = []  # calls to resume in the next turn
        # times by the clock of the server's sweep
        self._made = self._read_at = self._busy_at = server.now
        self._closing_since: float | None = None
        self._dropped_bytes = 0
        self._unsent = 0
        self._age_limit_s = _NOT_REACHED
        if (age_ms := server.options.max_connection_age_ms) is not None:
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
        self._receive_low_water = ReceiveLowWater(transport, self.loop)
        self.peer = _peer(transport.get_extra_info("peername"))
        server = self.server
        server.connections.add(self)
        server.open_count += 1
        if server.open_count > self.options.max_connections:
            # Without our SETTINGS, gRPC clients fail their calls and wait before they come back.
            # After SETTINGS and GOAWAY, they would come back at once, and their calls would hang.
            self.abort()  # over TLS, close() would wait for the client to close first
            return
        if self.server.is_stopping:
            self._h2.go_away()
        self.flush()

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio.BufferedProtocol."""
        self._is_closing = True
        self._h2.lose()
        if self._closing_since is None:
            self.server.open_count -= 1
        self.server.forget(self)

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
        self._read_at = self.server.now
        if self._closing_since is not None:
            self._drop(nbytes)
            return
        if not self._is_direct and nbytes <= JOIN_BYTES:
            data = bytes(self._scratch[:nbytes])
            if self._came:
                self._came += data
            else:
                self._came = data
                self.server.turns.answer_read(self)
            return
        if self._is_direct:
            self._is_direct = False
            self._h2.filled(nbytes)
        else:
            self._take_what_came()
            self._h2.receive(self._scratch[:nbytes])
            if self.hurried:
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
        self.server.turns.answer_soon(self)

    # --- turns call these ---

    def take_turn(self) -> None:
        """Resume the calls whose wait is over and process the input."""
        if self._resumed:
            resumed, self._resumed = self._resumed, []
            for call in resumed:
                call.go_on()
        if came := self._came:
            self._came = b""
            self._h2.receive(came)
        if self.hurried:
            self._watch_deadlines()
        self.flush()

    def go_on_soon(self, call: GrpcCall) -> None:
        """Have `call` resume its handler in the next turn."""
        self._resumed.append(call)
        if len(self._resumed) == 1:
            self.server.turns.answer_soon(self)

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
        """Give timers to the new calls that were not answered at once; most are."""
        hurried, self.hurried = self.hurried, []
        for call in hurried:
            call.watch_deadline()

    # --- writing ---

    def flush(self) -> None:
        """Have pending output written soon, together with that of other connections.

        Without output nothing is scheduled: while a large message is received, that would cost one
        event loop round per read.
        """
        h2 = self._h2
        if not self._is_write_due and (h2.out or h2.is_failed or h2.is_going_away):
            self._is_write_due = True
            self.server.turns.write_soon(self)

    def _close(self) -> None:
        self._is_closing = True
        self._transport.close()

    def _linger(self) -> None:
        """Close our sending half; for a while, drop what the client still sends.

        Closing at once would reset the connection, and the client might never see the GOAWAY.
        """
        if self._closing_since is not None or self._is_closing:
            return
        self._closing_since = self.server.now
        self.server.open_count -= 1
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
            most = self.options.max_metadata_bytes
            head.use = prepare(head, self.server.methods, most) or False
        if head.use is not False:
            return GrpcCall(h2, stream_id, head, self)
        return self.server.open_other(h2, stream_id, head, self)

    # --- pings ---

    def _on_ping(self) -> None:
        """Count pings that come more often than the options allow (gRPC keepalive)."""
        now, options, h2 = self.server.clock(), self.options, self._h2
        may_ping = bool(h2.streams) or options.keepalive_permit_without_calls
        least_s = options.min_recv_ping_interval_without_data_ms / 1000
        if h2.frames_sent != self._sent_at_client_ping:
            self._strikes = 0
        elif now - self._client_pinged_at < (least_s if may_ping else PING_WITHOUT_CALLS_S):
            self._strikes += 1
            if 0 < options.max_ping_strikes < self._strikes:
                h2.fail(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
        self._client_pinged_at = now
        self._sent_at_client_ping = h2.frames_sent

    def _on_pong(self, payload: bytes) -> None:
        if payload == _DRAIN_PING and self._draining_since is not None:
            self._h2.go_away()

    # --- the server calls these ---

    def drain(self) -> None:
        """Ask the client to open no more streams, and close once those it has are done.

        The final GOAWAY follows once the client has seen the first one (RFC 9113, section 6.8).
        """
        if self._draining_since is not None or self._h2.is_failed:
            return
        self._draining_since = self.server.now
        if self._h2.is_ready:
            self._h2.announce_end()
            self._h2.ping(_DRAIN_PING)
        else:
            self._h2.go_away()
        self.flush()

    def cut(self) -> None:
        """End all calls as UNAVAILABLE and close the connection."""
        if self._closing_since is not None:
            self.abort()
            return
        self._h2.go_away()
        for stream in list(self._h2.streams.values()):
            stream.cut()
        self.write_pending()
        self._close()

    def abort(self) -> None:
        """Abort the connection."""
        self._is_closing = True
        self._transport.abort()

    def check_time(self, now: float) -> None:
        """Act on timeouts that have expired by `now`."""
        h2, options = self._h2, self.options
        h2.tick()
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent or not unsent:
            self._busy_at = now
        self._unsent = unsent
        if now - self._busy_at > options.write_timeout_s:
            self.abort()
        elif self._closing_since is not None:
            if now - self._closing_since > LINGER_S:
                self.abort()
        elif not h2.is_ready:
            if now - self._made > options.handshake_timeout_s:
                h2.fail(ErrorCode.SETTINGS_TIMEOUT, "no HTTP/2 within the time for it")
                self.flush()
        else:
            self._check_calls(now)
            self._check_age(now)
            self._check_alive(now)

    def _check_calls(self, now: float) -> None:
        """End calls past their deadline, and calls whose client does not read the answer."""
        for stream in list(self._h2.streams.values()):
            stream.check_pace(now, self.options.message_timeout_s)
            if stream.deadline_s is not None and stream.deadline_s < now:
                stream.expire()
            elif stream.sent_bytes != stream.moved_bytes or not _is_waited_for(stream):
                stream.moved_bytes, stream.moved_at = stream.sent_bytes, now
            elif now - stream.moved_at > self.options.write_timeout_s:
                self._h2.reset(stream.id, ErrorCode.CANCEL)
        self.flush()

    def _check_age(self, now: float) -> None:
        options = self.options
        idle_ms, grace_ms = options.max_connection_idle_ms, options.max_connection_age_grace_ms
        if self._draining_since is not None:
            if now - self._draining_since >= self.server.sweep_s and not self._h2.is_going_away:
                self._h2.go_away()  # the client has not answered the ping
                self.flush()
            if (
                grace_ms is not None
                and not self.server.is_stopping
                and now - self._draining_since > grace_ms / 1000
            ):
                self.cut()
        elif now - self._made > self._age_limit_s or (
            idle_ms is not None and not self._h2.streams and now - self._read_at > idle_ms / 1000
        ):
            self.drain()

    def _check_alive(self, now: float) -> None:
        """Ping a client that has been quiet; abort if it does not answer."""
        options, h2 = self.options, self._h2
        if self._pinged_at is not None:
            if self._read_at >= self._pinged_at:
                self._pinged_at = None
            elif now - self._pinged_at > options.keepalive_timeout_ms / 1000:
                self.abort()
                return
        if h2.frames_sent != self._sent_at_ping:
            self._pings_without_data, self._sent_at_ping = 0, h2.frames_sent
        limit = options.max_pings_without_data
        if (
            self._pinged_at is None
            and now - self._read_at > options.keepalive_time_ms / 1000
            and (h2.streams or options.keepalive_permit_without_calls)
            and not 0 < limit <= self._pings_without_data
        ):
            self._pinged_at = now
            self._pings_without_data += 1
            h2.ping(_KEEPALIVE_PING)
            self.flush()


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
