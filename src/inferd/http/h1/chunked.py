"""Chunked request bodies, reassembled (RFC 9112, section 7.1)."""

import re

from inferd.http.message import HttpError

MAX_CHUNKS = 65536
"""Maximum number of non-empty chunks per body: very small chunks cost more than they carry."""

# Extensions may follow the size (section 7.1.1); nobody sends long ones.
_MAX_LINE = 1024
_MAX_TRAILER_BYTES = 8192
# Strict: what two readers of a chunk's size could understand differently lets requests be smuggled.
_SIZE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[^\r\n]*)?\Z")


class ChunkedBody:
    """Collects one body of at most `max_bytes` from the data as it arrives."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._body = bytearray()
        self._pending = bytearray()
        self._chunk_count = 0
        self._trailer_bytes = 0
        self._missing = 0  # bytes still to come of the current chunk, its CR LF included
        self._in_trailer = False

    @property
    def size_bytes(self) -> int:
        """The number of body bytes collected."""
        return len(self._body)

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
                return memoryview(self._body), bytes(pending[offset:])
        del pending[:offset]
        return None

    def _take_data(self, pending: bytearray, offset: int) -> int:
        available = len(pending) - offset
        take = min(self._missing - 2, available) if self._missing > 2 else 0
        if take > 0:
            self._body += memoryview(pending)[offset : offset + take]
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
        if len(self._body) + size > self._max_bytes:
            raise HttpError(413, f"the body is larger than {self._max_bytes} bytes")
        self._missing = size + 2
        return False
