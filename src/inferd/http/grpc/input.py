"""The messages a gRPC call receives: assembled, counted, inflated and passed on one by one.

A unary call has one, which is kept until the client ends its side. A stream's messages wait in a
queue; beyond a limited number of them, input is kept unparsed while the client's flow-control
window runs out.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self, cast

from inferd.http.coding import WINDOW_BITS, BadCoding, InflatesTooFar
from inferd.http.grpc.endpoint import Carrier
from inferd.http.grpc.messages import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    PREFIX,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    SMALL_BYTES,
    UNIMPLEMENTED,
    GrpcFault,
    GrpcHead,
    MessageReader,
)
from inferd.http.h1.body import is_too_slow
from inferd.http.h2.connection import H2Connection
from inferd.http.h2.request import RequestHead
from inferd.http.h2.stream import H2Stream

CUT_SHORT = "the call ended inside a message"

_READ_AHEAD: Final = 64  # messages of a stream
_READ_BYTES: Final = 4096


class GrpcInput(H2Stream):
    """The receiving side of one call, and the iterator its handler reads. GrpcCall is the rest."""

    takes_runs: ClassVar[bool] = True
    _reader: MessageReader | None = None
    _message: tuple[Any, bool] | None = None  # a unary call's, before the client ends its side
    _queue: deque[tuple[Any, bool]] | None = None  # a stream's
    _backlog: deque[bytes] | None = None
    _untaken = 0
    _is_input_done = False
    _reads: asyncio.Future[None] | None = None  # waits for the next message; see _sends
    # What runs the handler, a Task or Driver. Compiled, the default None of a union of three types
    # would be lost.
    _task: Any = None
    _held_bytes = 0
    _inflated_bytes = 0
    _coming_since: tuple[int, float] | None = None  # (message number, time it was first seen)

    def __init__(
        self, connection: H2Connection, stream_id: int, head: RequestHead, carrier: Carrier
    ) -> None:
        H2Stream.__init__(self, connection, stream_id, head)
        self._carrier = carrier
        self._grpc: GrpcHead = head.use
        self._is_begun = False  # a message is coming in pieces, or the call is a stream
        self._is_bare = True  # nothing to send but the answer, and nothing to clean up

    def hold(self, size_bytes: int) -> None:
        """See Call."""
        if not self.is_local_done:
            self._hold(size_bytes)

    def __aiter__(self) -> Self:
        """Return self."""
        return self

    async def __anext__(self) -> Any:
        """Return the next message. Raises StopAsyncIteration when the client sends no more."""
        queue = cast("deque[tuple[Any, bool]]", self._queue)
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
        self.release(len(message) + PREFIX_BYTES)
        if self._untaken and not queue and not self._backlog:
            self._credit_taken()
            self._carrier.flush()
        if is_compressed:
            message = await self._inflate(message)
        return message

    def on_data_run(self, data: Any, starts: Sequence[int], length: int) -> None:
        """See H2Stream."""
        self._read(data, starts, length)

    def room(self) -> memoryview | None:
        """See H2Stream."""
        return None if self._reader is None or self._backlog else self._reader.room()

    def on_filled(self, count: int, *, ends: bool) -> None:
        """See H2Stream."""
        if self._hold(count) and self._reader is not None:
            self._reader.filled(count)
            self._take(count)
        if ends and not self.is_local_done:
            self.on_end()

    def _read(self, data: Any, starts: Sequence[int], length: int) -> None:
        if self._reader is None:
            if self._is_refused(data, starts[0], starts[0] + length):
                return
            self._is_begun = True
            self._reader = MessageReader(self._carrier.endpoint.max_message_bytes, self._on_message)
        count = length * len(starts)
        if self._hold(count):
            try:
                if self._queue is None:
                    self._reader.feed_run(data, starts, length)
                else:
                    for start in starts:
                        self._queue_data(data, start, start + length)
            except GrpcFault as fault:
                self._end(fault.status, fault.message)
            self._take(count)

    def _queue_data(self, data: Any, start: int, stop: int) -> None:
        if self._reader is None:
            return  # earlier data has ended the call
        if self._backlog:
            self._backlog.append(bytes(data[start:stop]))
        else:
            self._read_some(data, start, stop)

    def _is_refused(self, data: Any, start: int, stop: int) -> bool:
        """Refuse a call when its first message begins, if there is no room for it.

        Return whether the call is over.
        """
        capacity, method = self._carrier.endpoint.capacity, self._grpc.method
        if self.is_local_done:
            return False
        if capacity.is_full and method.is_refusable and self._queue is None:
            self._fail(capacity.too_many_requests())
        elif stop - start >= PREFIX_BYTES:
            _, size = PREFIX.unpack_from(data, start)
            if size > SMALL_BYTES and not capacity.has_room(size):
                self._fail(capacity.too_many_bytes(size))
        return self.is_local_done

    def _read_some(self, data: Any, start: int = 0, stop: int | None = None) -> None:
        """Parse a stream's messages, but only as many as its handler will soon take.

        The rest is kept unparsed: many small messages take much more memory as objects.
        """
        stop = len(data) if stop is None else stop
        reader, queue = cast("MessageReader", self._reader), cast("deque[Any]", self._queue)
        while start < stop and len(queue) < _READ_AHEAD:
            size = reader.missing_bytes or _READ_BYTES
            reader.feed(data, start, min(stop, start + size))
            start += size
        if start < stop:
            if self._backlog is None:
                self._backlog = deque()
            self._backlog.appendleft(bytes(data[start:stop]))

    def _take(self, count: int) -> None:
        """Reopen the stream's window, unless messages are waiting for the handler."""
        if self.is_local_done:
            return
        self._untaken += count
        if not self._queue and not self._backlog:
            self._credit_taken()

    def _credit_taken(self) -> None:
        count, self._untaken = self._untaken, 0
        self.connection.credit(self, count)

    def _on_message(self, message: Any, is_compressed: bool) -> None:  # noqa: FBT001
        if self.is_local_done:
            return
        if self._queue is not None:
            self._queue.append((message, is_compressed))
            self._wake()
        elif self._message is not None:
            self._end(UNIMPLEMENTED, "the call has more than one message, expected one")
        else:
            self._message = (message, is_compressed)

    def _hold(self, count: int) -> bool:
        """Count bytes held, over all connections; return False and end the call if too many."""
        capacity = self._carrier.endpoint.capacity
        self._is_bare = False
        self._held_bytes += count
        capacity.buffered_bytes += count
        if capacity.buffered_bytes <= capacity.max_bytes:
            return True
        if count <= SMALL_BYTES and not self._grpc.method.is_refusable:
            return True  # an overloaded server still answers health checks
        if not self.is_local_done:
            self._fail(capacity.too_many_bytes(count))
        return False

    def release(self, size_bytes: int) -> None:
        """See Call."""
        size_bytes = min(size_bytes, self._held_bytes)
        self._held_bytes -= size_bytes
        self._carrier.endpoint.capacity.buffered_bytes -= size_bytes

    async def _inflate(self, message: Any) -> Any:
        encoding, endpoint = self._grpc.encoding, self._carrier.endpoint
        if encoding not in WINDOW_BITS:
            msg = "a message is marked as compressed, but grpc-encoding names no compression"
            raise GrpcFault(INTERNAL, msg)
        try:
            inflated = await endpoint.coder.inflate(message, encoding)
        except BadCoding as error:
            raise GrpcFault(INTERNAL, f"a compressed message {error}") from None
        except InflatesTooFar as error:
            options = "--grpc-max-inflated-bytes, --grpc-max-message-bytes"
            msg = f"a message inflates to more than {error} bytes ({options})"
            raise GrpcFault(RESOURCE_EXHAUSTED, msg) from None
        count = self._inflated_bytes = len(inflated)
        self._is_bare = False
        self._held_bytes += count
        if not endpoint.capacity.hold(count):
            raise endpoint.capacity.too_many_bytes(count)
        return bytes(inflated) if count <= SMALL_BYTES else inflated

    def check_pace(self, now: float, limit_s: float) -> None:
        """See H2Stream; the pauses between the messages of a stream are not limited."""
        coming = self._coming()
        if coming is None:
            self._coming_since = None
            return
        message, count = coming
        if self._coming_since is None or self._coming_since[0] != message:
            self._coming_since = message, now
        lasts_s = now - self._coming_since[1]
        if is_too_slow(count, lasts_s, limit_s):
            text = f"a message came too slowly: {count} bytes in {lasts_s:.0f} s"
            self._end(DEADLINE_EXCEEDED, text)

    def _coming(self) -> tuple[int, int] | None:
        """Return the number of the incomplete message and how many bytes of it have arrived.

        None if the call is not waiting for the client.
        """
        if self.is_local_done or self.ending is not None:
            return None
        reader = self._reader
        if self._queue is None:
            return None if self._task is not None else (0, self._held_bytes)
        if reader is None or reader.is_between_messages or self._queue or self._backlog:
            return None
        return reader.begun_count, reader.coming_bytes

    def _forget_input(self) -> None:
        """Release all input."""
        self.release(self._held_bytes)
        self._reader = self._message = None
        if self._queue:
            self._queue.clear()
        self._backlog = None

    def _wake(self) -> None:
        if self._reads is not None and not self._reads.done():
            self._reads.set_result(None)
        self._reads = None

    def _end(self, status: int, message: str) -> None:
        """End the call with a status."""
        raise NotImplementedError

    def _fail(self, error: Exception) -> None:
        """End the call with the status for `error`."""
        raise NotImplementedError
