"""What a client's end of HTTP/2 sends: its greeting, header blocks of calls, pieces of bodies."""

from functools import lru_cache
from typing import Final

from inferd.http.h2 import frames
from inferd.http.h2.frames import Setting
from inferd.http.h2.hpack import Field, encode_fields

MAX_LIST_BYTES: Final = 65536
"""The largest list of headers that is received."""

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
    + frames.encode_window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
)


@lru_cache(maxsize=256)
def header_block(scheme: str, authority: str, path: str, fields: str, timeout: bytes) -> bytes:
    """Return the header block of a call; `fields` are lines as in HTTP/1.1."""
    head: list[Field] = [
        (b":method", b"POST"),
        (b":scheme", scheme.encode()),
        (b":path", path.encode()),
        (b":authority", authority.encode()),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"grpc-timeout", timeout),
    ]
    for line in fields.split("\r\n"):
        name, colon, value = line.partition(": ")
        if colon:
            head.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    return encode_fields(head)


class BodyPieces:
    """Buffers, taken in pieces of given sizes, without copying."""

    def __init__(self, views: list[memoryview]) -> None:
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
    milliseconds = max(int(seconds * 1000), 1)
    if milliseconds < 100_000_000:
        return b"%dm" % milliseconds
    return b"%dS" % min(milliseconds // 1000, 99_999_999)
