"""Typed contents of V2 gRPC tensors (InferTensorContents): conversion to and from wire bytes."""

from typing import Any

import numpy as np

from inferd.aio.inline import PIECE
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor

_FIELD = {
    DataType.BOOL: "bool_contents",
    DataType.INT8: "int_contents",
    DataType.INT16: "int_contents",
    DataType.INT32: "int_contents",
    DataType.INT64: "int64_contents",
    DataType.UINT8: "uint_contents",
    DataType.UINT16: "uint_contents",
    DataType.UINT32: "uint_contents",
    DataType.UINT64: "uint64_contents",
    DataType.FP32: "fp32_contents",
    DataType.FP64: "fp64_contents",
    DataType.BYTES: "bytes_contents",
}
"""The field for the elements of each datatype. The protocol has none for FP16 and BF16."""

_WIDE = {
    DataType.INT8: DataType.INT32.numpy,
    DataType.INT16: DataType.INT32.numpy,
    DataType.UINT8: DataType.UINT32.numpy,
    DataType.UINT16: DataType.UINT32.numpy,
}
"""The dtype of the elements on the wire, where it is wider than the datatype."""


def have_contents_fields(tensors: list[Tensor]) -> bool:
    """Return whether all of `tensors` can travel as typed contents."""
    return all(tensor.datatype in _FIELD for tensor in tensors)


def decode_contents(contents: Any, name: str, datatype: DataType, count: int) -> Any:
    """Return the `count` elements of InferTensorContents `contents` as a new buffer in wire layout.

    Raises InvalidRequest, naming the tensor `name`, when the elements are not all in the field
    of `datatype`, are more or fewer than `count`, or do not fit `datatype`.
    """
    values = _only_field(contents, name, datatype)
    if len(values) != count:
        msg = (
            f"input byte size mismatch for input '{name}': the shape asks for {count} elements, "
            f"contents hold {len(values)}"
        )
        raise InvalidRequest(msg)
    if count == 0:
        return b""
    if datatype is DataType.BYTES:
        return encode_strings(values, name)
    wide = _WIDE.get(datatype)
    elements = np.empty(count, wide or datatype.numpy)
    for start in range(0, count, PIECE):
        elements[start : start + PIECE] = values[start : start + PIECE]
    return elements if wide is None else _narrowed(elements, name, datatype)


def encode_contents(contents: Any, tensor: Tensor) -> None:
    """Copy the elements of `tensor` into the empty InferTensorContents `contents`.

    The datatype must have a field: see `have_contents_fields`.
    """
    field = getattr(contents, _FIELD[tensor.datatype])
    if tensor.datatype is DataType.BYTES:
        field.extend(tensor.strings())
    else:
        field.extend(tensor.numpy().ravel().tolist())


def _only_field(contents: Any, name: str, datatype: DataType) -> Any:
    given = contents.ListFields()
    if not given:
        return ()
    field = _FIELD.get(datatype, "raw contents")
    found = [descriptor.name for descriptor, _ in given]
    if found != [field]:
        msg = (
            f"unexpected explicit tensor data for input tensor '{name}': it is {datatype.value}, "
            f"whose elements belong in {field}, found them in {' and '.join(found)}"
        )
        raise InvalidRequest(msg)
    return given[0][1]


def _narrowed(wide: "np.ndarray[Any, Any]", name: str, datatype: DataType) -> Any:
    narrow = wide.astype(datatype.numpy)
    changed = narrow != wide
    if changed.any():
        index = int(changed.argmax())
        limits = np.iinfo(narrow.dtype)
        msg = (
            f"tensor '{name}': element {index} is {wide[index]}, "
            f"{datatype.value} holds {limits.min} to {limits.max}"
        )
        raise InvalidRequest(msg)
    return narrow
