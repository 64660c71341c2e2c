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

_SAY_ALL = (np.ndarray, Tensor)
# numpy's dtypes compare slowly by kind and order; a process uses few.
_known: dict[np.dtype[Any], DataType] = {}


def needs_metadata(inputs: Mapping[str, Value]) -> bool:
    """Return whether only the model can say what some of `inputs` are to be.

    Raises InvalidRequest if they are no mapping.
    """
    try:
        return not all(isinstance(value, _SAY_ALL) for value in inputs.values())
    # A table of pandas has values, too.
    except (AttributeError, TypeError):
        msg = f"inputs are a mapping from their names to arrays, not {type(inputs).__name__}: "
        raise InvalidRequest(msg + "{'x': array}") from None


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
    if isinstance(value, np.ndarray):
        return from_array(name, _plain(name, value))
    try:
        array = _as_array(value)
        if declared is not None and array.size and array.dtype.kind in "fO":
            array = _whole(value, array, declared.datatype)
        # An input that the model does not declare goes out as it is: the server says what it takes.
        if declared is not None:
            return _declared(name, array, declared)
        # V2 has no scalars: each shape has at least one dim.
        return from_array(name, array if array.shape else array.reshape(1))
    # RuntimeError: torch's, of a tensor that requires grad.
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InvalidRequest(f"input '{name}': {error}") from error


def _plain(name: str, array: Array) -> Array:
    """Return an array of a subclass as a plain one. Raises InvalidRequest if some is masked."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        msg = f"input '{name}' is a masked array, and V2 has no masks: say filled(value) of it"
        raise InvalidRequest(msg)
    return np.asarray(array)


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
    if dtype.kind == "T":  # texts of any length, of NumPy 2
        return DataType.BYTES
    try:
        return datatype_of(dtype)
    except TypeError as error:
        raise InvalidRequest(f"input '{name}': {error}") from None


def _as_array(value: Value) -> Array:
    if isinstance(value, str | bytes):
        return np.array([value], dtype=object).reshape(())
    if hasattr(value, "__array__"):  # pandas, torch, numpy's scalars
        array = np.asarray(value)
        return array.astype(object) if array.dtype.kind in "SUT" else array
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    # Without being told, numpy makes texts of a mixture, and cuts zero bytes off their ends.
    return np.asarray(value, dtype=object if isinstance(first, str | bytes) else None)


def _whole(value: Value, array: Array, datatype: DataType) -> Array:
    """Return `array`, or its whole numbers as objects where numpy made others of them.

    Beyond INT64 it makes floats of a list, beyond UINT64 objects.
    """
    if array.dtype.kind == "f" and datatype.numpy.kind not in "iu":
        return array
    exact = np.asarray(value, dtype=object)
    return exact if all(type(one) is int for one in exact.flat) else array


def _declared(name: str, array: Array, declared: TensorMetadata) -> Tensor:
    """Return `array` as the model declares the input. Raises TypeError, OverflowError."""
    datatype = declared.datatype
    # A person who gives one number means one element, whatever rank the model declares.
    if not array.shape and all(dim in (1, -1) for dim in declared.shape):
        array = array.reshape((1,) * len(declared.shape))  # one element, whatever the rank
    kind = "O" if datatype is DataType.BYTES else datatype.numpy.kind
    if kind == "O":
        # Nothing is of no datatype.
        if array.dtype.kind != "O" and array.size:
            raise TypeError(f"it is {datatype.value}, the value given is {_words(array)}")
        return from_array(name, array.astype(object, copy=False))
    if datatype is DataType.BF16:
        single = np.ascontiguousarray(_cast(array, datatype, np.dtype(np.float32)))
        bits = float32_to_bf16(single)
        # Rounding may lead beyond the greatest number, too.
        if np.count_nonzero(bits & 0x7FFF == 0x7F80) != np.count_nonzero(np.isinf(single)):
            raise OverflowError(_TOO_GREAT.format(datatype.value))
        return Tensor(name, datatype, array.shape, bits)
    if array.dtype != datatype.numpy:
        array = _cast(array, datatype, datatype.numpy)
    return from_array(name, array)


_TOO_GREAT = "it is {}, which does not hold a number as great as one of those given"


def _cast(array: Array, datatype: DataType, target: np.dtype[Any]) -> Array:
    kind = array.dtype.kind
    # min() of nothing is an error, and no value can be out of range.
    if not prod(array.shape):
        return array.astype(target)
    if kind == "O" and all(type(one) is int for one in array.flat):
        kind = "i"  # as `_whole` found
    if kind in "iu" and target.kind in "iu":
        limits: Any = np.iinfo(target)
        if array.min() < limits.min or array.max() > limits.max:
            msg = f"it is {datatype.value}, which does not hold {array.min()} to {array.max()}"
            raise OverflowError(msg)
    # Whole numbers may become others that hold them, or fractions; never the reverse: no value is
    # changed without a word.
    elif kind == "b" or target.kind != "f" or kind not in "iuf":
        raise TypeError(f"it is {datatype.value}, the value given is {_words(array)}")
    try:
        with np.errstate(over="raise"):
            return array.astype(target)
    except (FloatingPointError, OverflowError):
        raise OverflowError(_TOO_GREAT.format(datatype.value)) from None


def _words(array: Array) -> str:
    return {"O": "text or a mixture", "b": "true or false", "f": "a fraction"}.get(
        array.dtype.kind, str(array.dtype)
    )
