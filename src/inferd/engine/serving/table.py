"""Tables: requests of rows as clients have them, to models that take them so.

The one input of such a model may have any datatype and any number of rows; or there are several
inputs, the columns of a table. What this leaves open is for the model to refuse.
"""

from collections.abc import Sequence

from inferd.errors import InvalidRequest
from inferd.tensor.tensor import Tensor

MOST_ROWS = 2**31 - 1
"""The most rows a table may have."""

_SHOWN = 10


def row_count(inputs: Sequence[Tensor]) -> int:
    """Return the number of rows that all `inputs` have. Raises InvalidRequest."""
    shape = inputs[0].shape
    for tensor in inputs:
        if not tensor.shape or tensor.shape[0] != shape[0]:
            shapes = ", ".join(f"'{one.name}' {list(one.shape)}" for one in inputs[:_SHOWN])
            msg = f"all columns of a table have the same number of rows, these are {shapes}"
            raise InvalidRequest(msg)
    return shape[0]


def is_single_column(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    """Tell whether `shape` is that of rows with one value each, where `dims` allow it."""
    return len(shape) == 1 and dims in ((1,), (-1,))
