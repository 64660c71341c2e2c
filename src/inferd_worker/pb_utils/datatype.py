"""Datatypes: their names in packets and configurations, their numbers, their numpy dtypes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

NUMPY: dict[str, Any] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype("O"),
    "BF16": np.dtype("<u2"),
}
"""Name in packets -> dtype; BF16 as its bit patterns."""

# NUMPY is in the order of the enum; 0 is TYPE_INVALID (model_config.proto).
NUMBERS = {name: number for number, name in enumerate(NUMPY, 1)}
"""Name in packets -> number in ModelConfig's DataType."""

NAMES = {dtype: name for name, dtype in NUMPY.items() if name != "BF16"}

_LENGTH = struct.Struct("<I")


def name_of(dtype: Any) -> str:
    """Return the name of the datatype that holds arrays of `dtype`. Raises TypeError."""
    name = NAMES.get(dtype)
    if name is not None:
        return name
    if dtype.kind in "OSU":
        return "BYTES"
    # Arrays of the other byte order are swapped when they are sent.
    name = NAMES.get(dtype.newbyteorder("<"))
    if name is None:
        raise TypeError(f"numpy dtype {dtype} has no counterpart among the protocol's datatypes")
    return name


def config_name(name: str) -> str:
    """Return the name of datatype `name` in configurations, such as TYPE_FP32."""
    return "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}"


def encode_strings(array: Any) -> bytes:
    """Return the elements of an object, bytes or str array, each preceded by its length.

    Elements other than bytes are converted by str() and encoded as UTF-8.
    """
    parts = []
    for element in array.ravel().tolist():
        # As Triton's serialize_byte_tensor does.
        raw = element if isinstance(element, bytes) else str(element).encode()
        parts.append(_LENGTH.pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def decode_strings(data: Any) -> Any:
    """Return the length-prefixed elements of the buffer `data` as a flat array of bytes objects.

    Raises ValueError.
    """
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    elements, offset, end = [], 0, len(view)
    while offset < end:
        if end - offset < _LENGTH.size:
            raise ValueError("the data ends within the length of an element")
        size = _LENGTH.unpack_from(view, offset)[0]
        offset += _LENGTH.size
        if size > end - offset:
            raise ValueError(f"an element says it has {size} bytes, {end - offset} are left")
        elements.append(bytes(view[offset : offset + size]))
        offset += size
    # np.array() would make an array of fixed-width bytes, and drop zeros at the ends of elements.
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array
