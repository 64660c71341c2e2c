"""Closeness: whether two answers to the same request are the same but for rounding.

A framework may add numbers up in another order for another batch size, so floats are compared
within LIMITS. Integers, booleans and strings must be equal, unless they were chosen by floats that
are too close to call: that is so if the same answer has, for each of their elements, a row of
floats whose two largest lie within the limits, as scores beside the class that they decide.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import half_to_float32
from inferd.tensor.tensor import Tensor

LIMITS: Mapping[DataType, tuple[float, float]] = {
    DataType.FP64: (1e-8, 1e-10),
    DataType.FP32: (1e-4, 1e-5),
    DataType.FP16: (1e-2, 1e-3),
    DataType.BF16: (4e-2, 1e-2),
}
"""How much two floats may differ: this much of the expected one, plus that much.

NaN equals NaN, and an infinity itself.
"""


Limits = Mapping[DataType, tuple[float, float]]


def difference(expected: Sequence[Tensor], found: Sequence[Tensor], limits: Limits = LIMITS) -> str:
    """Return how the outputs of one answer differ from those `expected`, "" if they agree.

    Outputs that were not expected do not matter: others may have asked for them.
    """
    tensors = {tensor.name: tensor for tensor in found}
    floats = [tensor for tensor in expected if tensor.datatype in LIMITS]
    for one in expected:
        other = tensors.get(one.name)
        if other is None:
            return f"output '{one.name}' is missing"
        if (other.datatype, other.shape) != (one.datatype, one.shape):
            was = f"{one.datatype.value} {list(one.shape)}"
            return f"output '{one.name}' is {other.datatype.value} {list(other.shape)}, not {was}"
        # Mostly the answers are equal, byte for byte, which is cheap to see.
        if one.view() == other.view():
            continue
        differs = _differences(one, other, limits)
        is_chosen = one.datatype not in LIMITS
        if not differs.any() or (is_chosen and _are_ties(differs, floats, limits)):
            continue
        where = tuple(int(index) for index in np.argwhere(differs)[0])
        return f"output '{one.name}' differs in {int(differs.sum())} elements, as at {list(where)}"
    return ""


def _differences(expected: Tensor, found: Tensor, limits: Limits) -> Array:
    """Return which elements differ by more than `limits` allow."""
    if expected.datatype not in limits:
        return np.asarray(expected.numpy() != found.numpy(), bool)
    relative, absolute = limits[expected.datatype]
    ours, theirs = _floats(expected), _floats(found)
    with np.errstate(all="ignore"):
        return ~np.isclose(theirs, ours, rtol=relative, atol=absolute, equal_nan=True)


def _floats(tensor: Tensor) -> Array:
    array = tensor.numpy()
    halves = (DataType.FP16, DataType.BF16)
    return half_to_float32(array, tensor.datatype) if tensor.datatype in halves else array


def _are_ties(differs: Array, floats: Sequence[Tensor], limits: Limits) -> bool:
    """Tell whether some output has close scores wherever `differs` is true."""
    lead = differs.shape[:-1] if differs.shape[-1:] == (1,) else differs.shape
    for tensor in floats:
        if len(tensor.shape) < 2 or tensor.shape[:-1] not in (lead, differs.shape):
            continue
        # Only the rows where the choice differs: the others may be as close as they like.
        scores = _floats(tensor).reshape(differs.size, tensor.shape[-1])[differs.ravel()]
        if scores.shape[1] < 2 or np.isnan(scores).any():
            continue
        second, first = np.sort(scores, axis=1)[:, -2:].T
        relative, absolute = limits[tensor.datatype]
        with np.errstate(all="ignore"):
            # Twice the limits: both scores may be off, in opposite directions.
            if np.isclose(second, first, rtol=2 * relative, atol=2 * absolute).all():
                return True
    return False
