"""What an ONNX file holds, compared with what the onnx package writes."""

import numpy as np
import pytest
from onnx import AttributeProto, SparseTensorProto, TensorProto, helper, numpy_helper

from inferd.formats.onnx_graph import (
    INT64,
    MAX_DEPTH,
    OnnxGraph,
    Reference,
    has_external_data,
    read_model,
)
from inferd.formats.protobuf import Malformed, bytes_field, packed_field, text_field, varint_field


def graph_of(*nodes, inputs=(), constants=()):
    return helper.make_graph(nodes, "g", list(inputs), [], list(constants))


def read(*nodes, opsets=(("", 21),), functions=(), **parts):
    imports = [helper.make_opsetid(*one) for one in opsets]
    graph = graph_of(*nodes, **parts)
    model = helper.make_model(graph, opset_imports=imports, functions=functions)
    return read_model(model.SerializeToString())


def test_a_node_tells_its_attributes():
    made = helper.make_node(
        "Conv", ["x", "", "b"], ["y"], "n", domain="ai.onnx", strides=[2, -1], group=3, pad="SAME"
    )
    [node] = read(made).graph.nodes
    assert (node.op, node.domain, node.inputs, node.name) == ("Conv", "", ["x", "", "b"], "n")
    assert (node.numbers("strides"), node.number("group", 1)) == ([2, -1], 3)
    assert (node.numbers("pads"), node.number("other", 1)) == ([], 1)
    assert (node.number("strides", 5), node.numbers("group")) == (5, [])
    assert (node.text("pad"), node.text("group"), node.text("other")) == ("SAME", "", "")
    assert (node.input(2), node.input(3)) == ("b", "")
    assert bytes(node.data) == made.SerializeToString()


def test_scalars_are_told_from_what_has_no_rank():
    kind = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(*one) for one in (("s", kind, []), ("u", kind, None))]
    inputs.append(helper.make_tensor_value_info("v", kind, ["n"]))
    assert read(inputs=inputs).graph.scalars == {"s"}


def test_integers_written_with_more_bits_than_they_have_lose_those():
    # As C++ reads them; protobuf writes a negative int32 with 64 bits, too.
    numbers = [1 << 40 | 7, -2]
    tensor = [packed_field(1, [2]), varint_field(2, TensorProto.INT32), packed_field(5, numbers)]
    data = b"".join(bytes_field(7, *bytes_field(5, *tensor, text_field(8, "w"))))
    constant = read_model(data).graph.constants["w"]
    assert constant.numbers == (7, -2)
    assert constant.integers().tolist() == [7, -2]


def test_the_type_of_an_attribute_tells_which_field_counts():
    made = helper.make_node("Softmax", ["x"], ["y"], axis=2)
    made.attribute[0].f = 7.0
    assert read(made).graph.nodes[0].attributes == {"axis": 2}
    made.attribute[0].ClearField("i")  # as writers of proto3 leave out a 0
    assert read(made).graph.nodes[0].attributes == {"axis": 0}
    made.attribute[0].ClearField("type")  # as old files have it
    assert read(made).graph.nodes[0].attributes == {"axis": 7.0}


def test_graphs_and_references_are_attributes():
    body = graph_of(helper.make_node("Abs", ["x"], ["y"]))
    [node] = read(helper.make_node("If", ["c"], ["y"], then_branch=body)).graph.nodes
    assert isinstance(node.attributes["then_branch"], OnnxGraph)
    assert [one.op for one in node.attributes["then_branch"].nodes] == ["Abs"]
    inner = helper.make_node("Softmax", ["x"], ["y"])
    inner.attribute.add(name="axis", ref_attr_name="a", type=AttributeProto.INT)
    opset = helper.make_opsetid("", 21)
    own = helper.make_function("own", "F", ["x"], ["y"], [inner], [opset], ["a"])
    model = read(functions=[own])
    [inner] = model.functions["own", "F"].nodes
    assert inner.attributes == {"axis": Reference("a")}
    assert model.size == 1


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("count", [3, 1000])
def test_a_constant_tells_its_integers(dtype, count):
    array = np.arange(-count, count, dtype=dtype).reshape(2, count)
    listed = helper.make_tensor(
        "l", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.reshape(-1).tolist()
    )
    graph = read(constants=[numpy_helper.from_array(array, "r"), listed]).graph
    for name in "rl":
        np.testing.assert_array_equal(graph.constants[name].integers(), array, strict=True)
        assert (graph.constants[name].numbers is None) == (count > 64)


