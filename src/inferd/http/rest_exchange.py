"""REST over HTTP/2: the same routes as over HTTP/1.1, one stream per request.

Only where gRPC and HTTP share a port: there an HTTP/2 client may use it for everything.
"""

import asyncio
import logging
from http import HTTPMethod
from typing import Any

from inferd.aio.driver import Driver, cancel_soon
from inferd.aio.promise import driven
from inferd.errors import InferdError
from inferd.http.access import joined
from inferd.http.grpc.endpoint import Carrier
from inferd.http.grpc.exchange import QUEUED_BYTES, StreamExchange
from inferd.http.grpc.messages import is_grpc
from inferd.http.h1.body import pace_fault
from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.h2.frames import ErrorCode
from inferd.http.h2.hpack import Field, encode_fields
from inferd.http.h2.stream import H2Stream
from inferd.http.message import HttpAnswer, HttpError, HttpRequest, Pieces
from inferd.http.outflow import Outflow
from inferd.http.overload import check_head, memory_of
from inferd.memory.buffer import Buffer

log = logging.getLogger("inferd.http")

_METHODS = frozenset(method.encode() for method in HTTPMethod)

_WRONG_TYPE = encode_fields([(b":status", b"415"), (b"content-length", b"0")])
_WRONG_METHOD = encode_fields(
    [(b":status", b"405"), (b"allow", b"POST"), (b"content-length", b"0")]
)
_CONTINUE = encode_fields([(b":status", b"100")])


class WrongExchange(StreamExchange):
    """A request that cannot be gRPC (gRPC over HTTP2, Requests).

    Answered with 405 if only the method is wrong (not POST), else with 415.
    """

    def on_open(self) -> None:
        """See StreamHandler."""
        block = _WRONG_METHOD if is_grpc(self.stream.head) else _WRONG_TYPE
        self.sender.send_headers(self.stream, block, ends=True)


