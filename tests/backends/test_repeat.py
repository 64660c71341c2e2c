from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferd.backends.decoupled import RepeatBackend
from inferd.config.model import (
    ControlInput,
    ModelConfig,
    ModelInput,
    ModelOutput,
    SequenceBatching,
    SequenceState,
)
from inferd.core.interfaces import DecoupledInstance, ModelFiles, Placement
from inferd.core.request import InferRequest, InferResponse, Round
from inferd.errors import InvalidConfig, InvalidRequest, Unavailable
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FILES = ModelFiles(Path("m"), 1, Path("m/1"), Path("m/1"))
COMPLETE = RepeatBackend().complete(FILES, ModelConfig("m"))


@pytest.fixture
def instance():
    return RepeatBackend().open(FILES, COMPLETE, Placement("m_0"))


def asked(elements, delays=None, wait=None):
    inputs = [Tensor("IN", DataType.INT32, (len(elements),), np.array(elements, np.int32))]
    if delays is not None:
        array = np.array(delays, np.uint32)
        inputs.append(Tensor("DELAY", DataType.UINT32, array.shape, array))
    if wait is not None:
        inputs.append(Tensor("WAIT", DataType.UINT32, (1,), np.array([wait], np.uint32)))
    return InferRequest("m", id="7", inputs=inputs)


def seen(response):
    return {tensor.name: tensor.numpy().tolist() for tensor in response.outputs}


def test_a_configuration_without_tensors_becomes_a_decoupled_models():
    assert COMPLETE.decoupled
    assert [tensor.name for tensor in COMPLETE.input] == ["IN", "DELAY", "WAIT"]
    assert [tensor.name for tensor in COMPLETE.output] == ["OUT", "IDX"]


def test_a_given_configuration_is_left_alone():
    config = replace(COMPLETE, input=COMPLETE.input[:1], decoupled=False)
    assert RepeatBackend().complete(FILES, config) is config


def test_the_instance_is_decoupled_and_waits(instance):
    assert isinstance(instance, DecoupledInstance)
    assert not instance.traits.is_bounded
    assert not RepeatBackend.traits.is_bounded


def test_each_element_is_answered_and_no_answer_is_marked_as_the_last(instance):
    responses = list(instance.stream(asked([4, 2, -9], [0, 1, 0], wait=1)))
    assert [seen(response) for response in responses] == [
        {"OUT": [4], "IDX": [0]},
        {"OUT": [2], "IDX": [1]},
        {"OUT": [-9], "IDX": [2]},
    ]
    assert [response.final for response in responses] == [False] * 3
    assert {(response.model, response.version, response.id) for response in responses} == {
        ("m", "1", "7")
    }


def test_outputs_are_as_configured(instance):
    [response] = instance.stream(asked([4]))
    assert [(t.datatype, t.shape) for t in response.outputs] == [
        (DataType.INT32, (1,)),
        (DataType.UINT32, (1,)),
    ]


def test_no_element_gives_no_answer(instance):
    assert list(instance.stream(asked([], []))) == []


def test_an_unequal_number_of_delays_is_refused(instance):
    with pytest.raises(InvalidRequest, match="'DELAY' has 1 elements, input 'IN' has 2"):
        list(instance.stream(asked([1, 2], [0])))


def test_one_element_is_answered_without_a_stream(instance):
    one, two, bad = instance.execute([asked([5]), asked([5, 6]), asked([5], [0, 0])])
    assert seen(one) == {"OUT": [5], "IDX": [0]}
    assert one.final
    assert isinstance(two, InvalidRequest)
    assert two.message.startswith("input 'IN' has 2 elements")
    assert isinstance(bad, InvalidRequest)


def test_closing_ends_a_delay(instance):
    answers = instance.stream(asked([1, 2], [0, 86_400_000]))
    assert seen(next(answers))["OUT"] == [1]
    instance.close()
    with pytest.raises(Unavailable, match="'m' was unloaded"):
        next(answers)


