from pathlib import Path

import numpy as np
import pytest

from inferd.backends.identity import IdentityBackend
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InvalidConfig, Unavailable
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FILES = ModelFiles(Path("m"), 1, Path("m/1"), Path("m/1"))
FP32, BYTES = DataType.FP32, DataType.BYTES


def configured(inputs, outputs, **parameters):
    return ModelConfig(
        "m",
        input=tuple(ModelInput(name, FP32, (-1,)) for name in inputs),
        output=tuple(ModelOutput(name, FP32, (-1,)) for name in outputs),
        parameters=parameters,
    )


def opened(config):
    backend = IdentityBackend()
    return backend.open(FILES, backend.complete(FILES, config), Placement("m_0"))


def asked(*names):
    return InferRequest(
        "m", id="7", inputs=[Tensor(name, FP32, (1,), np.ones(1, np.float32)) for name in names]
    )


def test_the_answer_holds_the_very_buffers_of_the_request():
    request = asked("A", "B")
    [response] = opened(configured("AB", "XY")).execute([request])
    assert (response.model, response.version, response.id) == ("m", "1", "7")
    assert [tensor.name for tensor in response.outputs] == ["X", "Y"]
    for given, got in zip(request.inputs, response.outputs, strict=True):
        assert got.data is given.data
        assert (got.datatype, got.shape) == (given.datatype, given.shape)


def test_an_input_that_is_missing_is_zeros_and_one_of_strings_empty():
    config = ModelConfig(
        "m",
        max_batch_size=8,
        input=(
            ModelInput("INPUT0", FP32, (2,)),
            ModelInput("INPUT1", FP32, (-1, 3), optional=True),
            ModelInput("INPUT2", BYTES, (2,), optional=True),
        ),
        output=(
            ModelOutput("OUTPUT0", FP32, (2,)),
            ModelOutput("OUTPUT1", FP32, (-1, 3)),
            ModelOutput("OUTPUT2", BYTES, (2,)),
        ),
    )
    given = Tensor("INPUT0", FP32, (2, 2), np.ones(4, np.float32))
    request = InferRequest("m", inputs=[given], batch_size=2)
    [response] = opened(config).execute([request])
    found = {tensor.name: tensor for tensor in response.outputs}
    assert found["OUTPUT0"].data is given.data
    assert found["OUTPUT1"].numpy().tolist() == [[[0, 0, 0]]] * 2
    assert found["OUTPUT2"].shape == (2, 2)
    assert found["OUTPUT2"].strings() == [b""] * 4


@pytest.mark.parametrize("batch", [0, 8])
def test_outputs_have_the_shape_of_their_own_reshape(batch):
    config = ModelConfig(
        "m",
        max_batch_size=batch,
        input=(ModelInput("A", FP32, (4,), reshape=(2, 2)),),
        output=(ModelOutput("X", FP32, (1, 2, 2), reshape=(2, 2)),),
    )
    lead = (1,) if batch else ()
    tensor = Tensor("A", FP32, (*lead, 4), np.ones(4, np.float32))
    [response] = opened(config).execute([InferRequest("m", inputs=[tensor])])
    assert response.outputs[0].shape == (*lead, 1, 2, 2)


def test_a_reshape_that_does_not_fit_is_refused():
    config = ModelConfig(
        "m",
        input=(ModelInput("A", FP32, (-1,)),),
        output=(ModelOutput("X", FP32, (-1, 2), reshape=(-1,)),),
    )
    tensor = Tensor("A", FP32, (3,), np.ones(3, np.float32))
    with pytest.raises(BackendFailed, match="'A' of"):
        opened(config).execute([InferRequest("m", inputs=[tensor])])


@pytest.mark.parametrize("datatype", DataType)
def test_every_datatype_goes_through(datatype):
    config = ModelConfig(
        "m", input=(ModelInput("A", datatype, (-1,)),), output=(ModelOutput("X", datatype, (-1,)),)
    )
    tensor = Tensor("A", datatype, (0,), b"")
    [response] = opened(config).execute([InferRequest("m", inputs=[tensor])])
    assert response.outputs == [Tensor("X", datatype, (0,), b"")]


def test_names_that_pair_up_count_more_than_positions():
    config = configured(["INPUT0", "INPUT1"], ["OUTPUT1", "OUTPUT0"])
    [response] = opened(config).execute([asked("INPUT1", "INPUT0")])
    assert [tensor.name for tensor in response.outputs] == ["OUTPUT1", "OUTPUT0"]


def test_positions_count_where_one_name_does_not_pair_up():
    config = configured(["INPUT0", "IN"], ["OUT", "OUTPUT0"])
    [response] = opened(config).execute([asked("INPUT0", "IN")])
    assert [tensor.name for tensor in response.outputs] == ["OUT", "OUTPUT0"]


def test_several_requests_get_an_answer_each():
    first, second = opened(configured("A", "X")).execute([asked("A"), asked("A")])
    assert first.outputs[0].data is not second.outputs[0].data


def test_an_unequal_number_of_inputs_and_outputs_is_refused():
    with pytest.raises(InvalidConfig, match="has 2 inputs and 1 outputs"):
        opened(configured("AB", "X"))


def test_an_output_unlike_its_input_is_refused():
    config = ModelConfig(
        "m", input=(ModelInput("A", FP32, (2,)),), output=(ModelOutput("X", BYTES, (2,)),)
    )
    with pytest.raises(InvalidConfig, match=r"'X' is BYTES \[2\], .* 'A', is FP32 \[2\]"):
        opened(config)


def test_a_model_without_delay_may_run_on_the_event_loop_one_with_may_not():
    assert opened(configured("A", "X")).traits.is_bounded
    assert not opened(configured("A", "X", execute_delay_ms="1")).traits.is_bounded


def test_a_delay_passes():
    instance = opened(configured("A", "X", execute_delay_ms="0.01", creation_delay_sec="0.00001"))
    [response] = instance.execute([asked("A")])
    assert response.outputs[0].name == "X"


def test_closing_ends_a_delay():
    instance = opened(configured("A", "X", execute_delay_ms="86400000"))
    instance.close()
    with pytest.raises(Unavailable, match="unloaded"):
        instance.execute([asked("A")])


@pytest.mark.parametrize("delay", ["-1", "soon", "nan", "inf"])
def test_a_delay_that_is_no_time_is_refused(delay):
    with pytest.raises(InvalidConfig, match=f"execute_delay_ms is '{delay}', expected"):
        opened(configured("A", "X", execute_delay_ms=delay))
