"""An instance with checks: what it refuses itself, and what the one behind it answers."""

import numpy as np
from onnx import TensorProto, helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.backends.onnx.guarded import GuardedInstance
from inferd.config.model import ModelConfig
from inferd.core.interfaces import Placement
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


def quotients(make_model):
    values = [(name, TensorProto.INT64, ["n", 2]) for name in "abc"]
    files = make_model(values[:2], values[2:], [helper.make_node("Div", ["a", "b"], ["c"])])
    backend = OnnxBackend()
    return backend.open(files, backend.complete(files, ModelConfig("m")), Placement("m_0"))


def request(a, b):
    arrays = {"a": np.array([a], np.int64), "b": np.array([b], np.int64)}
    return InferRequest(
        "m", inputs=[Tensor(n, DataType.INT64, one.shape, one) for n, one in arrays.items()]
    )


def test_each_request_of_an_execution_gets_its_own_answer(make_model):
    instance = quotients(make_model)
    assert isinstance(instance, GuardedInstance) and instance.traits.is_bounded
    low = -(2**63)
    requests = [
        request([6, 8], [2, 4]),
        request([1, low], [1, -1]),
        request([low, 9], [1, -3]),
        request([1, 1], [1, 0]),
    ]
    one, two, three, four = instance.execute(requests)
    assert one.outputs[0].numpy().tolist() == [[3, 2]]
    assert three.outputs[0].numpy().tolist() == [[low, -3]]
    assert isinstance(two, InvalidRequest) and "input 'a' at [0, 1] is -9223" in two.message
    assert isinstance(four, InvalidRequest) and "input 'b' at [0, 1] is 0" in four.message
    assert all(isinstance(one, InvalidRequest) for one in instance.execute(requests[1:2]))
    instance.close()


def test_requests_that_are_alike_are_checked_each(make_model):
    """Bound memory serves requests of one likeness; their values differ all the same."""
    instance = quotients(make_model)
    for _ in range(8):
        good = request([6, 8], [2, 4])
        good.batch_key = "alike"
        [answer] = instance.execute([good])
        assert isinstance(answer, InferResponse)
    bad = request([1, -(2**63)], [1, -1])
    bad.batch_key = "alike"
    [answer] = instance.execute([bad])
    assert isinstance(answer, InvalidRequest)
