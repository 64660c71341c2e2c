import numpy as np
import onnx
import pytest

from inferd.errors import InvalidConfig
from inferd.formats.onnx_model import OnnxPort
from inferd.tensor.dtype import DataType
from inferd_convert import formulas
from inferd_convert.graph import Graph

X = np.array([[1, -2], [3, -4]], np.float32)


@pytest.fixture
def graph():
    return Graph()


@pytest.fixture
def x(graph):
    return graph.input(OnnxPort("x", DataType.FP32, (-1, 2)))


def test_an_output_has_the_name_it_is_given(graph, x, run):
    model = graph.encode({"y": graph.add("Neg", x)})
    assert np.array_equal(run(model, {"x": X})["y"], -X)


def test_one_value_can_be_two_outputs(graph, x, run):
    y = graph.add("Neg", x)
    outputs = run(graph.encode({"y": y, "z": y}), {"x": X})
    assert np.array_equal(outputs["y"], -X)
    assert np.array_equal(outputs["z"], -X)


def test_an_input_and_a_constant_can_be_outputs(graph, x, run):
    outputs = run(graph.encode({"same": x, "five": graph.whole(5)}), {"x": X})
    assert np.array_equal(outputs["same"], X)
    assert outputs["five"] == 5


def test_an_output_that_is_read_again_keeps_its_name(graph, x, run):
    y = graph.add("Neg", x)
    outputs = run(graph.encode({"y": y, "z": graph.add("Abs", y)}), {"x": X})
    assert np.array_equal(outputs["z"], np.abs(X))


def test_what_no_output_needs_is_left_out(graph, x):
    graph.add("Mul", x, graph.real(3.0))
    model = onnx.load_from_string(graph.encode({"y": graph.add("Neg", x)}))
    assert [node.op_type for node in model.graph.node] == ["Neg"]
    assert not model.graph.initializer


def test_equal_small_constants_are_one(graph):
    assert graph.ints(1, 2) is graph.ints(1, 2)
    assert graph.ints(1, 2) is not graph.ints(2, 1)
    assert graph.real(0.0) is not graph.whole(0)


def test_an_input_left_out_in_the_middle_is_empty(graph, x, run):
    high = graph.add("Clip", x, None, graph.real(0.0))
    assert run(graph.encode({"y": high}), {"x": X})["y"].max() == 0


def test_shape_reshape_and_flatten_go_together(graph, run):
    x = graph.input(OnnxPort("x", DataType.FP32, None))
    flat = graph.flatten(x, 1)
    back = graph.reshape(flat, graph.join(graph.shape(x, 0, 1), graph.shape(x, 1)))
    given = np.zeros((2, 0, 3), np.float32)
    outputs = run(graph.encode({"flat": flat, "back": back}), {"x": given})
    assert outputs["flat"].shape == (2, 0)
    assert outputs["back"].shape == (2, 0, 3)


def test_constants_stay_constants_when_turned(graph):
    matrix = graph.constant(np.arange(6).reshape(2, 3))
    assert graph.transpose(matrix, (1, 0)).array.shape == (3, 2)
    assert graph.unsqueeze(matrix, (0, 3)).array.shape == (1, 2, 3, 1)
    with pytest.raises(InvalidConfig, match="a constant has no such dims: axis 9"):
        graph.unsqueeze(matrix, (9,))
    with pytest.raises(InvalidConfig, match="a constant has no such dims"):
        graph.unsqueeze(matrix, (2**62,))


def test_numbers_that_no_shape_has_are_refused(graph):
    graph.place = "'model', operator 7"
    with pytest.raises(InvalidConfig, match=r"^'model', operator 7: .* of more than 64 bits"):
        graph.ints(1, 2**63)


def test_values_are_added_and_multiplied_as_numbers_are(graph, x, run):
    y = (1.0 - (x * 2.0 - x / graph.real(4.0))) + x
    assert y.rank == 2
    assert np.array_equal(run(graph.encode({"y": y}), {"x": X})["y"], 1 - X * 2 + X / 4 + X)


def test_a_number_has_the_type_of_the_value_beside_it(graph, run):
    x = graph.input(OnnxPort("x", DataType.INT64, (-1,)))
    unknown = graph.shape(x)
    outputs = run(graph.encode({"y": x + 5, "z": unknown * 2}), {"x": np.array([2**40, 1])})
    assert outputs["y"].tolist() == [2**40 + 5, 6]
    assert outputs["z"].tolist() == [4]


def test_operands_give_the_rank_that_they_have_together(graph, x):
    unknown = graph.input(OnnxPort("u", DataType.FP32, None))
    assert (graph.real(1.0) * x).rank == 2
    assert (x * unknown).rank == 2
    assert (unknown * x).rank is None
    assert (1.0 - unknown).rank is None


def test_parts_and_places_of_an_axis(graph, x, run):
    outputs = {"last": graph.slice(x, 1, -1), "places": formulas.places(graph, x, 0)}
    outputs["full"] = formulas.full(graph, graph.shape(x), np.float32(7), 2)
    found = run(graph.encode(outputs), {"x": X})
    assert found["last"].tolist() == [[-2], [-4]]
    assert found["places"].tolist() == [0, 1]
    assert found["full"].tolist() == [[7, 7], [7, 7]]


def test_a_reduction_has_the_rank_that_its_axes_leave(graph, x, run):
    outputs = {
        "rows": graph.reduce("ReduceSum", x, [1]),
        "kept": graph.reduce("ReduceMax", x, [0], keep=True),
        "all": graph.reduce("ReduceMin", x),
    }
    assert [value.rank for value in outputs.values()] == [1, 2, 0]
    found = run(graph.encode(outputs), {"x": X})
    assert [found[name].tolist() for name in outputs] == [[-1, -1], [[3, -2]], -4]


def test_elements_are_numbered_and_vectors_laid_along_an_axis(graph, run):
    known = graph.input(OnnxPort("x", DataType.FP32, (-1, 2, -1)))
    unknown = graph.input(OnnxPort("u", DataType.FP32, None))
    vector = graph.constant(np.float32([10, 20]))
    outputs = {"n": formulas.numbered(graph, known)}
    outputs |= {"k": known + formulas.along(graph, vector, known, 1)}
    outputs |= {"v": unknown + formulas.along(graph, vector, unknown, 1)}
    given = np.zeros((1, 2, 3), np.float32)
    found = run(graph.encode(outputs), {"x": given, "u": given})
    assert found["n"].tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert found["k"].tolist() == found["v"].tolist() == [[[10] * 3, [20] * 3]]
