"""Flat JSON objects to tensors and back."""

import json

import numpy as np
import pytest

from inferd.core.metadata import TensorMetadata
from inferd.core.request import InferResponse, WantedOutput
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.inline import INLINE_ELEMENTS, INLINE_EXACT_BYTES, NotFast
from inferd.wire.json_document import MAX_EXACT_BYTES
from inferd.wire.v2_generate import V2Generate, encode_error_event, encode_event
from inferd.wire.v2_rest import JsonRules

RULES = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**26)
BYTES, FP32, INT32 = DataType.BYTES, DataType.FP32, DataType.INT32
TEXT = TensorMetadata("text_input", BYTES, (1,))


def declared(name="x", datatype=FP32, shape=(-1,)):
    return TensorMetadata(name, datatype, shape)


def decode(body, *inputs, rules=RULES, **how):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return V2Generate(rules).decode_request("m", "2", memoryview(text), inputs, **how)


def refusal(body, *inputs, **how):
    with pytest.raises(InvalidRequest) as caught:
        decode(body, *inputs, **how)
    return caught.value.message


# --- in ---


def test_members_that_have_an_inputs_name_are_inputs_the_others_parameters():
    asked = decode({"text_input": "hi", "n": 3, "t": 0.5, "s": "x", "b": True}, TEXT)
    request = asked.request
    assert (request.model, request.version, asked.is_v2) == ("m", "2", False)
    [tensor] = request.inputs
    assert (tensor.name, tensor.datatype, tensor.shape) == ("text_input", BYTES, (1,))
    assert tensor.strings() == [b"hi"]
    assert request.parameters == {"n": 3, "t": 0.5, "s": "x", "b": True}


def test_members_of_parameters_stand_beside_the_others():
    request = decode({"parameters": {"text_input": "hi", "n": 3}, "t": 1}, TEXT).request
    assert request.inputs[0].strings() == [b"hi"]
    assert request.parameters == {"n": 3, "t": 1}
    assert decode({"text_input": "hi", "parameters": None}, TEXT).request.parameters == {}


def test_the_id_is_the_requests_and_a_parameter():
    request = decode({"id": "77", "text_input": "hi"}, TEXT).request
    assert (request.id, request.parameters) == ("77", {"id": "77"})


def test_a_models_inputs_may_have_any_name():
    names = ("id", "parameters", "inputs", "priority", "triton_x")
    inputs = [declared(name) for name in names]
    asked = decode({name: [1, 2] for name in names}, *inputs)
    assert [tensor.name for tensor in asked.request.inputs] == list(names)
    assert (asked.request.id, asked.request.parameters, asked.is_v2) == ("", {}, False)


def test_parameters_that_mean_something_to_infer_are_the_models():
    given = {"priority": "high", "timeout": 2.5, "sequence_id": "a", "sequence_start": True}
    given |= {"sequence_end": 1, "binary_data_output": True}
    request = decode(given | {"triton_enable_empty_final_response": True}).request
    assert (request.priority, request.timeout_us, request.sequence) == (0, 0, None)
    assert (request.binary_output, request.empty_final) == (False, True)
    assert request.parameters == given


@pytest.mark.parametrize(
    ("shape", "value", "becomes"),
    [
        ((1,), 5, (1,)),
        ((1,), [5], (1,)),
        ((-1,), 5, (1,)),
        ((-1,), [1, 2, 3], (3,)),
        ((-1,), [], (0,)),
        ((4,), [[1, 2], [3, 4]], (4,)),
        ((2, 2), [1, 2, 3, 4], (2, 2)),
        ((-1, 4), [1, 2, 3, 4], (1, 4)),
        ((-1, 4), [1] * 8, (2, 4)),
        ((-1, -1), [1, 2, 3], (1, 3)),
        ((-1, -1, 2), [1] * 6, (1, 3, 2)),
        ((-1, 2, -1), [1] * 6, (1, 2, 3)),
    ],
)
def test_the_shape_is_worked_out_from_the_elements(shape, value, becomes):
    [tensor] = decode({"x": value}, declared(shape=shape)).request.inputs
    assert tensor.shape == becomes
    assert tensor.numpy().size == np.array(value).size


