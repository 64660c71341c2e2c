"""Values fitted to a model: the datatype and the dims that it declares."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from inferd.core.metadata import TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of
from inferd.tensor.tensor import Tensor, dims_text, fits
from inferd.values.picture import arranged
from inferd.values.value import InputValue, cast, objects


class Fitted(NamedTuple):
    """The tensors to send, and what was done to the values that nobody may have expected."""

    tensors: list[Tensor]
    notes: list[str]


def fitted(
    values: Mapping[str, InputValue], declared: Iterable[TensorMetadata], pixels: str = ""
) -> Fitted:
    """Return `values` as tensors for a model that declares these inputs.

    A value without a name ("") is for the only input; columns of a table and an array by another
    name are refused, as are inputs that are missing: the model may have optional ones, so a missing
    input is only refused where nothing is given for it at all. `pixels` is one of SCALES, "" for
    what is usual for the datatype. A model that declares nothing, as many of MLServer's, gets the
    values as they are. Raises InvalidRequest.
    """
    inputs = {one.name: one for one in declared}
    if not inputs and values:
        return Fitted([_as_it_is(name, value) for name, value in values.items()], [])
    fitting: list[Tensor] = []
    notes: list[str] = []
    for name, value in _named(values, inputs).items():
        tensor, note = _fitted(inputs[name], value, pixels)
        fitting.append(tensor)
        if note:
            notes.append(f"{name}: {value.source} {note}")
    return Fitted(fitting, notes)


def _as_it_is(name: str, value: InputValue) -> Tensor:
    """Return a value in the datatype that it has: JSON's numbers are INT64 or FP64."""
    if not name or value.array is None:
        raise InvalidRequest(
            f"the model does not say what it takes: give each input a name, and a file that has a "
            f"datatype, unlike {value.source}"
        )
    try:
        datatype = value.datatype or datatype_of(value.array.dtype)
        array = value.array if value.datatype else cast(value.array, datatype)
    except TypeError as error:
        raise InvalidRequest(f"{value.source}: {error}") from error
    return _tensor(name, datatype, array, value)


def _named(
    values: Mapping[str, InputValue], inputs: Mapping[str, TensorMetadata]
) -> Mapping[str, InputValue]:
    if not values:
        msg = f"no input is given; the model takes {_listed(inputs)}. Say --input NAME=@FILE"
        raise InvalidRequest(msg)
    if "" in values:
        if len(inputs) != 1 or len(values) != 1:
            source = values[""].source
            msg = f"{source} does not say for which input it is: --input NAME=@{source}. "
            msg += f"The model takes {_listed(inputs)}"
            raise InvalidRequest(msg)
        return {next(iter(inputs)): values[""]}
    for name in values:
        if name not in inputs:
            raise InvalidRequest(f"the model has no input '{name}'; it takes {_listed(inputs)}")
    return values


def _listed(inputs: Mapping[str, TensorMetadata]) -> str:
    return ", ".join(
        f"'{one.name}' {one.datatype.value} {dims_text(one.shape)}" for one in inputs.values()
    )


def _fitted(declared: TensorMetadata, value: InputValue, pixels: str) -> tuple[Tensor, str]:
    name, datatype, dims = declared.name, declared.datatype, declared.shape
    note = ""
    # Models that take strings decode pictures by themselves: they get the file as it is.
    if value.array is None or (value.is_picture and datatype is DataType.BYTES):
        array = _content(declared, value)
    elif value.is_picture:
        # Pictures have three dims; the one in front is the batch's.
        has_batch = len(dims) == 4
        # What training scripts do mostly: models that take floats expect shares of 255.
        scale = pixels or ("0..1" if datatype.numpy.kind == "f" else "0..255")
        array, note = arranged(value.array, dims[1:] if has_batch else dims, scale, value.source)
        array = _cast(array[None] if has_batch else array, declared, value)
    elif value.datatype is not None:
        if value.datatype is not datatype:
            raise InvalidRequest(
                f"{value.source} says that input '{name}' is {value.datatype.value}; the model "
                f"takes {datatype.value}"
            )
        array = value.array
    elif datatype is DataType.BYTES and value.texts is not None:
        array = value.texts()
    else:
        array = _cast(value.array, declared, value)
        note = _cast_note(value.array, datatype)
    shaped = _shaped(array, dims)
    if shaped is None:
        raise InvalidRequest(
            f"{value.source} has dims {dims_text(array.shape)}, input '{name}' of the model takes "
            f"{dims_text(dims)}"
        )
    return _tensor(name, datatype, shaped, value), note


