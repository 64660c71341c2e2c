"""What a client's end of HTTP/2 sends: its greeting, header blocks of calls, pieces of bodies."""

import struct
from functools import lru_cache
from typing import Final

from inferd.http.h2 import frames
from inferd.http.h2.frames import Setting
from inferd.http.h2.hpack import Field, encode_fields

MAX_LIST_BYTES: Final = 65536
"""The largest list of headers that is received."""

# Windows as large as allowed: one call at a time has nobody to share them with. A frame of 16 MiB
# holds most answers as a whole.
START: Final = (
    frames.PREFACE
    + frames.encode_settings(
        {
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW,
            Setting.MAX_FRAME_SIZE: frames.MAX_FRAME_BYTES,
            Setting.MAX_HEADER_LIST_SIZE: MAX_LIST_BYTES,
        }
    )
    # SETTINGS cannot change the connection's own window (RFC 9113, section 6.9.2).
    + frames.encode_window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
)


# Of a client's calls, path, fields and time limit are mostly the same; traced calls differ in each,
# so the number is limited.
@lru_cache(maxsize=256)
def header_block(scheme: str, authority: str, path: str, fields: str, timeout: bytes) -> bytes:
    """Return the header block of a call; `fields` are lines as in HTTP/1.1."""
    head: list[Field] = [
        (b":method", b"POST"),
        (b":scheme", scheme.encode()),
        # Pseudo-headers come first (RFC 9113, section 8.3).
        (b":path", path.encode()),
        (b":authority", authority.encode()),
        # gRPC requires it, to find proxies that drop trailers.
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]
    if timeout:
        head.append((b"grpc-timeout", timeout))
    for line in fields.split("\r\n"):
        name, colon, value = line.partition(": ")
        if colon:
            # Upper case is malformed in HTTP/2 (RFC 9113, section 8.2.1).
            head.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    # Without the dynamic table, so a block is the same bytes on every connection and can be kept.
    return encode_fields(head)


class SendWindows:
    """What the peer allows to be sent (RFC 9113, section 5.2), to one stream at a time."""

    def __init__(self) -> None:
        self.frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._stream = self._initial = self._connection = frames.DEFAULT_WINDOW

    def begin(self) -> None:
        """Begin the next stream."""
        self._stream = self._initial

    def room(self) -> int:
        """Return how many bytes of DATA may be sent; less than 1 is none."""
        return min(self._stream, self._connection)

    def spend(self, count: int) -> None:
        """Count bytes of DATA that are sent."""
        self._stream -= count
        self._connection -= count

    def widen(self, payload: bytes, *, of_connection: bool) -> None:
        """Do what a WINDOW_UPDATE says. Raises struct.error."""
        (increment,) = struct.unpack(">L", payload)
        if of_connection:
            # The first bit is reserved and must be ignored (RFC 9113, section 6.9).
            self._connection += increment & frames.MAX_WINDOW
        else:
            self._stream += increment & frames.MAX_WINDOW

    def apply(self, payload: bytes) -> None:
        """Do what SETTINGS say; our blocks use no table, so the size of one is no matter.

        Raises ConnectionFault.
        """
        for name, value in frames.decode_settings(payload):
            if name == Setting.INITIAL_WINDOW_SIZE:
                # The difference counts for streams that are open (RFC 9113, section 6.9.2), the
                # connection's window stays.
                self._stream += value - self._initial
                self._initial = value
            elif name == Setting.MAX_FRAME_SIZE:
                self.frame_bytes = value


class BodyPieces:
    """Buffers, taken in pieces of given sizes, without copying."""

    def __init__(self, views: list[memoryview]) -> None:
        # An empty buffer would never be used up.
        self._views = [view for view in views if len(view)]
        self._index = self._at = 0

    def take(self, size: int) -> list[memoryview]:
        """Return the next `size` bytes."""
        found = []
        while size:
            view = self._views[self._index]
            piece = view[self._at : self._at + size]
            found.append(piece)
            size -= len(piece)
            self._at += len(piece)
            if self._at == len(view):
                self._index += 1
                self._at = 0
        return found


def timeout_text(seconds: float) -> bytes:
    """Return `seconds` as gRPC writes them: at most eight digits and a unit."""
    # A time limit of 0 would be none of gRPC's, which wants a positive number.
    milliseconds = max(int(seconds * 1000), 1)
    if milliseconds < 100_000_000:
        return b"%dm" % milliseconds
    return b"%dS" % min(milliseconds // 1000, 99_999_999)