@pytest.mark.parametrize(
    ("shape", "value", "count"),
    [((1,), [1, 2], 2), ((1,), [], 0), ((-1, 4), [1, 2, 3], 3), ((2, 2), [[1], [2], [3]], 3)],
)
def test_elements_that_do_not_fill_the_shape_are_refused(shape, value, count):
    text = refusal({"x": value}, declared(shape=shape))
    assert text == f"input 'x' takes FP32 {list(shape)}, which {count} elements do not fill"


@pytest.mark.parametrize(
    ("datatype", "text", "value"),
    [
        (DataType.INT64, b"9007199254740993", 2**53 + 1),
        (DataType.UINT64, b"18446744073709551615", 2**64 - 1),
        (DataType.INT32, b"1e2", 100),
        (DataType.FP32, b"NaN", float("nan")),
        (DataType.FP64, b"0.1", 0.1),
        (DataType.FP16, b"0.5", 0.5),
        (DataType.BOOL, b"true", True),
        (DataType.BYTES, b'"\\u00fc"', "ü".encode()),
        (DataType.BYTES, b'"YWJj"', b"YWJj"),  # a string is the element, never base64
    ],
)
def test_values_are_exact(datatype, text, value):
    [tensor] = decode(b'{"x":%b}' % text, declared("x", datatype)).request.inputs
    assert np.array_equal(tensor.numpy().tolist(), [value], equal_nan=datatype is FP32)


@pytest.mark.parametrize(
    ("datatype", "value"),
    [(BYTES, 1), (BYTES, None), (BYTES, {"a": 1}), (INT32, "1"), (INT32, 1.5), (INT32, 2**31)],
)
def test_values_of_another_kind_are_refused_by_name(datatype, value):
    assert refusal({"x": value}, declared("x", datatype)).startswith("input 'x': element 0 is")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'"text"', "not an object"),
        (b"[]", "not an object"),
        (b'{"x":"\xff"}', "not UTF-8"),
        (b'{"x":' + b"[" * 100_000, "nested too deeply"),
        ({"parameters": [1]}, "'parameters' must be an object"),
        ({"p": None}, "parameter 'p' is null"),
        ({"p": {}}, "parameter 'p' is an object"),
        ({"p": [1]}, "parameter 'p' is an array"),
        ({"parameters": {"p": [1]}}, "parameter 'p' is an array"),
        ({"p": 1, "parameters": {"p": 2}}, "'p' is given twice"),
        ({"text_input": "a", "parameters": {"text_input": "b"}}, "'text_input' is given twice"),
        (b'{"text_input":"a","p":1,"text_input":"b"}', "has 'text_input' twice"),
        (b'{"text_input":"a","parameters":{"p":1,"p":2}}', "has 'p' twice"),
        (b'{"text_input":"a","p":Inf,"p":1}', "has 'p' twice"),
        ({"id": 1}, "id must be a string"),
        ({"triton_x": 1}, "'triton_x'"),
    ],
)
def test_other_bodies_are_refused(body, words):
    assert words in refusal(body, TEXT)


def test_halves_may_be_turned_off():
    rules = JsonRules(half_floats=False, non_finite="tokens", max_json_bytes=2**26)
    half = declared("x", DataType.BF16)
    assert "input 'x': BF16 as JSON numbers is turned off" in refusal({"x": 1}, half, rules=rules)
    assert decode({"x": 1}, half).request.inputs[0].datatype is DataType.BF16


def test_what_takes_long_is_left_to_a_thread():
    body = {"text_input": "x" * INLINE_EXACT_BYTES}
    with pytest.raises(NotFast):
        decode(body, TEXT, on_loop=True)
    assert decode(body, TEXT).request.inputs[0].size_bytes == INLINE_EXACT_BYTES + 4


