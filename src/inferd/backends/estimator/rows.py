"""Rows: the inputs of a request as arrays, exactly as the client sent them.

One input is an array of rows. Several are the columns of a table. No number ever becomes another
one: what numpy cannot hold side by side is refused.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from inferd.backends.estimator.model import Columns, Features, LoadedModel, counted_names
from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import bf16_to_float32
from inferd.tensor.tensor import Tensor

_SHOWN = 10


def rows_of(inputs: Sequence[Tensor], model: LoadedModel, order: Sequence[str] = ()) -> Any:
    """Return what the calls of `model` take, made of the `inputs` of a request, at least one.

    `order` is the order of inputs whose names the model does not know. Raises InvalidRequest, or
    one of the model's faults.
    """
    if len(inputs) > 1:
        columns = _columns(_in_turn(inputs, order), model.features)
        count = model.features.width
        if count is not None and len(columns) != count:
            raise InvalidRequest(f"the request has {len(columns)} columns, the model takes {count}")
        return model.table(columns)
    array = array_of(inputs[0])
    if array.ndim < 1 or not len(array):
        msg = f"input '{inputs[0].name}' has shape {list(array.shape)}, expected at least one row"
        raise InvalidRequest(msg)
    are_texts = model.features.are_texts or (array.dtype == object and not model.features.width)
    # Vectorizers of texts iterate over their input, and would take each row for one text.
    if are_texts and array.size == len(array):
        array = array.reshape(-1)
    elif array.ndim == 1:
        array = array.reshape(-1, 1)
    count = model.features.width
    if count is not None and array.ndim == 2 and array.shape[1] != count:
        msg = f"input '{inputs[0].name}' has {array.shape[1]} columns, the model takes {count}"
        raise InvalidRequest(msg)
    return model.rows(array)


def array_of(tensor: Tensor) -> Array:
    """Return a copy of the elements of `tensor`, BF16 as float32, BYTES as `str`.

    A copy, because some estimators write to their input. Raises InvalidRequest for texts that are
    not UTF-8.
    """
    if tensor.datatype is DataType.BF16:
        return bf16_to_float32(tensor.numpy())
    array = np.array(tensor.numpy())
    if tensor.datatype is not DataType.BYTES:
        return array
    try:
        texts = [element.decode() for element in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        msg = f"input '{tensor.name}' has a text that is not UTF-8: {error}"
        raise InvalidRequest(msg) from error
    # ravel() of a contiguous copy is a view, so this writes to the array.
    array.ravel()[:] = texts
    return array


def _in_turn(inputs: Sequence[Tensor], order: Sequence[str]) -> Sequence[Tensor]:
    """Return `inputs` in `order`, as they are if it does not name them all."""
    turns = {name: turn for turn, name in enumerate(order)}
    if not all(tensor.name in turns for tensor in inputs):
        return inputs
    return sorted(inputs, key=lambda tensor: turns[tensor.name])


def _columns(inputs: Sequence[Tensor], features: Features) -> Columns:
    """Return the columns that `inputs` are, in the model's order if it, or its library, has names.

    Columns of a model without names may have any: then they stay as they are. Those of one input
    are called after it, "x__0", "x__1" and so on. Raises InvalidRequest.
    """
    arrays = [(tensor, array_of(tensor)) for tensor in inputs]
    counts = {array.shape[:1] for _, array in arrays}
    if len(counts) > 1 or any(not 1 <= array.ndim <= 2 for _, array in arrays):
        shapes = ", ".join(f"'{tensor.name}' {list(tensor.shape)}" for tensor in inputs[:_SHOWN])
        msg = f"the columns of a table have the shape [rows] or [rows,1], these are {shapes}"
        raise InvalidRequest(msg)
    if counts == {(0,)}:
        raise InvalidRequest("the columns of the request have no rows, expected at least one row")
    columns: dict[str, Array] = {}
    for tensor, array in arrays:
        parts = array.reshape(len(array), -1).T
        if len(parts) == 1:
            columns[tensor.name] = parts[0]
        else:
            columns.update((f"{tensor.name}__{n}", part) for n, part in enumerate(parts))
    names = features.names or _counted(columns, features)
    return _in_order(columns, names) if names else columns


def _counted(columns: Columns, features: Features) -> tuple[str, ...]:
    """Return the names of columns without names, () if these have others.

    They are those of the library, or of a data frame: plain numbers.
    """
    for beginning in (features.counted, ""):
        names = counted_names(beginning, len(columns))
        if columns.keys() == {*names}:
            return names
    return ()


def _in_order(columns: Columns, names: Sequence[str]) -> Columns:
    found = {name: columns[name] for name in names if name in columns}
    # What has no namesake may have the name as LightGBM stores it, which allows no spaces.
    missing = {_plain(name): name for name in names if name not in columns}
    others = {_plain(name): column for name, column in columns.items() if name not in found}
    is_each_once = len(found) + len(missing) == len(names)
    if others.keys() != missing.keys() or not is_each_once or len(columns) != len(names):
        raise InvalidRequest(
            f"the request has the columns {_quoted(columns)}, the model takes {_quoted(names)}, "
            f"each once"
        )
    found.update((missing[name], column) for name, column in others.items())
    return {name: found[name] for name in names}


def _plain(name: str) -> str:
    return name.replace(" ", "_")


def _quoted(names: Iterable[str]) -> str:
    some = list(names)
    more = ", ..." if len(some) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in some[:_SHOWN]) + more


def stacked(columns: Columns) -> Array:
    """Return `columns` side by side as one array, of texts and numbers if they are both.

    Raises InvalidRequest if no datatype holds the numbers of all of them exactly.
    """
    arrays = list(columns.values())
    if any(array.dtype == object for array in arrays):
        return np.stack([array.astype(object) for array in arrays], axis=1)
    whole = np.stack(arrays, axis=1)
    for number, (name, array) in enumerate(columns.items()):
        if not is_same(whole[:, number], array):
            raise InvalidRequest(
                f"column '{name}' holds numbers that {whole.dtype}, the datatype of all columns "
                f"together, cannot hold: send all columns in a datatype that holds them"
            )
    return whole


def is_same(converted: Array, array: Array) -> bool:
    """Tell whether `array` lost nothing when it became `converted`; both are numbers."""
    if converted.dtype == array.dtype:
        return True
    with np.errstate(all="ignore"):
        # There and back: int64 above 2**53 is not what it was after float64.
        back = converted.astype(array.dtype)
    # Integers below 0 come back from ones without a sign as well, 2**64 - 1 is -1.
    if {converted.dtype.kind, array.dtype.kind} == {"i", "u"}:
        signed = converted if converted.dtype.kind == "i" else array
        if (signed < 0).any():
            return False
    return bool(np.array_equal(back, array, equal_nan=array.dtype.kind == "f"))


def has_pandas() -> bool:
    """Tell whether pandas is installed."""
    return find_spec("pandas") is not None


def framed(columns: Columns, categories: Iterable[str] = ()) -> Any:
    """Return `columns` as a pandas.DataFrame, each in its own datatype, or as `categories`.

    Raises InvalidRequest if pandas is not installed.
    """
    if not has_pandas():
        raise InvalidRequest(
            "a table with categories or texts needs the Python package 'pandas' on the server: "
            "pip install 'inferd[pandas]'"
        )
    # pandas has no categories of float16, and float32 holds the same numbers.
    wide = {
        name: columns[name].astype(np.float32)
        for name in categories
        if columns[name].dtype == np.float16
    }
    frame = import_module("pandas").DataFrame({**columns, **wide})
    return frame.astype(dict.fromkeys(categories, "category"))
