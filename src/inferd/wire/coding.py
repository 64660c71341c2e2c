"""gzip and deflate of whole bodies and messages, both ways, in bounded memory.

"deflate" is the zlib format, as RFC 9110, section 8.4.1.2, and gRPC's Message-Encoding have it.
"""

import zlib
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any

from inferd.wire.inline import INLINE_CODED_BYTES, INLINE_INFLATED_BYTES, NotFast

WINDOW_BITS = MappingProxyType({b"gzip": 31, b"deflate": 15})
"""Each coding by its name, with what zlib calls it."""

_DEFAULT_LEVEL = -1
_READ_BYTES = 64 << 10  # zlib copies what it has not used of a piece, so pieces are small
_WRITE_BYTES = 256 << 10


class BadCoding(Exception):
    """What was sent is not in the coding it is said to be in; the text goes on from "the body"."""


class InflatesTooFar(Exception):
    """What was sent inflates to more bytes than may be; its argument is that limit."""


def inflate(data: Any, coding: bytes, max_bytes: int, *, on_loop: bool = False) -> memoryview:
    """Return `data` decoded from `coding`, a key of WINDOW_BITS.

    Never holds more than `max_bytes` and a piece. Raises BadCoding, InflatesTooFar, and `on_loop`
    NotFast for what should be inflated in a thread.
    """
    if on_loop and len(data) > INLINE_CODED_BYTES:
        raise NotFast
    inflated = bytearray()
    for piece in _pieces(data, coding):
        inflated += piece
        if len(inflated) > max_bytes:
            raise InflatesTooFar(max_bytes)
        if on_loop and len(inflated) > INLINE_INFLATED_BYTES:
            raise NotFast
    return memoryview(inflated)


def _pieces(data: Any, coding: bytes) -> Iterator[bytes]:
    decoder = zlib.decompressobj(WINDOW_BITS[coding])
    read = 0
    while read < len(data) and not decoder.eof:
        left: Any = data[read : read + _READ_BYTES]
        read += len(left)
        try:
            while piece := decoder.decompress(left, _WRITE_BYTES):
                yield piece
                left = decoder.unconsumed_tail
        except zlib.error as error:
            msg = f"cannot be decoded: {error}"
            raise BadCoding(msg) from None
    if not decoder.eof:
        msg = "ends too early"
        raise BadCoding(msg)
    if decoder.unused_data or read < len(data):
        msg = "goes on after its end"
        raise BadCoding(msg)


def deflate(buffers: Iterable[Any], coding: bytes, level: int = _DEFAULT_LEVEL) -> bytes:
    """Return `buffers` joined and compressed as `coding`, `level` 1 to 9."""
    encoder = zlib.compressobj(level, wbits=WINDOW_BITS[coding])
    return b"".join([*map(encoder.compress, buffers), encoder.flush()])
