"""UnaryCall: one message goes to a handler, whose one answer goes back.

The handler is started as soon as the message is there and is driven by hand: it gets a task only if
it waits for something other than a Promise.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from inferd.aio.driver import Driver, cancel_soon
from inferd.http.coding import deflate
from inferd.http.grpc import messages as grpc_messages
from inferd.http.grpc.call import COMPRESS_BYTES, CUT_SHORT, GrpcCall
from inferd.http.grpc.handler import refusal_of
from inferd.http.grpc.messages import (
    CANCELLED,
    INTERNAL,
    OK,
    OK_TRAILERS,
    PREFIX,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    SMALL_BYTES,
    UNIMPLEMENTED,
    GrpcFault,
    MessageReader,
    encode_small_answer,
)
from inferd.memory.buffer import Buffer

_read_prefix: Final[Callable[[Any, int], tuple[int, int]]] = PREFIX.unpack_from


class UnaryCall(GrpcCall):
    """A call of a method that takes one message and returns one."""

    _is_begun = False  # its message comes in pieces
    _message: tuple[Any, bool] | None = None  # kept until the client ends its side
    _driver: Driver | None = None  # of the handler
    _task: asyncio.Task[None] | None = None  # compresses a large answer

    def on_open(self) -> None:
        """See StreamHandler."""
        if not self._grpc.is_plain:
            self._open()

    def on_data(self, data: Buffer, start: int, stop: int, *, ends: bool) -> None:
        """See StreamHandler."""
        if ends and not self._is_begun:
            size = stop - start - PREFIX_BYTES
            # Uncompressed and of this very length: the message is all there is, and no reader is
            # needed.
            if 0 <= size <= self._carrier.small_bytes and _read_prefix(data, start) == (0, size):
                self._answer_to(bytes(data[start + PREFIX_BYTES : stop]))
                return
        self.on_data_run(data, (start,), stop - start)
        if ends and not self.stream.is_local_done:
            self.on_end()

    def on_data_run(self, data: Buffer, starts: Sequence[int], length: int) -> None:
        """See StreamHandler."""
        if not self._is_begun:
            self._is_begun = True
            self._check_room(data, starts[0], starts[0] + length)
            if not self.stream.is_answered:
                most = self._carrier.endpoint.max_message_bytes
                self._reader = MessageReader(most, self._on_message)
        count = length * len(starts)
        if self._reader is None:  # refused with an answer that waits for the client
            # The client must be able to send the rest, or it would never read the answer.
            self._credit(count)
        elif self._hold(count):
            try:
                self._reader.feed_run(data, starts, length)
            except GrpcFault as fault:
                self._end(fault.status, fault.message)
            self._credit(count)

    def room(self) -> memoryview | None:
        """See StreamHandler."""
        return None if self._reader is None else self._reader.room()

    def on_filled(self, count: int, *, ends: bool) -> None:
        """See StreamHandler."""
        if self._reader is not None and self._hold(count):
            self._reader.filled(count)
            self._credit(count)
        if ends and not self.stream.is_local_done:
            self.on_end()

    def on_end(self) -> None:
        """See StreamHandler."""
        if self.stream.is_answered:
            return  # refused, before the client had sent all
        if self._reader is not None and not self._reader.is_between_messages:
            self._end(INTERNAL, CUT_SHORT)
        elif self._message is None:
            # gRPC's status for a wrong number of messages (status codes, cardinality violations).
            self._end(UNIMPLEMENTED, "the call ended without a message, expected one")
        elif self._message[1]:
            message, _ = self._message
            self._drive(self._run_inflated(message))
        else:
            self._answer_to(self._message[0])

    def _check_room(self, data: Buffer, start: int, stop: int) -> None:
        capacity = self._carrier.endpoint.capacity
        # Refused before the message is in memory.
        if capacity.is_full and self._grpc.method.is_refusable:
            self._fail(capacity.too_many_requests())
        else:
            super()._check_room(data, start, stop)

    def _on_message(self, message: Any, is_compressed: bool) -> None:  # noqa: FBT001
        if self.stream.is_local_done:
            return
        if self._message is not None:
            self._end(UNIMPLEMENTED, "the call has more than one message, expected one")
        else:
            self._message = (message, is_compressed)

    def _credit(self, count: int) -> None:
        """Reopen the stream's window."""
        if not self.stream.is_local_done:
            self.sender.credit(self.stream, count)

    def check_pace(self, now: float, limit_s: float) -> None:
        """See StreamExchange."""
        if not (self.stream.is_answered or self._driver or self._task):
            self._check_coming(0, self._held_bytes, now, limit_s)

    def _answer_to(self, message: Any) -> None:
        if (log := self._log) is not None:
            log.taken = len(message)
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
        """Drive the coroutine of the handler; answer at once if it does not wait."""
        self._driver = driver = Driver(running, self._go_on_soon, self._handled)
        driver.step()
        self.watch_deadline()

    def _go_on_soon(self) -> None:
        self._carrier.go_on_soon(self)

    def go_on(self) -> None:
        """See StreamExchange; what the handler waited for is there."""
        if self._driver is not None:  # else the call has ended early
            self._driver.go_on()

    def _handled(self, answer: Any, error: BaseException | None) -> None:
        """Take what the handler has returned or raised."""
        # By the client's reset or the deadline if there is an answer; otherwise the handler was
        # cancelled from elsewhere.
        if isinstance(error, asyncio.CancelledError):
            if self.stream.is_answered:
                return
            self._driver = None
            self._end(CANCELLED, "the call was cancelled")
        else:
            self._driver = None
            if isinstance(error, Exception):
                self._fail(error)
            else:
                self._answer(answer)
        self._carrier.flush()

    async def _run_inflated(self, message: Any) -> Any:
        if (log := self._log) is not None:
            log.taken = len(message)
        begun = self._grpc.handler(await self._inflate(message), self)
        answer: list[Buffer] = begun if isinstance(begun, list) else await begun
        return answer

    def _answer(self, buffers: list[Buffer]) -> None:
        """Send the answer, and OK."""
        stream = self.stream
        if stream.is_local_done or stream.ending is not None:  # not is_answered: a call for each
            return
        length = 0
        for buffer in buffers:
            length += len(buffer)
        if (log := self._log) is not None:
            log.sent = length
        is_bare = self._is_bare
        if length <= self._carrier.small_answer_bytes and (
            is_bare or (self._initial is None and self._trailing is None)
        ):
            frames = encode_small_answer(stream.id, buffers, length)
            if self.sender.send_at_once(stream, frames, length + PREFIX_BYTES):
                if log is not None:
                    log.note(OK)
                if not is_bare:
                    self._clean_up()
                return
        self._answer_in_parts(buffers, length)

    def _answer_in_parts(self, buffers: list[Buffer], length: int) -> None:
        """Send an answer that is large, has metadata beside it, or has to wait for the client."""
        if length > self._carrier.endpoint.limits.max_send_bytes:
            self._end(RESOURCE_EXHAUSTED, f"the answer has {length} bytes, more than may be sent")
            return
        encoding = self._encoding()
        if encoding == b"identity" or length < COMPRESS_BYTES:
            self._finish(encoding, buffers, is_compressed=False)
        # Compressed here: less time than handing it to a thread.
        elif length <= SMALL_BYTES:
            message = deflate(buffers, encoding, self._carrier.level)
            self._finish(encoding, [message], is_compressed=True)
        else:
            self._is_bare = False
            running = self._finish_deflated(encoding, buffers)
            self._task = self._carrier.loop.create_task(running)
            self.watch_deadline()

    async def _finish_deflated(self, encoding: bytes, buffers: list[Buffer]) -> None:
        coder = self._carrier.endpoint.coder
        try:
            message = await coder.deflate(buffers, encoding, self._carrier.level)
        except Exception as error:  # noqa: BLE001  the wall: _fail logs it
            self._task = None
            self._fail(error)
        else:
            self._task = None
            self._finish(encoding, [message], is_compressed=True)
        self._carrier.flush()

    def _finish(self, encoding: bytes, buffers: list[Buffer], *, is_compressed: bool) -> None:
        self._note(OK)
        self._send_head(encoding)
        trailers = OK_TRAILERS
        if self._trailing is not None:
            trailers = grpc_messages.encode_status(OK, "", self._trailing)
        message = grpc_messages.encode_message(buffers, is_compressed=is_compressed)
        self.sender.send_data(self.stream, message, trailers)
        self._clean_up()

    def _refuse(self, error: Exception) -> None:
        if (refusal := refusal_of(self._grpc.method, error)) is not None:
            self._answer(refusal)
        else:
            super()._refuse(error)

    def _clean_up(self) -> None:
        if self._driver is not None:
            # Not at once: this may be running inside of that very coroutine.
            cancel_soon(self._driver)
            self._driver = None
        if self._task is not None:
            cancel_soon(self._task)
            self._task = None
        self._message = None
        super()._clean_up()
