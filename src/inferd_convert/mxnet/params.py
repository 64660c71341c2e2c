"""Params: the arrays of an MXNet model, from the binary list that `mx.nd.save` writes.

All versions of the array format are read; an array's first four bytes tell which it has.
"""

import struct
from math import prod
from typing import NoReturn

import numpy as np

from inferd.errors import InvalidConfig
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType

_LIST_MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
# NumPy's limit, before version 2.
_MAX_DIMS = 32
_ROW_SPARSE, _CSR = 1, 2

TYPES = {
    0: DataType.FP32,
    1: DataType.FP64,
    2: DataType.FP16,
    3: DataType.UINT8,
    4: DataType.INT32,
    5: DataType.INT8,
    6: DataType.INT64,
    7: DataType.BOOL,
    8: DataType.INT16,
    9: DataType.UINT16,
    10: DataType.UINT32,
    11: DataType.UINT64,
}
"""MXNet's number for an element type -> datatype."""


def read_params(data: bytes, file: str) -> dict[str, Array]:
    """Return the arrays in `data` by name, without the prefixes `arg:` and `aux:`.

    The arrays are views of `data`. Raises InvalidConfig naming `file` and the array.
    """
    reader = _Reader(memoryview(data), file)
    magic, _ = reader.take("<QQ")
    reader.refuse_if(magic != _LIST_MAGIC, "it does not begin as one")
    (count,) = reader.take("<Q")
    # Before the list is made: an array takes four bytes at least.
    if count > len(data) // 4:
        reader.refuse(f"it says that it has {count} arrays, in {len(data)} bytes")
    arrays = []
    for number in range(1, count + 1):
        reader.place = f"array {number} of {count}"
        arrays.append(_array(reader))
    reader.place = "the names"
    names = _names(reader, count)
    reader.refuse_if(reader.left, f"{reader.left} bytes follow its end")
    found = zip(names, arrays, strict=True)
    return {name.removeprefix("arg:").removeprefix("aux:"): array for name, array in found}


class _Reader:
    """The data not yet read; `place` says in errors what is being read."""

    def __init__(self, data: memoryview, file: str) -> None:
        self.place = ""
        self._data = data
        self._position = 0
        self._file = file

    @property
    def left(self) -> int:
        """The number of bytes not yet read."""
        return len(self._data) - self._position

    def bytes(self, size: int) -> memoryview:
        """Return the next `size` bytes. Raises InvalidConfig if there are fewer."""
        if size > self.left:
            self.refuse(f"it is cut off: {size} bytes should follow, {self.left} do")
        self._position += size
        return self._data[self._position - size : self._position]

    def take(self, layout: str) -> tuple[int, ...]:
        """Return the next numbers, in the `struct` format `layout`."""
        return struct.unpack(layout, self.bytes(struct.calcsize(layout)))

    def refuse_if(self, wrong: object, reason: str) -> None:
        """Raise InvalidConfig saying `reason` if `wrong` is true."""
        if wrong:
            self.refuse(reason)

    def refuse(self, reason: str) -> NoReturn:
        """Raise InvalidConfig with file and place."""
        place = f", {self.place}" if self.place else ""
        raise InvalidConfig(f"'{self._file}' is no list of MXNet arrays{place}: {reason}")


def _array(reader: _Reader) -> Array:
    (magic,) = reader.take("<I")
    if magic in (_V2, _V3):
        (storage,) = reader.take("<i")
        if storage in (_ROW_SPARSE, _CSR):
            reader.refuse("it is sparse; dense arrays are served alone")
    if magic in (_V1, _V2, _V3):
        (count,) = reader.take("<i")
        shape = _shape(reader, count, "q")
    else:  # the first version begins with its number of dims
        shape = _shape(reader, magic, "I")
    # Before version 3 a shape without dims meant "not known"; since then it is a scalar.
    if shape is None or (not shape and magic != _V3):  # it was empty
        return np.empty(0, np.float32)
    _, _, kind = reader.take("<iii")  # the device's type and number come first
    reader.refuse_if(kind not in TYPES, f"its element type is {kind}, which is none")
    dtype = TYPES[kind].numpy
    content = reader.bytes(prod(shape) * dtype.itemsize)
    try:
        return np.frombuffer(content, dtype).reshape(shape)
    except ValueError:  # a dim is 0, so that no bytes are needed, and others are huge
        reader.refuse(f"its shape is {list(shape)}, which no array can have")


def _shape(reader: _Reader, count: int, kind: str) -> tuple[int, ...] | None:
    """Return the dims that follow; None if unknown, marked by a `count` of -1."""
    if count == -1:
        return None
    reader.refuse_if(not 0 <= count <= _MAX_DIMS, f"it says that it has {count} dims")
    shape = reader.take(f"<{count}{kind}")
    reader.refuse_if(min(shape, default=0) < 0, f"its shape is {list(shape)}")
    return shape


def _names(reader: _Reader, count: int) -> list[str]:
    (named,) = reader.take("<Q")
    reader.refuse_if(named != count, f"there are {named} names for {count} arrays")
    names = []
    for _ in range(named):
        (size,) = reader.take("<Q")
        names.append(bytes(reader.bytes(size)).decode("utf-8", "backslashreplace"))
    return names
