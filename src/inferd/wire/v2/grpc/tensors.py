"""The tensors of V2 gRPC messages: reads descriptions and data, raw or typed, into Tensors."""

from math import prod
from typing import Any

from inferd.errors import InvalidRequest
from inferd.memory.buffer import Buffer
from inferd.tensor.dtype import DataType, datatype_named
from inferd.tensor.strings import check_strings
from inferd.tensor.tensor import Tensor, dims_text
from inferd.wire.shared_memory import PARAMETERS
from inferd.wire.v2.grpc.contents import decode_contents
from inferd.wire.v2.grpc.parameters import decode_parameter

_MAX_RANK = 32
"""The most dims an array can have in every supported version of numpy."""

_MAX_SPAN = 2**60
"""The most elements of an array: numpy's sizes have 63 bits, with empty dims counted as 1."""


def check_entries(raw: Any, items: Any, model: str) -> None:
    """Check that there is one entry of raw contents for each item of a message about `model`.

    Raises InvalidRequest.
    """
    if len(raw) != len(items):
        msg = f"raw contents have {len(raw)} entries for {len(items)} tensors, expected one each"
        if len(raw) < len(items):
            name = items[len(raw)].name
            start = f"unable to find data for input tensor '{name}' for model '{model}' in request"
            msg = f"{start}: {msg}"
        raise InvalidRequest(msg)


def check_no_contents(item: Any, model: str) -> None:
    """Check that `item` has no typed contents beside raw ones. Raises InvalidRequest."""
    if has_contents(item):
        raise InvalidRequest(
            f"contents field must not be specified when using raw_input_contents for "
            f"'{item.name}' for model '{model}'"
        )


def has_contents(item: Any) -> bool:
    """Return whether `item` has typed contents; MLServer sends empty ones beside raw contents."""
    return item.HasField("contents") and bool(item.contents.ListFields())


def raw_tensors(items: Any, raw: Any, model: str) -> list[Tensor]:
    """Return a tensor of `model` for each item, the i-th with the i-th entry of raw contents.

    Raises InvalidRequest.
    """
    check_entries(raw, items, model)
    tensors = []
    for item, data in zip(items, raw, strict=True):
        tensor, count = described(item, model)
        check_no_contents(item, model)
        check_raw(data, tensor, count, model)
        tensor.data = data
        tensors.append(tensor)
    return tensors


def typed_tensors(items: Any, model: str) -> list[Tensor]:
    """Return a tensor of `model` for each item from its typed contents. Raises InvalidRequest."""
    tensors = []
    for item in items:
        tensor, count = described(item, model)
        if count and not item.HasField("contents"):
            raise InvalidRequest(
                f"unable to find data for input tensor '{tensor.name}' for model '{model}' in "
                f"request: it has neither raw nor typed contents"
            )
        tensor.data = decode_contents(item.contents, tensor, count, model)
        tensors.append(tensor)
    return tensors


def described(item: Any, model: str) -> tuple[Tensor, int]:
    """Return the tensor of `model` for `item`, with empty data, and its number of elements.

    Raises InvalidRequest.
    """
    name = item.name
    datatype = datatype_named(item.datatype, name)
    shape = tuple(item.shape)
    # Not computed for more: a shape of thousands of dims multiplies to a number of megabits.
    count = prod(shape) if len(shape) <= _MAX_RANK else 0
    if count <= 0 or min(shape, default=0) < 0:
        _check_unusual_shape(name, shape, model)
    tensor = Tensor(name, datatype, shape, b"")
    if item.parameters:
        parameters = {
            key: value
            for key, choice in item.parameters.items()
            # Where the data are is no parameter of the model's.
            if key not in PARAMETERS and (value := decode_parameter(choice)) is not None
        }
        tensor.parameters = parameters or None
    return tensor, count


def _check_unusual_shape(name: str, shape: tuple[int, ...], model: str) -> None:
    """Check a shape that has an empty or negative dim, or too many dims, for impossible sizes."""
    if len(shape) > _MAX_RANK:
        raise InvalidRequest(f"tensor '{name}' has {len(shape)} dims, expected at most {_MAX_RANK}")
    if min(shape) < 0:
        raise InvalidRequest(
            f"All input dimensions should be specified for input '{name}' for model '{model}', "
            f"got {dims_text(shape)}; -1 belongs to metadata"
        )
    # numpy computes strides with empty dims counted as 1.
    if prod([dim or 1 for dim in shape]) > _MAX_SPAN:
        raise InvalidRequest(f"tensor '{name}' has shape {list(shape)}, which no array can have")


def check_raw(data: Buffer, tensor: Tensor, count: int, model: str) -> None:
    """Check that the buffer `data` holds exactly the `count` elements of `tensor`, of `model`.

    Raises InvalidRequest.
    """
    name, datatype = tensor.name, tensor.datatype
    if datatype is DataType.BYTES:
        check_strings(data, count, name, model)
    elif len(data) != (expected := count * datatype.size_bytes):
        raise InvalidRequest(
            f"input byte size mismatch for input '{name}' for model '{model}'. Expected "
            f"{expected}, got {len(data)} bytes of raw contents for {count} elements of "
            f"{datatype.value}"
        )
