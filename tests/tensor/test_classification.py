import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from inferd.errors import InvalidRequest
from inferd.tensor.classification import MAX_ELEMENTS, check_classifiable, classified, top_classes
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32, FP64 = DataType.FP32, DataType.FP64
INTEGERS = [one for one in DataType if one.value.startswith(("INT", "UINT"))]
CLASSIFIABLE = [*INTEGERS, FP32, FP64]


def row(values, datatype=FP32):
    return Tensor.from_numpy("OUT", np.array(values, datatype.numpy), datatype)


def texts(tensor, top_k, labels=(), *, batch_dims=0):
    answer = classified(tensor, top_k, labels, batch_dims=batch_dims)
    assert (answer.name, answer.datatype) == ("OUT", DataType.BYTES)
    return answer.shape, [text.decode() for text in answer.strings()]


# --- text ---


def test_a_class_is_value_index_and_label_if_it_has_one():
    labels = [b"ant", b"bee", b"bird"]
    assert texts(row([2, 3, 4, 5]), 2, labels) == ((2,), ["5.000000:3", "4.000000:2:bird"])


def test_an_empty_label_is_none():
    assert texts(row([1, 2]), 2, [b"a", b""]) == ((2,), ["2.000000:1", "1.000000:0:a"])


def test_a_label_is_given_byte_for_byte():
    answer = classified(row([1]), 1, [b"\xff:\x00"], batch_dims=0)
    assert answer.strings() == [b"1.000000:0:\xff:\x00"]


@pytest.mark.parametrize("datatype", INTEGERS)
def test_integers_are_exact(datatype):
    ends = np.iinfo(datatype.numpy)
    given = row([0, ends.max, ends.min, 1], datatype)
    assert texts(given, 2)[1] == [f"{ends.max}:1", "1:3"]
    assert texts(given, 9)[1][-1] == f"{ends.min}:2"


@pytest.mark.parametrize(
    ("datatype", "value", "text"),
    [
        (FP32, 0.1, "0.100000:0"),
        (FP32, 16777217.5, "16777218.000000:0"),
        (FP32, 1e-9, "0.000000:0"),
        (FP64, 1e300, f"{1e300:f}:0"),
        (FP64, 1 / 3, "0.333333:0"),
        (FP64, -0.0, "-0.000000:0"),
        (FP32, float("inf"), "inf:0"),
        (FP32, float("nan"), "nan:0"),
    ],
)
def test_floats_have_six_decimals(datatype, value, text):
    assert texts(row([value], datatype), 1)[1] == [text]


# --- order ---


def test_equal_values_come_by_index():
    assert texts(row([5, 9, 9], DataType.INT32), 2)[1] == ["9:1", "9:2"]
    assert texts(row([9, 5, 9, 9, 9], DataType.UINT64), 3)[1] == ["9:0", "9:2", "9:3"]


def test_nan_comes_last():
    nan, inf = float("nan"), float("inf")
    assert texts(row([nan, -inf, 1, nan]), 4)[1][:2] == ["1.000000:2", "nan:0"]
    assert texts(row([nan, inf, 1]), 2)[1] == ["inf:1", "1.000000:2"]


@pytest.mark.slow
@pytest.mark.parametrize("datatype", CLASSIFIABLE)
@given(data=st.data(), top_k=st.integers(1, 40))
def test_the_greatest_are_those_a_plain_sort_finds(datatype, data, top_k):
    values = data.draw(arrays.arrays(datatype.numpy, st.integers(0, 30)))
    values = values[~np.isnan(values)] if datatype in (FP32, FP64) else values
    [found] = top_classes(row(values, datatype), top_k, batch_dims=0)
    numbered = [(value, index) for index, value in enumerate(values.tolist())]
    assert found == sorted(numbered, key=lambda one: (-one[0], one[1]))[:top_k]


# --- shape ---


def test_each_batch_entry_has_classes_of_its_own():
    given = row([[1, 2, 3], [6, 5, 4]])
    assert texts(given, 2, [b"a"], batch_dims=1) == (
        (2, 2),
        ["3.000000:2", "2.000000:1", "6.000000:0:a", "5.000000:1"],
    )


def test_an_entry_of_several_dims_is_counted_row_by_row():
    given = row(np.arange(12).reshape(1, 3, 2, 2))
    assert texts(given, 1, batch_dims=1) == ((1, 1), ["11.000000:11"])
    assert texts(given, 99, batch_dims=0)[0] == (12,)


def test_no_more_classes_than_elements_are_given():
    assert texts(row([[1, 2]]), 2**63 - 1, batch_dims=1)[0] == (1, 2)
    assert texts(row([]), 5) == ((0,), [])
    assert texts(row([[], []]), 5, batch_dims=1) == ((2, 0), [])


# --- limits ---


@pytest.mark.parametrize("datatype", list(DataType))
def test_some_datatypes_have_no_classes(datatype):
    if datatype in CLASSIFIABLE:
        check_classifiable("Y", datatype)
        return
    with pytest.raises(InvalidRequest) as caught:
        check_classifiable("Y", datatype)
    assert caught.value.message == (
        f"class result not available for output due to unsupported type '{datatype.value}': "
        f"that of output 'Y' must be an integer, FP32 or FP64"
    )


def test_an_entry_has_a_limit():
    most = np.zeros(MAX_ELEMENTS, np.int8)
    assert texts(row(most, DataType.INT8), 1)[0] == (1,)
    with pytest.raises(InvalidRequest, match="output 'OUT' has 1 times 1000001 elements"):
        texts(row(np.zeros(MAX_ELEMENTS + 1), DataType.INT8), 1)


def test_an_answer_has_a_limit():
    given = row(np.zeros((2, MAX_ELEMENTS)), DataType.INT8)
    assert texts(given, 1, batch_dims=1)[0] == (2, 1)
    with pytest.raises(InvalidRequest, match="500001 each are wanted as classes"):
        texts(given, MAX_ELEMENTS // 2 + 1, batch_dims=1)
