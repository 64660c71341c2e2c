"""Outputs that ONNX Runtime writes where the client wants them."""

from dataclasses import replace

import numpy as np
import pytest
from fields import with_fields
from onnx import TensorProto, helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.config.model import ModelConfig
from inferd.core.interfaces import Placement
from inferd.core.request import InferRequest, Span, WantedOutput
from inferd.errors import BackendFailed
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


def opened(files, *, is_written=True):
    """Open a model whose outputs its configuration has, or only its file."""
    backend = OnnxBackend()
    config = backend.complete(files, ModelConfig("m"))
    outputs = tuple(replace(output, is_declared=not is_written) for output in config.output)
    return backend.open(files, replace(config, output=outputs), Placement("m_0"))


def answered(instance, inputs, places):
    """Return the outputs of one request that wants each of `places`, by name, there."""
    wanted = [WantedOutput(name, place=place) for name, place in places.items()]
    tensors = [Tensor(n, DataType.FP32, a.shape, a.tobytes()) for n, a in inputs.items()]
    spans = [place for place in places.values() if place]
    [response] = instance.execute(
        [with_fields(InferRequest("m", inputs=tensors, outputs=wanted), spans=spans)]
    )
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


def test_the_dims_that_a_file_declares_count_once_an_answer_had_them(add_sub):
    instance = opened(add_sub, is_written=False)
    for is_seen in (False, True, True):
        place = Place()
        output = answered(instance, {"A": ROWS, "B": ROWS}, {"SUM": place})["SUM"]
        assert is_in(output, place) is is_seen
        assert np.array_equal(output.numpy(), 2 * ROWS)


@pytest.fixture
def repeating(make_model):
    """A model that repeats its rows as often as their first number says, and declares one time."""
    node = helper.make_node
    return make_model(
        [("X", TensorProto.FLOAT, ["n", 4])],
        [("Y", TensorProto.FLOAT, ["n", 4])],
        [
            node("Slice", ["X", "zeros", "ones"], ["first"]),
            node("Cast", ["first"], ["whole"], to=TensorProto.INT64),
            node("Reshape", ["whole", "ones_1"], ["times"]),
            node("Concat", ["ones_1", "times"], ["repeats"], axis=0),
            node("Tile", ["X", "repeats"], ["Y"]),
        ],
        {"zeros": np.array([0, 0]), "ones": np.array([1, 1]), "ones_1": np.array([1])},
    )


def test_an_output_of_other_dims_than_the_file_declares_is_not_written_there(repeating):
    instance = opened(repeating, is_written=False)
    for _ in range(3):
        place, rows = Place(), np.array([[2, 1, 1, 1]], np.float32)
        output = answered(instance, {"X": rows}, {"Y": place})["Y"]
        assert not is_in(output, place)
        assert output.numpy().tolist() == [[2, 1, 1, 1] * 2]


def test_dims_that_were_right_and_are_not_cost_one_error(repeating):
    instance, sound = opened(repeating, is_written=False), np.ones((1, 4), np.float32)
    for _ in range(2):
        assert answered(instance, {"X": sound}, {"Y": Place()})["Y"].shape == (1, 4)
    tensor = Tensor("X", DataType.FP32, (1, 4), np.full((1, 4), 3, np.float32).tobytes())
    place = Place()
    request = with_fields(
        InferRequest("m", inputs=[tensor], outputs=[WantedOutput("Y", place=place)]), spans=[place]
    )
    [failure] = instance.execute([request])
    assert isinstance(failure, BackendFailed)
    [response] = instance.execute([request])
    assert response.outputs[0].shape == (1, 12)


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
