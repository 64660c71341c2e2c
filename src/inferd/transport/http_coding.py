"""Content codings: gzip and deflate of whole bodies, both ways (RFC 9110, section 8.4).

"deflate" is the zlib format, as the RFC says and Triton's clients send it.
"""

import asyncio
import zlib
from collections.abc import Sequence
from typing import Any

from inferd.errors import InvalidRequest, Unsupported

MIN_BYTES = 1024
"""Answers below this stay as they are: identity is always allowed."""

INLINE_BYTES = 16384
"""Bodies up to this size are coded on the loop; larger ones would hold up the other connections."""

_WINDOW = {b"gzip": 31, b"deflate": 15}


async def inflate(body: memoryview, coding: bytes, max_bytes: int) -> memoryview:
    """Return `body` decoded. Raises Unsupported for other codings, InvalidRequest for bad bytes.

    At most `max_bytes` are ever produced.
    """
    if coding in (b"", b"identity"):
        return body
    window = _WINDOW.get(coding)
    if window is None:
        msg = f"Content-Encoding '{coding[:40].decode('latin-1')}' is not one of gzip, deflate"
        raise Unsupported(msg)
    if len(body) <= INLINE_BYTES:
        return _inflate(body, window, max_bytes)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, _inflate, body, window, max_bytes)


def _inflate(body: memoryview, window: int, max_bytes: int) -> memoryview:
    decoder = zlib.decompressobj(window)
    try:
        data = decoder.decompress(body, max_bytes + 1)
    except zlib.error as error:
        msg = f"the compressed body cannot be decoded: {error}"
        raise InvalidRequest(msg) from None
    if len(data) > max_bytes:
        msg = f"the body inflates to more than {max_bytes} bytes (--http-max-input-size)"
        raise InvalidRequest(msg)
    if not decoder.eof or decoder.unused_data:
        what = "goes on after its end" if decoder.eof else "ends too early"
        msg = f"the compressed body {what}"
        raise InvalidRequest(msg)
    return memoryview(data)


def choose_coding(accept: bytes) -> bytes:
    """Return the coding an Accept-Encoding value prefers: b"gzip", b"deflate" or b"identity".

    The highest weight wins, the first listed on ties; `*` and unknown codings do not count.
    """
    best, best_weight = b"identity", 0.0
    for item in accept.split(b","):
        name, _, rest = item.partition(b";")
        name = name.strip().lower()
        weight = _weight(rest)
        if (name in _WINDOW or name == b"identity") and weight > best_weight:
            best, best_weight = name, weight
    return best


def _weight(parameter: bytes) -> float:
    name, _, value = parameter.partition(b"=")
    if name.strip().lower() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


async def deflate(buffers: Sequence[Any], coding: bytes) -> bytes:
    """Return `buffers` joined and compressed as `coding`."""
    if sum(len(one) for one in buffers) <= INLINE_BYTES:
        return _deflate(buffers, _WINDOW[coding])
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, _deflate, buffers, _WINDOW[coding])


def _deflate(buffers: Sequence[Any], window: int) -> bytes:
    encoder = zlib.compressobj(wbits=window)
    pieces = [encoder.compress(one) for one in buffers]
    return b"".join((*pieces, encoder.flush()))