class RestExchange(StreamExchange):
    """One request and its answer."""

    _body: memoryview | bytearray | None = None
    _filled = 0
    _held_bytes = 0
    _began_at: float | None = None  # when the sweep first saw it wait for its body
    _task: asyncio.Task[None] | Driver | None = None
    _outflow: Outflow | None = None

    def __init__(self, stream: H2Stream, carrier: Carrier, rest: HttpEndpoint) -> None:
        super().__init__(stream, carrier.sender)
        # Some clients lose an answer if the stream is reset while they still send (see
        # H2Receiver._drop).
        stream.drop_bytes = 1 << 22
        self._head = stream.head
        self._carrier = carrier
        self._routes = rest.routes
        if rest.is_logged:
            address = carrier.peer.partition(":")[2]
            self._routes = rest.routes_for(address or "unix", "HTTP/2")
        self._limits = rest.limits
        self._capacity = carrier.endpoint.capacity

    def on_open(self) -> None:
        """See StreamHandler."""
        try:
            self._check_head()
            length = self._head.content_length
            # Without a length it grows with what comes.
            self._body = memory_of(length) if length >= 0 else bytearray()
            if not self.stream.is_remote_done:
                self._answer_expectation()
        except (HttpError, InferdError) as error:
            self._refuse(error)

    def _answer_expectation(self) -> None:
        """Ask for the body if the client waits for that (RFC 9110, section 10.1.1)."""
        for name, value in self._head.fields:
            if name == b"expect":
                if value.lower() != b"100-continue":
                    raise HttpError(417, "Expect may only be 100-continue")
                self.sender.send_headers(self.stream, _CONTINUE)

    def _check_head(self) -> None:
        limit = self._limits.max_header_bytes
        if self._head.size > limit:
            raise HttpError(431, f"the request head is larger than {limit} bytes")
        if self._head.method not in _METHODS:  # as over HTTP/1.1 (RFC 9110, section 9.1)
            method = self._head.method.decode(errors="replace")
            raise HttpError(501, f"there is no method {method} here")
        if self._head.method == b"CONNECT":
            raise HttpError(501, "CONNECT is not supported")
        # Without a body the call itself checks access, after CORS preflights have been answered.
        if self._routes.is_guarded and not self.stream.is_remote_done:
            self._routes.check_access(self._head.path, joined(self._head.fields))
        if self._head.content_length > self._limits.max_body_bytes:
            raise self._too_large()
        if not self.stream.is_remote_done:
            check_head(self._capacity, self._routes, self._head.path, self._head.content_length)

    def on_data(self, data: Buffer, start: int, stop: int, *, ends: bool) -> None:
        """See StreamHandler."""
        count = stop - start
        if isinstance(self._body, bytearray):
            if self._filled + count > self._limits.max_body_bytes:
                self._refuse(self._too_large())
                return
            self._body += data[start:stop]
        elif self._body is not None:
            self._body[self._filled : self._filled + count] = data[start:stop]
        self.on_filled(count, ends=ends)

    def room(self) -> memoryview | None:
        """See StreamHandler."""
        return self._body[self._filled :] if isinstance(self._body, memoryview) else None

    def on_filled(self, count: int, *, ends: bool) -> None:
        """See StreamHandler."""
        if self._is_refused:
            self.sender.credit(self.stream, count)
            return
        self._filled += count
        self._held_bytes += count
        capacity = self._capacity
        capacity.buffered_bytes += count
        if capacity.buffered_bytes > capacity.max_bytes:
            self._refuse(capacity.too_many_bytes(self._held_bytes))
            return
        self.sender.credit(self.stream, count)
        if ends:
            self.on_end()

    def on_end(self) -> None:
        """See StreamHandler."""
        if self._is_refused:
            return
        head = self._head
        headers = joined(head.fields)
        if head.authority:  # the same as Host, and before it (RFC 9113, section 8.3.1)
            headers[b"host"] = head.authority
        request = HttpRequest(
            method=head.method,
            target=head.path,
            headers=headers,
            # A stream ends by itself.
            is_kept_alive=True,
            is_http_10=False,
            body=memoryview(self._body or b""),
        )
        if self._routes.forward is not None:
            request.forwarded = self._routes.forward.chosen_fields(head.fields)
        answering = self._routes.answer(request)
        self._task = driver = Driver(answering, self._go_on_soon, self._answered)
        driver.step()

    def _go_on_soon(self) -> None:
        self._carrier.go_on_soon(self)

    def go_on(self) -> None:
        """See StreamExchange."""
        if isinstance(self._task, Driver):
            self._task.go_on()

    @property
    def _is_refused(self) -> bool:
        """Whether a complete answer waits for the client's window, so the body is dropped."""
        return self.stream.ending is not None

    def check_pace(self, now: float, _limit_s: float) -> None:
        """See StreamExchange; a body has its own time limit, as over HTTP/1.1."""
        if self._task is not None or self._is_refused or self.stream.is_local_done:
            return
        if self._began_at is None:
            self._began_at = now
        fault = pace_fault(self._filled, now - self._began_at, self._limits.body_timeout_s)
        if fault is not None:
            self._refuse(fault)

    def on_reset(self) -> None:
        """See StreamHandler."""
        self._clean_up()

    def cut(self) -> None:
        """See StreamExchange."""
        # An answer may have begun, which no status can end any more.
        self.sender.reset(self.stream.id, ErrorCode.CANCEL)

    def _answered(self, answer: Any, error: BaseException | None) -> None:
        self._task = None
        if error is not None:
            if isinstance(error, Exception):
                log.error("unexpected failure of an answer; its stream is reset", exc_info=error)
                self.sender.reset(self.stream.id, ErrorCode.INTERNAL_ERROR)
            return
        if self.stream.is_local_done and answer.rest is not None:
            self._task = asyncio.get_running_loop().create_task(driven(answer.rest.aclose()))
        self._answer(answer)
        self._carrier.flush()

    def _answer(self, answer: HttpAnswer) -> None:
        if self.stream.is_local_done:
            return
        length = sum(map(len, answer.buffers))
        fields: list[Field] = [
            (b":status", b"%d" % answer.status),
            (b"content-type", answer.content_type),
        ]
        if answer.rest is None:
            fields.append((b"content-length", b"%d" % length))
        # Answers are made for HTTP/1.1; names are in lower case in HTTP/2 (section 8.2.1).
        for line in answer.headers.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if colon:
                fields.append((name.lower(), value.strip()))
        if answer.rest is not None:
            self._send_stream(fields, answer.buffers, answer.rest)
            return
        has_body = bool(length) and self._head.method != b"HEAD" and answer.status != 304
        self.sender.send_headers(self.stream, encode_fields(fields), ends=not has_body)
        if has_body:
            self.sender.send_data(self.stream, answer.buffers, b"")
        self._clean_up()

    def _send_stream(self, fields: list[Field], first: list[Buffer], rest: Pieces) -> None:
        """Send an answer of unknown length, no faster than the client's window allows."""
        self.sender.send_headers(self.stream, encode_fields(fields))
        self._release()
        self._outflow = Outflow(rest, self._write)
        for piece in filter(len, first):
            self._write(piece)
        self._task = asyncio.get_running_loop().create_task(self._stream(self._outflow))

    async def _stream(self, outflow: Outflow) -> None:
        try:
            await outflow.run()
        except Exception:
            log.exception("unexpected failure in the middle of an answer; its stream is reset")
            self.sender.reset(self.stream.id, ErrorCode.INTERNAL_ERROR)
        self._task = None
        if not self.stream.is_local_done:
            self.sender.send_data(self.stream, [], b"")
        self._carrier.flush()

    def _write(self, piece: Buffer) -> None:
        if self.stream.is_local_done:
            return
        self.sender.send_data(self.stream, [piece], None)
        self._carrier.flush()
        if self.stream.pending_bytes > QUEUED_BYTES and self._outflow is not None:
            self._outflow.hold()

    def on_drained(self) -> None:
        """See StreamHandler."""
        if self._outflow is not None:
            self._outflow.release()

    def _too_large(self) -> HttpError:
        limit = self._limits.max_body_bytes
        return HttpError(413, f"the body is larger than the {limit} bytes this server takes")

    def _refuse(self, error: HttpError | InferdError) -> None:
        head = self._head
        request = HttpRequest(head.method, head.path, joined(head.fields), True, False)
        self._answer(self._routes.refusal(request, error))

    def _clean_up(self) -> None:
        if self._task is not None:
            cancel_soon(self._task)
            self._task = None
        self._release()

    def _release(self) -> None:
        self._capacity.buffered_bytes -= self._held_bytes
        self._held_bytes = 0
        self._body = None
