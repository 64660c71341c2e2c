import copy

import numpy as np
import pytest

from inferd.cache.scheduler import key_of, private
from inferd.core.request import InferRequest, Sequence, WantedOutput
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

ME = b"identity"


def two(*values):
    """Return a request with the inputs A and B."""
    tensors = [
        Tensor.from_numpy(name, np.array(value, np.int32), DataType.INT32)
        for name, value in zip("AB", values, strict=True)
    ]
    return InferRequest("m", inputs=tensors)


def test_the_same_request_has_the_same_key(ask):
    assert key_of(ask(), ME) == key_of(ask(), ME)
    assert len(key_of(ask(), ME)) == 32


def test_the_order_of_parameters_does_not_matter():
    given, other = two([1], [2]), two([1], [2])
    given.parameters, other.parameters = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert key_of(given, ME) == key_of(other, ME)


def test_the_order_of_inputs_matters_for_columns_may_have_no_other():
    given, other = two([1], [2]), two([1], [2])
    other.inputs.reverse()
    assert key_of(given, ME) != key_of(other, ME)


def test_a_buffer_of_another_kind_is_the_same_data(ask):
    other = ask()
    other.inputs[0].data = memoryview(other.inputs[0].data.tobytes())
    assert key_of(other, ME) == key_of(ask(), ME)


@pytest.mark.parametrize(
    "change",
    [
        lambda request: setattr(request.inputs[0], "name", "Z"),
        lambda request: setattr(request.inputs[0], "datatype", DataType.FP32),
        lambda request: setattr(request.inputs[0], "shape", (2, 1)),
        lambda request: request.inputs[0].data.__setitem__(0, 7),
        lambda request: setattr(request.inputs[0], "parameters", {"a": 1}),
        lambda request: request.inputs.append(copy.copy(request.inputs[0])),
        lambda request: request.inputs.clear(),
        lambda request: setattr(request, "parameters", {"a": 1}),
        lambda request: setattr(request, "parameters", {"a": True}),
        lambda request: setattr(request, "parameters", {"a": "1"}),
        lambda request: setattr(request, "parameters", {"a": 1.0}),
        lambda request: setattr(request, "outputs", [WantedOutput("Y")]),
        lambda request: setattr(request, "sequence", Sequence(0, start=True)),
    ],
)
def test_all_that_a_model_can_see_matters(ask, change):
    keys = [key_of(ask(parameters=given), ME) for given in ({}, {"a": 2})]
    changed = ask(parameters={})
    change(changed)
    assert key_of(changed, ME) not in keys


def test_each_flag_of_a_request_without_a_sequence_matters(ask):
    flags = [(False, True), (True, False), (True, True)]
    keys = {key_of(ask(sequence=Sequence(0, *one)), ME) for one in flags}
    assert len(keys | {key_of(ask(), ME)}) == 4


def test_values_of_parameters_are_told_apart_by_type(ask):
    values = (1, 1.0, True, "1", 2**63 - 1, -(2**63), float("nan"), float("inf"))
    assert len({key_of(ask(parameters={"a": value}), ME) for value in values}) == len(values)


def test_how_an_answer_travels_does_not_matter(ask):
    plain = key_of(ask(outputs=[WantedOutput("Y")]), ME)
    assert key_of(ask(outputs=[WantedOutput("Y", True, 3)]), ME) == plain
    assert key_of(ask(id="7", priority=2, timeout_us=5, outputs=[WantedOutput("Y")]), ME) == plain


def test_what_answers_matters(ask):
    assert key_of(ask(), b"another") != key_of(ask(), ME)


def test_bytes_do_not_slip_from_one_input_into_the_next():
    one, other = two([1, 2], [3]), two([1], [2, 3])
    assert key_of(one, ME) != key_of(other, ME)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800"])
def test_parameters_that_cannot_be_written_have_no_key(ask, value):
    assert key_of(ask(parameters={"a": value}), ME) is None


def test_a_copy_has_the_same_key_and_its_own_bytes(ask):
    given = ask()
    copied = private(given.inputs[0])
    key = key_of(given, ME)
    given.inputs[0].data[0] = 9
    assert key_of(InferRequest("m", inputs=[copied]), ME) == key
