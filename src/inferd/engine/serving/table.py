"""Tables: requests of rows as clients have them, to models that take them so.

The one input of such a model may have any datatype and any number of rows; or there are several
inputs, the columns of a table. What this leaves open is for the model to refuse.
"""

import base64
import binascii
from collections.abc import Sequence

from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Parameters, Tensor

MOST_ROWS = 2**31 - 1
"""The most rows a table may have."""

_SHOWN = 10

_CONTENT_TYPE = "content_type"
"""The parameter in which MLServer's clients say what the elements of an input are."""

_UNREAD = ("datetime", "pd_json")
"""Content types of texts that are no texts to the model, and that we do not read."""


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
    # numpy and pandas make a flat array of a single column.
    return len(shape) == 1 and dims in ((1,), (-1,))


def decode_contents(inputs: Sequence[Tensor]) -> bool:
    """Replace base64 by what it stands for, in `inputs` whose content type says that it is that.

    Tell whether there were any. Raises InvalidRequest for what is no base64, and for content types
    whose texts are something else to a model.
    """
    were_encoded = [_decode(one, one.parameters) for one in inputs if one.parameters]
    return any(were_encoded)


def _decode(tensor: Tensor, parameters: Parameters) -> bool:
    kind = parameters.get(_CONTENT_TYPE)
    if kind in _UNREAD and tensor.datatype is DataType.BYTES:
        raise InvalidRequest(
            f"input '{tensor.name}' has content_type '{kind}', which is not read here: send its "
            f"values as numbers or texts"
        )
    if kind != "base64" or tensor.datatype is not DataType.BYTES:
        return False
    try:
        # Without it, Python skips what is no base64, and garbage would become data.
        elements = [base64.b64decode(one, validate=True) for one in tensor.strings()]
    except binascii.Error as error:
        msg = f"input '{tensor.name}' has content_type 'base64', and an element is none: {error}"
        raise InvalidRequest(msg) from error
    tensor.data = encode_strings(elements, tensor.name)
    # The model must not decode it again.
    tensor.parameters = {key: one for key, one in parameters.items() if key != _CONTENT_TYPE}
    return True
