"""One HTTP/1.1 connection as a state machine: read, answer in order, keep alive, write.

Heads are parsed in a small buffer; a body is received directly into memory of its declared length,
which the call may then view. A request is answered within the same loop iteration unless it really
has to wait: the connection drives the answering coroutine itself and creates a task only when the
coroutine waits for something other than a Promise. Meanwhile up to one buffer of further input is
kept, so answers go out in order. No request has a timer: the server's sweep checks how long each
connection has been in its present state.
"""

import asyncio
import logging
import random
from copy import copy
from time import perf_counter_ns
from typing import Any, cast

from inferd.aio.driver import Driver, cancel_soon
from inferd.aio.promise import driven
from inferd.compiled import mypyc_attr
from inferd.errors import InferdError, Overloaded
from inferd.http.h1.body import BodyReader, pace_fault
from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.h1.head import HeadReader, unread_request
from inferd.http.message import (
    NO_BODY,
    NO_REQUEST,
    HttpAnswer,
    HttpError,
    HttpRequest,
    Pieces,
    encode_head,
    encode_stream_head,
)
from inferd.http.outflow import Outflow
from inferd.http.overload import check_head
from inferd.http.request_log import address_of
from inferd.http.turns import Connection
from inferd.http.unread import has_unread

log = logging.getLogger("inferd.http")

LINGER_S = 5.0
"""How long a refused client may go on sending before the connection is cut."""

_FIRST_BUFFER = 8192
_JOIN_BYTES = 16384
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STILL_THERE = b"HTTP/1.1 102 Processing\r\n\r\n"
_CLOSE = b"Connection: close\r\n"

_NEVER = float("inf")
_UNLIMITED = 1 << 60
_MOST_PIPELINED = 1000
"""How many requests a client may have sent ahead when its connection is to end."""

PROBE_S = 0.25
"""How often a client that has closed its sending half is probed, to see if it is still there."""

