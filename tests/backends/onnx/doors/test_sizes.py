"""Sizes that come from the values of a request, as inputs and computed, against ONNX Runtime."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.backends.onnx.doors.guard import guarded
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InvalidRequest
from inferd.tensor.dtype import datatype_of
from inferd.tensor.tensor import Tensor

MOST = 1000
CONFIG = ModelConfig("m", is_unbatched=True, parameters={"inferd_most_elements": str(MOST)})
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


def ints(*values):
    return np.array(values, np.int64)


def reals(*values):
    return np.array(values, np.float32)


IMAGE = np.ones((1, 1, 4, 5), np.float32)
THETA = np.ones((1, 2, 3), np.float32)
# Operator and attributes, its inputs, the one that tells a size, what is too much, opset.
CASES = {
    "ConstantOfShape": ({}, [ints(2, 3)], 0, ints(2, 501), 17),
    "Expand": ({}, [reals(1), ints(2, 3)], 1, ints(1, 1001), 17),
    "Tile": ({}, [reals(1, 2), ints(3)], 1, ints(501), 17),
    "OneHot": ({}, [ints(0, 1), np.array(3), reals(0, 1)], 1, np.array(501), 17),
    "Range": ({}, [np.array(0), np.array(9), np.array(2)], 1, np.array(2001 + 2), 17),
    "Resize sizes": ({}, [IMAGE, reals(), reals(), ints(1, 1, 8, 9)], 3, ints(1, 1, 40, 26), 17),
    "Resize scales": ({}, [IMAGE, reals(), reals(1, 1, 2, 2)], 2, reals(1, 1, 9, 9), 17),
    "Resize of opset 10": ({}, [IMAGE, reals(1, 1, 2, 2)], 1, reals(1, 1, 9, 9), 10),
    "Upsample": ({}, [IMAGE, reals(1, 1, 2, 2)], 1, reals(1, 1, 9, 9), 9),
    "Pad": ({}, [reals(1, 2), ints(3, 4)], 1, ints(500, 499), 17),
    "Pad axes": ({}, [IMAGE, ints(3, 4), reals(), ints(-1)], 1, ints(0, 1000), 18),
    "CenterCropPad": ({}, [np.ones((2, 3), np.float32), ints(3, 4)], 1, ints(40, 26), 18),
    "AffineGrid": ({}, [THETA, ints(1, 1, 3, 4)], 1, ints(1, 1, 50, 50), 20),
    "Col2Im": ({}, [np.ones((1, 4, 4), np.float32), ints(3, 3), ints(2, 2)], 1, ints(400, 3), 18),
    "HannWindow": ({}, [np.array(5)], 0, np.array(1001), 17),
}  # fmt: skip


def model(case, *, computed=False, data_computed=False, known=True):
    """Return a model of one operator; inputs beside the size are constants unless computed."""
    attributes, inputs, place, _, opset = CASES[case]
    names = [
        f"i{index}" if len(np.shape(one)) == 0 or len(one) else ""
        for index, one in enumerate(inputs)
    ]
    nodes, given, constants = [], [], []
    for index, (name, one) in enumerate(zip(names, inputs, strict=True)):
        if not name:
            continue
        if index != place and not (data_computed and index == 0):
            constants.append(numpy_helper.from_array(one, name))
            continue
        given.append(helper.make_tensor_value_info(name, TYPES[one.dtype.name], one.shape))
        if computed:
            nodes.append(helper.make_node("Identity", [name], [f"{name}_"]))
            names[index] = f"{name}_"
    nodes.append(helper.make_node(case.split()[0], names, ["y"], **attributes))
    graph = helper.make_graph(
        nodes, "g", given, [helper.make_empty_tensor_value_info("y")], constants
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if known:
        made = onnx.shape_inference.infer_shapes(made)
    return made


def opened(folder, made, config=CONFIG):
    file = folder / "1" / "model.onnx"
    file.parent.mkdir()
    onnx.save(made, file)
    files = ModelFiles(folder, 1, file.parent, file)
    backend = OnnxBackend()
    return backend.open(files, backend.complete(files, config), Placement("m_0"))


def answer(instance, names, case, size):
    _, inputs, place, _, _ = CASES[case]
    wanted = {f"i{place}": size, "i0": inputs[0] if place else size}
    tensors = [
        Tensor.from_numpy(name, array, datatype_of(array.dtype))
        for name, array in wanted.items()
        if name in names
    ]
    [given] = instance.execute([InferRequest("m", inputs=tensors)])
    return given


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["given", "computed", "data computed"])
def test_no_request_asks_for_more_elements_than_a_model_may_make(tmp_path, case, kind):
    made = model(case, computed=kind != "given", data_computed=kind == "data computed")
    instance, names = opened(tmp_path, made), {one.name for one in made.graph.input}
    assert not instance.traits.is_bounded
    _, inputs, place, too_many, _ = CASES[case]
    refused = answer(instance, names, case, too_many)
    assert isinstance(refused, (BackendFailed, InvalidRequest)), refused
    words = "may make at most 1000 elements|makes too many elements"
    assert re.search(words, refused.message), refused.message
    good = answer(instance, names, case, inputs[place])
    assert not isinstance(good, Exception), good


@pytest.mark.parametrize("case", ["ConstantOfShape", "Expand", "Tile"])
def test_sizes_that_come_from_dims_are_not_limited(tmp_path, case):
    made = model(case, computed=True)
    made.graph.node[0].CopyFrom(helper.make_node("Shape", ["x"], [made.graph.node[0].output[0]]))
    rank = len(CASES[case][1][CASES[case][2]])
    del made.graph.input[:]
    made.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * rank))
    file = tmp_path / "model.onnx"
    onnx.save(made, file)
    found = guarded(file, MOST)
    assert found.is_bounded and found.content is None and found.checks == ()


@pytest.mark.parametrize(("source", "is_bounded"), [("n", False), ("x", True), (None, True)])
def test_a_loop_is_bounded_if_its_count_comes_from_dims(tmp_path, source, is_bounded):
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Neg", ["v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, None),
        ],
    )
    count = {"n": "n", "x": "size", None: "three"}[source]
    nodes = [
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Loop", [count, "yes", "x"], ["y"], body=body),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [None]),
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
        [
            numpy_helper.from_array(np.array(3), "three"),
            numpy_helper.from_array(np.array(True), "yes"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert opened(tmp_path, made).traits.is_bounded is is_bounded
