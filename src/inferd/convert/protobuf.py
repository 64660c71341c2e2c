"""Protobuf's wire format, read and written field by field, without messages or descriptors.

Model files are read so for two reasons: what a hostile one makes us allocate stays in proportion
to its size, and a mistake is reported by where it lies. Long runs of numbers become arrays at
once. https://protobuf.dev/programming-guides/encoding
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; the two of groups, 3 and 4, no file here has."""

_TEN_BYTES = 10


class Malformed(Exception):
    """Bytes that are no protobuf; the text says what is wrong, and at which byte."""


def fields(data: memoryview, floats: int = 0) -> Iterator[tuple[int, int, Any]]:
    """Yield (number, wire type, value) of each field in `data`, in order.

    The value is an int for VARINT, a view for the others. `floats` is the number, below 16, of a
    repeated float: what of it stands in a row comes as one field, packed. Raises Malformed.
    """
    position = 0
    while position < len(data):
        start = position
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        value: Any
        if number == floats and kind == FIXED32:
            value, position = _float_run(data, start, key)
            kind = BYTES
        elif kind == VARINT:
            value, position = _varint(data, position)
        else:
            size, position = _size(data, position, number, kind)
            value = data[position : position + size]
            position += size
        yield number, kind, value


def integer(value: Any) -> int:
    """Return the int32, int64 or enum of one field. Raises Malformed."""
    if not isinstance(value, int):
        msg = "a field that holds a number has bytes instead"
        raise Malformed(msg)
    return _signed(value)


def text(value: Any) -> str:
    """Return the text of a field, bytes that are no UTF-8 escaped. Raises Malformed."""
    return bytes(view(value)).decode("utf-8", "backslashreplace")


def view(value: Any) -> memoryview:
    """Return the bytes of a field, which a number has not. Raises Malformed."""
    if not isinstance(value, memoryview):
        msg = "a field that holds bytes has a number instead"
        raise Malformed(msg)
    return value


def float32(value: Any) -> float:
    """Return the float of one field. Raises Malformed."""
    numbers = float32s(value)
    if len(numbers) != 1:
        msg = f"{len(numbers)} numbers are not one"
        raise Malformed(msg)
    return float(numbers[0])


def float32s(value: Any) -> Array:
    """Return the float32 numbers of one field, packed or single. Raises Malformed."""
    data = view(value)
    if len(data) % 4:
        msg = f"{len(data)} bytes are no float numbers"
        raise Malformed(msg)
    return np.frombuffer(data, "<f4")


def varints(value: Any) -> list[int]:
    """Return the signed numbers of one field, packed or single. Raises Malformed."""
    if isinstance(value, int):
        return [_signed(value)]
    numbers, position = [], 0
    data = view(value)
    while position < len(data):
        number, position = _varint(data, position)
        numbers.append(_signed(number))
    return numbers


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(position, min(position + _TEN_BYTES, len(data))):
        byte = data[index]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, index + 1
        shift += 7
    msg = f"a number does not end (at byte {position})"
    raise Malformed(msg)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _size(data: memoryview, position: int, number: int, kind: int) -> tuple[int, int]:
    """Return how many bytes the value of a field has, and where they begin."""
    start = position
    if number == 0 or kind not in (BYTES, FIXED32, FIXED64):
        msg = f"there is no field {number} of wire type {kind} (before byte {start})"
        raise Malformed(msg)
    size = 4 if kind == FIXED32 else 8
    if kind == BYTES:
        size, position = _varint(data, position)
    if size > len(data) - position:
        left = len(data) - position
        msg = f"field {number} says it has {size} bytes, {left} are left (at byte {start})"
        raise Malformed(msg)
    return size, position


def _float_run(data: memoryview, position: int, key: int) -> tuple[memoryview, int]:
    """Return the floats from `position` on that stand one by one, each with its `key`, packed.

    That is how proto2 writes a repeated float. Also returns where they end.
    """
    rest = data[position:]
    whole = np.frombuffer(rest, np.uint8, len(rest) // 5 * 5).reshape(-1, 5)
    count, step = 0, 64
    while count < len(whole):  # in growing steps: a short run costs little, a long one is quick
        matches = whole[count : count + step, 0] == key
        if not matches.all():
            count += int(matches.argmin())
            break
        count += len(matches)
        step *= 4
    if count == 0:
        _size(data, position + 1, key >> 3, FIXED32)  # raises: the only one is cut off
    packed = np.ascontiguousarray(whole[:count, 1:]).reshape(-1)
    return packed.data, position + count * 5


# --- written ---


def varint_field(number: int, value: int) -> bytes:
    """Return the field `number` with an integer, negative ones as int64."""
    return _encoded(number << 3) + _encoded(value & ((1 << 64) - 1))


def float_field(number: int, value: float) -> bytes:
    """Return the field `number` with one float32."""
    return _encoded(number << 3 | FIXED32) + struct.pack("<f", value)


def bytes_field(number: int, *chunks: bytes | memoryview) -> list[bytes | memoryview]:
    """Return the field `number` whose content is `chunks`, still in pieces: nothing is copied."""
    size = sum(len(chunk) for chunk in chunks)
    return [_encoded(number << 3 | BYTES) + _encoded(size), *chunks]


def any_field(number: int, kind: int, value: int | memoryview) -> list[bytes | memoryview]:
    """Return a field as `fields` gave it."""
    if isinstance(value, int):
        return [varint_field(number, value)]
    if kind == BYTES:
        return bytes_field(number, value)
    return [_encoded(number << 3 | kind), value]


def text_field(number: int, value: str) -> bytes:
    """Return the field `number` with a text."""
    return b"".join(bytes_field(number, value.encode("utf-8", "surrogatepass")))


def packed_field(number: int, values: Iterable[int]) -> bytes:
    """Return the field `number` with repeated integers, packed."""
    mask = (1 << 64) - 1
    return b"".join(bytes_field(number, b"".join(_encoded(value & mask) for value in values)))


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
