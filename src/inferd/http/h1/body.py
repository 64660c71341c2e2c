"""The bodies of one HTTP/1.1 connection: received in place, counted, checked for their pace."""

import re
from typing import cast

from inferd.http.message import HttpError, HttpRequest
from inferd.http.overload import memory_of
from inferd.memory.capacity import Capacity

MIN_BODY_RATE = 1024
"""The rate in bytes per second at which a body must arrive once its grace period is over."""

MAX_CHUNKS = 65536
"""Maximum number of non-empty chunks per body: very small chunks cost more than they carry."""

# Extensions may follow the size (section 7.1.1); nobody sends long ones.
_MAX_LINE = 1024
_MAX_TRAILER_BYTES = 8192
# Strict: what two readers of a chunk's size could understand differently lets requests be smuggled.
_SIZE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[^\r\n]*)?\Z")


class ChunkedBody:
    """Reassembles one `body` in chunks, of at most `max_bytes` (RFC 9112, section 7.1)."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.body = bytearray()
        self._pending = bytearray()
        self._chunk_count = 0
        self._trailer_bytes = 0
        self._missing = 0  # bytes still to come of the current chunk, its CR LF included
        self._in_trailer = False

    def feed(self, data: memoryview) -> tuple[memoryview, bytes] | None:
        """Take `data`; return the whole body and the bytes after it, or None if more is needed.

        Raises HttpError for bad framing or a body that is too large.
        """
        self._pending += data
        pending = self._pending
        offset = 0
        while True:
            if self._missing:
                taken = self._take_data(pending, offset)
                offset += taken
                if self._missing:
                    break
                continue
            end = pending.find(b"\n", offset)
            if end < 0:
                if len(pending) - offset > _MAX_LINE:
                    raise HttpError(400, "a chunk's size line is too long")
                break
            line = bytes(pending[offset:end])
            # A bare LF is accepted by some servers and not by others: a way to smuggle requests
            # (RFC 9112, section 11.2).
            if not line.endswith(b"\r"):
                raise HttpError(400, "a line of the chunked body does not end in CR LF")
            offset = end + 1
            if self._is_end(line[:-1]):
                return memoryview(self.body), bytes(pending[offset:])
        del pending[:offset]
        return None

    def _take_data(self, pending: bytearray, offset: int) -> int:
        available = len(pending) - offset
        take = min(self._missing - 2, available) if self._missing > 2 else 0
        if take > 0:
            self.body += memoryview(pending)[offset : offset + take]
            self._missing -= take
            available -= take
        if self._missing == 2 and available >= 2:
            if pending[offset + take : offset + take + 2] != b"\r\n":
                raise HttpError(400, "a chunk is longer than its size line says")
            self._missing = 0
            return take + 2
        return take

    def _is_end(self, line: bytes) -> bool:
        """Read a size line or a trailer line; return whether the body ends here."""
        if self._in_trailer:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _MAX_TRAILER_BYTES:
                raise HttpError(431, "the trailer of the chunked body is too large")
            # Trailers are read and dropped: no call uses any.
            return not line
        if len(line) > _MAX_LINE:
            raise HttpError(400, "a chunk's size line is too long")
        match = _SIZE.match(line)
        if match is None:
            raise HttpError(400, "a chunk does not begin with its size in hexadecimal digits")
        size = int(match[1], 16)
        if size == 0:
            self._in_trailer = True
            return False
        self._chunk_count += 1
        if self._chunk_count > MAX_CHUNKS:
            raise HttpError(400, f"the body comes in more than {MAX_CHUNKS} chunks")
        # Before the chunk has come.
        if len(self.body) + size > self._max_bytes:
            raise HttpError(413, f"the body is larger than {self._max_bytes} bytes")
        self._missing = size + 2
        return False


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
        self.add(len(chunks.body) - self.filled)
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
