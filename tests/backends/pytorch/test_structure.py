import numpy as np
import pytest

from inferd.backends.pytorch.structure import (
    TorchArgument,
    assembled,
    flattened,
    leaves,
    plain_array,
)
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType


def test_tuples_fall_into_their_parts_to_the_last():
    nested = TorchArgument("s", "Optional[Tuple[Tensor, Tuple[Dict[str, int], List[float]]]]", True)
    found = [(leaf.name, leaf.kind, leaf.optional) for leaf in leaves([nested])]
    assert found == [
        ("s.0", "Tensor", True),
        ("s.1.0", "Dict[str, int]", True),
        ("s.1.1", "List[float]", True),
    ]
    assert leaves([TorchArgument("none", "Tuple[()]")]) == [TorchArgument("none", "Tuple[()]")]


def test_a_tuple_is_put_together_from_its_inputs():
    argument = TorchArgument("s", "Tuple[Tensor, Tuple[Tensor, int]]")
    names = {"s.0": "a", "s.1.0": "b", "s.1.1": "n"}
    feed = {name: np.array([place]) for place, name in enumerate("abn")}
    made = assembled(argument, names, feed, lambda name, array: (name, array.tolist()))
    assert made == (("a", [0]), (("b", [1]), 2))
    assert assembled(argument, {}, feed, lambda name, array: array) is None


@pytest.mark.parametrize(
    ("kind", "array", "wanted"),
    [
        ("int", np.array([3]), 3),
        ("float", np.array([[3]], np.int32), 3.0),
        ("number", np.array([2.5], np.float32), 2.5),
        ("bool", np.array([True]), True),
        ("str", np.array(["ä".encode()], object), "ä"),
        ("Optional[int]", np.array(7), 7),
        ("List[int]", np.array([[1], [2]], np.uint8), [1, 2]),
        ("List[float]", np.array([1, 2]), [1.0, 2.0]),
        ("List[bool]", np.array([], np.bool_), []),
        ("List[str]", np.array([b"a", b""], object), ["a", ""]),
    ],
)
def test_numbers_and_texts_come_as_tensors(kind, array, wanted):
    made = assembled(TorchArgument("x", kind), {"x": "x"}, {"x": array}, lambda name, array: None)
    assert (type(made), made) == (type(wanted), wanted)


@pytest.mark.parametrize("size", [0, 2])
def test_one_number_has_one_element(size):
    feed = {"n": np.zeros(size, np.int64)}
    with pytest.raises(InvalidRequest, match=f"'n' has {size} elements, the model takes one int"):
        assembled(TorchArgument("x", "int"), {"x": "n"}, feed, lambda name, array: None)


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (1.5, [("", 1.5)]),
        ((1, (2, [3.0, 4.0]), None), [("", 1), ("", 2), ("", [3.0, 4.0]), ("", None)]),
        (({}, [{"boxes": "b", "scores": "s"}]), [("boxes", "b"), ("scores", "s")]),
        ({"a": (1, 2), "b": []}, [("a", 1), ("a", 2), ("b", [])]),
        ([[1, 2], [3]], [("", [1, 2]), ("", [3])]),
    ],
)
def test_a_nested_result_is_what_it_holds_in_order(result, found):
    assert flattened(result) == found


@pytest.mark.parametrize(
    ("value", "datatype", "wanted"),
    [
        (2.5, DataType.FP32, np.array(2.5, np.float32)),
        (3, DataType.INT32, np.array(3, np.int32)),
        (3, DataType.FP64, np.array(3.0)),
        (300, DataType.INT8, np.array(300, np.int64)),
        (2.5, DataType.INT32, np.array(2.5)),
        (True, DataType.BOOL, np.array(True)),
        (True, DataType.FP32, np.array(True)),
        ([1.0, 2.0], DataType.FP16, np.array([1, 2], np.float16)),
        ([], DataType.INT8, np.array([], np.int8)),
        ([], DataType.BYTES, np.array([], object)),
        ("ä", DataType.BYTES, np.array("ä", object)),
        (["a", "b"], DataType.BYTES, np.array(["a", "b"], object)),
    ],
)
def test_numbers_and_texts_become_arrays(value, datatype, wanted):
    found = plain_array(value, datatype)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("value", [None, object(), [None]])
def test_what_is_neither_is_no_array(value):
    assert plain_array(value, DataType.FP32) is None
