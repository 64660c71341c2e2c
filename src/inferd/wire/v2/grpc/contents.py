"""Typed contents of V2 gRPC tensors (InferTensorContents): conversion to and from wire bytes."""

from typing import Any

import numpy as np

from inferd.aio.inline import PIECE
from inferd.errors import InferdError, InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings, wrong_count
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

_TYPE = {
    "bool_contents": "BOOL",
    "int_contents": "INT32",
    "int64_contents": "INT64",
    "uint_contents": "UINT32",
    "uint64_contents": "UINT64",
    "fp32_contents": "FP32",
    "fp64_contents": "FP64",
    "bytes_contents": "BYTES",
}
"""The datatype that the elements of each field have on the wire."""

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


def decode_contents(contents: Any, tensor: Tensor, count: int, model: str) -> Any:
    """Return the `count` elements of InferTensorContents `contents` as a new buffer in wire layout.

    `tensor`, of `model`, says what they are. Raises InvalidRequest when the elements are not all in
    the field of its datatype, are more or fewer than `count`, or do not fit the datatype.
    """
    name, datatype = tensor.name, tensor.datatype
    values = _only_field(contents, tensor, model)
    if len(values) != count:
        raise _bad_count(tensor, count, len(values), model)
    if count == 0:
        return b""
    if datatype is DataType.BYTES:
        return encode_strings(values, name)
    wide = _WIDE.get(datatype)
    elements = np.empty(count, wide or datatype.numpy)
    # In pieces, so that other threads get the GIL in between.
    for start in range(0, count, PIECE):
        elements[start : start + PIECE] = values[start : start + PIECE]
    return elements if wide is None else _narrowed(elements, name, datatype)


def encode_contents(contents: object, tensor: Tensor) -> None:
    """Copy the elements of `tensor` into the empty InferTensorContents `contents`.

    The datatype must have a field: see `have_contents_fields`.
    """
    field = getattr(contents, _FIELD[tensor.datatype])
    if tensor.datatype is DataType.BYTES:
        field.extend(tensor.strings())
    else:
        field.extend(tensor.numpy().ravel().tolist())


def _only_field(contents: Any, tensor: Tensor, model: str) -> Any:
    given = contents.ListFields()
    if not given:
        return ()
    field = _FIELD.get(tensor.datatype, "raw contents")
    found = [descriptor.name for descriptor, _ in given]
    if found != [field]:
        if len(found) > 1:
            what = ", binary data was already supplied"
        else:
            what = f" of type '{_TYPE[found[0]]}', expected datatype '{tensor.datatype.value}'"
        raise InvalidRequest(
            f"unexpected explicit tensor data for input tensor '{tensor.name}' for model '{model}'"
            f"{what}: its elements belong in {field}, found them in {' and '.join(found)}"
        )
    return given[0][1]


def _bad_count(tensor: Tensor, count: int, found: int, model: str) -> InferdError:
    datatype = tensor.datatype
    if datatype is DataType.BYTES:
        return wrong_count(tensor.name, count, found, model)
    size_bytes = datatype.size_bytes
    return InvalidRequest(
        f"input byte size mismatch for input '{tensor.name}' for model '{model}'. Expected "
        f"{count * size_bytes}, got {found * size_bytes}: contents hold {found} elements of "
        f"{datatype.value}, the shape asks for {count}"
    )


def _narrowed(wide: Array, name: str, datatype: DataType) -> Any:
    narrow = wide.astype(datatype.numpy)
    # Wider on the wire than the datatype: what differs has not fitted.
    changed = narrow != wide
    if changed.any():
        index = int(changed.argmax())
        limits = np.iinfo(narrow.dtype)
        raise InvalidRequest(
            f"tensor '{name}': element {index} is {wide[index]}, "
            f"{datatype.value} holds {limits.min} to {limits.max}"
        )
    return narrow
