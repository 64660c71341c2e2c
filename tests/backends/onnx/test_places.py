"""Outputs that ONNX Runtime writes where the client wants them."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.config.model import ModelConfig
from inferd.core.interfaces import Placement
from inferd.core.request import InferRequest, Span, WantedOutput
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)


class Place(Span):
    """A span over plain memory, from the byte `offset` of 256 on."""

    def __init__(self, size=256, offset=0):
        self.whole = np.zeros(512, np.uint8)
        end = offset + size
        super().__init__(self.whole.data[offset:end], ((0,), offset, end), self.whole)

    def floats(self):
        return np.frombuffer(self.view, np.float32)


def opened(files):
    backend = OnnxBackend()
    return backend.open(files, backend.complete(files, ModelConfig("m")), Placement("m_0"))


def answered(instance, inputs, places):
    """Return the outputs of one request that wants each of `places`, by name, there."""
    wanted = [WantedOutput(name, place=place) for name, place in places.items()]
    tensors = [Tensor(n, DataType.FP32, a.shape, a.tobytes()) for n, a in inputs.items()]
    spans = [place for place in places.values() if place]
    [response] = instance.execute([InferRequest("m", inputs=tensors, outputs=wanted, spans=spans)])
    return {output.name: output for output in response.outputs}


def is_in(output, place):
    return np.shares_memory(np.frombuffer(output.data, np.uint8), place.whole)


def test_outputs_of_known_shape_are_written_in_their_places(add_sub):
    total, difference = Place(), Place(size=32, offset=8)
    outputs = answered(opened(add_sub), {"A": ROWS, "B": ROWS}, {"SUM": total, "DIFF": difference})
    assert is_in(outputs["SUM"], total) and is_in(outputs["DIFF"], difference)
    assert outputs["SUM"].shape == (2, 4)
    assert np.array_equal(outputs["SUM"].numpy(), 2 * ROWS)
    assert total.floats()[8:].sum() == 0


def test_an_output_without_a_place_is_an_array_of_its_own(add_sub):
    place = Place()
    outputs = answered(opened(add_sub), {"A": ROWS, "B": ROWS}, {"SUM": None, "DIFF": place})
    assert np.array_equal(outputs["SUM"].numpy(), 2 * ROWS)
    assert not is_in(outputs["SUM"], place)
    assert is_in(outputs["DIFF"], place)


@pytest.mark.parametrize("place", [Place(size=31), Place(offset=1)], ids=["small", "unaligned"])
def test_a_place_that_does_not_suit_is_left_to_the_engine(add_sub, place):
    outputs = answered(opened(add_sub), {"A": ROWS, "B": ROWS}, {"SUM": place})
    assert np.array_equal(outputs["SUM"].numpy(), 2 * ROWS)
    assert not is_in(outputs["SUM"], place)
    assert not place.whole.any()


def test_an_output_whose_shape_only_the_model_knows_is_left_to_the_engine(make_model):
    values = [(name, TensorProto.FLOAT, ["n", "m"]) for name in ("X", "Y")]
    model = make_model(values[:1], values[1:], [helper.make_node("Identity", ["X"], ["Y"])])
    place = Place()
    outputs = answered(opened(model), {"X": ROWS}, {"Y": place})
    assert np.array_equal(outputs["Y"].numpy(), ROWS)
    assert not is_in(outputs["Y"], place)


def test_a_model_without_batching_writes_in_its_place_too(make_model):
    values = [(name, TensorProto.FLOAT, [4]) for name in ("X", "Y")]
    model = make_model(values[:1], values[1:], [helper.make_node("Neg", ["X"], ["Y"])])
    place = Place()
    outputs = answered(opened(model), {"X": ROWS[0]}, {"Y": place})
    assert is_in(outputs["Y"], place)
    assert place.floats()[:4].tolist() == [-0.0, -1, -2, -3]


def test_an_empty_output_has_nothing_to_write(make_model):
    values = [(name, TensorProto.FLOAT, [0]) for name in ("X", "Y")]
    model = make_model(values[:1], values[1:], [helper.make_node("Identity", ["X"], ["Y"])])
    outputs = answered(opened(model), {"X": np.empty(0, np.float32)}, {"Y": Place()})
    assert outputs["Y"].shape == (0,)