@pytest.mark.parametrize("most", [100, MAX_EXACT_BYTES])
def test_a_body_has_a_limit(most):
    rules = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=most)
    text = refusal(b" " * (most + 1), rules=rules, on_loop=True)
    assert text == f"a body of generate may have {most} bytes, this has {most + 1}; use infer"


# --- an inference request instead ---


def v2_body(**more):
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["hi"]}
    return {"inputs": [tensor], "id": "7", "parameters": {"n": 1}, **more}


def test_an_array_of_inputs_is_an_inference_request():
    asked = decode(v2_body(), TEXT)
    assert asked.is_v2
    assert (asked.request.model, asked.request.version, asked.request.id) == ("m", "2", "7")
    assert asked.request.inputs[0].strings() == [b"hi"]
    assert asked.request.parameters == {"n": 1}


def test_its_answer_is_one_too_and_never_binary():
    wanted = [{"name": "y", "parameters": {"binary_data": True}}]
    asked = decode(v2_body(outputs=wanted, parameters={"binary_data_output": True}), TEXT)
    assert asked.request.outputs == [WantedOutput("y")]
    response = InferResponse("m", "2", "7", [row("y", [1.5])])
    assert json.loads(V2Generate(RULES).encode_response(asked, response)) == {
        "id": "7",
        "model_name": "m",
        "model_version": "2",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1.5]}],
    }


def test_inputs_that_are_no_array_are_a_parameter():
    asked = decode({"inputs": "a text"}, TEXT)
    assert (asked.is_v2, asked.request.parameters) == (False, {"inputs": "a text"})


def test_a_bad_inference_request_is_refused_as_one():
    assert "not an inference request" in refusal({"inputs": [1]}, TEXT)


# --- out ---


def row(name, values, datatype=FP32):
    return Tensor.from_numpy(name, np.array(values, datatype.numpy), datatype)


def encode(*outputs, rules=RULES, request_id="", **how):
    response = InferResponse("m", "2", request_id, list(outputs), how.pop("parameters", {}))
    return V2Generate(rules).encode_response(decode({}), response, **how)


def test_an_answer_has_its_members_in_alphabetical_order():
    text = row("text_output", [b"hi"], BYTES)
    answer = encode(text, row("A", [1.0]), request_id="77", parameters={"z": 1, "b": True})
    assert answer == (
        b'{"A":1.0,"b":true,"id":"77","model_name":"m","model_version":"2",'
        b'"text_output":"hi","z":1}'
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([2.5], b"2.5"),
        ([[2.5]], b"2.5"),
        ([1, 2], b"[1.0,2.0]"),
        ([[1], [2]], b"[1.0,2.0]"),
        ([], b"[]"),
    ],
)
def test_one_element_is_a_scalar_more_are_flat(values, text):
    assert encode(row("y", values)) == b'{"model_name":"m","model_version":"2","y":%b}' % text


def test_a_string_that_looks_like_json_stays_a_string():
    assert json.loads(encode(row("y", [b'"],['], BYTES)))["y"] == '"],['


def test_what_json_cannot_say_is_refused_by_name():
    rules = JsonRules(half_floats=False, non_finite="error", max_json_bytes=2**26)
    for output in (row("y", [b"\xff"], BYTES), row("y", [np.nan]), row("y", [1], DataType.FP16)):
        with pytest.raises(InvalidRequest, match="output 'y'"):
            encode(output, rules=rules)


def test_a_long_answer_is_left_to_a_thread():
    long = row("y", np.zeros(INLINE_ELEMENTS + 1))
    with pytest.raises(NotFast):
        encode(long, on_loop=True)
    assert len(json.loads(encode(long))["y"]) == INLINE_ELEMENTS + 1


def test_an_event_is_one_line_and_an_empty_one():
    assert encode_event(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert encode_error_event("two\nlines") == b'data: {"error":"two\\nlines"}\n\n'
