"""Caffe2's own numbers and names of element types."""

from inferd.convert.caffe2.call import Caffe2Call
from inferd.tensor.dtype import DataType

_NAMED = {
    "FLOAT": (1, DataType.FP32),
    "INT32": (2, DataType.INT32),
    "STRING": (4, DataType.BYTES),
    "BOOL": (5, DataType.BOOL),
    "UINT8": (6, DataType.UINT8),
    "INT8": (7, DataType.INT8),
    "UINT16": (8, DataType.UINT16),
    "INT16": (9, DataType.INT16),
    "INT64": (10, DataType.INT64),
    "FLOAT16": (12, DataType.FP16),
    "DOUBLE": (13, DataType.FP64),
}
_NUMBERED = dict(_NAMED.values())


def datatype_of(call: Caffe2Call, kind: int | str) -> DataType:
    """Return the datatype that Caffe2 calls `kind`, a number or a name in any case."""
    if isinstance(kind, str):
        kind = _NAMED.get(kind.upper(), (-1,))[0]
    if kind not in _NUMBERED:
        call.refuse(f"there is no element type {kind} that could be converted")
    return _NUMBERED[kind]
