"""One HTTP/1.1 connection on a socket: reads requests, answers them in order, keeps alive.

What it does with what comes is decided by its state alone (h1/state.py). It has a reader, which
makes requests of bytes, a writer, and a driver while a coroutine answers. A body is received
directly into memory of its declared length, which the call may then view. A request is answered
within the same loop iteration unless it really has to wait. Meanwhile up to one buffer of further
input is kept, so answers go out in order. No request has a timer: the server's sweep checks how
long each connection has been in its present state.
"""

import asyncio
import logging
from copy import copy
from time import perf_counter_ns
from typing import Any, cast

from inferd.aio.driver import Driver, cancel_soon
from inferd.aio.promise import driven
from inferd.compiled import mypyc_attr
from inferd.errors import InferdError, Overloaded
from inferd.http.h1.body import pace_fault
from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.h1.lifetime import Lifetime
from inferd.http.h1.reader import RequestReader
from inferd.http.h1.state import (
    ANSWERING,
    BODY,
    CHUNKS,
    CLOSED,
    HEAD,
    NEXT,
    STALLED,
    STREAMING,
    HttpEvent,
)
from inferd.http.h1.writer import AnswerWriter
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
from inferd.http.turns import NO_TRANSPORT, Connection
from inferd.http.unread import has_unread

log = logging.getLogger("inferd.http")

LINGER_S = 5.0
"""How long a refused client may go on sending before the connection is cut."""

