"""The wire datatypes: name, element size, numpy dtype (V2 protocol, Tensor Data Types)."""

import enum

import numpy as np

from inferd.errors import InvalidRequest

_NUMPY_NAMES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
    "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8",
    "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "BYTES": "O", "BF16": "<u2",
}  # fmt: skip


class DataType(enum.Enum):
    """One of the 14 datatypes; the value is the name on the V2 wire.

    `size_bytes` is the size of one element, 0 for BYTES, whose elements vary in size.
    `numpy` is the dtype of a view on the wire bytes. numpy has no bfloat16: BF16 is uint16 holding
    the bit patterns (`inferd.tensor.halves` converts). BYTES is object.
    """

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"
    BF16 = "BF16"

    # Enum hashes by name, in Python code; members are keys of lookups made for every request.
    __hash__ = object.__hash__

    size_bytes: int
    numpy: np.dtype[np.generic]

    def __init__(self, name: str) -> None:
        dtype = np.dtype(_NUMPY_NAMES[name])
        self.size_bytes = 0 if name == "BYTES" else dtype.itemsize
        self.numpy = dtype


DATATYPES: dict[str, DataType] = {datatype.value: datatype for datatype in DataType}
"""Wire name -> datatype. STRING is the old alias of BYTES: read everywhere, never written."""
DATATYPES["STRING"] = DataType.BYTES


def datatype_named(name: str, tensor: str) -> DataType:
    """Return the datatype a request calls `name`; case-sensitive, as every string in V2.

    Raises InvalidRequest naming `tensor` when there is no such datatype.
    """
    datatype = DATATYPES.get(name)
    if datatype is None:
        raise InvalidRequest(
            f"invalid datatype for input {tensor}: it is '{name}', expected one of "
            f"{', '.join(DATATYPES)}"
        )
    return datatype


# Without BF16, whose NumPy twin is UINT16: arrays of uint16 are what they say.
_BY_NUMPY = {d.numpy.str: d for d in DataType if d not in (DataType.BYTES, DataType.BF16)}


def datatype_of(dtype: np.dtype[np.generic]) -> DataType:
    """Return the datatype that holds arrays of `dtype`; object, str and bytes arrays are BYTES.

    Raises TypeError for a dtype that has no wire equivalent (complex, datetime, ...).
    """
    if dtype.kind in "OSU":
        return DataType.BYTES
    # By the name of its little-endian form: arrays of either byte order are the same datatype.
    datatype = _BY_NUMPY.get(dtype.newbyteorder("<").str)
    if datatype is None:
        raise TypeError(f"numpy dtype {dtype} has no counterpart among the protocol's datatypes")
    return datatype
