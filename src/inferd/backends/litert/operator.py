"""Requirements of single operators in a .tflite file that LiteRT or its XNNPACK does not check.

Numbers of operators and of tensor types are those of the TensorFlow Lite schema.
"""

from collections.abc import Sequence
from math import isfinite, prod
from typing import NamedTuple

_FLOAT32, _INT32, _UINT8, _INT64, _INT16, _INT8, _RESOURCE, _VARIANT = 0, 2, 3, 4, 7, 9, 13, 14

HANDLES = (_RESOURCE, _VARIANT)
"""Types whose tensors hold no numbers, so that clients can neither send nor receive them."""

_QUANTIZED = (_UINT8, _INT16, _INT8)

_COUNTS: dict[int, tuple[int, int | None]] = {
    45: (4, 1),  # STRIDED_SLICE
    49: (2, None),  # SPLIT
    65: (3, 1),  # SLICE
    115: (2, 1),  # MATRIX_SET_DIAG
    126: (2, 1),  # BATCH_MATMUL
    143: (1, 1),  # READ_VARIABLE
    144: (2, 0),  # ASSIGN_VARIABLE
    158: (1, 1),  # SIGN
    207: (2, 1),  # STABLEHLO_SHIFT_LEFT
}
"""Operator -> its number of inputs, and of outputs if fixed."""

_PLAIN = (_FLOAT32, _INT32, _UINT8, _INT64, _INT16, _INT8)

_TYPES: dict[int, tuple[int, ...]] = {
    80: (_FLOAT32,),  # FAKE_QUANT
    113: _PLAIN,  # MATRIX_DIAG
    115: _PLAIN,  # MATRIX_SET_DIAG
    143: (_RESOURCE,),
    144: (_RESOURCE,),
}
"""Operator -> the types that its first input may have."""

_STRIDED, _SPLIT, _SET_DIAG, _MATMUL, _SHIFT = 45, 49, 115, 126, 207
_PAIRS = (_SET_DIAG, _MATMUL, _SHIFT)

_SUMS = (0, 41)
_COMPARISONS = (58, 61, 62, 63, 71, 72)
_SCALED = (*_SUMS, *_COMPARISONS, 73, 75, 76)
"""Operators that compute with the scales of quantized tensors: sums, comparisons, roots, logs."""

_FINEST = 2.0**-14
"""The output scale of a sum must be at least its largest input scale, times this."""

_WITH_DIMS = (25, 39, 50)
"""SOFTMAX, TRANSPOSE, LOG_SOFTMAX: these read dims, which a scalar does not have."""


class LitertTensor(NamedTuple):
    """A tensor; if `is_firm`, it is an input or a constant, whose shape is reliable."""

    type: int
    shape: tuple[int, ...]
    scales: tuple[float, ...]
    is_firm: bool


def operator_complaint(
    kind: int, takes: Sequence[LitertTensor | None], gives: Sequence[LitertTensor], parts: int
) -> str:
    """Return what is wrong with an operator, "" for nothing.

    `parts` is the number of parts in the options of a split.
    """
    needed, given = _COUNTS.get(kind, (len(takes), None))
    if len(takes) != needed or given not in (None, len(gives)):
        return f"takes {len(takes)} tensors and gives {len(gives)}"
    first = takes[0] if takes else None
    if kind == _SPLIT and parts != len(gives):
        return f"is to split in {parts} and gives {len(gives)} tensors"
    if kind == _STRIDED and len({one.shape for one in takes[1:] if one and one.is_firm}) > 1:
        return "takes places and strides of different shapes"
    if kind in _PAIRS and not _are_a_pair(kind, *takes):
        return "cannot take these two tensors together"
    if first is not None:
        if first.type not in _TYPES.get(kind, (first.type,)):
            return f"cannot take a tensor of type {first.type}"
        if kind == _SPLIT and first.is_firm and prod(first.shape) != 1:
            return f"takes an axis of shape {list(first.shape)}"
        if kind in _WITH_DIMS and first.is_firm and not first.shape:
            return "takes a tensor without dims"
    return _scale_complaint(kind, [one for one in takes if one is not None], gives)


def _are_a_pair(kind: int, first: LitertTensor | None, second: LitertTensor | None) -> bool:
    """Return whether the types and shapes of an operator's two inputs are compatible."""
    if first is None or second is None:
        return False
    is_mixed = kind == _MATMUL and (first.type, second.type) == (_FLOAT32, _INT8)
    if first.type != second.type and not is_mixed:
        return False
    if kind == _MATMUL:
        return not any(one.is_firm and len(one.shape) < 2 for one in (first, second))
    return kind != _SHIFT or first.shape == second.shape


def _scale_complaint(
    kind: int, takes: Sequence[LitertTensor], gives: Sequence[LitertTensor]
) -> str:
    if kind not in _SCALED or not any(one.type in _QUANTIZED for one in takes):
        return ""
    scales = [one.scales[:1] or (0.0,) for one in (*takes, *gives) if one.type in _QUANTIZED]
    for (scale,) in scales:
        if not scale > 0 or not isfinite(scale) or (kind in _COMPARISONS and scale >= 1):
            return f"cannot count with a scale of {scale}"
    if kind in _SUMS and gives and scales[-1][0] < max(one for (one,) in scales) * _FINEST:
        return f"cannot give a scale of {scales[-1][0]}"
    return ""
