import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.tensor.dtype import DataType
from inferd.tensor.halves import (
    bf16_to_float32,
    float32_to_bf16,
    float64_to_half,
    half_text,
    half_to_float32,
)

FP16, BF16 = DataType.FP16, DataType.BF16
HALVES = [FP16, BF16]
EXPONENT = {FP16: 0x7C00, BF16: 0x7F80}
ALL_BITS = np.arange(65536, dtype=np.uint32).astype(np.uint16)


def decoded(bits, datatype):
    """Return the value of one bit pattern, worked out from the definition of the format."""
    exponent_bits, mantissa_bits, bias = (5, 10, 15) if datatype is FP16 else (8, 7, 127)
    sign = -1.0 if bits >> 15 else 1.0
    exponent = (bits >> mantissa_bits) & (2**exponent_bits - 1)
    mantissa = bits & (2**mantissa_bits - 1)
    if exponent == 2**exponent_bits - 1:
        return sign * (float("nan") if mantissa else float("inf"))
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (2**mantissa_bits + mantissa) * 2.0 ** (exponent - bias - mantissa_bits)


VALUES = {half: np.array([decoded(bits, half) for bits in range(65536)]) for half in HALVES}


def finite(datatype):
    """Return the non-negative finite patterns and the first infinity, ascending."""
    return np.arange(EXPONENT[datatype] + 1, dtype=np.uint16)


def rounded(values, datatype):
    return float64_to_half(np.asarray(values, np.float64), datatype).view(np.uint16)


@pytest.mark.parametrize("datatype", HALVES)
def test_all_patterns_have_the_value_their_format_defines(datatype):
    got = half_to_float32(ALL_BITS.view(datatype.numpy), datatype)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, VALUES[datatype].astype(np.float32))
    np.testing.assert_array_equal(np.signbit(got), ALL_BITS >> 15 == 1)


@pytest.mark.parametrize("datatype", HALVES)
def test_all_patterns_come_back_from_their_value(datatype):
    got = rounded(VALUES[datatype], datatype)
    is_nan = np.isnan(VALUES[datatype])
    np.testing.assert_array_equal(got[~is_nan], ALL_BITS[~is_nan])
    assert np.isnan(half_to_float32(got[is_nan].view(datatype.numpy), datatype)).all()


def test_all_bf16_patterns_come_back_from_float32_nans_made_quiet():
    got = float32_to_bf16(bf16_to_float32(ALL_BITS))
    is_nan = np.isnan(VALUES[BF16])
    np.testing.assert_array_equal(got, np.where(is_nan, ALL_BITS | 0x40, ALL_BITS))


@pytest.mark.parametrize("datatype", HALVES)
@pytest.mark.parametrize("sign", [1, -1])
def test_between_any_two_neighbours_the_nearest_wins_and_ties_go_to_even(datatype, sign):
    patterns = finite(datatype)
    values = VALUES[datatype][patterns].copy()
    values[-1] = 2 * values[-2] - values[-3]  # infinity begins where the next power of two would
    lower, upper = patterns[:-1], patterns[1:]
    middle = (values[:-1] + values[1:]) / 2  # exact in float64
    even = np.where(lower % 2 == 0, lower, upper)
    sign_bit = 0x8000 if sign < 0 else 0
    for values_between, expected in (
        (middle, even),
        (np.nextafter(middle, -np.inf), lower),
        (np.nextafter(middle, np.inf), upper),
    ):
        got = rounded(sign * values_between, datatype)
        np.testing.assert_array_equal(got, expected | sign_bit)


def test_between_any_two_bf16_neighbours_float32_values_round_alike():
    patterns = finite(BF16)
    values = VALUES[BF16][patterns].copy()
    values[-1] = 2 * values[-2] - values[-3]
    lower, upper = patterns[:-1], patterns[1:]
    middle = ((values[:-1] + values[1:]) / 2).astype(np.float32)
    even = np.where(lower % 2 == 0, lower, upper)
    np.testing.assert_array_equal(float32_to_bf16(middle), even)
    below = np.nextafter(middle, np.float32(-np.inf))
    np.testing.assert_array_equal(float32_to_bf16(below), lower)
    above = np.nextafter(middle, np.float32(np.inf))
    np.testing.assert_array_equal(float32_to_bf16(above), upper)


@given(st.floats(allow_nan=False), st.sampled_from(HALVES))
def test_no_other_half_is_nearer_than_the_one_chosen(value, datatype):
    [bits] = rounded([value], datatype).tolist()
    magnitude, sign = bits & 0x7FFF, bits & 0x8000
    values = VALUES[datatype]
    if magnitude == EXPONENT[datatype]:
        largest, next_largest = values[magnitude - 1], values[magnitude - 2]
        assert abs(value) >= largest + (largest - next_largest) / 2
        return
    for neighbour in (magnitude - 1, magnitude + 1):
        if neighbour >= 0:
            assert abs(values[bits] - value) <= abs(values[neighbour | sign] - value)


def test_a_nan_whose_payload_is_low_stays_a_nan():
    bits = np.array([0x7F800001, 0xFFFFFFFF, 0xFF800001], np.uint32)
    assert np.isnan(bf16_to_float32(float32_to_bf16(bits.view(np.float32)))).all()


@pytest.mark.parametrize("datatype", HALVES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 2)])
@pytest.mark.parametrize("value", [1.5, float("nan"), 1 + 2**-8, 1e300])
def test_shapes_are_retained_and_nothing_warns(datatype, shape, value):
    with warnings.catch_warnings(action="error"):
        got = float64_to_half(np.full(shape, value), datatype)
        back = half_to_float32(got, datatype)
    assert got.shape == back.shape == shape
    assert got.dtype == datatype.numpy


def test_the_values_given_are_not_changed():
    values = np.array([1 + 2**-8, float("nan")], np.float32)
    before = values.copy()
    float32_to_bf16(values)
    float64_to_half(values.astype(np.float64), BF16)
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("datatype", HALVES)
def test_a_text_reads_back_as_the_same_half(datatype):
    texts = half_text(datatype)
    finite_bits = [bits for bits in range(0, 65536, 331) if np.isfinite(VALUES[datatype][bits])]
    got = rounded([float(texts[bits]) for bits in finite_bits], datatype)
    assert got.tolist() == finite_bits


@pytest.mark.parametrize(
    ("datatype", "value", "text"),
    [
        (FP16, 0.1, "0.1"),
        (BF16, 0.1, "0.1"),
        (FP16, 65504.0, "6.55e+04"),
        (FP16, 2048.0, "2048.0"),
        (FP16, 2**-24, "6e-08"),
        (FP16, -0.0, "-0.0"),
        (BF16, 1.0, "1.0"),
        (BF16, float("inf"), "null"),
        (FP16, float("nan"), "null"),
    ],
)
def test_a_text_is_the_shortest_that_will_do(datatype, value, text):
    [bits] = rounded([value], datatype).tolist()
    assert half_text(datatype)[bits] == text
