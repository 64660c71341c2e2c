from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferd.backends.decoupled import SquareBackend
from inferd.config.model import ModelConfig
from inferd.core.interfaces import DecoupledInstance, ModelFiles, Placement
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import BackendFailed, InvalidConfig, InvalidRequest, Unavailable
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FILES = ModelFiles(Path("m"), 1, Path("m/1"), Path("m/1"))
COMPLETE = SquareBackend().complete(FILES, ModelConfig("m"))


def opened(**parameters):
    config = replace(COMPLETE, parameters=parameters)
    return SquareBackend().open(FILES, config, Placement("m_0"))


def asked(*rows, shape=(1,)):
    given = Tensor("IN", DataType.INT32, shape, np.array(rows, np.int32))
    return InferRequest("m", id="7", inputs=[given])


def seen(response):
    return [(tensor.name, tensor.shape, tensor.numpy().ravel()[0]) for tensor in response.outputs]


def test_a_configuration_without_tensors_becomes_a_decoupled_models():
    assert COMPLETE.decoupled
    assert [(t.name, t.datatype, t.dims) for t in COMPLETE.input] == [("IN", DataType.INT32, (1,))]
    assert [(t.name, t.datatype, t.dims) for t in COMPLETE.output] == [
        ("OUT", DataType.INT32, (1,))
    ]
    assert isinstance(opened(), DecoupledInstance)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_number_is_answered_so_many_times(shape):
    responses = list(opened().stream(asked(3, shape=shape)))
    assert [seen(response) for response in responses] == [[("OUT", shape, 3)]] * 3
    assert [(r.final, r.id, r.version) for r in responses] == [(False, "7", "1")] * 3


@pytest.mark.parametrize("number", [0, -1, -(2**31)])
def test_no_answer_for_what_is_not_above_0(number):
    assert list(opened().stream(asked(number))) == []


def test_the_last_answers_are_empty_and_those_before_them_fail_where_configured():
    instance = opened(CUSTOM_FAIL_COUNT="2", CUSTOM_EMPTY_COUNT="1")
    responses = list(instance.stream(asked(5)))
    assert [len(response.outputs) for response in responses] == [1, 1, 0, 0, 0]
    assert [type(response.error) for response in responses] == [
        type(None),
        type(None),
        BackendFailed,
        BackendFailed,
        type(None),
    ]


def test_a_call_that_takes_one_answer_gets_that_of_1():
    [response] = opened().execute([asked(1)])
    assert isinstance(response, InferResponse)
    assert response.final
    assert seen(response) == [("OUT", (1,), 1)]
    [failed] = opened(CUSTOM_FAIL_COUNT="1").execute([asked(1)])
    assert isinstance(failed, BackendFailed)


@pytest.mark.parametrize(("number", "count"), [(0, 0), (2, 2), (2**31 - 1, 2**31 - 1), (-5, 0)])
def test_any_other_count_of_answers_needs_a_stream(number, count):
    [refused] = opened().execute([asked(number)])
    assert isinstance(refused, InvalidRequest)
    assert f"'IN' asks for {count} answers, which need a stream" in refused.message


def test_several_rows_are_refused():
    instance = opened()
    with pytest.raises(InvalidRequest, match="input 'IN' has 2 rows, a square model takes one"):
        list(instance.stream(asked(1, 2, shape=(2, 1))))
    [refused] = instance.execute([asked(1, 2, shape=(2, 1))])
    assert isinstance(refused, InvalidRequest)


@pytest.mark.parametrize("name", ["CUSTOM_INFER_DELAY_NS", "CUSTOM_OUTPUT_DELAY_NS"])
def test_a_delay_ends_when_the_model_is_unloaded(name):
    instance = opened(**{name: "2000000000"})
    instance.close()
    with pytest.raises(Unavailable, match="'m' was unloaded while it waited"):
        list(instance.stream(asked(1)))


def test_a_parameter_that_is_no_number_is_refused():
    with pytest.raises(InvalidConfig, match="CUSTOM_FAIL_COUNT is 'two', expected a whole number"):
        opened(CUSTOM_FAIL_COUNT="two")


def test_other_tensors_are_refused():
    config = replace(COMPLETE, input=(replace(COMPLETE.input[0], dims=(-1,)),))
    with pytest.raises(InvalidConfig, match="has an input IN and an output OUT, INT32"):
        SquareBackend().complete(FILES, config)
