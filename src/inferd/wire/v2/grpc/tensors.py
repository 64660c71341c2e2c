"""The tensors of V2 gRPC messages: reads descriptions and data, raw or typed, into Tensors."""

from math import prod
from typing import Any

from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType, datatype_named
from inferd.tensor.strings import check_strings
from inferd.tensor.tensor import Tensor
from inferd.wire.shared_memory import PARAMETERS
from inferd.wire.v2.grpc.contents import decode_contents
from inferd.wire.v2.grpc.parameters import decode_parameter

_MAX_RANK = 32
"""The most dims an array can have in every supported version of numpy."""

_MAX_SPAN = 2**60
"""The most elements of an array: numpy's sizes have 63 bits, with empty dims counted as 1."""


def check_entries(raw: Any, items: Any) -> None:
    """Check that there is one entry of raw contents for each item. Raises InvalidRequest."""
    if len(raw) != len(items):
        msg = f"raw contents have {len(raw)} entries for {len(items)} tensors, expected one each"
        if len(raw) < len(items):
            msg = f"unable to find data for input tensor '{items[len(raw)].name}': {msg}"
        raise InvalidRequest(msg)


def check_no_contents(item: Any) -> None:
    """Check that `item` has no typed contents beside raw ones. Raises InvalidRequest."""
    if has_contents(item):
        msg = (
            f"contents field must not be specified when using raw_input_contents for '{item.name}'"
        )
        raise InvalidRequest(msg)


def has_contents(item: Any) -> bool:
    """Return whether `item` has typed contents; MLServer sends empty ones beside raw contents."""
    return item.HasField("contents") and bool(item.contents.ListFields())


def raw_tensors(items: Any, raw: Any) -> list[Tensor]:
    """Return a tensor for each item, the i-th with the i-th entry of raw contents.

    Raises InvalidRequest.
    """
    check_entries(raw, items)
    tensors = []
    for item, data in zip(items, raw, strict=True):
        tensor, count = described(item)
        check_no_contents(item)
        check_raw(data, tensor.name, tensor.datatype, count)
        tensor.data = data
        tensors.append(tensor)
    return tensors


def typed_tensors(items: Any) -> list[Tensor]:
    """Return a tensor for each item from its typed contents. Raises InvalidRequest."""
    tensors = []
    for item in items:
        tensor, count = described(item)
        if count and not item.HasField("contents"):
            msg = (
                f"unable to find data for input tensor '{tensor.name}', it has neither raw nor "
                f"typed contents"
            )
            raise InvalidRequest(msg)
        tensor.data = decode_contents(item.contents, tensor.name, tensor.datatype, count)
        tensors.append(tensor)
    return tensors


def described(item: Any) -> tuple[Tensor, int]:
    """Return the tensor for `item`, with empty data, and its number of elements.

    Raises InvalidRequest.
    """
    name = item.name
    datatype = datatype_named(item.datatype, name)
    shape = tuple(item.shape)
    count = prod(shape) if len(shape) <= _MAX_RANK else 0
    if count <= 0 or min(shape, default=0) < 0:
        _check_unusual_shape(name, shape)
    tensor = Tensor(name, datatype, shape, b"")
    if item.parameters:
        parameters = {
            key: value
            for key, choice in item.parameters.items()
            if key not in PARAMETERS and (value := decode_parameter(choice)) is not None
        }
        tensor.parameters = parameters or None
    return tensor, count


def _check_unusual_shape(name: str, shape: tuple[int, ...]) -> None:
    """Check a shape that has an empty or negative dim, or too many dims, for impossible sizes."""
    if len(shape) > _MAX_RANK:
        msg = f"tensor '{name}' has {len(shape)} dims, expected at most {_MAX_RANK}"
        raise InvalidRequest(msg)
    if min(shape) < 0:
        msg = (
            f"All input dimensions should be specified for input '{name}', "
            f"got {list(shape)}; -1 belongs to metadata"
        )
        raise InvalidRequest(msg)
    if prod([dim or 1 for dim in shape]) > _MAX_SPAN:
        msg = f"tensor '{name}' has shape {list(shape)}, which no array can have"
        raise InvalidRequest(msg)


def check_raw(data: Any, name: str, datatype: DataType, count: int) -> None:
    """Check that the buffer `data` holds exactly `count` elements of `datatype`.

    Raises InvalidRequest, naming the tensor `name`.
    """
    if datatype is DataType.BYTES:
        check_strings(data, count, name)
    elif len(data) != count * datatype.size_bytes:
        msg = (
            f"input byte size mismatch for input '{name}'. Expected {count * datatype.size_bytes}, "
            f"got {len(data)} bytes of raw contents for {count} elements of {datatype.value}"
        )
        raise InvalidRequest(msg)
