import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from inferd.formats.onnx_model import OnnxNode, OnnxPort, encode_model, onnx_type
from inferd.tensor.dtype import DataType


def parsed(nodes=(), constants=None, inputs=(), outputs=()):
    return onnx.load_from_string(encode_model(nodes, constants or {}, inputs, outputs))


@pytest.mark.parametrize("datatype", [d for d in DataType if d is not DataType.BYTES])
def test_a_constant_of_each_type_comes_back(datatype):
    array = np.array([[0, 1], [1, 0]]).astype(datatype.numpy)
    [tensor] = parsed(constants={"c": array}).graph.initializer
    assert tensor.name == "c"
    assert np.array_equal(numpy_helper.to_array(tensor), array)


def test_texts_come_back():
    [tensor] = parsed(constants={"c": np.array([b"a", b""], object)}).graph.initializer
    assert numpy_helper.to_array(tensor).tolist() == ["a", ""]


def test_big_endian_constants_are_turned():
    [tensor] = parsed(constants={"c": np.array([1, 2], ">i4")}).graph.initializer
    assert numpy_helper.to_array(tensor).tolist() == [1, 2]


def test_attributes_of_each_kind_come_back():
    given = {
        "whole": -3,
        "real": 0.5,
        "word": "ä",
        "wholes": (1, -2),
        "reals": (0.5, 2.0),
        "none": (),
        "tensor": np.array([7], np.int64),
    }
    [node] = parsed([OnnxNode("Op", ("a", ""), ("b",), given, "it")]).graph.node
    assert (node.op_type, node.name, list(node.input), list(node.output)) == (
        *("Op", "it"),
        *(["a", ""], ["b"]),
    )
    found = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    assert numpy_helper.to_array(found.pop("tensor")).tolist() == [7]
    assert found == {
        "whole": -3,
        "real": 0.5,
        "word": "ä".encode(),
        "wholes": [1, -2],
        "reals": [0.5, 2.0],
        "none": [],
    }


def test_ports_have_type_and_shape_or_leave_them_open():
    model = parsed(
        inputs=[OnnxPort("x", DataType.INT32, (-1, 3)), OnnxPort("y", DataType.FP32, None)],
        outputs=[OnnxPort("z", None, None)],
    )
    x, y = (port.type.tensor_type for port in model.graph.input)
    assert x.elem_type == onnx_type(DataType.INT32) == onnx.TensorProto.INT32
    assert [dim.dim_value or dim.dim_param for dim in x.shape.dim] == ["x_0", 3]
    assert not y.HasField("shape")
    assert not model.graph.output[0].HasField("type")


def test_every_datatype_has_onnx_s_number():
    for datatype in DataType:
        name = {"FP16": "FLOAT16", "FP32": "FLOAT", "FP64": "DOUBLE", "BYTES": "STRING"}.get(
            datatype.value, datatype.value.replace("BF16", "BFLOAT16")
        )
        assert onnx_type(datatype) == onnx.TensorProto.DataType.Value(name)
