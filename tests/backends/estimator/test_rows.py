"""What becomes of the inputs of a request before a library sees them."""

import numpy as np
import pytest

from inferd.backends.estimator.model import Features, LoadedModel
from inferd.backends.estimator.rows import array_of, is_same, rows_of, stacked
from inferd.core.rows import UNKNOWN
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import float32_to_bf16
from inferd.tensor.tensor import Tensor


def tensor(name, values, datatype=DataType.FP32):
    return Tensor.from_numpy(name, np.array(values, datatype.numpy), datatype)


def taken(*inputs, order=(), **features):
    """Return the array, or the columns, that a model gets."""
    model = LoadedModel({}, Features(**features), lambda rows: rows, dict, (), UNKNOWN, None)
    return rows_of(inputs, model, order)


def complaint(*inputs, **told):
    with pytest.raises(InvalidRequest) as caught:
        taken(*inputs, **told)
    return caught.value.message


def test_an_array_is_the_models_own():
    given = tensor("x", [[1, 2]])
    array = array_of(given)
    array[0, 0] = 9
    assert given.numpy().tolist() == [[1, 2]]


def test_halves_and_texts_become_what_python_knows():
    bits = float32_to_bf16(np.array([[1.5, -2]], np.float32))
    assert array_of(Tensor("x", DataType.BF16, (1, 2), bits)).tolist() == [[1.5, -2]]
    assert array_of(tensor("x", [["ä", "b"]], DataType.BYTES)).tolist() == [["ä", "b"]]
    with pytest.raises(InvalidRequest, match="input 'x' has a text that is not UTF-8"):
        array_of(tensor("x", [b"\xff"], DataType.BYTES))


def test_one_value_a_row_is_a_column_or_a_text():
    assert taken(tensor("x", [1, 2])).shape == (2, 1)
    texts = tensor("x", [["a"], ["b"]], DataType.BYTES)
    assert taken(texts).tolist() == ["a", "b"]
    assert taken(texts, width=1).tolist() == [["a"], ["b"]]
    assert taken(texts, width=1, are_texts=True).tolist() == ["a", "b"]


def test_the_width_is_that_of_the_model():
    assert complaint(tensor("x", [[1, 2]]), width=3) == "input 'x' has 2 columns, the model takes 3"
    columns = tensor("a", [1]), tensor("b", [2])
    assert complaint(*columns, width=3) == "the request has 2 columns, the model takes 3"
    assert "at least one row" in complaint(tensor("x", np.zeros((0, 2))))
    assert "at least one row" in complaint(tensor("a", []), tensor("b", []))


def test_columns_come_in_the_models_order():
    columns = tensor("b", [1, 2]), tensor("a", [[3], [4]], DataType.INT64)
    assert list(taken(*columns)) == ["b", "a"]
    assert list(taken(*columns, names=("a", "b"))) == ["a", "b"]
    assert list(taken(*columns, order=["a", "b"])) == ["a", "b"]
    text = complaint(*columns, names=("a", "c"))
    assert text == "the request has the columns 'b', 'a', the model takes 'a', 'c', each once"
    spaced = tensor("pH value", [1]), tensor("b", [2])
    assert list(taken(*spaced, names=("b", "pH_value"))) == ["b", "pH_value"]


def test_names_of_one_spelling_are_told_apart_by_their_spaces():
    alike = tensor("a_b", [1]), tensor("a b", [2])
    columns = taken(*alike, names=("a b", "a_b"))
    assert {name: column.tolist() for name, column in columns.items()} == {"a b": [2], "a_b": [1]}
    for names in (("a b", "c"), ("a_b", "c"), ("a b c", "a_b_c"), ("a b", "a b")):
        assert "each once" in complaint(*alike, names=names)
    neither = tensor("a_b c", [1]), tensor("a b_c", [2])
    assert "each once" in complaint(*neither, names=("a b c", "a_b_c"))


def test_names_that_the_library_counts_tell_the_order():
    columns = tensor("f1", [1]), tensor("f0", [2])
    assert list(taken(*columns, counted="f")) == ["f0", "f1"]
    assert list(taken(*columns, counted="f", order=["f1", "f0"])) == ["f0", "f1"]
    assert list(taken(*columns, counted="x", order=["f1", "f0"])) == ["f1", "f0"]
    assert list(taken(*columns, counted="x")) == ["f1", "f0"]
    assert list(taken(*columns)) == ["f1", "f0"]
    assert list(taken(tensor("1", [1]), tensor("0", [2]), counted="f")) == ["0", "1"]
    assert "the model takes 'a', 'b'" in complaint(*columns, names=("a", "b"), counted="f")


def test_columns_have_equally_many_rows():
    assert "'a' [2], 'b' [1]" in complaint(tensor("a", [1, 2]), tensor("b", [1]))
    assert "expected at" not in complaint(tensor("a", np.zeros((1, 1, 1))), tensor("b", [1]))


def test_an_input_of_several_columns_is_as_many():
    columns = taken(tensor("a", [[1, 2], [3, 4]]), tensor("b", [5, 6]))
    assert {name: column.tolist() for name, column in columns.items()} == {
        "a__0": [1, 3], "a__1": [2, 4], "b": [5, 6],
    }  # fmt: skip


def test_inputs_of_several_columns_keep_the_order_of_the_configuration():
    columns = taken(tensor("b", [[1, 2]]), tensor("a", [3]), order=["a", "b"])
    assert list(columns) == ["a", "b__0", "b__1"]


def test_columns_side_by_side_lose_nothing():
    whole = stacked({"a": np.array([2**53]), "b": np.array([0.5])})
    assert whole.tolist() == [[2.0**53, 0.5]]
    mixed = stacked({"a": np.array([1]), "b": np.array(["x"], object)})
    assert mixed.tolist() == [[1, "x"]]
    with pytest.raises(InvalidRequest, match="column 'a' holds numbers that float64"):
        stacked({"a": np.array([2**53 + 1]), "b": np.array([0.5])})


@pytest.mark.parametrize(
    ("array", "kind", "same"),
    [
        (np.array([1.5]), "f4", True),
        (np.array([0.1]), "f4", False),
        (np.array([np.nan]), "f4", True),
        (np.array([np.nan]), "i8", False),
        (np.array([2**24 + 1]), "f4", False),
        (np.array([-1]), "u1", False),
        (np.array([True]), "i4", True),
    ],
)
def test_what_another_datatype_holds(array, kind, same):
    with np.errstate(all="ignore"):
        assert is_same(array.astype(kind), array) is same
