"""A loop that a request can make last for ever, and what stops it."""

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.backends.onnx.guarded import USUAL_LIMIT_S, TimedInstance, limit_s
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InferdError, InvalidConfig
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


def looping():
    """Return a model that doubles `x` as often as `n` says."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body)],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
            helper.make_tensor_value_info("n", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.array(True), "yes")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def opened(folder, **parameters):
    file = folder / "1" / "model.onnx"
    file.parent.mkdir()
    onnx.save(looping(), file)
    files = ModelFiles(folder, 1, file.parent, file)
    backend, config = OnnxBackend(), ModelConfig("m", is_unbatched=True, parameters=parameters)
    return backend.open(files, backend.complete(files, config), Placement("m_0"))


def request(rounds):
    inputs = [
        Tensor("x", DataType.FP32, (1,), np.ones(1, np.float32)),
        Tensor("n", DataType.INT64, (1,), np.array([rounds])),
    ]
    return InferRequest("m", inputs=inputs)


def test_a_loop_that_does_not_end_is_stopped_and_others_go_on(tmp_path):
    instance = opened(tmp_path, inferd_execution_timeout_seconds="0.5")
    assert isinstance(instance, TimedInstance)
    for _ in range(2):
        fine, stopped = instance.execute([request(3), request(2**62)])
        assert fine.outputs[0].numpy() == 8
        assert isinstance(stopped, BackendFailed)
        assert stopped.message == "model 'm': an execution took longer than 0.5 s"
        [again] = instance.execute([request(4)])
        assert again.outputs[0].numpy() == 16


def test_a_request_that_is_wrong_keeps_its_error(tmp_path):
    instance = opened(tmp_path)
    wrong = request(1)
    wrong.inputs[0].shape, wrong.inputs[0].data = (2,), np.ones(2, np.float32)
    [answer] = instance.execute([wrong])
    assert isinstance(answer, InferdError) and "longer than" not in answer.message


def test_no_timer_is_left_behind(tmp_path):
    instance = opened(tmp_path)
    for _ in range(20):
        instance.execute([request(1)])
    timers = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    for timer in timers:  # each waits for 300 seconds, unless it has been cancelled
        timer.join(30)
    assert not any(timer.is_alive() for timer in timers)


@pytest.mark.parametrize(("text", "seconds"), [("", USUAL_LIMIT_S), ("0", 0), ("2.5", 2.5)])
def test_the_limit_is_the_models(text, seconds):
    parameters = {"inferd_execution_timeout_seconds": text}
    assert limit_s(ModelConfig("m", parameters=parameters)) == seconds


def test_a_limit_is_a_number():
    with pytest.raises(InvalidConfig, match="inferd_execution_timeout_seconds"):
        limit_s(ModelConfig("m", parameters={"inferd_execution_timeout_seconds": "soon"}))


def test_without_a_limit_nothing_watches(tmp_path):
    instance = opened(tmp_path, inferd_execution_timeout_seconds="0")
    assert not isinstance(instance, TimedInstance) and not instance.traits.is_bounded
