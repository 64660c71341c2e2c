"""Answers: what a library returns, as the tensors of a response."""

from typing import Any

import numpy as np

from inferd.backends.estimator.rows import is_same
from inferd.config.model import ModelOutput
from inferd.errors import BackendFailed
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of
from inferd.tensor.tensor import Tensor, reshaped

_NUMBERS = (bool, int, float)


def tensor_of(output: ModelOutput, result: Any, row_count: int, *, is_cast: bool) -> Tensor:
    """Return what a library returned for `output` of `row_count` rows; see `array_of`.

    With `is_cast` it gets the datatype that the configuration says. Raises BackendFailed for what
    the protocol, or that datatype, cannot hold.
    """
    array = array_of(result, output.name, row_count)
    try:
        datatype = datatype_of(array.dtype)
    except TypeError as error:
        msg = f"output '{output.name}': {error}"
        raise BackendFailed(msg) from error
    if is_cast and datatype is not output.datatype:
        array = _cast(array, output)
        datatype = output.datatype
    if output.reshape is not None:
        array = array.reshape(reshaped(array.shape, output.reshape, output.dims))
    return Tensor.from_numpy(output.name, array, datatype)


def array_of(result: Any, name: str, row_count: int) -> Array:
    """Return `result` as an array of shape [rows, ...], of two dims at least.

    Some estimators leave out the dim of the rows if there is one.

    Sparse matrices and data frames become dense, Python's objects the texts or numbers that they
    are. Raises BackendFailed.
    """
    # scipy's sparse matrices; np.asarray would wrap one in an array of a single object.
    if hasattr(result, "toarray"):
        result = result.toarray()
    try:
        array = np.asarray(result)
    except ValueError as error:  # rows of different lengths
        msg = f"the model gave output '{name}' as no array: {error}"
        raise BackendFailed(msg) from error
    # Clients of one row and of many read the same form; which dim is
    # missing is told by the number of rows.
    if array.ndim < 2:
        is_one_row = row_count == 1 and array.size > 1
        array = array.reshape(1, -1) if is_one_row else array.reshape(-1, 1)
    if array.dtype != object:
        return array
    elements = array.ravel().tolist()
    if all(isinstance(element, str | bytes) for element in elements):
        return array
    if all(isinstance(element, _NUMBERS) for element in elements):
        kinds = {type(element) for element in elements}
        # Objects, as pandas and label encoders leave them, although all are numbers.
        numbers = np.array(elements)
        # 1 and 2.5 may become floats together, but True must not become 1, nor 2**60 + 1 a float.
        if numbers.dtype != object and (len(kinds) == 1 or numbers.tolist() == elements):
            return numbers.reshape(array.shape)
    kinds_named = ", ".join(sorted({type(element).__name__ for element in elements}))
    msg = f"the model gave output '{name}' as Python objects ({kinds_named}), which no datatype has"
    raise BackendFailed(msg)


def _cast(array: Array, output: ModelOutput) -> Array:
    """Return `array` in the datatype of `output`: floats are rounded, all else stays the same.

    Raises BackendFailed for what would be another number.
    """
    wanted = output.datatype
    are_texts = array.dtype.kind in "OSU"
    if wanted is not DataType.BF16 and not are_texts and wanted is not DataType.BYTES:
        # What does not fit is seen by comparing, so NumPy's warning is noise.
        with np.errstate(all="ignore"):
            converted = array.astype(wanted.numpy)
        # A float that is rounded is the same answer to fewer digits; an
        # integer would be another label.
        are_floats = array.dtype.kind == converted.dtype.kind == "f"
        if are_floats or is_same(converted, array):
            return converted
    msg = (
        f"the model gave output '{output.name}' as {array.dtype}, and not all of it can be "
        f"{wanted.value}, as its configuration says"
    )
    raise BackendFailed(msg)