@pytest.mark.parametrize(
    "config",
    [
        replace(COMPLETE, max_batch_size=1),
        replace(COMPLETE, input=COMPLETE.input[1:]),
        replace(COMPLETE, input=(ModelInput("IN", DataType.FP32, (-1,)),)),
        replace(COMPLETE, input=(*COMPLETE.input, ModelInput("MORE", DataType.FP32, (-1,)))),
        replace(COMPLETE, output=COMPLETE.output[:1]),
        replace(COMPLETE, output=(ModelOutput("OUT", DataType.INT32, (-1,)), COMPLETE.output[1])),
    ],
)
def test_other_tensors_are_refused(config):
    with pytest.raises(InvalidConfig, match="a repeat model has max_batch_size 0, inputs IN"):
        RepeatBackend().complete(FILES, config)
    with pytest.raises(InvalidConfig):
        RepeatBackend().open(FILES, config, Placement("m_0"))


# --- in rounds ---

STATE = SequenceState("AT", "NEXT", DataType.INT32, (1,))
ITERATIVE = SequenceBatching(
    control_input=(ControlInput("START"),), state=(STATE,), iterative_sequence=True
)


def iterative(*, decoupled):
    """An instance as it is opened: its configuration has the scheduler's tensors, too."""
    config = replace(
        COMPLETE,
        decoupled=decoupled,
        sequence_batching=ITERATIVE,
        input=(
            *COMPLETE.input,
            ModelInput("START", DataType.INT32, (1,)),
            ModelInput("AT", DataType.INT32, (1,)),
        ),
        output=(*COMPLETE.output, ModelOutput("NEXT", DataType.INT32, (1,))),
    )
    return RepeatBackend().open(FILES, config, Placement("m_0"))


def in_round(request, index):
    at = Tensor("AT", DataType.INT32, (1,), np.array([index], np.int32))
    return InferRequest("m", id="7", inputs=[*request.inputs, at])


def test_a_decoupled_model_answers_an_element_in_each_round():
    instance, request = iterative(decoupled=True), asked([4, 2])
    [first] = instance.execute([in_round(request, 0)])
    [last] = instance.execute([in_round(request, 1)])
    assert [seen(round) for round in (first, last)] == [{"NEXT": [1]}, {"NEXT": [2]}]
    assert [seen(*round.answers) for round in (first, last)] == [
        {"OUT": [4], "IDX": [0]},
        {"OUT": [2], "IDX": [1]},
    ]
    assert [(one.again, one.answers[0].final) for one in (first, last)] == [
        (True, False),
        (False, True),
    ]


def test_one_that_is_not_decoupled_answers_in_the_last_round():
    instance, request = iterative(decoupled=False), asked([4, 2])
    first, last = instance.execute([in_round(request, 0), in_round(request, 1)])
    assert (type(first), first.again, first.answers) == (Round, True, [])
    assert (type(last), seen(last)) == (InferResponse, {"OUT": [2], "IDX": [1], "NEXT": [2]})


def test_rounds_of_no_element_give_no_answer():
    [none] = iterative(decoupled=True).execute([in_round(asked([]), 0)])
    assert (none.answers, none.again) == ([], False)
    [error] = iterative(decoupled=False).execute([in_round(asked([]), 0)])
    assert isinstance(error, InvalidRequest)


def test_a_round_that_waits_ends_with_the_instance():
    instance = iterative(decoupled=True)
    instance.close()
    [error] = instance.execute([in_round(asked([1], [1000]), 0)])
    assert isinstance(error, Unavailable)


def test_an_iterative_model_without_its_state_is_refused():
    config = replace(COMPLETE, sequence_batching=replace(ITERATIVE, state=()))
    with pytest.raises(InvalidConfig, match="has one state, INT32"):
        RepeatBackend().complete(FILES, config)
