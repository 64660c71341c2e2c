"""Operators of com.microsoft that end ONNX Runtime's process. An open door ends the tests."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.backends.onnx.doors.guard import guard
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InvalidConfig
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


def model(op, constants=(), inputs=(), rank=2):
    names = ["x", *inputs, *dict(constants)]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain="com.microsoft")],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * rank),
            *(helper.make_tensor_value_info(name, TensorProto.UINT8, None) for name in inputs),
        ],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(one, name) for name, one in dict(constants).items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def answer(folder, made, x):
    file = folder / "1" / "model.onnx"
    file.parent.mkdir()
    file.write_bytes(made.SerializeToString())
    files = ModelFiles(folder, 1, file.parent, file)
    backend, config = OnnxBackend(), ModelConfig("m", is_unbatched=True)
    instance = backend.open(files, backend.complete(files, config), Placement("m_0"))
    [given] = instance.execute([InferRequest("m", inputs=[Tensor("x", DataType.FP32, x.shape, x)])])
    return given


@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 1), (1, 2, 0), (1, 1, 2, 4)])
def test_a_matrix_that_is_not_square_has_no_inverse(tmp_path, shape):
    given = answer(tmp_path, model("Inverse", rank=len(shape)), np.ones(shape, np.float32))
    assert isinstance(given, BackendFailed)
    assert "Inverse 'y': matrices must be square" in given.message


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_a_square_matrix_has_the_inverse_that_it_had(tmp_path, shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    given = answer(tmp_path, model("Inverse", rank=len(shape)), x).outputs[0].numpy()
    np.testing.assert_allclose(given, np.linalg.inv(x), rtol=1e-3, atol=1e-4)


W, SCALE, ZERO = np.ones((4, 3), np.uint8), np.float32(0.5), np.uint8(128)


@pytest.mark.parametrize(
    ("scale", "zero"), [(SCALE, ZERO), (np.full(3, SCALE), np.full(3, ZERO)), (SCALE, None)]
)
def test_weights_that_fit_their_scales_run_as_they_are(tmp_path, scale, zero):
    constants = {"w": W, "s": np.array(scale)}
    if zero is not None:
        constants["z"] = np.array(zero)
    made = model("DynamicQuantizeMatMul", constants)
    assert guard(memoryview(made.SerializeToString()), "m").content is None
    given = answer(tmp_path, made, np.ones((2, 4), np.float32))
    assert given.outputs[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("weights", "scale", "zero"),
    [
        (W, np.full(2, SCALE), np.full(2, ZERO)),
        (W, np.array(SCALE), np.full(3, ZERO)),
        (W[:0], np.array(SCALE), np.array(ZERO)),
        (W[0], np.array(SCALE), np.array(ZERO)),
        (W[0, 0], np.array(SCALE), np.array(ZERO)),
    ],
)
def test_weights_that_do_not_fit_their_scales_are_refused_at_load(weights, scale, zero):
    made = model("DynamicQuantizeMatMul", {"w": np.array(weights), "s": scale, "z": zero})
    with pytest.raises(InvalidConfig, match="that do not fit: w"):
        guard(memoryview(made.SerializeToString()), "m")


def test_integers_with_weights_that_do_not_fit_are_refused_at_load():
    constants = {"w": W, "a": np.array(SCALE), "s": np.full(2, SCALE)}
    made = model("MatMulIntegerToFloat", constants)
    with pytest.raises(InvalidConfig, match=r"that do not fit: w \[4, 3\], s \[2\]"):
        guard(memoryview(made.SerializeToString()), "m")
    constants["s"] = np.full(3, SCALE)
    made = model("MatMulIntegerToFloat", constants)
    assert guard(memoryview(made.SerializeToString()), "m").content is None


def test_weights_that_requests_give_are_told_of(caplog):
    made = model("DynamicQuantizeMatMul", {"s": np.array(SCALE)}, ["w"])
    guard(memoryview(made.SerializeToString()), "m")
    assert "scales or zero points that are no constants" in caplog.text
    assert 'inferd_process should be "worker"' in caplog.text
