"""One gRPC call on an HTTP/2 stream: its messages go to a handler, whose answers go back.

A unary handler is started as soon as the message is there and is driven by hand: it gets a task
only if it waits for something other than a Promise. A streaming handler always has a task.
Unexpected exceptions end here: they are logged, and the client gets a status without details.
"""

import asyncio
import base64
import functools
from collections import deque
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final, cast

from inferd.aio.driver import Driver, cancel_soon
from inferd.errors import InferdError, Overloaded
from inferd.http.access import Guard, joined
from inferd.http.coding import deflate
from inferd.http.failure import forget_frames
from inferd.http.grpc import messages as grpc_messages
from inferd.http.grpc.handler import Metadata, Method, Stream, Unary, refusal_of, send_all
from inferd.http.grpc.input import CUT_SHORT, GrpcInput
from inferd.http.grpc.messages import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    OK,
    OK_TRAILERS,
    PREFIX,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    SMALL_BYTES,
    UNAVAILABLE,
    UNIMPLEMENTED,
    GrpcFault,
    GrpcHead,
    encode_small_answer,
)
from inferd.http.grpc.status import RETRY_PUSHBACK, status_of
from inferd.http.h2.frames import ErrorCode
from inferd.http.h2.hpack import Field, encode_fields
from inferd.http.h2.request import RequestHead
from inferd.http.request_log import Notes

COMPRESS_BYTES: Final = 1024
"""Answers below this size are not compressed."""

QUEUED_BYTES: Final = 65536
"""A handler that streams answers waits while more than this is unsent."""

_SENT_IN_A_ROW: Final = 16
_read_prefix: Final[Callable[[Any, int], tuple[int, int]]] = PREFIX.unpack_from
_LATE: Final = "the deadline has passed"


