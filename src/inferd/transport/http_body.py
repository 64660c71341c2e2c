"""The bodies of one HTTP/1.1 connection: gathered where they stay, counted, not too slow."""

from typing import cast

from inferd.engine.capacity import Capacity
from inferd.transport.http_chunked import ChunkedBody
from inferd.transport.http_message import HttpError
from inferd.transport.overload import memory_of

MIN_BODY_RATE = 1024
"""Bytes per second a body must come in with, once its time without any rate is over."""


class BodyReader:
    """Gathers one body after the other; what it holds counts in `capacity` until `release`.

    A body of known length goes to `memory`, from `filled` on; one in `chunks` is fed. Both are None
    while no such body is coming.
    """

    __slots__ = ("_capacity", "_max_bytes", "chunks", "filled", "held_bytes", "memory")

    def __init__(self, capacity: Capacity, max_bytes: int) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self.chunks: ChunkedBody | None = None
        self.memory: memoryview | None = None
        self.filled = 0
        self.held_bytes = 0

    def begin(self, length: int, came: memoryview) -> None:
        """Make room for a body, -1 for one in chunks; `came` is what there is of it, not chunks.

        Raises Overloaded and TooLarge.
        """
        self.filled = 0
        if length < 0:
            self.chunks = ChunkedBody(self._max_bytes)
            return
        self.memory = memory_of(length)
        self.memory[: len(came)] = came
        self.add(len(came))

    def add(self, count: int) -> bool:
        """Count bytes that have come; tell whether they fill `memory`.

        Raises Overloaded and TooLarge.
        """
        self.filled += count
        self.held_bytes += count
        capacity = self._capacity
        capacity.held_bytes += count
        if capacity.held_bytes > capacity.max_bytes:
            raise capacity.too_many_bytes(self.held_bytes)
        return self.memory is not None and self.filled == len(self.memory)

    def take(self) -> memoryview:
        """Return the body that fills `memory`, and be ready for the next."""
        body, self.memory = cast("memoryview", self.memory), None
        return body

    def feed(self, data: memoryview) -> tuple[memoryview, bytes] | None:
        """See ChunkedBody.feed; raises Overloaded and TooLarge, too."""
        chunks = cast("ChunkedBody", self.chunks)
        finished = chunks.feed(data)
        self.add(chunks.size_bytes - self.filled)
        if finished is not None:
            self.chunks = None
        return finished

    def release(self) -> None:
        """Let go of all that has come."""
        self._capacity.held_bytes -= self.held_bytes
        self.held_bytes = 0
        self.memory = self.chunks = None

    def check_pace(self, lasts_s: float, limit_s: float) -> None:
        """See the function."""
        check_pace(self.filled, lasts_s, limit_s)


def check_pace(came: int, lasts_s: float, limit_s: float) -> None:
    """Raise HttpError for a body that has been coming for longer than `limit_s`, and slowly.

    `came` is how many bytes of it are there.
    """
    if is_too_slow(came, lasts_s, limit_s):
        raise HttpError(408, f"the body came too slowly: {came} bytes in {lasts_s:.0f} s")


def is_too_slow(came: int, lasts_s: float, limit_s: float) -> bool:
    """Tell whether `came` bytes are too few for the time: memory is held for them meanwhile."""
    return lasts_s > limit_s and came < (lasts_s - limit_s) * MIN_BODY_RATE + 1
