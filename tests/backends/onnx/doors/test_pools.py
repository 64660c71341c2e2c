"""Images that are too low for a window, which end ONNX Runtime's process with some numbers of
channels. An open door ends the tests."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.backends.onnx.doors.guard import guard
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

CONV = ("Conv", ["@", "w"], {"pads": [1, 1, 1, 1]})
NETS = {  # operators, and the least height that their image may have
    "max pool": ([CONV, ("MaxPool", ["@"], {"kernel_shape": [2, 2]})], 2),
    "average pool": (
        [CONV, ("AveragePool", ["@"], {"kernel_shape": [3, 3], "strides": [2, 2]})],
        2,
    ),
    "alone": ([("AveragePool", ["@"], {"kernel_shape": [4, 4], "auto_pad": "VALID"})], 4),
    "deep": (
        [
            CONV,
            ("Relu", ["@"], {}),
            ("MaxPool", ["@"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
            CONV,
            ("AveragePool", ["@"], {"kernel_shape": [2, 2]}),
        ],
        4,
    ),
    "dilated": ([CONV, ("MaxPool", ["@"], {"kernel_shape": [2, 2], "dilations": [3, 1]})], 4),
    "behind another operator": (
        [
            CONV,
            ("ReduceMax", ["@"], {"axes": [3]}),
            CONV,
            ("MaxPool", ["@"], {"kernel_shape": [2, 1]}),
        ],
        2,
    ),
}


def model(net, height=None):
    nodes, last = [], "x"
    for index, (op, inputs, attributes) in enumerate(NETS[net][0]):
        names = [last if one == "@" else one for one in inputs]
        last = f"t{index}"
        nodes.append(helper.make_node(op, names, [last], **attributes))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 16, height, None])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [None] * 4)],
        [numpy_helper.from_array(np.ones((16, 16, 3, 3), np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answer(folder, made, height):
    file = folder / "1" / "model.onnx"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(made.SerializeToString())
    files = ModelFiles(folder, 1, file.parent, file)
    backend, config = OnnxBackend(), ModelConfig("m", is_unbatched=True)
    instance = backend.open(files, backend.complete(files, config), Placement("m_0"))
    x = np.ones((1, 16, height, 8), np.float32)
    [given] = instance.execute([InferRequest("m", inputs=[Tensor("x", DataType.FP32, x.shape, x)])])
    return given


@pytest.mark.parametrize("net", NETS)
def test_an_image_that_is_too_low_is_refused_and_others_are_not(tmp_path, net):
    least = NETS[net][1]
    refused = answer(tmp_path, model(net), least - 1)
    if net == "behind another operator":
        assert isinstance(refused, BackendFailed)
        assert f"images need a height of {least}" in refused.message
    else:
        assert isinstance(refused, InvalidRequest)
        assert refused.message.endswith(f"takes it with at least {least} in dim 2")
    assert 0 not in answer(tmp_path, model(net), least).outputs[0].shape


@pytest.mark.parametrize("net", [net for net in NETS if net != "behind another operator"])
def test_images_whose_height_is_declared_are_not_checked(net):
    found = guard(memoryview(model(net, height=8).SerializeToString()), "m")
    assert found.checks == () and found.content is None