class GrpcCall(GrpcInput):
    """One call: both the `Call` its handler sees and the iterator of a stream's messages."""

    deadline_s: float | None = None
    cancelled = False
    _sends: asyncio.Future[None] | None = None  # waits for the client to read
    _timer: asyncio.TimerHandle | None = None
    _sent_count = 0
    _is_head_sent = False
    _initial: list[Field] | None = None
    _trailing: list[Field] | None = None
    notes: Notes | None = None

    # --- what the handler sees ---

    @property
    def metadata(self) -> Metadata:
        """See Call."""
        return grpc_messages.decode_metadata(self.head)

    @property
    def peer(self) -> str:
        """See Call."""
        return self._carrier.peer

    def note_request(self, notes: Notes, status: int, taken: int, sent: int, began_ns: int) -> None:
        """See Call."""

    def add_initial(self, metadata: Metadata) -> None:
        """See Call."""
        self._is_bare = False
        self._initial = [*(self._initial or ()), *_encoded(metadata)]

    def add_trailing(self, metadata: Metadata) -> None:
        """See Call."""
        self._is_bare = False
        self._trailing = [*(self._trailing or ()), *_encoded(metadata)]

    # --- what comes in ---

    def on_open(self) -> None:
        """See H2Stream."""
        if not self._grpc.is_plain:
            self._open(self._grpc)

    def _open(self, grpc: GrpcHead) -> None:
        """Begin a call that has a deadline, needs an access check, is refused, or is a stream."""
        if grpc.timeout_s is not None:
            self.deadline_s = monotonic() + grpc.timeout_s
            if grpc.timeout_s <= 0:
                self._end(DEADLINE_EXCEEDED, _LATE)
                return
            self._carrier.hurried.append(self)
        if grpc.check_access is not None:
            try:
                grpc.check_access()
            except InferdError as error:
                self._fail(error)
                return
        if grpc.fault is not None:
            self._end(grpc.fault.status, grpc.fault.message)
        elif isinstance(grpc.method, Stream):
            self._is_begun = True
            self._queue = deque()
            self._start(self._run_stream(grpc.method))

    def on_data(self, data: Any, start: int, stop: int, *, ends: bool) -> None:
        """See H2Stream."""
        if ends and not self._is_begun:
            size = stop - start - PREFIX_BYTES
            if 0 <= size <= self._carrier.small_bytes and _read_prefix(data, start) == (0, size):
                self._answer_to(bytes(data[start + PREFIX_BYTES : stop]))
                return
        self._read(data, (start,), stop - start)
        if ends and not self.is_local_done:
            self.on_end()

    def on_end(self) -> None:
        """See H2Stream."""
        if self._queue is not None:
            self._is_input_done = True
            self._wake()
        elif self._reader is not None and not self._reader.is_between_messages:
            self._end(INTERNAL, CUT_SHORT)
        elif self._message is None:
            self._end(UNIMPLEMENTED, "the call ended without a message, expected one")
        elif self._message[1]:
            message, _ = self._message
            self._drive(self._run_inflated(message))
        else:
            self._answer_to(self._message[0])

    def on_reset(self) -> None:
        """See H2Stream."""
        self.cancelled = True
        self._clean_up()

    def on_drained(self) -> None:
        """See H2Stream."""
        if self._sends is not None and not self._sends.done():
            self._sends.set_result(None)

    # --- the handler ---

    def _answer_to(self, message: Any) -> None:
        """Run a unary handler."""
        try:
            begun = self._grpc.handler(message, self)
        except Exception as error:  # noqa: BLE001  the wall: _fail logs it
            self._fail(error)
            return
        if isinstance(begun, list):
            self._answer(begun)
        else:
            self._drive(begun)

    def _drive(self, running: Any) -> None:
        """Drive the coroutine of a unary handler; answer at once if it does not wait."""
        self._task = driver = Driver(running, self._go_on_soon, self._handled)
        driver.step()
        if self._task is driver:
            self.watch_deadline()

    def _go_on_soon(self) -> None:
        self._carrier.go_on_soon(self)

    def go_on(self) -> None:
        """See H2Stream; what the handler waited for is there."""
        if type(self._task) is Driver:  # else the call has ended early
            self._task.go_on()

    def _handled(self, answer: Any, error: BaseException | None) -> None:
        """Take what a unary handler has returned or raised."""
        if isinstance(error, asyncio.CancelledError):
            self._end_cancelled()
            return
        self._task = None
        if isinstance(error, Exception):
            self._fail(error)
        else:
            self._answer(answer)
        self._carrier.flush()

    async def _run_inflated(self, message: Any) -> Any:
        begun = self._grpc.handler(await self._inflate(message), self)
        answer: list[Any] = begun if isinstance(begun, list) else await begun
        return answer

    def _start(self, running: Coroutine[Any, Any, None]) -> None:
        self._is_bare = False
        self._task = self._carrier.loop.create_task(running)
        self.watch_deadline()

    async def _run_stream(self, method: Stream) -> None:
        try:
            await send_all(method.handler(self, self), self._send)
        except asyncio.CancelledError:
            self._end_cancelled()
            raise
        except Exception as error:  # noqa: BLE001  the wall: _fail logs it
            self._task = None
            self._fail(error)
        else:
            self._task = None
            self._end(OK, "")
        self._carrier.flush()

    # --- what goes out ---

    def _answer(self, buffers: list[Any]) -> None:
        """Send the answer of a unary call, and OK."""
        if self.is_local_done or self.ending is not None:
            return
        length = 0
        for buffer in buffers:
            length += len(buffer)
        is_bare = self._is_bare
        if length <= self._carrier.small_answer_bytes and (
            is_bare or (self._initial is None and self._trailing is None)
        ):
            frames = encode_small_answer(self.id, buffers, length)
            if self.connection.send_at_once(self, frames, length + PREFIX_BYTES):
                if not is_bare:
                    self._clean_up()
                return
        if length > self._carrier.endpoint.limits.max_send_bytes:
            self._end(RESOURCE_EXHAUSTED, f"the answer has {length} bytes, more than may be sent")
            return
        encoding = self._encoding()
        if encoding == b"identity" or length < COMPRESS_BYTES:
            self._finish(encoding, buffers, is_compressed=False)
        elif length <= SMALL_BYTES:
            message = deflate(buffers, encoding, self._carrier.level)
            self._finish(encoding, [message], is_compressed=True)
        else:
            self._start(self._finish_deflated(encoding, buffers))

    async def _finish_deflated(self, encoding: bytes, buffers: list[Any]) -> None:
        try:
            message = await self._carrier.endpoint.coder.deflate(
                buffers, encoding, self._carrier.level
            )
        except Exception as error:  # noqa: BLE001  the wall: _fail logs it
            self._task = None
            self._fail(error)
        else:
            self._task = None
            self._finish(encoding, [message], is_compressed=True)
        self._carrier.flush()

    def _finish(self, encoding: bytes, buffers: list[Any], *, is_compressed: bool) -> None:
        self._send_head(encoding)
        trailers = OK_TRAILERS
        if self._trailing is not None:
            trailers = grpc_messages.encode_status(OK, "", self._trailing)
        message = grpc_messages.encode_message(buffers, is_compressed=is_compressed)
        self.connection.send_data(self, message, trailers)
        self._clean_up()

    async def _send(self, buffers: list[Any]) -> None:
        """Send one message of a stream; wait if the client reads too slowly."""
        length = sum(map(len, buffers))
        if length > self._carrier.endpoint.limits.max_send_bytes:
            msg = f"an answer has {length} bytes, more than may be sent"
            raise GrpcFault(RESOURCE_EXHAUSTED, msg)
        encoding = self._encoding()
        self._send_head(encoding)
        is_compressed = encoding != b"identity" and length >= COMPRESS_BYTES
        if is_compressed:
            coder = self._carrier.endpoint.coder
            buffers = [await coder.deflate(buffers, encoding, self._carrier.level)]
        message = grpc_messages.encode_message(buffers, is_compressed=is_compressed)
        self.connection.send_data(self, message, None)
        self._carrier.flush()
        self._sent_count += 1
        if self._sent_count % _SENT_IN_A_ROW == 0 or length > QUEUED_BYTES:
            await asyncio.sleep(0)  # a handler that never waits must not monopolize the loop
        while self.pending_bytes > QUEUED_BYTES:
            self._sends = self._carrier.loop.create_future()
            await self._sends

    def _send_head(self, encoding: bytes) -> None:
        if self._is_head_sent:
            return
        self._is_head_sent = True
        block = grpc_messages.encode_response_head(encoding)
        if self._initial is not None:
            block += encode_fields(self._initial)
        self.connection.send_headers(self, block)

    def _fail(self, error: Exception) -> None:
        """End the call with what `error` says; whoever keeps it no longer keeps the message."""
        self._end_with(error)
        forget_frames(error)

    def _end_with(self, error: Exception) -> None:
        if isinstance(error, GrpcFault):
            self._end(error.status, error.message)
            return
        self._carrier.endpoint.failures.note(self.head.path.decode("latin-1"), error)
        if (refusal := refusal_of(self._grpc.method, error)) is not None:
            self._answer(refusal)
            return
        if isinstance(error, Overloaded):
            self.add_trailing(RETRY_PUSHBACK)
        self._end(*status_of(error))

    def _end_cancelled(self) -> None:
        """End a call whose handler was cancelled from elsewhere."""
        if not self._is_ended:
            self._task = None
            self._end(CANCELLED, "the call was cancelled")
            self._carrier.flush()

    def _end(self, status: int, message: str) -> None:
        """Send the status after the pending output; if no headers were sent, send it alone."""
        if not self._is_ended:
            if self._is_head_sent:
                trailers = grpc_messages.encode_status(status, message, self._trailing or ())
                self.connection.send_data(self, [], trailers)
            else:
                block = grpc_messages.encode_status_only(status, message)
                for fields in (self._initial, self._trailing):
                    block += encode_fields(fields or ())
                self.connection.send_headers(self, block, ends=True)
        self._clean_up()

    @property
    def _is_ended(self) -> bool:
        return self.is_local_done or self.ending is not None

    # --- compression ---

    def _encoding(self) -> bytes:
        if not self._carrier.level:
            return b"identity"
        return grpc_messages.choose_encoding(self._grpc.accepted)

    # --- how it ends early ---

    def watch_deadline(self) -> None:
        """See H2Stream; there is a timer only if there is a deadline, and the call is not done."""
        if self.deadline_s is not None and self._timer is None and not self._is_ended:
            self._is_bare = False
            wait_s = self.deadline_s - monotonic()
            self._timer = self._carrier.loop.call_later(wait_s, self.expire)

    def expire(self) -> None:
        """End the call because its deadline has passed."""
        self._end_early(DEADLINE_EXCEEDED, _LATE)
        self._carrier.flush()

    def cut(self) -> None:
        """End the call because the server is shutting down."""
        self._end_early(UNAVAILABLE, "the server is shutting down")

    def _end_early(self, status: int, message: str) -> None:
        if self.pending_bytes:  # the client does not read what is being sent
            self.connection.reset(self.id, ErrorCode.CANCEL)
        else:
            self._end(status, message)

    def _clean_up(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            if self._queue is None:
                cancel_soon(self._task)
            else:
                self._task.cancel()
            self._task = None
        self._forget_input()


def _encoded(metadata: Metadata) -> list[Field]:
    return [
        (
            key.encode("latin-1"),
            base64.b64encode(value).rstrip(b"=")
            if isinstance(value, bytes)
            else value.encode("latin-1"),
        )
        for key, value in metadata
    ]


def prepare(head: RequestHead, methods: dict[bytes, Method], max_bytes: int) -> GrpcHead | None:
    """Return what the head of a request asks for, None if it is not gRPC.

    The caller keeps it in `head.use` for repetitions of the head. `max_bytes` limits the metadata.
    """
    if head.base is not None and (known := head.base.use) and known.fault is None:
        grpc = grpc_messages.renew_grpc_head(known, head.changed)
        if grpc is not None and head.size <= max_bytes:
            if grpc.check_access is not None:
                grpc.check_access = _access_check(grpc.method, head)
            return grpc
    if head.method != b"POST" or not grpc_messages.is_grpc(head):
        return None
    grpc = grpc_messages.decode_grpc_head(head)
    grpc.method = method = methods.get(head.path)
    if method is not None and method.guard is not None:
        grpc.check_access = _access_check(method, head)
    if grpc.fault is not None:
        return grpc
    if method is None:
        path = head.path[:200].decode("latin-1")
        grpc.fault = GrpcFault(UNIMPLEMENTED, f"there is no method {path} here")
    elif head.size > max_bytes:
        msg = f"the metadata are larger than {max_bytes} bytes"
        grpc.fault = GrpcFault(RESOURCE_EXHAUSTED, msg)
    elif isinstance(method, Unary):
        grpc.handler = method.handler
        grpc.is_plain = grpc.timeout_s is None and grpc.check_access is None
    return grpc


def _access_check(method: Method, head: RequestHead) -> Callable[[], None]:
    guard = cast("Guard", method.guard)
    return functools.partial(guard.check, joined(head.fields))
