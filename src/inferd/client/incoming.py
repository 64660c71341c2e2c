"""What a client's end of HTTP/2 receives: padding, and small answers that arrive whole."""

import struct
from collections.abc import Mapping
from typing import Final

from inferd.http.h2 import frames

PREFIX: Final = struct.Struct(">BL")
"""What comes before a message of gRPC: whether it is compressed, and its length."""

# Two HEADERS of a byte each, DATA with an empty message.
_LEAST: Final = 3 * frames.HEADER_BYTES + PREFIX.size + 2


def whole_answer(
    buffer: bytearray,
    at: int,
    end: int,
    stream_id: int,
    known: Mapping[bytes, dict[str, str]],
) -> tuple[dict[str, str], dict[str, str], bytearray, int] | None:
    """Return the answer to `stream_id` in `buffer[at:end]` if it is of the usual kind.

    That is, it is all there: HEADERS, DATA with one message, HEADERS, each whole in one frame, with
    header blocks that are `known`. Returned are its head, its trailers, its message, and where it
    ends in the buffer. Otherwise return None; frames are then read one by one.
    """
    # A length beyond 65535, in the first of its three bytes, is none of an answer's head.
    if end - at < _LEAST or buffer[at] or buffer[at + 3] != frames.HEADERS:
        return None
    block = at + frames.HEADER_BYTES
    data = block + (buffer[at + 1] << 8 | buffer[at + 2])
    body = data + frames.HEADER_BYTES + PREFIX.size
    # Exactly this flag: no padding, no priority, not the end of the stream.
    if body > end or buffer[at + 4] != frames.END_HEADERS:
        return None
    high, low, *kind = frames.read_header(buffer, data)
    last = data + frames.HEADER_BYTES + (high << 8 | low)
    if kind != [frames.DATA, 0, stream_id] or last + frames.HEADER_BYTES > end:
        return None
    high, low, *kind = frames.read_header(buffer, last)
    stop = last + frames.HEADER_BYTES + (high << 8 | low)
    if kind != [frames.HEADERS, _LAST_FLAGS, stream_id] or stop > end:
        return None
    # One message that is not compressed and fills its frame.
    if PREFIX.unpack_from(buffer, body - PREFIX.size) != (0, last - body):
        return None
    # A block that is not known has to be decoded in its order, since it may change the table.
    head = known.get(bytes(buffer[block:data]))
    trailers = known.get(bytes(buffer[last + frames.HEADER_BYTES : stop]))
    if head is None or trailers is None:
        return None
    return head, trailers, buffer[body:last], stop


_LAST_FLAGS: Final = frames.END_HEADERS | frames.END_STREAM


def without_padding(payload: bytes, flags: int) -> bytes:
    """Return what a HEADERS frame has beside its padding. Raises ConnectionFault."""
    if not flags & frames.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        msg = "a HEADERS frame is all padding"
        raise frames.ConnectionFault(frames.ErrorCode.PROTOCOL_ERROR, msg)
    return payload[1 : len(payload) - payload[0]]
