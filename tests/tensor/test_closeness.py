"""Whether two answers are the same but for rounding."""

import numpy as np
import pytest

from inferd.tensor.closeness import LIMITS, difference
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import float64_to_half
from inferd.tensor.tensor import Tensor

FLOATS = list(LIMITS)


def tensor(values, datatype=DataType.FP32, name="y"):
    array = np.array(values, object if datatype is DataType.BYTES else None)
    if datatype in (DataType.FP16, DataType.BF16):
        array = float64_to_half(np.array(values, np.float64), datatype)
    elif datatype is not DataType.BYTES:
        array = array.astype(datatype.numpy)
    return Tensor.from_numpy(name, array, datatype)


@pytest.mark.parametrize("datatype", FLOATS)
@pytest.mark.parametrize("value", [1.0, -1000.0, 0.0])
def test_floats_may_differ_by_what_rounding_makes_of_them_and_no_more(datatype, value):
    relative, absolute = LIMITS[datatype]
    allowed = relative * abs(value) + absolute
    expected = [tensor([[value, 2.0]], datatype)]
    assert difference(expected, [tensor([[value + 0.4 * allowed, 2.0]], datatype)]) == ""
    told = difference(expected, [tensor([[value + 2.5 * allowed, 2.0]], datatype)])
    assert told == "output 'y' differs in 1 elements, as at [0, 0]"


def test_what_is_no_number_equals_itself():
    odd = [np.nan, np.inf, -np.inf, 1.0]
    assert difference([tensor(odd)], [tensor(odd)]) == ""
    other_nan = np.array(odd, np.float32)
    other_nan.view(np.uint32)[0] ^= 1  # another pattern of bits
    assert difference([tensor(odd)], [Tensor("y", DataType.FP32, (4,), other_nan)]) == ""
    for wrong in ([0.0, *odd[1:]], [np.nan, -np.inf, -np.inf, 1.0], [np.nan, np.inf, -9e9, 1.0]):
        assert "differs in 1 elements" in difference([tensor(odd)], [tensor(wrong)])


@pytest.mark.parametrize(
    ("datatype", "one", "other"),
    [
        (DataType.INT64, [2**60], [2**60 + 1]),
        (DataType.UINT8, [7], [8]),
        (DataType.BOOL, [True], [False]),
        (DataType.BYTES, [b"cat"], [b"car"]),
    ],
)
def test_everything_else_must_be_equal(datatype, one, other):
    assert difference([tensor(one, datatype)], [tensor(one, datatype)]) == ""
    assert "differs in 1" in difference([tensor(one, datatype)], [tensor(other, datatype)])


CLASSES = [
    (DataType.INT64, [0, 1], [0, 2]),
    (DataType.INT64, [[0], [1]], [[0], [2]]),
    (DataType.BYTES, [b"cat", b"dog"], [b"cat", b"cow"]),
    (DataType.BOOL, [True, True], [True, False]),
]


@pytest.mark.parametrize(("datatype", "one", "other"), CLASSES)
def test_a_class_may_differ_where_its_scores_are_too_close_to_call(datatype, one, other):
    def answer(classes, scores):
        return [tensor(classes, datatype, "class"), tensor(scores, name="scores")]

    close = [[0.9, 0.05, 0.05], [0.2, 0.4, 0.400001]]
    clear = [[0.5, 0.5, 0.0], [0.2, 0.6, 0.2]]  # close only where the classes are the same
    assert difference(answer(one, close), answer(other, close)) == ""
    told = difference(answer(one, clear), answer(other, clear))
    assert told.startswith("output 'class' differs in 1 elements")


@pytest.mark.parametrize(
    "scores", [[0.4, 0.4], [[[0.4, 0.4]]], [[0.4], [0.4]], [[np.nan, 0.4], [np.nan, 0.4]]]
)
def test_floats_that_are_no_scores_of_these_classes_excuse_nothing(scores):
    def answer(classes):
        return [tensor(classes, DataType.INT32, "class"), tensor(scores, name="scores")]

    assert "output 'class' differs" in difference(answer([0, 1]), answer([0, 0]))


def test_scores_that_differ_are_no_excuse():
    def answer(label, scores):
        return [tensor([label], DataType.INT32, "class"), tensor([scores], name="scores")]

    assert "'scores'" in difference(answer(0, [0.5, 0.5]), answer(1, [0.4, 0.6]))


def test_shapes_datatypes_and_names_must_agree():
    expected = [tensor([[1, 2]])]
    assert difference(expected, []) == "output 'y' is missing"
    told = difference(expected, [tensor([[1], [2]])])
    assert told == "output 'y' is FP32 [2, 1], not FP32 [1, 2]"
    assert "is INT32 [1, 2]" in difference(expected, [tensor([[1, 2]], DataType.INT32)])


def test_what_nobody_expected_does_not_matter():
    assert difference([tensor([1])], [tensor([5], name="more"), tensor([1])]) == ""


@pytest.mark.parametrize("datatype", list(DataType))
def test_nothing_equals_nothing(datatype):
    empty = Tensor("y", datatype, (0, 3), b"")
    assert difference([empty], [empty]) == ""
