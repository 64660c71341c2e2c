"""FP16 and BF16: conversions that JSON needs, and numpy does not have for BF16."""

from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np

from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType


def bf16_to_float32(bits: Array) -> Array:
    """Return float32 values of BF16 bit patterns (uint16); exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def float32_to_bf16(values: Array) -> Array:
    """Return BF16 bit patterns (uint16) of float32 values, rounded to nearest, ties to even.

    NaN stays NaN: rounding could carry its payload into the exponent, so it is made quiet.
    """
    # Masks below assign to elements, which a scalar does not have.
    single = np.atleast_1d(values.astype(np.float32, copy=False))
    bits = single.view(np.uint32)
    # Half of what is cut off, less one, plus the lowest bit that stays: a tie rounds to even.
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(single)
    if nan.any():
        rounded[nan] = (bits[nan] >> 16).astype(np.uint16) | 0x40
    return rounded.reshape(values.shape)


def float64_to_half(values: Array, datatype: DataType) -> Array:
    """Return `values` (float64) in the layout of FP16 or BF16, rounded once to nearest even.

    Going through float32 would round twice for BF16, so ties are broken from the float64 value.
    """
    with np.errstate(over="ignore"):
        if datatype is DataType.FP16:
            return values.astype(np.float16)
        single = np.atleast_1d(values.astype(np.float32))
    # A float32 that is exactly on a BF16 tie, but got there by rounding, hides which side the
    # value was on: move it one float32 step back towards the value.
    on_tie = (single.view(np.uint32) & 0xFFFF) == 0x8000
    if on_tie.any():
        wide = single.astype(np.float64)
        above, below = on_tie & (wide < values), on_tie & (wide > values)
        single[above] = np.nextafter(single[above], np.float32(np.inf))
        single[below] = np.nextafter(single[below], np.float32(-np.inf))
    return float32_to_bf16(single).reshape(values.shape)


def half_to_float32(bits_or_halves: Array, datatype: DataType) -> Array:
    """Return float32 values of FP16 (float16 array) or BF16 (uint16 bit patterns); exact."""
    if datatype is DataType.FP16:
        return bits_or_halves.astype(np.float32)
    return bf16_to_float32(bits_or_halves)


# There are only 65,536 halves: after a while each text is one look-up.
class _Texts(dict[int, str]):
    """Bit pattern -> the shortest decimal text that gives the same half, each computed once."""

    def __init__(self, datatype: DataType) -> None:
        super().__init__()
        self._datatype = datatype

    def __missing__(self, bits: int) -> str:
        value = float(_value_of(bits, self._datatype))
        text = _shortest(value, bits, self._datatype) if np.isfinite(value) else "null"
        self[bits] = text
        return text


def _value_of(bits: int, datatype: DataType) -> Any:
    pattern = np.array([bits], np.uint16)
    return half_to_float32(pattern.view(datatype.numpy), datatype)[0]


def _shortest(value: float, bits: int, datatype: DataType) -> str:
    texts = (f"{value:.{digits}g}" for digits in count(1))
    text = next(one for one in texts if _bits_of(float(one), datatype) == bits)
    # A JSON reader that tells integers from floats must see a float.
    return text if "." in text or "e" in text else text + ".0"


def _bits_of(value: float, datatype: DataType) -> int:
    return int(float64_to_half(np.array([value]), datatype).view(np.uint16)[0])


_TEXTS = {datatype: _Texts(datatype) for datatype in (DataType.FP16, DataType.BF16)}


def half_text(datatype: DataType) -> Mapping[int, str]:
    """Return the JSON texts of `datatype` (FP16 or BF16) by bit pattern.

    Each is the shortest decimal that rounds back to the same half; NaN and infinities are "null".
    """
    return _TEXTS[datatype]
