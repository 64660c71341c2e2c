"""FlatTable: a table of a flatbuffer, read field by field (FlatBuffers internals)."""

import struct
from collections.abc import Iterator
from typing import Any


class TooMuch(Exception):
    """There are more items than may be read."""


class FlatTable:
    """A table of a flatbuffer at `place`. Reads outside the file raise struct.error or IndexError.

    `left` holds how many items may still be read, in all tables of the file together.
    """

    def __init__(self, content: bytes, place: int, left: list[int]) -> None:
        self._content = content
        self._place = place
        # A list, as it is one number for all tables of a file.
        self._left = left
        # The vtable: a table begins with a signed offset back to it.
        fields = place - struct.unpack_from("<i", content, place)[0]
        # struct would take a negative place for one that counts from the end.
        if fields < 0:
            raise IndexError
        self._fields = fields
        self._size = struct.unpack_from("<H", content, fields)[0]

    def number(self, field: int) -> int:
        """Return an unsigned number, 0 if absent."""
        at = self._at(field)
        return _unsigned(self._content, at) if at else 0

    def byte(self, field: int) -> int:
        """Return a one-byte number, 0 if absent."""
        at = self._at(field)
        return self._content[at] if at else 0

    def numbers(self, field: int) -> tuple[int, ...]:
        """Return a vector of signed numbers."""
        return self._items(field, "i")

    def floats(self, field: int) -> tuple[float, ...]:
        """Return a vector of floats."""
        return self._items(field, "f")

    def table(self, field: int) -> "FlatTable | None":
        """Return the table of a field, None if absent."""
        at = self._at(field)
        return self._table(at) if at else None

    def tables(self, field: int) -> Iterator["FlatTable"]:
        """Yield the tables of a vector."""
        start, count = self._vector(field)
        self._spend(count)
        for place in range(start, start + 4 * count, 4):
            yield self._table(place)

    def count(self, field: int) -> int:
        """Return how many items a vector claims to have."""
        return self._vector(field)[1]

    def _items(self, field: int, letter: str) -> tuple[Any, ...]:
        start, count = self._vector(field)
        self._spend(count)
        return struct.unpack_from(f"<{count}{letter}", self._content, start)

    def _table(self, place: int) -> "FlatTable":
        return FlatTable(self._content, place + _unsigned(self._content, place), self._left)

    def _spend(self, count: int) -> None:
        self._left[0] -= count
        if self._left[0] < 0:
            raise TooMuch

    def _vector(self, field: int) -> tuple[int, int]:
        at = self._at(field)
        if not at:
            return 0, 0
        start = at + _unsigned(self._content, at)
        return start + 4, _unsigned(self._content, start)

    def _at(self, field: int) -> int:
        # A vtable begins with two sizes of 16 bits; then come the offsets of the fields.
        entry = 4 + 2 * field
        # Written by an older schema, which did not have the field.
        if entry + 2 > self._size:
            return 0
        offset: int = struct.unpack_from("<H", self._content, self._fields + entry)[0]
        return self._place + offset if offset else 0


def root(content: bytes) -> int:
    """Return the place of the root table. Raises struct.error."""
    return _unsigned(content, 0)


def _unsigned(content: bytes, place: int) -> int:
    number: int = struct.unpack_from("<I", content, place)[0]
    return number