SOON_S = 0.02
"""Delay between the first probe and the second, whose write reveals a client that has gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HttpConnection(Connection):
    """One client's connection: an asyncio.BufferedProtocol in all but name.

    A compiled class that inherits from an interpreted one would keep its attributes in a
    dictionary. uvloop checks which methods a protocol has; other event loops check its class and
    get AsyncioConnection.
    """

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._limits = limits = endpoint.limits
        self._routes = endpoint.routes
        self._turns = endpoint.turns
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        # _buffer[_start:_end] has been received but not yet consumed.
        self._buffer = bytearray(_FIRST_BUFFER)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._heads = HeadReader(
            limits.max_header_bytes,
            limits.max_body_bytes,
            endpoint.routes.forward,
            endpoint.routes.variations,
        )
        self._body = BodyReader(endpoint.capacity, limits.max_body_bytes)
        self._request: HttpRequest | None = None  # its body is still coming
        self._task: asyncio.Task[None] | Driver | None = None  # answers the latest request
        self._answering: HttpRequest = NO_REQUEST  # that request, if a coroutine answers it
        self._outflow: Outflow | None = None  # the rest of an answer, sent by the task
        self._is_paused = False  # the client is not reading; answer nothing more until it does
        self._is_reading = True
        self._is_eof = False
        self._is_probing = False
        self._is_closing = False
        self._is_turned_away = False  # refused because there were too many connections
        self._is_due = False  # it has a turn coming in this loop iteration
        self._pending: list[bytes] = []  # answers to write at the end of the round of turns
        self._since = 0.0  # when the present state began, for the sweep
        self._unsent = 0
        self._expires_at = _NEVER
        # The last answer tells the client that the connection ends. No answer beyond it is sent,
        # except to requests that were on their way.
        self._answers_left = _UNLIMITED

    # --- asyncio calls these ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BufferedProtocol."""
        self._transport = cast("asyncio.Transport", transport)
        endpoint = self._endpoint
        if endpoint.is_logged:
            address = address_of(transport.get_extra_info("peername"))
            self._routes = endpoint.routes_for(address, "HTTP/1.1")
        self._since = endpoint.now
        endpoint.connections.add(self)
        self._limit_life()
        # Connections turned away linger for a while; they must not count against the limit.
        if len(endpoint.connections) - endpoint.turned_away_count > self._limits.max_connections:
            self._is_turned_away = True
            endpoint.turned_away_count += 1
            msg = "the server has as many connections as it may; try again later"
            self._refuse(Overloaded(msg))

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio.BufferedProtocol."""
        self._is_closing = True
        if self._task is not None:
            cancel_soon(self._task)
            self._task = None
        self._body.release()
        self._request = None
        self._pending = []
        if self._is_turned_away:
            self._endpoint.turned_away_count -= 1
        self._endpoint.forget(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        body = self._body
        if body.memory is not None:
            return body.memory[body.filled :]
        if self._is_closing:
            self._start = self._end = 0  # input is dropped from now on: take it in large pieces
        if not self._end:
            return self._view
        if self._end == len(self._buffer):
            self._make_room()
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        if self._is_closing:
            return  # drop what a refused client still sends
        if self._body.memory is not None:
            self._fill_body(nbytes)
            return
        if self._start == self._end and self._request is None:
            self._since = self._endpoint.now
        self._end += nbytes
        if self._task is None and not self._is_paused:
            if self._end == len(self._buffer):
                self._advance()  # a large request: receive its body directly into its own memory
            elif not self._is_due:
                self._is_due = True
                self._turns.answer_read(self)
        elif self._end == len(self._buffer):
            self._stop_reading()

    def eof_received(self) -> bool:
        """See asyncio.BufferedProtocol."""
        if self._is_due:
            self.take_turn()
        self._is_eof = True
        is_done = self._task is None and not self._is_paused
        if is_done or not self._transport.can_write_eof():  # TLS has no half-closed state
            self.write_pending()
            self._is_closing = True
            return False
        self._probe()
        return True

    def pause_writing(self) -> None:
        """See asyncio.BufferedProtocol."""
        self._is_paused = True
        if self._outflow is not None:
            self._outflow.hold()

    def resume_writing(self) -> None:
        """See asyncio.BufferedProtocol."""
        self._is_paused = False
        if self._outflow is not None:
            self._outflow.release()
        if self._task is None:
            self._advance()

    def _limit_life(self) -> None:
        """Set when the connection is to end; chance keeps those made together from ending so."""
        limits = self._limits
        if limits.max_connection_age_ms is not None:
            age_s = limits.max_connection_age_ms / 1000
            self._expires_at = self._since + age_s * random.uniform(0.9, 1.1)
        if (most := limits.max_connection_requests) is not None:
            self._answers_left = most - (random.randint(0, most // 10) if most >= 100 else 0)
        if self._endpoint.is_draining:
            self.drain()

    # --- turns call these ---

    def take_turn(self) -> None:
        """See Connection.take_turn."""
        self._is_due = False
        task = self._task
        if task is None:
            if not self._is_paused:
                self._advance()
        elif type(task) is Driver and not self._is_closing:  # else it is about to be cancelled
            task.go_on()
            is_answered = self._task is not task
            if is_answered and (self._end or self._is_eof or not self._is_reading):
                self._advance()

    def write_pending(self) -> None:
        """See Connection.write_pending."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._transport.write(pending[0] if len(pending) == 1 else b"".join(pending))

    # --- reading ---

    def _make_room(self) -> None:
        """Move the unconsumed bytes to the front of a new buffer, a larger one if necessary.

        The old one cannot be resized: the transport still holds a view of it.
        """
        unread = self._end - self._start
        size = len(self._buffer)
        if self._start == 0:
            size = min(2 * size, self._limits.max_header_bytes + _FIRST_BUFFER)
        fresh = bytearray(max(size, unread + 1))
        fresh[:unread] = self._view[self._start : self._end]
        self._buffer, self._view = fresh, memoryview(fresh)
        self._start, self._end = 0, unread

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def _go_on_reading(self) -> None:
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._transport.resume_reading()

    def _advance(self) -> None:
        """Answer the requests received, one after the other, until one has to wait."""
        try:
            while self._task is None and not self._is_paused and not self._is_closing:
                if self._body.chunks is not None:
                    if not self._read_chunks():
                        break
                elif not self._read_request():
                    break
        except (HttpError, InferdError) as error:
            self._refuse(error)
            return
        if self._is_eof and not self._is_closing:
            self._go_on_half_closed()
        if not self._is_reading:
            self._go_on_reading()

    def _go_on_half_closed(self) -> None:
        if self._task is None and not self._is_paused:
            self._close()
        elif not self._is_probing:
            self._probe()

    def _read_request(self) -> bool:
        """Read one request if its head is complete; return whether to try for the next one."""
        heads, start, end = self._heads, self._start, self._end
        head = heads.head
        # A client sends the same head again as long as its requests are alike.
        if head and self._buffer.startswith(head, start, end):
            start += len(head)
        elif heads.changing is None or not (start := heads.changing.read(self._buffer, start, end)):
            start = self._read_head()
            if not start:
                return False
        request, length = heads.request, heads.length
        body_end = start + length
        if 0 <= length <= end - start:
            request.body = memoryview(self._buffer[start:body_end])
            if body_end == end:
                self._start = self._end = 0
                self._answer(request)
                return False
            self._start = body_end
            self._answer(request)
            return True
        self._start = start
        self._await_body(request, length, end - start)
        return length < 0

    def _read_head(self) -> int:
        """Read a head that differs from the last one; return its end, or 0 if it is incomplete."""
        buffer, start = self._buffer, self._start
        while start < self._end and buffer[start] in b"\r\n":  # RFC 9112, section 2.2
            start += 1
        self._start = start
        head_end = buffer.find(b"\r\n\r\n", start, self._end)
        if head_end < 0:
            if start == self._end:
                self._start = self._end = 0
            else:
                self._heads.check_partial(buffer, start, self._end)
            return 0
        head_end += 4
        self._heads.read(bytes(self._view[start:head_end]))
        return head_end

    def _await_body(self, request: HttpRequest, length: int, available: int) -> None:
        routes = self._routes
        if routes.is_timed():
            request = copy(request)  # the next one with the same head has its own began_ns
            request.began_ns = perf_counter_ns()
        self._request = request
        self._since = self._endpoint.now
        if routes.is_guarded:
            routes.check_access(request.target, request.headers)
        check_head(self._endpoint.capacity, routes, request.target, length)
        slot = routes.slot_for(request, length, available)
        self._body.begin(length, self._view[self._start : self._start + available], slot)
        if length >= 0:
            self._start = self._end = 0
        if b"expect" in request.headers and not request.is_http_10:
            self._write(_CONTINUE)

    def _fill_body(self, nbytes: int) -> None:
        try:
            is_whole = self._body.add(nbytes)
        except InferdError as error:
            self._refuse(error)
            return
        if is_whole:
            request = cast("HttpRequest", self._request)
            self._body.give(request)
            self._request = None
            self._answer(request)
            self._advance()

    def _read_chunks(self) -> bool:
        data = self._view[self._start : self._end]
        finished = self._body.feed(data)
        self._start = self._end = 0
        if finished is None:
            return False
        request = cast("HttpRequest", self._request)
        request.body, rest = finished
        self._request = None
        # It always fits: what follows the body came from this buffer.
        self._buffer[: len(rest)] = rest
        self._end = len(rest)
        self._answer(request)
        return True

    # --- answering ---

    def _answer(self, request: HttpRequest) -> None:
        begun = self._routes.begin(request)
        if isinstance(begun, HttpAnswer):
            self._send(request, begun)
            return
        self._answering = request
        self._task = driver = Driver(begun, self._take_turn_soon, self._answered)
        driver.step()

    def _take_turn_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._turns.answer_soon(self)

    def _answered(self, answer: Any, error: BaseException | None) -> None:
        """Send the answer that a coroutine has returned."""
        task, self._task = self._task, None
        if error is not None:
            if isinstance(error, Exception):
                log.error("unexpected failure of an answer; its connection is cut", exc_info=error)
                self.abort()
            return
        if self._is_closing:
            if answer.rest is not None:
                self._task = asyncio.get_running_loop().create_task(driven(answer.rest.aclose()))
            return
        self._send(self._answering, answer)
        if type(task) is Driver and task.has_task:
            self._advance()

    def _send(self, request: HttpRequest, answer: HttpAnswer) -> None:
        request.body = NO_BODY  # an idle connection keeps the head and nothing else
        request.slot = None
        if self._body.buffered_bytes:
            self._body.release()
        if answer.rest is not None:
            self._send_stream(request, answer, answer.rest)
            return
        buffers = answer.buffers
        length = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        self._answers_left -= 1
        keep_alive = request.is_kept_alive and (self._answers_left > 0 or self._has_more())
        if not keep_alive:
            answer.headers += _CLOSE
        elif request.is_http_10:
            answer.headers += b"Connection: keep-alive\r\n"
        head = encode_head(answer, length)
        if request.method == b"HEAD" or answer.status == 304:  # RFC 9110, section 6.4.1
            self._write(head)
        elif length <= _JOIN_BYTES:
            self._write(b"".join((head, *buffers)))
        else:
            self.write_pending()
            self._transport.writelines([head, *buffers])
        if not keep_alive:
            self._close()
        self._since = self._endpoint.now

    def _send_stream(self, request: HttpRequest, answer: HttpAnswer, rest: Pieces) -> None:
        """Send an answer of unknown length: chunked, or for HTTP/1.0 ended by closing."""
        is_chunked = not request.is_http_10
        self._answers_left -= 1
        is_kept_alive = is_chunked and request.is_kept_alive
        is_kept_alive = is_kept_alive and (self._answers_left > 0 or self._has_more())
        if not is_kept_alive:
            answer.headers += _CLOSE
        self._write(encode_stream_head(answer, is_chunked=is_chunked))
        self._outflow = Outflow(rest, self._write_chunk if is_chunked else self._write_piece)
        for piece in filter(len, answer.buffers):
            self._outflow.write(piece)
        if self._is_paused:
            self._outflow.hold()
        self._task = asyncio.get_running_loop().create_task(
            self._stream(self._outflow, b"0\r\n\r\n" if is_chunked else b"", is_kept_alive)
        )

    async def _stream(self, outflow: Outflow, end: bytes, is_kept_alive: bool) -> None:  # noqa: FBT001
        try:
            await outflow.run()
        except Exception:
            log.exception("unexpected failure in the middle of an answer; its connection is cut")
            self.abort()
        finally:
            self._task = self._outflow = None
        if self._is_closing:
            return
        self._write(end)
        self._since = self._endpoint.now
        if is_kept_alive:
            self._advance()
        else:
            self._close()

    def _has_more(self) -> bool:
        """Tell whether the client has sent more, so that the present answer is not the last."""
        is_left = self._start != self._end or has_unread(self._transport)
        return is_left and self._answers_left > -_MOST_PIPELINED

    def _write_chunk(self, data: bytes) -> None:
        self._write_piece(b"%x\r\n%b\r\n" % (len(data), data))

    def _write_piece(self, data: bytes) -> None:
        if not self._is_closing:  # the client may have left without the task knowing yet
            self._write(data)

    def _write(self, data: bytes) -> None:
        """Have `data` written once all the connections read together have been answered."""
        self._pending.append(data)
        if len(self._pending) == 1:
            self._turns.write_soon(self)

    def _refuse(self, error: HttpError | InferdError) -> None:
        """Answer and close; for a while, read and drop what the client still sends.

        Closing at once would reset the connection, and the client might never see the answer.
        """
        request = self._request or unread_request(self._buffer[self._start : self._end])
        self._body.release()
        self._request = None
        self._start = self._end = 0
        answer = self._routes.refusal(request, error)
        answer.headers += _CLOSE
        body = b"".join(answer.buffers)
        self._pending.append(encode_head(answer, len(body)) + body)
        self.write_pending()
        self._go_on_reading()
        self._is_closing = True
        self._since = self._endpoint.now
        if self._is_eof or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()

    def _close(self) -> None:
        self._is_closing = True
        self.write_pending()
        self._transport.close()

    def _probe(self, pause_s: float = SOON_S) -> None:
        """Find out whether a client that has closed its sending half is still there.

        It may have closed the whole connection: the two look the same until something is sent. An
        interim answer is harmless (RFC 9110, section 15.2); a client that has gone replies with a
        reset, which the next write notices and which ends the request. The next probe follows after
        `pause_s`.
        """
        self._is_probing = self._task is not None and not self._is_closing
        if not self._is_probing:
            return
        if self._outflow is not None:
            self._outflow.fill()
        # HTTP/1.0 has no interim answers: there only the final answer reveals that it has gone.
        elif not self._heads.request.is_http_10:
            self.write_pending()
            self._transport.write(_STILL_THERE)
        asyncio.get_running_loop().call_later(pause_s, self._probe, PROBE_S)

    # --- the endpoint calls these ---

    def drain(self) -> None:
        """See Connection.drain: the next answer says that the connection ends.

        Until then it stays open for a while: closed now, it would lose a request that is on its
        way.
        """
        self._expires_at = _NEVER
        if self._answers_left > 0:
            self._answers_left = 0
            if self._task is None and self._request is None and self._start == self._end:
                self._since = self._endpoint.now

    def abort(self) -> None:
        """See Connection.abort."""
        self._is_closing = True
        self._pending = []
        self._transport.abort()

    def check_time(self, now: float) -> None:
        """See Connection.check_time."""
        unsent = self._transport.get_write_buffer_size()
        is_being_answered = self._task is not None and not unsent
        if unsent < self._unsent or (unsent and not self._unsent) or is_being_answered:
            self._since = now  # there is progress, or the client is waiting for the answer
        self._unsent = unsent
        lasts = now - self._since
        limits = self._limits
        if unsent:
            if lasts > limits.write_timeout_s:
                self.abort()
        elif self._is_closing:
            if lasts > LINGER_S:
                self.abort()
        elif self._request is not None:
            self._check_pace(lasts)
        elif self._start != self._end:
            if lasts > limits.header_timeout_s:
                limit_s = limits.header_timeout_s
                self._refuse(HttpError(408, f"no whole request head within {limit_s:g} s"))
        else:
            self._check_idle(now, lasts)

    def _check_idle(self, now: float, lasts: float) -> None:
        limits = self._limits
        is_ending = self._answers_left <= 0
        if lasts > (limits.drain_window_s if is_ending else limits.idle_timeout_s):
            if not has_unread(self._transport):
                self._close()
        elif now >= self._expires_at:
            self.drain()

    def _check_pace(self, lasts: float) -> None:
        fault = pace_fault(self._body.filled, lasts, self._limits.body_timeout_s)
        if fault is not None:
            self._refuse(fault)
