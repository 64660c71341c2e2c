"""Answers that are only compared with one before: they say what all others say."""

from copy import copy

import numpy as np
import pytest
from fields import with_fields
from hypothesis import given
from hypothesis import strategies as st

from inferd.core.request import UNSEQUENCED, InferRequest, InferResponse, Span, WantedOutput
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.rest.codec import MOST_ANSWERS, JsonRules, V2Rest

ALIKE = object()
PLACE = Span(memoryview(b""), ((0,), 0, 0), None)  # an answer does not look into it
SIZED = [datatype for datatype in DataType if datatype is not DataType.BYTES]


def codec(**rules):
    defaults = {"half_floats": True, "non_finite": "tokens", "max_json_bytes": 2**26}
    return V2Rest(JsonRules(**(defaults | rules)))


def test_answers_of_ensembles_are_known_too_and_others_told_apart():
    wire, request = codec(), with_fields(InferRequest("m"), batch_key=object())

    def text(parameters):
        response = InferResponse("m", "1", "", [output()], parameters)
        [buffer], _ = wire.encode_infer_response(request, response)
        return buffer

    first, second = text(UNSEQUENCED), text(UNSEQUENCED)
    assert first == second
    assert b'"parameters":{"sequence_id":0,"sequence_start":false,"sequence_end":false}' in first
    assert b"parameters" not in text(None)
    assert b'"parameters":{"sequence_id":7}' in text({"sequence_id": 7})


def output(name="y", values=(1, 2), datatype=DataType.INT32, shape=None):
    array = np.array(values, datatype.numpy)
    return Tensor(name, datatype, shape or array.shape, array.tobytes())


def response(*outputs, model="m", version="1", id=""):
    return InferResponse(model, version, id, list(outputs))


def request(batch_key, outputs=(), *, binary=False):
    return with_fields(
        InferRequest("m", outputs=list(outputs), binary_output=binary), batch_key=batch_key
    )


def joined(encoded):
    buffers, json_size = encoded
    return b"".join(map(bytes, buffers)), json_size


@st.composite
def answers(draw):
    """Outputs, and which of them are wanted as bytes, or have gone to shared memory."""
    outputs, wanted = [], []
    is_said = draw(st.booleans())
    for index in range(draw(st.integers(1, 3))):
        datatype = draw(st.sampled_from(SIZED))
        values = draw(st.lists(st.integers(0, 1), min_size=0, max_size=70))
        shape = draw(st.sampled_from([(len(values),), (1, len(values))]))
        one = output(f"y{index}", values, datatype, shape)
        outputs.append(one)
        if is_said:
            is_binary = draw(st.sampled_from([None, True, False, PLACE]))
            if is_binary is PLACE:
                wanted.append(WantedOutput(one.name, place=PLACE))
            else:
                wanted.append(WantedOutput(one.name, is_binary))
    return outputs, wanted


@given(st.lists(answers(), min_size=1, max_size=3), st.data())
def test_an_answer_says_the_same_whatever_was_answered_before(some, data):
    known, binary = codec(), data.draw(st.booleans())
    _, wanted = some[0]
    same = [outputs for outputs, _ in some if len(outputs) == len(some[0][0])]
    for made in (*same, *same):
        outputs = [copy(one) for one in made]
        for one, choice in zip(outputs, wanted, strict=False):
            one.data = one.data if choice.place is None else b""
        answer = response(
            *outputs,
            model=data.draw(st.sampled_from(["m", "n"])),
            id=data.draw(st.sampled_from(["", "a", 'ä"\n'])),
        )
        got = known.encode_infer_response(request(ALIKE, wanted, binary=binary), answer)
        expected = codec().encode_infer_response(request(None, wanted, binary=binary), answer)
        assert joined(got) == joined(expected)


def test_outputs_in_shared_memory_are_known_however_large():
    known = codec()
    wanted = [WantedOutput("y", place=PLACE), WantedOutput("z", binary=True)]
    for _ in range(3):
        outputs = Tensor("y", DataType.BYTES, (10**6,), b""), output("z")
        got = known.encode_infer_response(request(ALIKE, wanted), response(*outputs))
        expected = codec().encode_infer_response(request(None, wanted), response(*outputs))
        assert joined(got) == joined(expected)
    assert len(known._answers) == 1


def test_parameters_of_an_answer_are_its_own():
    known = codec()
    for parameters in ({}, {"a": 1}, {}, {"a": 2}):
        answer = response(output())
        answer.parameters = parameters
        got = known.encode_infer_response(request(ALIKE), answer)
        assert joined(got) == joined(codec().encode_infer_response(request(None), answer))
    for parameters in (None, {"a": 1}, None):
        answer = response(output())
        answer.outputs[0].parameters = parameters
        got = known.encode_infer_response(request(ALIKE), answer)
        assert joined(got) == joined(codec().encode_infer_response(request(None), answer))


def test_what_json_cannot_say_is_refused_in_known_answers_too():
    strict = codec(non_finite="error")
    for values in ((1.5,), (2.5,)):
        strict.encode_infer_response(request(ALIKE), response(output("y", values, DataType.FP32)))
    with pytest.raises(InvalidRequest, match="output 'y' holds nan"):
        strict.encode_infer_response(
            request(ALIKE), response(output("y", (np.nan,), DataType.FP32))
        )


def test_halves_as_numbers_are_refused_each_time_where_they_are_turned_off():
    strict = codec(half_floats=False)
    answer = response(output("y", (1,), DataType.FP16))
    for _ in range(3):
        with pytest.raises(InvalidRequest, match="turned off on this server"):
            strict.encode_infer_response(request(ALIKE), answer)


def test_a_long_array_is_not_joined_with_its_head():
    known = codec()
    answer = response(output("y", np.arange(30_000)))
    sizes = set()
    for _ in range(3):
        buffers, json_size = known.encode_infer_response(request(ALIKE), answer)
        assert json_size is None
        sizes.add(len(buffers))
    assert 1 not in sizes


def test_of_many_likenesses_only_some_are_remembered():
    known, answer = codec(), response(output())
    for _ in range(2 * MOST_ANSWERS):
        known.encode_infer_response(request(object()), answer)
    assert len(known._answers) <= MOST_ANSWERS