# Up to this size, joining head and body costs less than a second buffer in the write.
_JOIN_BYTES = 16384
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STILL_THERE = b"HTTP/1.1 102 Processing\r\n\r\n"
_CLOSE = b"Connection: close\r\n"

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
        self._routes = routes = endpoint.routes
        self._transport = NO_TRANSPORT
        self._state = HEAD
        self._reader = RequestReader(limits, routes, endpoint.capacity)
        self._writer = AnswerWriter(endpoint.turns)
        self._life = Lifetime(limits, endpoint.now)
        self._driver: Driver | None = None  # of the coroutine that answers a request: ANSWERING
        self._answering: HttpRequest = NO_REQUEST  # that request
        self._outflow: Outflow | None = None  # the rest of an answer: STREAMING
        self._task: asyncio.Task[None] | None = None  # sends that rest, or gives it up
        self._is_due = False  # it has a turn coming in this loop iteration
        self._is_probing = False
        self._since = endpoint.now  # when the present state began, for the sweep
        # When empty lines began to come, and how many answers were left then.
        self._skipped_since, self._skipped_at = endpoint.now, self._life.answers_left + 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BufferedProtocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._reader.transport = self._writer.transport = self._transport
        endpoint = self._endpoint
        if endpoint.is_logged:
            address = address_of(transport.get_extra_info("peername"))
            self._routes = endpoint.routes_for(address, "HTTP/1.1")
        if endpoint.is_draining:
            self.drain()
        if not endpoint.admit(self):
            msg = "the server has as many connections as it may; try again later"
            self._refuse(Overloaded(msg))

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio.BufferedProtocol."""
        self._move(HttpEvent.CLOSES)
        for running in (self._driver, self._task):
            if running is not None:
                # The coroutine may be the one that is running now.
                cancel_soon(running)
        self._driver = self._task = None
        self._reader.release()
        self._writer.drop()
        self._endpoint.forget(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        state, reader = self._state, self._reader
        if state is BODY:
            return reader.body.room()
        if state is CLOSED:
            reader.drop()  # take in large pieces what is dropped
        # Most requests find that all before them has been consumed, so they need not call anything.
        return reader.room() if reader.end else reader.view

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        # Constants, since this is asked at each read.
        state, reader = self._state, self._reader
        if state is HEAD or state is CHUNKS:
            end = reader.end
            if end == reader.start and state is HEAD:
                self._since = self._endpoint.now
            reader.end = end = end + nbytes
            if end == len(reader.buffer):
                self._advance()  # a large request: receive its body directly into its own memory
            elif not self._is_due:
                self._is_due = True
                self._writer.turns.answer_read(self)
        elif state is BODY:
            self._fill_body(nbytes)
        elif state is not CLOSED:
            # Kept until the latest request is answered; the buffer's size is the limit.
            reader.end += nbytes
            if reader.end == len(reader.buffer):
                reader.stop()

    def eof_received(self) -> bool:
        """See asyncio.BufferedProtocol."""
        if self._is_due:
            self.take_turn()
        self._reader.has_ended = True
        has_halves = self._transport.can_write_eof()  # TLS has no half-closed state
        self._move(HttpEvent.ENDS if has_halves else HttpEvent.CLOSES)
        if self._state is CLOSED:
            self._writer.write_pending()
            self._writer.drop()
            return False
        self._probe()
        return True

    def pause_writing(self) -> None:
        """See asyncio.BufferedProtocol."""
        self._writer.is_stalled = True
        self._move(HttpEvent.STALLS)
        if self._outflow is not None:
            self._outflow.hold()

    def resume_writing(self) -> None:
        """See asyncio.BufferedProtocol."""
        self._writer.is_stalled = False
        self._move(HttpEvent.FLOWS)
        if self._outflow is not None:
            self._outflow.release()
        self._advance()

    def take_turn(self) -> None:
        """See Connection.take_turn."""
        self._is_due = False
        if self._state is ANSWERING:
            cast("Driver", self._driver).go_on()
            if self._state is ANSWERING or not self._reader.has_news():
                return
        self._advance()

    def _move(self, event: HttpEvent) -> None:
        """Go on to the state that follows when `event` happens."""
        state = NEXT[self._state, event]
        self._state = STALLED if state is HEAD and self._writer.is_stalled else state

    def _advance(self) -> None:
        """Answer the requests received, one after the other, until one has to wait."""
        reader = self._reader
        try:
            # Answering changes the state, which ends the loop.
            while (state := self._state) is HEAD or state is CHUNKS:
                request = reader.read() if state is HEAD else reader.read_chunks()
                if request is None:
                    self._skip()
                    break
                if reader.is_whole:
                    self._answer(request)
                    if not reader.end:
                        break
                else:
                    self._await_body(request)
        except (HttpError, InferdError) as error:
            # Bytes that are no HTTP/1.1 may be HTTP/2's preface, where both share a port.
            if self._endpoint.is_taken_over(self._transport, reader.first_bytes()):
                self._move(HttpEvent.CLOSES)
                self._endpoint.forget(self)
            else:
                self._refuse(error)
            return
        if reader.has_ended and self._state is not CLOSED:
            self._go_on_half_closed()
        if not reader.is_reading and self._state is not CLOSED:
            reader.go_on()

    def _skip(self) -> None:
        """Have empty lines, which are no request, not lengthen the time without one."""
        if self._reader.has_skipped:
            self._reader.has_skipped = False
            if self._skipped_at != self._life.answers_left:
                self._skipped_at, self._skipped_since = self._life.answers_left, self._since
            self._since = self._skipped_since

    def _go_on_half_closed(self) -> None:
        self._move(HttpEvent.ENDS)
        if self._state is CLOSED:
            self._writer.close()
        elif not self._is_probing:
            self._probe()

    def _await_body(self, request: HttpRequest) -> None:
        """Have the rest of a body received, unless its head already is a reason to refuse it."""
        routes, reader = self._routes, self._reader
        if routes.is_timed():
            request = copy(request)  # the next one with the same head has its own began_ns
            request.began_ns = perf_counter_ns()
        reader.request = request
        self._since = self._endpoint.now
        if routes.is_guarded:
            # Before the body, so that nobody without access makes the server hold data.
            routes.check_access(request.target, request.headers)
        length = reader.heads.length
        check_head(self._endpoint.capacity, routes, request.target, length)
        reader.begin_body(length)
        self._move(HttpEvent.CHUNKS_COME if length < 0 else HttpEvent.BODY_COMES)
        # RFC 9110, section 10.1.1; to HTTP/1.0 no interim answer may be sent (section 15.2).
        if b"expect" in request.headers and not request.is_http_10:
            self._writer.write(_CONTINUE)

    def _fill_body(self, nbytes: int) -> None:
        try:
            request = self._reader.fill_body(nbytes)
        except InferdError as error:
            self._refuse(error)
            return
        if request is not None:
            self._answer(request)
            self._advance()

    def _answer(self, request: HttpRequest) -> None:
        begun = self._routes.begin(request)
        if isinstance(begun, HttpAnswer):
            self._send(request, begun)
            return
        self._move(HttpEvent.WAITS)
        self._answering = request
        self._driver = driver = Driver(begun, self._take_turn_soon, self._answered)
        driver.step()

    def _take_turn_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._writer.turns.answer_soon(self)

    def _answered(self, answer: Any, error: BaseException | None) -> None:
        """Send the answer that a coroutine has returned."""
        driver, self._driver = self._driver, None
        if error is not None:
            self._move(HttpEvent.ANSWERED)
            if isinstance(error, Exception):
                log.error("unexpected failure of an answer; its connection is cut", exc_info=error)
                self.abort()
        elif self._state is not CLOSED:
            self._send(self._answering, answer)
            # Without a task this was called from `take_turn`, which goes on by itself.
            if driver is not None and driver.has_task:
                self._advance()
        elif answer.rest is not None:
            # Nobody will read the rest, so its producer has to be told.
            self._task = asyncio.get_running_loop().create_task(driven(answer.rest.aclose()))

    def _send(self, request: HttpRequest, answer: HttpAnswer) -> None:
        request.body = NO_BODY  # an idle connection keeps the head and nothing else
        reader, life, writer = self._reader, self._life, self._writer
        if reader.body.buffered_bytes:
            reader.body.release()
        life.answers_left -= 1
        # One more after the last, to a client that has sent more before it knew.
        is_kept = request.is_kept_alive and (
            life.answers_left > 0 or (life.may_go_on() and reader.has_more())
        )
        if answer.rest is not None:
            # Without chunks only the end of the connection ends the answer.
            self._send_stream(request, answer, answer.rest, is_kept and not request.is_http_10)
            return
        buffers = answer.buffers
        # Most answers have one.
        length = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        if not is_kept:
            answer.headers += _CLOSE
        elif request.is_http_10:
            # HTTP/1.0 closes by default, so the client has to be told.
            answer.headers += b"Connection: keep-alive\r\n"
        head = encode_head(answer, length)
        if request.method == b"HEAD" or answer.status == 304:  # RFC 9110, section 6.4.1
            writer.write(head)
        elif length <= _JOIN_BYTES:
            writer.write(b"".join((head, *buffers)))
        else:
            writer.write_now([head, *buffers])
        self._since = self._endpoint.now
        if not is_kept:
            self._close()
        elif self._state is not HEAD:  # what it is for most, which need not look up the next one
            self._move(HttpEvent.ANSWERED)

    def _send_stream(
        self,
        request: HttpRequest,
        answer: HttpAnswer,
        rest: Pieces,
        is_kept: bool,  # noqa: FBT001
    ) -> None:
        """Send an answer of unknown length: chunked, or for HTTP/1.0 ended by closing."""
        is_chunked = not request.is_http_10
        if not is_kept:
            answer.headers += _CLOSE
        self._writer.write(encode_stream_head(answer, is_chunked=is_chunked))
        self._move(HttpEvent.STREAMS)
        writer = self._writer
        write = writer.write_chunk if is_chunked else writer.write_piece
        self._outflow = outflow = Outflow(rest, write)
        # An empty chunk would end the body.
        for piece in filter(len, answer.buffers):
            outflow.write(piece)
        if self._writer.is_stalled:
            outflow.hold()
        self._task = asyncio.get_running_loop().create_task(
            self._stream(outflow, b"0\r\n\r\n" if is_chunked else b"", is_kept)
        )

    async def _stream(self, outflow: Outflow, end: bytes, is_kept: bool) -> None:  # noqa: FBT001
        try:
            await outflow.run()
        except Exception:
            log.exception("unexpected failure in the middle of an answer; its connection is cut")
            self.abort()
        finally:
            self._task = self._outflow = None
        if self._state is CLOSED:
            return
        self._writer.write(end)
        self._since = self._endpoint.now
        if is_kept:
            self._move(HttpEvent.ANSWERED)
            self._advance()
        else:
            self._close()

    def _refuse(self, error: HttpError | InferdError) -> None:
        """Answer and close; for a while, read and drop what the client still sends.

        Closing at once would reset the connection, and the client might never see the answer.
        """
        reader = self._reader
        has_more = reader.request is not None  # the rest of its body
        answer = self._routes.refusal(reader.give_up(), error)
        answer.headers += _CLOSE
        body = b"".join(answer.buffers)
        # Now, because the connection's end follows.
        self._writer.write_now([encode_head(answer, len(body)) + body])
        reader.go_on()
        self._move(HttpEvent.CLOSES)
        self._since = self._endpoint.now
        # Nothing more can come whose arrival would reset the connection.
        if reader.has_ended:
            self._transport.close()
        else:
            self._writer.end(has_more=has_more)

    def _close(self) -> None:
        self._move(HttpEvent.CLOSES)
        self._writer.close()

    def _probe(self, pause_s: float = SOON_S) -> None:
        """Find out whether a client that has closed its sending half is still there.

        It may have closed the whole connection: the two look the same until something is sent. An
        interim answer is harmless (RFC 9110, section 15.2); a client that has gone replies with a
        reset, which the next write notices and which ends the request. The next probe follows after
        `pause_s`.
        """
        self._is_probing = self._state is ANSWERING or self._state is STREAMING
        if not self._is_probing:
            return
        if self._outflow is not None:
            self._outflow.fill()
        # HTTP/1.0 has no interim answers: there only the final answer reveals that it has gone.
        elif not self._reader.heads.request.is_http_10:
            self._writer.write_now([_STILL_THERE])
        asyncio.get_running_loop().call_later(pause_s, self._probe, PROBE_S)

    def drain(self) -> None:
        """See Connection.drain: the next answer says that the connection ends.

        Until then it stays open for a while: closed now, it would lose a request that is on its
        way.
        """
        is_idle = self._state is HEAD and self._reader.start == self._reader.end
        # Only the first time: a second drain must not lengthen the wait.
        if is_idle and self._life.answers_left > 0:
            self._since = self._endpoint.now
        self._life.end()

    def abort(self) -> None:
        """See Connection.abort."""
        self._move(HttpEvent.CLOSES)
        self._writer.abort()

    def check_time(self, now: float) -> None:
        """See Connection.check_time."""
        has_moved, unsent, state = self._writer.has_moved(), self._writer.unsent, self._state
        # There is progress, or the client is waiting for the answer.
        if has_moved or (not unsent and (state is ANSWERING or state is STREAMING)):
            self._since = now
        lasts = now - self._since
        limits = self._limits
        if unsent:
            if lasts > limits.write_timeout_s:
                self.abort()
        elif state is CLOSED:
            if lasts > LINGER_S:
                self.abort()
        elif state is BODY or state is CHUNKS:
            fault = pace_fault(self._reader.body.filled, lasts, limits.body_timeout_s)
            if fault is not None:
                self._refuse(fault)
        elif state is HEAD and self._reader.start != self._reader.end:
            if lasts > limits.header_timeout_s:
                limit_s = limits.header_timeout_s
                self._refuse(HttpError(408, f"no whole request head within {limit_s:g} s"))
        else:
            self._check_idle(now, lasts)

    def _check_idle(self, now: float, lasts: float) -> None:
        if self._life.has_idled(lasts):
            if not has_unread(self._transport):
                self._close()
        elif self._life.is_over(now):
            self.drain()
