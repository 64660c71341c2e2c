"""InputValue: the elements of one input before its datatype is known, and how they become it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import bf16_to_float32, float64_to_half


class InputValue(NamedTuple):
    """The elements of one input, before the model's datatype and dims are known.

    `source` is where they come from, for texts. `datatype` is the one that the source itself says,
    as a V2 request does: then `array` is in that datatype. `is_picture` marks pixels [height,
    width, channels] that may be arranged; `content` is a file's content as it is, for models that
    take the encoded picture, or bytes that only the model can tell the meaning of (`array` is
    None). `texts` gives the cells of a table as they are written, for models that take strings.
    """

    source: str
    array: Array | None
    datatype: DataType | None = None
    is_picture: bool = False
    content: bytes = b""
    texts: Callable[[], Array] | None = None


def objects(values: Sequence[object]) -> Array:
    """Return an object array: of bytes, one of strings."""
    # Filled afterwards: np.array() would make fixed-width bytes of them and drop trailing NULs.
    array = np.empty(len(values), object)
    array[:] = values
    return array


def cast(array: Array, datatype: DataType) -> Array:
    """Return `array` in the form of `datatype`. Raises ValueError where values would change."""
    if not array.size:  # no element is of a wrong kind
        return np.empty(array.shape, datatype.numpy)
    if datatype is DataType.BYTES:
        if array.dtype.kind not in "OSU":
            raise ValueError("numbers are no strings")
        return array.astype(object)
    if array.dtype.kind in "OSUV":
        raise ValueError("strings are no numbers")
    # NumPy would make numbers of dates, and drop half of a complex one.
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{array.dtype} is no datatype of tensors")
    if datatype is DataType.BF16:
        made = float64_to_half(array.astype(np.float64), datatype)
        _check_range(bf16_to_float32(made), array, datatype)
        return made
    wanted = datatype.numpy
    if array.dtype == wanted:
        return array
    if wanted.kind == "f":
        with np.errstate(over="ignore"):
            made = array.astype(wanted)
        _check_range(made, array, datatype)
        return made
    with np.errstate(invalid="ignore"):
        made = array.astype(wanted)
    # Compared as values, so 1.0 may be an integer, and 1.5 and 300 as INT8 may not.
    if not np.array_equal(made, array):
        odd = array[made != array].ravel()[0]
        raise ValueError(f"{odd} is no {datatype.value}")
    return made


def _check_range(made: Array, array: Array, datatype: DataType) -> None:
    beyond = np.isinf(made) & np.isfinite(array)
    if beyond.any():
        raise ValueError(f"{array[beyond][0]} is no {datatype.value}: it is out of its range")
