"""Protobuf's wire format, read and written field by field, without messages or descriptors.

Model files are read this way for two reasons: what a hostile file makes us allocate stays
proportional to its size, and errors say where in the file they are. Long runs of numbers become
arrays directly. https://protobuf.dev/programming-guides/encoding
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from inferd.tensor.array import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; the files read here have no groups (3 and 4)."""

# As many as 64 bits take at seven each; negative int32 are written that long, too.
_TEN_BYTES = 10


class Malformed(Exception):
    """Bytes that are not valid protobuf; the text says what is wrong, and at which byte."""


def fields(data: memoryview, floats: int = 0) -> Iterator[tuple[int, int, Any]]:
    """Yield (number, wire type, value) of each field in `data`, in order.

    The value is an int for VARINT, a view for the others. `floats` is the number, below 16, of a
    repeated float: consecutive elements come as one packed field. Raises Malformed.
    """
    position = 0
    while position < len(data):
        start = position
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        value: Any
        # proto2 writes a repeated float without [packed=true] as one field for each element, and
        # Caffe2's weights are millions of them: reading them one by one would take minutes.
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


def gathered(
    data: memoryview, readers: Mapping[int, Callable[[Any], Any]], floats: int = 0
) -> dict[int, list[Any]]:
    """Return what `readers` make of the fields in `data`, by number; others are left out.

    `floats` is as for `fields`. Raises Malformed.
    """
    found: dict[int, list[Any]] = {number: [] for number in readers}
    for number, _, value in fields(data, floats):
        if number in readers:
            found[number].append(readers[number](value))
    return found


def integer(value: Any) -> int:
    """Return a field's value as an int32, int64 or enum. Raises Malformed."""
    if not isinstance(value, int):
        raise Malformed("a field that holds a number has bytes instead")
    return signed(value)


def text(value: Any) -> str:
    """Return the text of a field, with invalid UTF-8 escaped. Raises Malformed."""
    return content(value).decode("utf-8", "backslashreplace")


def content(value: Any) -> bytes:
    """Return a copy of the bytes of a field. Raises Malformed if it holds a number."""
    return bytes(view(value))


def view(value: Any) -> memoryview:
    """Return the bytes of a field. Raises Malformed if it holds a number."""
    if not isinstance(value, memoryview):
        raise Malformed("a field that holds bytes has a number instead")
    return value


def float32(value: Any) -> float:
    """Return the float of one field. Raises Malformed."""
    numbers = float32s(value)
    if len(numbers) != 1:
        raise Malformed(f"{len(numbers)} numbers are not one")
    return float(numbers[0])


def float32s(value: Any) -> Array:
    """Return the float32 numbers of one field, packed or single. Raises Malformed."""
    data = view(value)
    if len(data) % 4:
        raise Malformed(f"{len(data)} bytes are no float numbers")
    return np.frombuffer(data, "<f4")


def varints(value: Any) -> list[int]:
    """Return the signed integers of one field, packed or single. Raises Malformed."""
    if isinstance(value, int):
        return [signed(value)]
    numbers, position = [], 0
    data = view(value)
    while position < len(data):
        number, position = _varint(data, position)
        numbers.append(signed(number))
    return numbers


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(position, min(position + _TEN_BYTES, len(data))):
        byte = data[index]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, index + 1
        shift += 7
    raise Malformed(f"a number does not end (at byte {position})")


def signed(value: int) -> int:
    """Return the number that the 64 bits of a varint are as an int64."""
    # The tenth byte has room for six bits more than there are; readers drop those.
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _size(data: memoryview, position: int, number: int, kind: int) -> tuple[int, int]:
    """Return the size of a field's value in bytes, and where it begins."""
    start = position
    if number == 0 or kind not in (BYTES, FIXED32, FIXED64):
        raise Malformed(f"there is no field {number} of wire type {kind} (before byte {start})")
    size = 4 if kind == FIXED32 else 8
    if kind == BYTES:
        size, position = _varint(data, position)
    # Before anything is sliced or allocated, so that a wrong size costs nothing.
    if size > len(data) - position:
        left = len(data) - position
        msg = f"field {number} says it has {size} bytes, {left} are left (at byte {start})"
        raise Malformed(msg)
    return size, position


def _float_run(data: memoryview, position: int, key: int) -> tuple[memoryview, int]:
    """Return the consecutive floats from `position` on in packed form, and where they end.

    Each follows its own `key`, as proto2 writes a repeated float.
    """
    rest = data[position:]
    whole = np.frombuffer(rest, np.uint8, len(rest) // 5 * 5).reshape(-1, 5)
    count, step = 0, 64
    while count < len(whole):  # in growing steps, for both short and long runs
        matches = whole[count : count + step, 0] == key
        if not matches.all():
            count += int(matches.argmin())
            break
        count += len(matches)
        step *= 4
    if count == 0:
        _size(data, position + 1, key >> 3, FIXED32)  # raises: the only float is cut off
    packed = np.ascontiguousarray(whole[:count, 1:]).reshape(-1)
    return packed.data, position + count * 5


def varint_field(number: int, value: int) -> bytes:
    """Return the field `number` with an integer, a negative one as int64."""
    return _encoded(number << 3) + _encoded(value & ((1 << 64) - 1))


def float_field(number: int, value: float) -> bytes:
    """Return the field `number` with one float32."""
    return _encoded(number << 3 | FIXED32) + struct.pack("<f", value)


def bytes_field(number: int, *chunks: bytes | memoryview) -> list[bytes | memoryview]:
    """Return the field `number` with the content `chunks`, as chunks: nothing is copied."""
    size = sum(len(chunk) for chunk in chunks)
    return [_encoded(number << 3 | BYTES) + _encoded(size), *chunks]


def any_field(number: int, kind: int, value: int | memoryview) -> list[bytes | memoryview]:
    """Return the encoding of a field as yielded by `fields`."""
    if isinstance(value, int):
        return [varint_field(number, value)]
    if kind == BYTES:
        return bytes_field(number, value)
    return [_encoded(number << 3 | kind), value]


def text_field(number: int, value: str) -> bytes:
    """Return the field `number` with a text."""
    # Names may come from JSON, where a lone surrogate is allowed; they stay distinct this way.
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
