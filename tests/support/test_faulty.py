from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from faulty import FaultyBackend

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import DecoupledInstance, ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, Code, InferdError, InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FILES = ModelFiles(Path("m"), 1, Path("m/1"), Path("m/1"))


def opened(config=None, **parameters):
    backend = FaultyBackend()
    config = replace(config or ModelConfig("m"), parameters=parameters)
    return backend.open(FILES, backend.complete(FILES, config), Placement("m_0"))


def asked(batch=2, **parameters):
    zeros = np.zeros(batch, np.float32)
    return InferRequest(
        "m",
        id="7",
        inputs=[Tensor("INPUT0", DataType.FP32, (batch,), zeros)],
        parameters=parameters,
    )


def sound(response):
    return [(t.name, t.datatype, t.shape, bytes(t.view())) for t in response.outputs]


SOUND = [("OUTPUT0", DataType.FP32, (1,), bytes(4))]


def test_without_a_fault_the_answer_is_zeros():
    [response] = opened().execute([asked()])
    assert (response.model, response.version, response.id) == ("m", "1", "7")
    assert sound(response) == SOUND


def test_given_tensors_are_kept_and_answered_in_their_batch():
    config = ModelConfig(
        "m",
        max_batch_size=8,
        input=(ModelInput("INPUT0", DataType.FP32, (-1,)),),
        output=(ModelOutput("T", DataType.BYTES, (-1, 2)), ModelOutput("N", DataType.INT16, (3,))),
    )
    [response] = opened(config).execute([asked(batch=4)])
    texts, numbers = response.outputs
    assert (texts.shape, texts.strings()) == ((4, 1, 2), [b""] * 8)
    assert (numbers.shape, numbers.numpy().tolist()) == ((4, 3), [[0, 0, 0]] * 4)


def test_executions_may_overlap_and_may_never_end():
    assert FaultyBackend.traits.is_concurrent
    assert not FaultyBackend.traits.is_bounded
    assert not opened().traits.is_bounded


def test_load_fails():
    with pytest.raises(BackendFailed, match="'m' fails to load"):
        opened(fault="load")


@pytest.mark.parametrize(("parameter", "value"), [("fault", "boredom"), ("code", "BORED")])
def test_what_does_not_exist_is_refused_at_load(parameter, value):
    with pytest.raises(InvalidConfig, match=value):
        opened(**{parameter: value})


def test_a_request_for_a_fault_that_does_not_exist_is_refused():
    with pytest.raises(InvalidRequest, match="has no fault 'boredom'"):
        opened().execute([asked(fault="boredom")])


def test_a_request_may_ask_for_another_fault_or_none():
    instance = opened(fault="raise")
    with pytest.raises(ArithmeticError, match="on purpose"):
        instance.execute([asked()])
    [response] = instance.execute([asked(fault="")])
    assert sound(response) == SOUND


@pytest.mark.parametrize("code", Code)
def test_every_code_is_raised_or_returned(code):
    instance = opened(fault="raise_error", code=code.name)
    with pytest.raises(InferdError) as caught:
        instance.execute([asked()])
    assert caught.value.code is code
    errors = instance.execute([asked(fault="return_error"), asked()])
    assert [error.code for error in errors] == [code, code]


def test_an_error_is_internal_unless_said():
    [error] = opened(fault="return_error").execute([asked()])
    assert error.code is Code.INTERNAL


@pytest.mark.parametrize(("fault", "expected"), [("too_few", 1), ("too_many", 3)])
def test_the_number_of_answers_is_wrong(fault, expected):
    assert len(opened(fault=fault).execute([asked(), asked()])) == expected


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("wrong_shape", [("OUTPUT0", DataType.FP32, (1, 1), bytes(4))]),
        ("wrong_datatype", [("OUTPUT0", DataType.INT8, (1,), bytes(1))]),
        ("wrong_name", [("OUTPUT0_wrong", DataType.FP32, (1,), bytes(4))]),
        ("missing_output", []),
    ],
)
def test_the_first_output_is_wrong(fault, expected):
    [response] = opened(fault=fault).execute([asked()])
    assert sound(response) == expected


def test_a_wrong_datatype_differs_from_int8_too():
    config = ModelConfig(
        "m",
        input=(ModelInput("INPUT0", DataType.FP32, (-1,)),),
        output=(ModelOutput("OUTPUT0", DataType.INT8, (1,)),),
    )
    [response] = opened(config, fault="wrong_datatype").execute([asked()])
    assert response.outputs[0].datatype is DataType.UINT8


@pytest.mark.parametrize("end", [lambda one: one.released.set(), lambda one: one.close()])
def test_a_hanging_execution_ends_when_released_or_closed(end):
    instance = opened(fault="hang")
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(instance.execute, [asked()])
        assert not answers.done()
        end(instance)
        [response] = answers.result()
    assert sound(response) == SOUND


def test_a_decoupled_model_breaks_after_its_first_answer():
    instance = opened(ModelConfig("m", decoupled=True), fault="return_error", code="UNAVAILABLE")
    assert isinstance(instance, DecoupledInstance)
    answers = instance.stream(asked())
    assert not next(answers).final
    with pytest.raises(InferdError) as caught:
        next(answers)
    assert caught.value.code is Code.UNAVAILABLE


def test_a_decoupled_model_without_a_fault_gives_two_answers():
    answers = list(opened(ModelConfig("m", decoupled=True)).stream(asked()))
    assert [answer.final for answer in answers] == [False, True]


def test_other_models_are_not_decoupled():
    assert not isinstance(opened(), DecoupledInstance)
