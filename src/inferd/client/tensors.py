"""Inputs as people have them, arrays, lists, texts and numbers, become Tensors."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from inferd.core.metadata import ModelMetadata, TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of
from inferd.tensor.halves import float32_to_bf16
from inferd.tensor.tensor import Tensor

Value = Any
"""An ndarray, a Tensor, or something whose datatype and shape the model's metadata say: a list, a
text, bytes, a number."""

_SAY_ALL = (np.ndarray, np.generic, Tensor)
# numpy's dtypes compare slowly by kind and order; a process uses few.
_known: dict[np.dtype[Any], DataType] = {}


def needs_metadata(inputs: Mapping[str, Value]) -> bool:
    """Return whether only the model can say what some of `inputs` are to be."""
    return not all(isinstance(value, _SAY_ALL) for value in inputs.values())


def to_tensors(inputs: Mapping[str, Value], model: ModelMetadata | None) -> list[Tensor]:
    """Return a tensor for each of `inputs`; arrays are not copied if they are C-contiguous.

    `model` may be None if `needs_metadata` is false. Raises InvalidRequest.
    """
    declared = {one.name: one for one in model.inputs} if model is not None else {}
    return [_tensor(name, value, declared.get(name)) for name, value in inputs.items()]


def _tensor(name: str, value: Value, declared: TensorMetadata | None) -> Tensor:
    if type(value) is np.ndarray:
        return from_array(name, value)
    if isinstance(value, Tensor):
        return Tensor(name, value.datatype, value.shape, value.data, value.parameters)
    if isinstance(value, np.ndarray | np.generic):
        return from_array(name, np.asarray(value))
    try:
        array = _as_array(value)
        # An input that the model does not declare goes out as it is: the server says what it takes.
        if declared is not None:
            return _declared(name, array, declared)
        # V2 has no scalars: each shape has at least one dim.
        return from_array(name, array if array.shape else array.reshape(1))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"input '{name}': {error}") from error


def from_array(name: str, array: Array) -> Tensor:
    """Return `array` as a tensor. Raises InvalidRequest if no datatype holds its elements."""
    dtype = array.dtype
    datatype = _known.get(dtype)
    if datatype is None:
        datatype = _datatype(name, dtype)
        _known[dtype] = datatype
    if datatype is DataType.BYTES:
        # Tensor.from_numpy takes objects; numpy's bytes of a fixed width have no zeros at their
        # end.
        if dtype.kind == "S":
            array = array.astype(object)
        try:
            return Tensor.from_numpy(name, array, datatype)
        except (TypeError, UnicodeEncodeError) as error:
            msg = f"input '{name}': an element is no text and no bytes, or no Unicode: {error}"
            raise InvalidRequest(msg) from None
    if datatype is DataType.BF16:
        # ml_dtypes' bfloat16 and V2's are the same two bytes.
        array = array.view(np.uint16)
    elif dtype != datatype.numpy:
        array = array.astype(datatype.numpy)  # of the other byte order
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return Tensor(name, datatype, array.shape, array)


def _datatype(name: str, dtype: np.dtype[Any]) -> DataType:
    if dtype.name == "bfloat16":  # of the package ml_dtypes
        return DataType.BF16
    try:
        return datatype_of(dtype)
    except TypeError as error:
        raise InvalidRequest(f"input '{name}': {error}") from None


def _as_array(value: Value) -> Array:
    if isinstance(value, str | bytes):
        return np.array([value], dtype=object).reshape(())
    if hasattr(value, "__array__"):  # pandas, torch
        return np.asarray(value)
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    # Without being told, numpy makes texts of a mixture, and cuts zero bytes off their ends.
    return np.asarray(value, dtype=object if isinstance(first, str | bytes) else None)


def _declared(name: str, array: Array, declared: TensorMetadata) -> Tensor:
    """Return `array` as the model declares the input. Raises TypeError, OverflowError."""
    datatype = declared.datatype
    # A person who gives one number means one element, whatever rank the model declares.
    if not array.shape and all(dim in (1, -1) for dim in declared.shape):
        array = array.reshape((1,) * len(declared.shape))  # one element, whatever the rank
    kind = "O" if datatype is DataType.BYTES else datatype.numpy.kind
    if kind == "O" or array.dtype.kind in "OSU":
        if kind != array.dtype.kind:
            raise TypeError(f"it is {datatype.value}, the value given is {_words(array)}")
        return from_array(name, array)
    if datatype is DataType.BF16:
        bits = float32_to_bf16(np.ascontiguousarray(array, dtype=np.float32))
        return Tensor(name, datatype, array.shape, bits)
    if array.dtype != datatype.numpy:
        array = _cast(array, datatype)
    return from_array(name, array)


def _cast(array: Array, datatype: DataType) -> Array:
    kind, target = array.dtype.kind, datatype.numpy
    # min() of nothing is an error, and no value can be out of range.
    if not prod(array.shape):
        return array.astype(target)
    if kind in "iu" and target.kind in "iu":
        limits: Any = np.iinfo(target)
        if array.min() < limits.min or array.max() > limits.max:
            msg = f"it is {datatype.value}, which does not hold {array.min()} to {array.max()}"
            raise OverflowError(msg)
    # Whole numbers may become others that hold them, or fractions; never the reverse: no value is
    # changed without a word.
    elif kind == "b" or target.kind != "f" or kind not in "iuf":
        raise TypeError(f"it is {datatype.value}, the value given is {_words(array)}")
    return array.astype(target)


def _words(array: Array) -> str:
    return {"O": "text or a mixture", "b": "true or false", "f": "a fraction"}.get(
        array.dtype.kind, str(array.dtype)
    )
