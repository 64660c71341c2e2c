"""StreamCall: messages go to a handler one by one, and its answers go back as they come.

The handler always has a task. Messages wait for it in a queue; beyond a limited number of them,
input is kept unparsed while the client's flow-control window runs out.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Self

from inferd.http.grpc import messages as grpc_messages
from inferd.http.grpc.call import COMPRESS_BYTES, CUT_SHORT, GrpcCall
from inferd.http.grpc.endpoint import Carrier
from inferd.http.grpc.exchange import QUEUED_BYTES
from inferd.http.grpc.handler import send_all
from inferd.http.grpc.messages import (
    CANCELLED,
    INTERNAL,
    OK,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    GrpcFault,
    MessageReader,
)
from inferd.http.h2.stream import H2Stream
from inferd.memory.buffer import Buffer

# So many that a fast handler does not wait for parsing between them.
_READ_AHEAD: Final = 64  # messages
# Parsed in pieces of this size, so that the limit of messages is looked at often enough.
_READ_BYTES: Final = 4096
_SENT_IN_A_ROW: Final = 16


class StreamCall(GrpcCall):
    """A call of a method that takes and returns any number; the iterator of what it takes."""

    _backlog: deque[bytes] | None = None
    _untaken = 0
    _is_input_done = False
    _task: asyncio.Task[None] | None = None  # of the handler
    _reads: asyncio.Future[None] | None = None  # waits for the next message
    _sends: asyncio.Future[None] | None = None  # waits for the client to read
    _sent_count = 0

    def __init__(self, stream: H2Stream, carrier: Carrier) -> None:
        super().__init__(stream, carrier)
        self._queue: deque[tuple[Any, bool]] = deque()

    def __aiter__(self) -> Self:
        """Return self."""
        return self

    async def __anext__(self) -> Any:
        """Return the next message. Raises StopAsyncIteration when the client sends no more."""
        queue = self._queue
        if self._inflated_bytes:  # the message before this one has been answered
            self.release(self._inflated_bytes)
            self._inflated_bytes = 0
        while not queue:
            if self._backlog:
                self._read_some(self._backlog.popleft())
            elif self._is_input_done:
                if self._reader is not None and not self._reader.is_between_messages:
                    raise GrpcFault(INTERNAL, CUT_SHORT)
                raise StopAsyncIteration
            else:
                self._reads = self._carrier.loop.create_future()
                await self._reads
        message, is_compressed = queue.popleft()
        # From here on the handler counts what it holds (Call.hold).
        self.release(len(message) + PREFIX_BYTES)
        # Only when all is taken, so a client is never ahead by more than one window.
        if self._untaken and not queue and not self._backlog:
            self._credit_taken()
            self._carrier.flush()
        if is_compressed:
            message = await self._inflate(message)
        return message

    def on_open(self) -> None:
        """See StreamHandler."""
        self._open()
        if not self.stream.is_answered:
            self._is_bare = False
            self._task = self._carrier.loop.create_task(self._run())
            self.watch_deadline()

    def on_data(self, data: Buffer, start: int, stop: int, *, ends: bool) -> None:
        """See StreamHandler."""
        self.on_data_run(data, (start,), stop - start)
        if ends and not self.stream.is_local_done:
            self.on_end()

    def on_data_run(self, data: Buffer, starts: Sequence[int], length: int) -> None:
        """See StreamHandler."""
        if self._reader is None:
            if not self.stream.is_answered:
                self._check_room(data, starts[0], starts[0] + length)
            if self.stream.is_answered:
                return  # its status waits for the client to read
            self._reader = MessageReader(self._carrier.endpoint.max_message_bytes, self._on_message)
        count = length * len(starts)
        if self._hold(count):
            try:
                for start in starts:
                    self._queue_data(data, start, start + length)
            except GrpcFault as fault:
                self._end(fault.status, fault.message)
            self._take(count)

    def room(self) -> memoryview | None:
        """See StreamHandler."""
        return None if self._reader is None or self._backlog else self._reader.room()

    def on_filled(self, count: int, *, ends: bool) -> None:
        """See StreamHandler."""
        if self._reader is not None and self._hold(count):
            self._reader.filled(count)
            self._take(count)
        if ends and not self.stream.is_local_done:
            self.on_end()

    def on_end(self) -> None:
        """See StreamHandler."""
        self._is_input_done = True
        self._wake()

    def _queue_data(self, data: Buffer, start: int, stop: int) -> None:
        if self._reader is None:
            return  # earlier data has ended the call
        if self._backlog:
            self._backlog.append(bytes(data[start:stop]))
        else:
            self._read_some(data, start, stop)

    def _read_some(self, data: Buffer, start: int = 0, stop: int | None = None) -> None:
        """Parse messages, but only as many as the handler will soon take.

        The rest is kept unparsed: many small messages take much more memory as objects.
        """
        stop = len(data) if stop is None else stop
        while start < stop and len(self._queue) < _READ_AHEAD and self._reader is not None:
            size = self._reader.missing_bytes or _READ_BYTES
            self._reader.feed(data, start, min(stop, start + size))
            start += size
        if start < stop and self._reader is not None:
            if self._backlog is None:
                self._backlog = deque()
            self._backlog.appendleft(bytes(data[start:stop]))

    def _on_message(self, message: Any, is_compressed: bool) -> None:  # noqa: FBT001
        if not self.stream.is_local_done:
            self._queue.append((message, is_compressed))
            self._wake()

    def _wake(self) -> None:
        if self._reads is not None and not self._reads.done():
            self._reads.set_result(None)
        self._reads = None

    def _take(self, count: int) -> None:
        """Reopen the stream's window, unless messages are waiting for the handler."""
        if self.stream.is_local_done:
            return
        self._untaken += count
        if not self._queue and not self._backlog:
            self._credit_taken()

    def _credit_taken(self) -> None:
        count, self._untaken = self._untaken, 0
        self.sender.credit(self.stream, count)

    def check_pace(self, now: float, limit_s: float) -> None:
        """See StreamExchange; the pauses between messages are not limited."""
        reader = self._reader
        is_waiting = reader is None or reader.is_between_messages or self._queue or self._backlog
        if is_waiting or self.stream.is_answered:
            self._coming_since = None
        elif reader is not None:
            self._check_coming(reader.begun_count, reader.coming_bytes, now, limit_s)

    async def _run(self) -> None:
        try:
            await send_all(self._grpc.method.handler(self, self), self._send)
        except asyncio.CancelledError:
            # Cancelled by `_clean_up`, the call has its end.
            if not self.stream.is_answered:  # it was cancelled from elsewhere
                self._task = None
                self._end(CANCELLED, "the call was cancelled")
                self._carrier.flush()
            raise
        except Exception as error:  # noqa: BLE001  the wall: _fail logs it
            self._task = None
            self._fail(error)
        else:
            self._task = None
            self._end(OK, "")
        self._carrier.flush()

    async def _send(self, buffers: list[Buffer]) -> None:
        """Send one message; wait if the client reads too slowly."""
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
        self.sender.send_data(self.stream, message, None)
        self._carrier.flush()
        self._sent_count += 1
        if self._sent_count % _SENT_IN_A_ROW == 0 or length > QUEUED_BYTES:
            await asyncio.sleep(0)  # a handler that never waits must not monopolize the loop
        while self.stream.pending_bytes > QUEUED_BYTES:
            self._sends = self._carrier.loop.create_future()
            await self._sends

    def on_drained(self) -> None:
        """See StreamHandler."""
        if self._sends is not None and not self._sends.done():
            self._sends.set_result(None)

    def _clean_up(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._queue.clear()
        self._backlog = None
        super()._clean_up()
