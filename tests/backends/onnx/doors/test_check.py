"""Checks of inputs, on arrays alone."""

import numpy as np
import pytest

from inferd.backends.onnx.doors.check import (
    dims_check,
    division_check,
    joined_check,
    nonzero_check,
    range_check,
    size_check,
)

LOWEST = np.iinfo(np.int32).min


def division(a, b, constants=None):
    return division_check("a", "b", "Div 'y'", constants or {}).complaint(
        {
            name: np.array(value, np.int32)
            for name, value in (("a", a), ("b", b))
            if value is not None
        }
    )


@pytest.mark.parametrize(
    ("check", "shape", "words"),
    [
        (dims_check("x", "GRU 'y'"), (2, 0, 3), "GRU 'y' takes no dim 1 of 0"),
        (dims_check("x", "GRU 'y'"), (2, 1, 3), ""),
        (dims_check("x", "LSTM 'y'", free=(0, 2)), (0, 1, 0), ""),
        (dims_check("x", "Unique 'y'", free=(-1,)), (2, 0), ""),
        (dims_check("x", "Unique 'y'", free=(-1,)), (0, 2), "takes no dim 0 of 0"),
        (dims_check("x", "Unique 'y'", free=(5,)), (0, 2), "takes no dim 0 of 0"),
        (dims_check("x", "DFT 'y'", 2, any_size=True), (0, 0), ""),
        (
            dims_check("x", "DFT 'y'", 2, any_size=True),
            (4,),
            "has shape [4]; DFT 'y' takes at least",
        ),
    ],
)
def test_dims(check, shape, words):
    complaint = check.complaint({"x": np.zeros(shape, np.float32)})
    assert words in complaint and bool(words) is bool(complaint)


def test_a_divisor_that_is_zero_is_named_with_its_place():
    check = nonzero_check("n", "STFT 'y'")
    assert check.complaint({"n": np.array([[4, 0]])}).startswith("input 'n' is 0 at [0, 1]; STFT")
    assert check.complaint({"n": np.array(0)}) == "input 'n' is 0; STFT 'y' divides by it"
    assert check.complaint({"n": np.array(4)}) == ""


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ([LOWEST, 1], [2, -1], ""),
        ([LOWEST + 1], [-1], ""),
        (
            [[1, 2], [3, LOWEST]],
            [[-1]],
            f"input 'a' at [1, 1] is {LOWEST}; Div 'y' divides it by -1",
        ),
        ([1, 2], [[1, 2], [3, 0]], "input 'b' at [1, 1] is 0; Div 'y' divides by it"),
        ([], [0], ""),
        ([LOWEST, 1, 1], [-1, 1], ""),  # these two have no common shape
    ],
)
def test_quotients_exist_and_fit(a, b, words):
    complaint = division(a, b)
    assert complaint.startswith(words) and bool(words) is bool(complaint)


@pytest.mark.parametrize(
    ("axis", "x", "z", "is_refused"),
    [
        (1, (2, 3), (2, 4), False),
        (1, (2, 3), (0, 3), True),
        (-1, (2, 3), (0, 3), True),
        (0, (2, 3), (0, 3), False),  # what a cache without steps looks like
        (1, (0, 3), (0, 4), False),
        (0, (2, 3), (4, 0), True),
        (1, (2, 3), (0, 0), False),
        (2, (2, 3), (0, 1), False),  # no such dim: ONNX Runtime says so
        (None, (2, 3), (0, 3), True),
    ],
)
def test_what_is_empty_takes_no_room_beside_the_rest(axis, x, z, is_refused):
    arrays = {"x": np.zeros(x, np.float32), "z": np.zeros(z, np.float32)}
    complaint = joined_check(("x", "z"), "Concat 'y'", axis).complaint(arrays)
    assert ("does not fit the others that Concat 'y' puts it beside" in complaint) is is_refused
    alone = joined_check(("z",), "Concat 'y'", axis, [x]).complaint(arrays)
    assert bool(alone) is is_refused


def test_a_side_that_is_a_constant_is_called_one():
    assert "(of constant 'b' at [0])" in division([LOWEST], None, {"b": np.array([-1], np.int32)})
    assert division_check("a", "b", "", {"b": np.array(-1)}).inputs == ("a",)


@pytest.mark.parametrize(
    ("numbers", "is_fine"),
    [
        ([100, 10], True),
        ([100, 11], False),
        ([2**62, 2**62], False),
        ([2**62, 0], True),
        ([-5], True),
    ],
)
def test_sizes_fit_the_memory(numbers, is_fine):
    check = size_check("n", "Expand 'y'", 1000)
    complaint = check.complaint({"n": np.array(numbers, np.int64)})
    assert (complaint == "") is is_fine
    assert is_fine or f"input 'n' is {numbers}; Expand 'y' may make at most 1000" in complaint


@pytest.mark.parametrize(
    ("start", "limit", "delta", "words"),
    [
        (0, 1000, 1, ""),
        (0, 1001, 1, "'a' is 0, 'b' 1001 and 'c' 1; Range 'y' may make at most 1000 elements"),
        (0, -1001, -1, "may make at most 1000 elements"),
        (0, -1e30, 1, ""),
        (0, 1, 1e-9, "may make at most 1000 elements"),
        (0, 1, 0, "'c' is 0; Range 'y' makes steps of it"),
        (np.nan, 1, 1, ""),
    ],
)
def test_ranges_fit_the_memory(start, limit, delta, words):
    check = range_check(("a", "b", "c"), "Range 'y'", 1000, {"a": np.array(start)})
    assert check.inputs == ("b", "c")
    complaint = check.complaint({"b": np.array(limit), "c": np.array(delta)})
    assert words in complaint and bool(words) is bool(complaint)
