"""BinaryReader: reads numbers, arrays and texts of a binary file in order; and UBJSON, with it."""

import struct
from typing import Any

import numpy as np

from inferd.errors import InvalidConfig
from inferd.tensor.array import Array


class BinaryReader:
    """Reads little-endian `content` from its start. Raises ValueError if it is cut off."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def number(self, kind: str) -> Any:
        """Return a number in the `struct` format `kind`."""
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def array(self, dtype: Any, count: int | None = None) -> Array:
        """Return `count` elements; by default an 8-byte count precedes them."""
        dtype = np.dtype(dtype)
        length = self.number("Q") if count is None else count
        return np.frombuffer(self.take(length * dtype.itemsize), dtype)

    def text(self) -> str:
        """Return a text preceded by its 8-byte length. Raises ValueError if it is not UTF-8."""
        return self.take(self.number("Q")).decode()

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        # Also below 0: lengths in the file are signed in some formats, and would step backwards.
        if not 0 <= size <= len(self.content) - self.at:
            msg = f"at byte {self.at}: {size} bytes expected, it has {len(self.content)} in all"
            raise ValueError(msg)
        self.at += size
        return self.content[self.at - size : self.at]


# A model of XGBoost nests a dozen levels; Python's recursion ends at a thousand.
MAX_DEPTH = 64

_NUMBERS = {
    "i": ">i1", "U": ">u1", "I": ">i2", "u": ">u2", "l": ">i4", "m": ">u4", "L": ">i8",
    "M": ">u8", "d": ">f4", "D": ">f8",
}  # fmt: skip
_CONSTANTS = {"Z": None, "T": True, "F": False}


def decode_ubjson(data: bytes) -> object:
    """Return the value in `data`; arrays of one number type are numpy arrays.

    Raises InvalidConfig. Nothing larger than `data` can fill is allocated.
    """
    reader = _Reader(data)
    try:
        value = reader.value(reader.marker(), 0)
    except (IndexError, ValueError) as error:
        raise InvalidConfig(f"the file is no UBJSON, or cut off at byte {reader.at}") from error
    return value


class _Reader(BinaryReader):
    def marker(self) -> str:
        """Return the next type marker; "N", a no-op, is skipped."""
        found = "N"
        while found == "N":
            found = chr(self.number("B"))
        return found

    def value(self, kind: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        if kind in _NUMBERS:
            return self.array(_NUMBERS[kind], 1)[0].item()
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == "S":
            return self.text()
        if kind == "C":
            return self.take(1).decode()
        if kind == "[":
            return self._array(depth)
        if kind == "{":
            return self._object(depth)
        raise ValueError(f"marker {kind!r}")

    def _array(self, depth: int) -> Any:
        kind, count = self._container()
        if kind and count is not None and kind in _NUMBERS:
            return self.array(_NUMBERS[kind], count)
        if kind in _CONSTANTS:
            raise ValueError("an array of a type without a size, of any length")
        found: list[Any] = []
        while count is None or len(found) < count:
            each = kind or self.marker()
            if count is None and each == "]":
                break
            found.append(self.value(each, depth + 1))
        return found

    def _object(self, depth: int) -> dict[str, object]:
        kind, count = self._container()
        found: dict[str, object] = {}
        read = 0
        while count is None or read < count:
            if count is None and chr(self.content[self.at]) == "}":
                self.at += 1
                break
            key = self.text()
            found[key] = self.value(kind or self.marker(), depth + 1)
            read += 1
        return found

    def _container(self) -> tuple[str, int | None]:
        kind, count = "", None
        if chr(self.content[self.at]) == "$":
            kind = chr(self.content[self.at + 1])
            self.at += 2
        if chr(self.content[self.at]) == "#":
            self.at += 1
            count = self._size()
        elif kind:
            raise ValueError("a type without a count")
        return kind, count

    def _size(self) -> int:
        kind = self.marker()
        # Not any value: the size of a text would be one whose size is a text, and so on.
        size = self.array(_NUMBERS[kind], 1)[0].item() if kind in _NUMBERS else None
        if not isinstance(size, int) or size < 0:
            raise ValueError("a size that is none")
        return size

    def text(self) -> str:
        """Return a text preceded by its size."""
        return self.take(self._size()).decode()