def _tensor(name: str, datatype: DataType, array: Array, value: InputValue) -> Tensor:
    # NumPy has no BF16; the array is of its 16 bits, which from_numpy would take for numbers.
    if datatype is DataType.BF16:
        return Tensor(name, datatype, array.shape, np.ascontiguousarray(array))
    try:
        return Tensor.from_numpy(name, array, datatype)
    except (TypeError, AttributeError) as error:
        msg = f"{value.source} cannot be sent as {datatype.value}: {error}"
        raise InvalidRequest(msg) from error


def _content(declared: TensorMetadata, value: InputValue) -> Array:
    """Return a file's content as the one string of an input, or as its packed elements."""
    if declared.datatype is DataType.BYTES:
        shape = tuple(1 for _ in declared.shape) or (1,)
        return objects([value.content]).reshape(shape)
    size = declared.datatype.size_bytes
    if len(value.content) % size:
        raise InvalidRequest(
            f"{value.source} has {len(value.content)} bytes, which are no whole number of "
            f"{declared.datatype.value} of {size} bytes"
        )
    # As clients send binary tensors: packed, little-endian.
    array = np.frombuffer(value.content, declared.datatype.numpy)
    dims = declared.shape
    known = math.prod(dim for dim in dims if dim >= 0)
    free = [at for at, dim in enumerate(dims) if dim < 0]
    sizes = [1 if dim < 0 else dim for dim in dims]
    if known and array.size % known == 0 and (free or array.size == known):
        if free:
            # Of several free dims, the first takes all: nothing in a file of bytes tells more.
            sizes[free[0]] = array.size // known
        return array.reshape(sizes)
    return array


def _cast(array: Array, declared: TensorMetadata, value: InputValue) -> Array:
    try:
        return cast(array, declared.datatype)
    except (ValueError, OverflowError, TypeError) as error:
        raise InvalidRequest(
            f"{value.source} has {_kind(array)}, input '{declared.name}' of the model takes "
            f"{declared.datatype.value}: {error}"
        ) from None


def _kind(array: Array) -> str:
    return "strings" if array.dtype.kind in "OSU" else str(array.dtype)


def _cast_note(array: Array, datatype: DataType) -> str:
    """Return words where a number may have been rounded that its file holds more exactly."""
    try:
        was = datatype_of(array.dtype)
    except TypeError:
        return ""
    if datatype is DataType.BF16 or datatype.numpy.kind != "f" or _is_exact(array, datatype):
        return ""
    return f"is {was.value}, rounded to {datatype.value}"


def _is_exact(array: Array, datatype: DataType) -> bool:
    """Return whether all values are those that they were, in a datatype of floats."""
    if array.dtype.kind not in "iuf" or not array.size:
        return True
    if array.dtype.kind == "f" and array.dtype.itemsize <= datatype.numpy.itemsize:
        return True
    made = cast(array, datatype)
    if array.dtype.kind == "f":
        return np.array_equal(array, made, equal_nan=True)
    # Back as integers: as floats, which NumPy compares them as, both would be rounded.
    whole = made.astype(np.float64)
    if float(whole.max()) > np.iinfo(array.dtype).max:
        return False
    return np.array_equal(whole.astype(array.dtype), array)


def _shaped(array: Array, dims: tuple[int, ...]) -> Array | None:
    """Return `array` with dims of one added or taken so that it fits; None if it cannot."""
    if fits(dims, array.shape):
        return array
    wanted = len(dims)
    if wanted > array.ndim:  # one row for a model that takes rows, a column [rows] as [rows, 1]
        front = array.reshape((1,) * (wanted - array.ndim) + array.shape)
        back = array.reshape(array.shape + (1,) * (wanted - array.ndim))
        # [n] is n rows for a model of [-1, 1], and one row for one of [-1, n].
        for one in (back, front) if dims[-1] == 1 else (front, back):
            if fits(dims, one.shape):
                return one
    if array.shape == (1,) and not dims:
        return array.reshape(())
    if -1 not in dims and math.prod(dims) == array.size:  # flat values for dims that are known
        return array.reshape(dims)
    return None
