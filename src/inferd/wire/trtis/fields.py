"""The fields of a protobuf message, parsed by hand so that long ones stay views.

Different versions wrote messages with different fields under one number; the wire types seen here
tell which version it was, while to protobuf's own reader another wire type is an unknown field.
"""

from collections.abc import Iterator
from typing import Any

from inferd.errors import InvalidRequest

_VARINT, _FIXED64, _TEXT, _FIXED32 = 0, 1, 2, 5  # wire types
UINT64 = 2**64 - 1

_MAX_FIELDS = 10_000
"""More would hold up the event loop, and no model needs as many."""


def decode_fields(view: memoryview, what: str) -> dict[int, list[Any]]:
    """Return the numbers and views in a message, by tag.

    Raises InvalidRequest when it cannot be read as `what`, and for too many fields.
    """
    fields: dict[int, list[Any]] = {}
    for tag, value, _ in each_field(view, what):
        fields.setdefault(tag, []).append(value)
    return fields


def each_field(view: memoryview, what: str) -> Iterator[tuple[int, object, slice]]:
    """Yield each field's tag, its number or view, and its position. Raises as `decode_fields`."""
    value: object
    at, end, count = 0, len(view), 0
    try:
        while at < end:
            tag, at = read_varint(view, at)
            if tag & 7 == _TEXT:
                size, at = read_varint(view, at)
                stop = at + size
                if stop > end:
                    raise ValueError
                value = view[at:stop]
            elif tag & 7 == _VARINT:
                value, stop = read_varint(view, at)
            else:
                value, stop = 0, _skipped(view, tag, at)
            count += 1
            if count > _MAX_FIELDS:
                msg = f"the request has more than {_MAX_FIELDS} fields"
                raise InvalidRequest(msg)
            yield tag, value, slice(at, stop)
            at = stop
    except ValueError:
        msg = f"the message cannot be read as {what}"
        raise InvalidRequest(msg) from None


def read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """Return the number at `at`, of at most 64 bits, and where it ends. Raises ValueError."""
    value = 0
    for shift, byte in enumerate(view[at : at + 10]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value & UINT64, at + shift + 1
    raise ValueError


def _skipped(view: memoryview, tag: int, at: int) -> int:
    """Return where a field of a fixed-size wire type, which is ignored, ends. Raises ValueError."""
    size = {_FIXED64: 8, _FIXED32: 4}.get(tag & 7)
    # Groups (3 and 4) are deprecated, and no message here ever had one.
    if size is None or at + size > len(view):
        raise ValueError
    return at + size