def test_a_constant_of_others_or_elsewhere_has_no_integers():
    odd = helper.make_tensor("o", TensorProto.INT64, [2], [1, 2])
    odd.dims[:] = [-1, -2]
    away = helper.make_tensor("a", TensorProto.INT64, [2], [1, 2])
    away.data_location = TensorProto.EXTERNAL
    other = numpy_helper.from_array(np.float32([1, 2]), "f")
    constants = read(constants=[odd, away, other]).graph.constants
    assert [constants[name].integers() for name in "oaf"] == [None, None, None]
    assert constants["f"].numbers == (1.0, 2.0)


def test_tensors_in_other_files_are_found_wherever_they_are():
    own = numpy_helper.from_array(np.float32([1, 2]), "own")
    elsewhere = TensorProto(name="w", data_location=TensorProto.EXTERNAL)
    constant = helper.make_node("Constant", [], ["y"], value=elsewhere)
    inner = graph_of(constant)
    nested = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=graph_of())
    listed = helper.make_node("X", [], ["y"], tensors=[own, elsewhere])
    sparse = SparseTensorProto(values=elsewhere)
    function = helper.make_function("d", "f", [], ["y"], [constant], [helper.make_opsetid("", 21)])
    opsets = [helper.make_opsetid("", 21)]
    for graph, functions in (
        (graph_of(constants=[own, elsewhere]), []),
        (graph_of(constant), []),
        (graph_of(nested), []),
        (graph_of(listed), []),
        (helper.make_graph([], "g", [], [], sparse_initializer=[sparse]), []),
        (graph_of(), [function]),
    ):
        model = helper.make_model(graph, opset_imports=opsets, functions=functions)
        assert has_external_data(model.SerializeToString())
    model = helper.make_model(graph_of(constants=[own]), opset_imports=opsets)
    assert not has_external_data(model.SerializeToString())
    assert has_external_data(b"no model")


def test_declared_types_of_elements_are_told():
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    graph = read(inputs=[given], constants=[numpy_helper.from_array(np.array([1]), "c")]).graph
    assert graph.elements == {"x": TensorProto.FLOAT, "c": INT64}
    assert (graph.inputs[0].dims, graph.inputs[0].first_dim) == ((-1, 4), "n")


def test_the_opset_is_that_of_the_operators_of_onnx():
    assert read(opsets=[("own", 3), ("ai.onnx", 17)]).opsets == {"own": 3, "": 17}
    model = helper.make_model(graph_of(), opset_imports=[helper.make_opsetid("", 17)])
    model.opset_import[0].ClearField("domain")
    assert read_model(model.SerializeToString()).opsets == {"": 17}


def _nested(depth):
    graph = b""
    for _ in range(depth):
        attribute = [text_field(1, "body"), *bytes_field(6, graph)]
        graph = b"".join(bytes_field(1, *bytes_field(5, *attribute)))
    return b"".join(bytes_field(7, graph))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"".join(bytes_field(7)) * 2, "2 graphs"),
        (b"".join(bytes_field(25, text_field(1, "f"))) * 2, "two functions 'f'"),
        (b"".join(bytes_field(7, *bytes_field(1, b"\x0a\x01\xff"))), "UTF-8"),
        (_nested(MAX_DEPTH), "deeper"),
        (
            b"".join(
                bytes_field(7, *bytes_field(1, *bytes_field(5, text_field(1, "a")) * 2)),
            ),
            "two attributes",
        ),
        (
            b"".join(bytes_field(7, *bytes_field(1, *bytes_field(5, *bytes_field(6) * 2)))),
            "two graphs",
        ),
    ],
)
def test_what_readers_might_take_differently_is_refused(data, words):
    with pytest.raises(Malformed, match=words):
        read_model(data)
    assert read_model(_nested(MAX_DEPTH - 1)).size == MAX_DEPTH - 1
