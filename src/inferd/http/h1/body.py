"""The bodies of one HTTP/1.1 connection: received in place, counted, checked for their pace."""

from typing import cast

from inferd.http.h1.chunked import ChunkedBody
from inferd.http.message import HttpError, HttpRequest
from inferd.http.overload import memory_of
from inferd.memory.capacity import Capacity

MIN_BODY_RATE = 1024
"""The rate in bytes per second at which a body must arrive once its grace period is over."""


class BodyReader:
    """Receives one body after the other; the bytes held count in `capacity` until `release`.

    A body of known length is received into `memory`, from `filled` on; a chunked one is fed to
    `chunks`. Each is None while no such body is coming.
    """

    def __init__(self, capacity: Capacity, max_bytes: int) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self.chunks: ChunkedBody | None = None
        self.memory: memoryview | None = None
        self.filled = 0
        self.buffered_bytes = 0

    def begin(self, length: int, came: memoryview) -> None:
        """Make room for a body of `length` bytes, -1 if chunked.

        `came` is what has arrived of it, unused if chunked. Raises Overloaded and TooLarge.
        """
        self.filled = 0
        if length < 0:
            self.chunks = ChunkedBody(self._max_bytes)
            return
        self.memory = memory_of(length)
        self.memory[: len(came)] = came
        self.add(len(came))

    def room(self) -> memoryview:
        """Return the rest of `memory`."""
        return cast("memoryview", self.memory)[self.filled :]

    def add(self, count: int) -> bool:
        """Count `count` bytes as received; return whether they fill `memory`.

        Raises Overloaded and TooLarge.
        """
        self.filled += count
        self.buffered_bytes += count
        capacity = self._capacity
        capacity.buffered_bytes += count
        # Counted as it arrives, not as declared: clients that declare much and send little would
        # block others.
        if capacity.buffered_bytes > capacity.max_bytes:
            raise capacity.too_many_bytes(self.buffered_bytes)
        return self.memory is not None and self.filled == len(self.memory)

    def give(self, request: HttpRequest) -> None:
        """Give `request` the body that fills `memory`, and get ready for the next."""
        request.body, self.memory = cast("memoryview", self.memory), None

    def feed(self, data: memoryview) -> tuple[memoryview, bytes] | None:
        """See ChunkedBody.feed; also raises Overloaded and TooLarge."""
        chunks = cast("ChunkedBody", self.chunks)
        finished = chunks.feed(data)
        self.add(chunks.size_bytes - self.filled)
        if finished is not None:
            self.chunks = None
        return finished

    def release(self) -> None:
        """Release all bytes received."""
        self._capacity.buffered_bytes -= self.buffered_bytes
        self.buffered_bytes = 0
        self.memory = self.chunks = None


def pace_fault(came: int, lasts_s: float, limit_s: float) -> HttpError | None:
    """Return the fault of a body that takes longer than `limit_s` and arrives too slowly, or None.

    `came` bytes of it have arrived within `lasts_s`.
    """
    if is_too_slow(came, lasts_s, limit_s):
        return HttpError(408, f"the body came too slowly: {came} bytes in {lasts_s:.0f} s")
    return None


def is_too_slow(came: int, lasts_s: float, limit_s: float) -> bool:
    """Return whether `came` bytes are too few for the time: memory is held for them meanwhile."""
    # Grace, then a rate: long bodies may take long, but must not trickle.
    return lasts_s > limit_s and came < (lasts_s - limit_s) * MIN_BODY_RATE + 1
