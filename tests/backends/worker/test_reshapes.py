import numpy as np

from inferd.backends.worker.reshapes import reshapes_of
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


def config(max_batch_size=0):
    one = {"datatype": DataType.FP32}
    return ModelConfig(
        "m",
        max_batch_size=max_batch_size,
        input=(ModelInput("x", dims=(2, 3), reshape=(6,), **one),),
        output=(ModelOutput("y", dims=(2, 3), reshape=(6,), **one),),
    )


def inputs_seen(config, shape):
    inputs = [("x", "FP32", shape, 0, 24), ("other", "FP32", shape, 0, 24)]
    reshapes_of(config).apply_to_inputs(inputs)
    return [one[2] for one in inputs]


def test_an_input_that_has_a_reshape_gets_it():
    assert inputs_seen(config(), (2, 3)) == [(6,), (2, 3)]


def test_the_batch_is_left_alone():
    assert inputs_seen(config(8), (4, 2, 3)) == [(4, 6), (4, 2, 3)]


def test_a_shape_that_is_not_the_configured_one_is_left_alone():
    assert inputs_seen(config(), (3, 2)) == [(3, 2), (3, 2)]
    assert inputs_seen(config(8), (2, 3)) == [(2, 3), (2, 3)]


def test_an_output_gets_the_shape_that_clients_expect():
    outputs = [Tensor("y", DataType.FP32, (6,), np.arange(6, dtype=np.float32))]
    reshapes_of(config()).apply_to_outputs(outputs)
    assert outputs[0].shape == (2, 3)
    assert outputs[0].numpy().ravel().tolist() == list(range(6))


def test_a_model_without_reshape_has_none():
    assert reshapes_of(ModelConfig("m")) is None
