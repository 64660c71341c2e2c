"""The greatest elements of a tensor, as text "value:index:label" (V2, Classification)."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor

MAX_ELEMENTS = 1_000_000
"""Triton's limit on the elements of one batch entry, and ours on the classes of one answer."""

Labels = Sequence[bytes]
"""Label n belongs to element n; elements beyond the end have no label, nor do those with b""."""

_FLOATS = (DataType.FP32, DataType.FP64)
_OTHERS = (DataType.BOOL, DataType.FP16, DataType.BF16, DataType.BYTES)


def is_classifiable(datatype: DataType) -> bool:
    """Tell whether a datatype has classes."""
    return datatype not in _OTHERS


def check_classifiable(name: str, datatype: DataType) -> None:
    """Raise InvalidRequest when output `name` is of a datatype that has no classes."""
    if not is_classifiable(datatype):
        raise InvalidRequest(
            f"class result not available for output due to unsupported type '{datatype.value}': "
            f"that of output '{name}' must be an integer, FP32 or FP64"
        )


def classified(tensor: Tensor, top_k: int, labels: Labels, *, batch_dims: int) -> Tensor:
    """Return the `top_k` greatest elements of each batch entry as BYTES, greatest first.

    `batch_dims` is 1 when the first dim of `tensor` is the batch, else 0. The shape is [batch, k]
    or [k], with k at most the elements of an entry. Raises InvalidRequest as `top_classes` does.
    """
    # Six decimals, as Triton prints them, though documents show fewer: clients compare texts.
    form = b"%f:%d" if tensor.datatype in _FLOATS else b"%d:%d"
    entries = top_classes(tensor, top_k, batch_dims=batch_dims)
    known = len(labels)
    texts = [
        b"%b:%b" % (form % one, labels[one[1]]) if one[1] < known and labels[one[1]] else form % one
        for entry in entries
        for one in entry
    ]
    count = prod(tensor.shape[batch_dims:])
    shape = (*tensor.shape[:batch_dims], min(top_k, count))
    return Tensor(tensor.name, DataType.BYTES, shape, encode_strings(texts, tensor.name))


def top_classes(tensor: Tensor, top_k: int, *, batch_dims: int) -> list[list[tuple[object, int]]]:
    """Return (value, index) of the `top_k` greatest elements of each batch entry, greatest first.

    Equal elements are ordered by index, NaN comes last. The index counts the elements of one entry,
    row-major. Raises InvalidRequest for an entry of too many elements, or too many classes in all.
    """
    count = prod(tensor.shape[batch_dims:])
    entry_count = prod(tensor.shape[:batch_dims])
    class_count = min(top_k, count)
    if count > MAX_ELEMENTS or entry_count * class_count > MAX_ELEMENTS:
        raise InvalidRequest(
            f"output '{tensor.name}' has {entry_count} times {count} elements, of which "
            f"{class_count} each are wanted as classes: both may be {MAX_ELEMENTS} at most"
        )
    entries = tensor.numpy().reshape(entry_count, count)
    return [_greatest(entry, class_count) for entry in entries]


def _greatest(values: Any, class_count: int) -> list[tuple[Any, int]]:
    keys = values
    if values.dtype.kind == "f":
        # NumPy sorts NaN as the largest, and a class without a score must not win.
        keys = np.where(np.isnan(values), -np.inf, values)
    indices = np.arange(len(keys))
    if class_count < len(keys):
        # Only what is large enough is sorted: mostly a few of many classes are wanted.
        least = np.partition(keys, len(keys) - class_count)[len(keys) - class_count]
        indices = np.flatnonzero(keys >= least)
    # A stable ascending sort of the reversed row, read backwards, orders equal ones by index.
    order = np.argsort(keys[indices][::-1], kind="stable")[::-1]
    chosen = indices[len(indices) - 1 - order][:class_count]
    return list(zip(values[chosen].tolist(), chosen.tolist(), strict=True))
