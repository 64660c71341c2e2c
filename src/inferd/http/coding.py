"""gzip and deflate for whole bodies and messages, both ways, in bounded memory; and their choice.

"deflate" is the zlib format, as in RFC 9110, section 8.4.1.2, and gRPC's Message-Encoding.
"""

import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any

from inferd.aio.inline import INLINE_CODED_BYTES, INLINE_INFLATED_BYTES, NotFast
from inferd.aio.offload import Offload, Work
from inferd.memory.buffer import Buffer

WINDOW_BITS = MappingProxyType({b"gzip": 31, b"deflate": 15})
"""The `wbits` that zlib takes for each coding, by name."""

_DEFAULT_LEVEL = -1
_READ_BYTES = 64 << 10  # zlib copies the unused rest of a piece, so pieces are small
# What one step may make: a bomb is noticed after that much beyond the limit.
_WRITE_BYTES = 256 << 10
_GZIP_BEGIN = b"\x1f\x8b"
_MOST_MEMBERS = 10_000  # empty ones inflate to nothing and still take time


def coding_named(name: bytes) -> bytes:
    """Return the coding that a header calls `name`, as WINDOW_BITS spells it if it is one of these.

    Case does not count, and x-gzip is gzip (RFC 9110, section 8.4.1).
    """
    name = name.strip().lower()
    return b"gzip" if name == b"x-gzip" else name


class BadCoding(Exception):
    """The data are not in their declared coding; the text continues "the body ..."."""


class InflatesTooFar(Exception):
    """The data inflate to more bytes than allowed; the argument is that limit."""


def inflate(data: Buffer, coding: bytes, max_bytes: int, *, on_loop: bool = False) -> memoryview:
    """Return `data` decoded from `coding`, a key of WINDOW_BITS.

    Never holds more than `max_bytes` and one piece. Raises BadCoding, InflatesTooFar, and with
    `on_loop` NotFast for data that should be inflated in a thread.
    """
    # By size first, which is known without inflating anything.
    if on_loop and len(data) > INLINE_CODED_BYTES:
        raise NotFast
    inflated = bytearray()
    try:
        for piece in _pieces(data, coding):
            inflated += piece
            if len(inflated) > max_bytes:
                raise InflatesTooFar(max_bytes)
            if on_loop and len(inflated) > INLINE_INFLATED_BYTES:
                raise NotFast
    except BaseException:
        inflated.clear()  # the error keeps this frame, perhaps until garbage is collected
        raise
    return memoryview(inflated)


def _pieces(data: Buffer, coding: bytes) -> Iterator[bytes]:
    """Decode `data`; gzip may consist of several members in a row (RFC 1952, section 2.2)."""
    read = 0
    for _ in range(_MOST_MEMBERS):
        read = yield from _member(data, coding, read)
        # Only what begins as another member is one; the rest is garbage, and told as such.
        if coding != b"gzip" or bytes(data[read : read + 2]) != _GZIP_BEGIN:
            break
    if read < len(data):
        raise BadCoding("goes on after its end")


def _member(data: Buffer, coding: bytes, begin: int) -> Generator[bytes, None, int]:
    """Decode the member that begins in `data` at `begin`, and return where it ends."""
    decoder = zlib.decompressobj(WINDOW_BITS[coding])
    read = begin
    while read < len(data) and not decoder.eof:
        left: Any = data[read : read + _READ_BYTES]
        read += len(left)
        try:
            # The second argument keeps zlib from making all of a bomb in one call.
            while piece := decoder.decompress(left, _WRITE_BYTES):
                yield piece
                left = decoder.unconsumed_tail
        except zlib.error as error:
            raise BadCoding(f"cannot be decoded: {error}") from None
    if not decoder.eof:
        raise BadCoding("ends too early")
    # What zlib has taken of the last piece but not used belongs to what follows.
    return read - len(decoder.unused_data)


def deflate(buffers: Iterable[Buffer], coding: bytes, level: int = _DEFAULT_LEVEL) -> bytes:
    """Return `buffers` joined and compressed as `coding`, `level` 1 to 9."""
    encoder = zlib.compressobj(level, wbits=WINDOW_BITS[coding])
    return b"".join([*map(encoder.compress, buffers), encoder.flush()])


class Coder:
    """Inflates and deflates: short data at once, the rest in threads of `offload`.

    Nothing is inflated to more than `max_bytes`.
    """

    def __init__(self, max_bytes: int, offload: Offload) -> None:
        self._max_bytes = max_bytes
        self._offload = offload

    async def inflate(self, data: Buffer, name: bytes) -> memoryview:
        """Return `data` decoded from the content coding `name`.

        Raises as `inflate` does, and Overloaded if too many calls wait.
        """
        try:
            return inflate(data, name, self._max_bytes, on_loop=True)
        except NotFast:
            pass  # nothing may be awaited while an exception is handled
        return await self._offload.run(Work.INFLATE, inflate, data, name, self._max_bytes)

    async def deflate(self, buffers: Sequence[Buffer], name: bytes, level: int = -1) -> bytes:
        """Return `buffers` joined and compressed. Raises Overloaded if too many calls wait."""
        if sum(map(len, buffers)) <= INLINE_CODED_BYTES:
            return deflate(buffers, name, level)
        return await self._offload.run(Work.DEFLATE, deflate, buffers, name, level)


MIN_BYTES = 1024
"""Answers below this size are not compressed: identity is always allowed."""


def choose_coding(accept: bytes) -> bytes:
    """Return the coding that an Accept-Encoding prefers: b"gzip", b"deflate" or b"identity".

    The highest weight wins, the first listed on ties; `*` and unknown codings do not count.
    """
    best, best_weight = b"identity", 0.0
    for item in accept.split(b","):
        name, _, rest = item.partition(b";")
        name = coding_named(name)
        weight = _weight(rest)
        # A weight of 0 means "not acceptable" (RFC 9110, section 12.4.2), so it never wins.
        if (name in WINDOW_BITS or name == b"identity") and weight > best_weight:
            best, best_weight = name, weight
    return best


def _weight(parameter: bytes) -> float:
    name, _, value = parameter.partition(b"=")
    # Parameters other than the weight have no meaning here.
    if name.strip().lower() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
