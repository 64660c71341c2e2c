"""What a Scope tells of the values of a graph, compared with what the onnx package writes."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferd.backends.onnx.doors.scope import BOOL, FLOAT, UINT8, Scope
from inferd.formats.onnx_graph import INT32, INT64, read_model


def read(graph):
    return read_model(helper.make_model(graph).SerializeToString()).graph


def scope_of(graph):
    known = read(graph)
    scope = Scope()
    scope.read(known, is_main=True)
    for node in known.nodes:
        scope.follow(node)
    return scope


def graph_of(*nodes, inputs=(), outputs=(), constants=()):
    return helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants],
    )


BODY = graph_of(helper.make_node("Shape", ["x"], ["s"]), outputs=[("s", TensorProto.INT64)])


@pytest.mark.parametrize(
    ("node", "elements"),
    [
        (helper.make_node("Relu", ["x"], ["y"]), [FLOAT]),
        (helper.make_node("Shape", ["x"], ["y"]), [INT64]),
        (helper.make_node("Cast", ["x"], ["y"], to=INT32), [INT32]),
        (helper.make_node("Less", ["x", "x"], ["y"]), [BOOL]),
        (helper.make_node("TopK", ["x", "i"], ["y", "z"]), [FLOAT, INT64]),
        (helper.make_node("Where", ["b", "i", "i"], ["y"]), [INT32]),
        (helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "z"]), [UINT8, FLOAT]),
        (helper.make_node("ConstantOfShape", ["i"], ["y"]), [FLOAT]),
        (helper.make_node("Constant", [], ["y"], value_int=3), [INT64]),
        (helper.make_node("If", ["b"], ["y"], then_branch=BODY, else_branch=BODY), [INT64]),
        (helper.make_node("SequenceAt", ["q", "i"], ["y"]), [0]),
        (helper.make_node("Relu", ["x"], ["y"], domain="own"), [0]),
    ],
)
def test_element_types_follow_the_operators(node, elements):
    inputs = [("x", TensorProto.FLOAT), ("i", TensorProto.INT32), ("b", TensorProto.BOOL)]
    scope = scope_of(graph_of(node, inputs=inputs))
    assert [scope.element(name) for name in node.output] == elements


def test_constants_are_those_that_no_request_gives():
    array = np.array([[1, -1]], np.int64)
    constants = [("c", array), ("d", array), ("f", np.ones(2, np.float32))]
    node = helper.make_node("Constant", [], ["e"], value=numpy_helper.from_array(array))
    scope = scope_of(
        graph_of(node, inputs=[("d", TensorProto.INT64), ("x", INT64)], constants=constants)
    )
    for name in ("c", "e"):
        assert scope.constant(name).tolist() == [[1, -1]]
        assert scope.dims(name) == (1, 2)
    assert scope.constant("d") is None  # a request may override it
    assert scope.constant("f") is None and scope.dims("f") == (2,)
    assert scope.open_inputs == {"x"}


def test_numbers_may_be_in_any_field_of_a_tensor():
    packed = helper.make_tensor("c", TensorProto.INT32, [2], [7, -7])
    graph = graph_of()
    graph.initializer.append(packed)
    assert scope_of(graph).constant("c").tolist() == [7, -7]
    graph.initializer[0].data_location = TensorProto.EXTERNAL
    assert scope_of(graph).constant("c") is None


def test_counts_stay_counts_when_they_are_picked():
    scope = scope_of(
        graph_of(
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "i"], ["g"]),
            helper.make_node("Neg", ["g"], ["n"]),
            inputs=[("x", TensorProto.FLOAT), ("i", TensorProto.INT64)],
        )
    )
    assert [scope.is_count(name) for name in "xsgn"] == [False, True, True, False]


def test_a_subgraph_sees_the_values_around_it_unless_it_has_its_own():
    around = scope_of(
        graph_of(constants=[("c", np.array([1])), ("d", np.array([2]))], inputs=[("x", FLOAT)])
    )
    inner = Scope(around)
    own = graph_of(inputs=[("d", TensorProto.INT32)])
    inner.read(read(own))
    assert inner.constant("c").tolist() == [1] and inner.element("x") == FLOAT
    assert inner.constant("d") is None and inner.element("d") == INT32
    assert inner.open_inputs == frozenset()
