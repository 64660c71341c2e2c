"""V2 over JSON: requests as every reader reads them, answers, and errors."""

import contextlib
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.aio.inline import (
    INLINE_EXACT_BYTES,
    INLINE_JSON_BYTES,
    INLINE_STRING_BYTES,
    INLINE_STRINGS,
    PIECE,
    NotFast,
)
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import Code, InferdError, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor
from inferd.wire.json import document as json_document
from inferd.wire.v2.rest.codec import HTTP_STATUS, MAX_ERROR, JsonRules, V2Rest, encode_error

PADDING = b" " * json_document.LARGE_BYTES
MARK = b"\xef\xbb\xbf"
INPUT = {"name": "x", "shape": [1], "datatype": "INT8", "data": [1]}


def codec(**rules):
    defaults = {"half_floats": True, "non_finite": "tokens", "max_json_bytes": 2**26}
    return V2Rest(JsonRules(**defaults | rules))


def decode_whole(codec, *request):
    """Decode as the server does: what takes long goes another way."""
    try:
        return codec.decode_infer_request(*request)
    except NotFast:
        return codec.decode_slowly(*request)


def bodies(document):
    """Return `document` as the small, the large and (by its mark) the exact reader will read it."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return text, text + PADDING, MARK + text


def decode(document, **rules):
    """Return the request every reader makes of `document`."""
    first, *others = [
        decode_whole(codec(**rules), "m", "3", memoryview(body), len(body))
        for body in bodies(document)
    ]
    for other in others:
        assert plain(other) == plain(first)
    return first


def plain(request):
    tensors = [(t.name, t.datatype, t.shape, bytes(t.view()), t.parameters) for t in request.inputs]
    fields = request.asdict() | {"inputs": None}
    return repr(fields), tensors


def refusal(document, error=InvalidRequest, **rules):
    """Return the words with which every reader refuses `document`."""
    messages = set()
    for body in bodies(document):
        with pytest.raises(error) as caught:
            decode_whole(codec(**rules), "m", "", memoryview(body), len(body))
        messages.add(caught.value.message)
    assert len(messages) == 1
    return messages.pop()


def with_parameters(**parameters):
    return {"parameters": parameters, "inputs": [INPUT]}


def with_output(**parameters):
    return {"inputs": [INPUT], "outputs": [{"name": "y", "parameters": parameters}]}


# --- requests ---


def test_a_request_is_read_whole():
    request = decode(
        {
            "id": "42",
            "model_name": "another",
            "parameters": {"a": 1, "priority": 2},
            "inputs": [INPUT, INPUT | {"name": "y", "shape": [2, 1], "data": [[3], [4]]}],
            "outputs": [{"name": "o"}, {"name": "p", "parameters": {"binary_data": True}}],
            "unknown": {"deep": [1]},
        }
    )
    assert (request.model, request.version, request.id) == ("m", "3", "42")
    assert request.parameters == {"a": 1} and request.priority == 2
    assert [t.name for t in request.inputs] == ["x", "y"]
    assert request.inputs[1].numpy().tolist() == [[3], [4]]
    assert request.outputs == [WantedOutput("o"), WantedOutput("p", True)]
    assert not request.raw and not request.binary_output and request.sequence is None


def test_a_request_may_have_nothing_but_inputs():
    request = decode({"inputs": []})
    assert (request.inputs, request.outputs, request.parameters, request.id) == ([], [], {}, "")
    assert (request.priority, request.timeout_us, request.sequence) == (0, 0, None)


@pytest.mark.parametrize("given_id", [None, ""])
def test_no_id_and_an_empty_one_are_the_same(given_id):
    assert decode({"id": given_id, "inputs": []}).id == ""


@pytest.mark.parametrize("text", ["é", "\0", "a" * 10_000, "\N{GRINNING FACE}"])
def test_ids_and_names_are_any_text(text):
    request = decode({"id": text, "inputs": [INPUT | {"name": text}], "outputs": [{"name": text}]})
    assert request.id == request.inputs[0].name == request.outputs[0].name == text


@pytest.mark.parametrize(
    "name",
    ["int8", "Int8", "TYPE_INT8", "INT", "INT128", "", "FLOAT", " INT8", "OBJECT", "string", "é"],
)
def test_a_datatype_that_is_none_is_refused_by_name(name):
    message = refusal({"inputs": [INPUT | {"datatype": name}]})
    assert f"'{name}'" in message and "input x:" in message and "UINT64" in message


def test_string_is_another_name_of_bytes():
    [tensor] = decode({"inputs": [INPUT | {"datatype": "STRING", "data": ["a"]}]}).inputs
    assert tensor.datatype is DataType.BYTES and tensor.strings() == [b"a"]


@pytest.mark.parametrize("parameters", [None, {}, {"a": None}, {"a": [1]}, {"a": {}, "b": None}])
def test_parameters_of_no_use_leave_an_input_without(parameters):
    [tensor] = decode({"inputs": [INPUT | {"parameters": parameters}]}).inputs
    assert tensor.parameters is None and tensor.numpy().tolist() == [1]


def test_parameters_of_inputs_are_retained_when_scalar():
    parameters = {"s": "t", "b": True, "i": -5, "d": 1.5, "big": 2**64, "n": None, "o": {"a": 1}}
    [tensor] = decode({"inputs": [INPUT | {"parameters": parameters}]}).inputs
    assert tensor.parameters == {"s": "t", "b": True, "i": -5, "d": 1.5, "big": 2.0**64}


@pytest.mark.parametrize("parameters", [None, {}, {"a": 1}])
def test_an_input_without_data_is_refused(parameters):
    document = {
        "inputs": [{"name": "x", "shape": [1], "datatype": "INT8", "parameters": parameters}]
    }
    message = refusal(document)
    assert "input 'x' has none of them" in message and "binary_data_size" in message


def test_null_data_are_not_absent_ones():
    assert "array" in refusal({"inputs": [INPUT | {"data": None}]})


@pytest.mark.parametrize("also", [{"data": [1]}, {"data": "AA=="}, {"data": None}])
def test_data_beside_shared_memory_are_refused(also):
    one = INPUT | also | {"parameters": {"shared_memory_region": "r"}}
    assert "two places" in refusal({"inputs": [one]})


def test_a_size_beside_shared_memory_is_refused():
    parameters = {"shared_memory_region": "r", "binary_data_size": 1}
    one = {"name": "x", "shape": [1], "datatype": "INT8", "parameters": parameters}
    assert "two places" in refusal({"inputs": [one]})


def test_a_region_of_null_is_none():
    one = INPUT | {"parameters": {"shared_memory_region": None}}
    assert decode({"inputs": [one]}).inputs[0].numpy().tolist() == [1]


@pytest.mark.parametrize("cased", ["Binary_Data_Size", "BINARY_DATA_SIZE", "Shared_Memory_Region"])
def test_parameters_are_distinguished_by_case(cased):
    [tensor] = decode({"inputs": [INPUT | {"parameters": {cased: 1}}]}).inputs
    assert tensor.parameters == {cased: 1}


# --- wanted outputs ---


@pytest.mark.parametrize("outputs", [None, []])
def test_no_wanted_outputs_means_all(outputs):
    assert decode({"inputs": [INPUT], "outputs": outputs}).outputs == []


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, WantedOutput("y")),
        ({"binary_data": True}, WantedOutput("y", True)),
        ({"binary_data": False}, WantedOutput("y", False)),
        ({"binary_data": None}, WantedOutput("y")),
        ({"Binary_Data": True}, WantedOutput("y")),
        ({"classification": 3}, WantedOutput("y", None, 3)),
        ({"classification": 0}, WantedOutput("y")),
        ({"classification": None}, WantedOutput("y")),
        ({"classification": 2**63 - 1}, WantedOutput("y", None, 2**63 - 1)),
        ({"classification": 10**30}, WantedOutput("y", None, 10**30)),
        ({"binary_data": True, "classification": 1, "k": [{}]}, WantedOutput("y", True, 1)),
        ({"shared_memory_region": None}, WantedOutput("y")),
    ],
)
def test_wanted_outputs_say_how_they_are_wanted(parameters, expected):
    assert decode(with_output(**parameters)).outputs == [expected]


@pytest.mark.parametrize("count", [-1, -(2**63)])
def test_a_negative_count_of_classes_is_refused(count):
    message = refusal(with_output(classification=count))
    assert "'y'" in message and "classification" in message


@pytest.mark.parametrize(
    "parameters",
    [
        {"binary_data": 1},
        {"binary_data": "true"},
        {"classification": "3"},
        {"classification": 1.5},
        {"classification": True},
        {"binary_data": []},
    ],
)
def test_wanted_outputs_of_the_wrong_kind_are_refused(parameters):
    [key] = parameters
    assert key in refusal(with_output(**parameters))


# --- request parameters ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("-1", -1),
        ("true", True),
        ('"a"', "a"),
        ('""', ""),
        ("1.5", 1.5),
        ("1.0", 1.0),
        ("1e2", 100.0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", 2.0**63),
        ("18446744073709551615", 2.0**64),
        ("18446744073709551616", 2.0**64),
        ("-9223372036854775809", -(2.0**63)),
        ("1" + "0" * 300, 1e300),
        ("1e-400", 0.0),
        ("Infinity", math.inf),
    ],
)
def test_parameters_keep_their_kind(text, expected):
    request = decode(b'{"parameters":{"p":%b},"inputs":[]}' % text.encode())
    assert request.parameters == {"p": expected}
    assert type(request.parameters["p"]) is type(expected)


def test_a_null_parameter_is_none():
    nulls = dict.fromkeys(["p", "priority", "sequence_id", "binary_data_output", "triton_x"])
    request = decode(with_parameters(**nulls, retained=1))
    assert request.parameters == {"retained": 1} and not request.binary_output


@pytest.mark.parametrize(
    ("value", "kind"), [({}, "an object"), ([], "an array"), ([1], "an array")]
)
def test_parameters_that_are_no_scalars_are_refused_by_name(value, kind):
    message = refusal(with_parameters(p=value))
    assert f"'p' has invalid type. It is {kind}" in message and "string" in message


@pytest.mark.parametrize(
    "text", [b"1e400", b"-1e400", b"9" * 400, b"1e999999999", b"1e" + b"9" * 30]
)
@pytest.mark.parametrize("on_input", [True, False])
def test_parameters_beyond_a_double_are_refused_by_name(text, on_input):
    one = b'{"name":"x","shape":[1],"datatype":"INT8","data":[1]%b}'
    if on_input:
        body = b'{"inputs":[%b]}' % (one % (b',"parameters":{"p":%b}' % text))
    else:
        body = b'{"parameters":{"p":%b},"inputs":[%b]}' % (text, one % b"")
    assert "'p'" in refusal(body) and "double" in refusal(body)


# --- nothing but refusals ---

VALID = json.dumps(
    {
        "id": "1",
        "parameters": {"p": 1.5, "sequence_id": 3},
        "inputs": [
            INPUT,
            {"name": "f", "shape": [2, 1], "datatype": "FP32", "data": [[1e2], [-0.5]]},
            {"name": "b", "shape": [1], "datatype": "BYTES", "data": ["a\u00e9\n"]},
            {"name": "h", "shape": [-1], "datatype": "FP16", "data": [1, 2]},
            {"name": "n", "shape": [1], "datatype": "INT8", "parameters": {"binary_data_size": 1}},
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": True, "classification": 1}}],
    }
).encode()
SNIPPETS = [
    b'"',
    b"[",
    b"]",
    b"{",
    b",",
    b"\\ud800",
    b"Inf",
    b"NaN",
    b"null",
    b"1e999",
    b"-1",
    b"9" * 30,
]


def decoded_or_refused(body, size):
    try:
        return decode_whole(codec(), "m", "", memoryview(body), size)
    except InferdError as error:
        return error.message


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, max_examples=400)
def test_a_broken_request_is_answered_or_refused(data):
    text = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        to = data.draw(st.integers(at, min(len(text), at + 3)))
        text[at:to] = data.draw(st.sampled_from(SNIPPETS) | st.binary(max_size=2))
    for body in bodies(bytes(text)):
        answer = decoded_or_refused(body + b"\x07", len(body))
        if isinstance(answer, str):
            assert json.loads(encode_error(answer))["error"]
        else:
            assert [t.size_bytes for t in answer.inputs] == [
                t.size_bytes if t.datatype is DataType.BYTES else t.numpy().nbytes
                for t in answer.inputs
            ]


def test_a_lone_bracket_is_refused_as_the_first_request_too():
    assert "failed to parse the request JSON" in decoded_or_refused(b"]", 1)


@given(st.binary(max_size=60), st.data())
@settings(deadline=None)
def test_random_bytes_are_a_raw_request_or_refused(body, data):
    size = data.draw(st.integers(0, len(body)))
    answer = decoded_or_refused(body, size)
    assert answer if isinstance(answer, str) else answer.raw


@pytest.mark.parametrize(
    "one",
    [
        {"name": "n" * 10**6},
        {"datatype": "d" * 10**6},
        {"data": "é" * 10**6},
        {"data": ["s" * 10**6]},
        {"shape": [2**63 - 1] * 64},
        {"parameters": {"shared_memory_region": "r" * 10**6}, "name": "n" * 10**6},
    ],
)
def test_an_error_is_short_however_long_the_request(one):
    document = {"inputs": [INPUT | {"shape": [7]} | one]}
    for body in bodies(document):
        with pytest.raises(InferdError) as caught:
            decode_whole(codec(), "m", "", memoryview(body), len(body))
        answer = encode_error(caught.value.message)
        assert len(answer) < MAX_ERROR + 100
        start = json.loads(answer)["error"][:150]
        assert "input 'n" in start or "input 'x'" in start or "input x" in start


def test_a_request_beyond_the_limit_is_refused():
    body = memoryview(VALID)
    message = ""
    with pytest.raises(InvalidRequest) as caught:
        codec(max_json_bytes=len(VALID) - 1).decode_infer_request("m", "", body, len(VALID))
    message = caught.value.message
    assert str(len(VALID)) in message and str(len(VALID) - 1) in message
    assert "--http-max-input-size" in message


def test_one_codec_reads_request_after_request():
    one = codec()
    for name in ("a", "b"):
        for body in bodies({"inputs": [INPUT | {"name": name}]}):
            assert (
                one.decode_infer_request("m", "", memoryview(body), len(body)).inputs[0].name
                == name
            )
        for body in bodies(b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1]}]}'):
            with pytest.raises(InvalidRequest):
                one.decode_infer_request("m", "", memoryview(body), len(body))


@pytest.mark.parametrize("fault", [b"", b"]", b"NaN"])
def test_a_body_is_free_once_it_is_answered(fault):
    for text in bodies(
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1%b]}]}' % fault
    ):
        body = memoryview(bytearray(text))
        one = codec()
        with contextlib.suppress(InvalidRequest):
            one.decode_infer_request("m", "", body, len(body))
        body.release()  # raises BufferError while anybody has a view


# --- answers ---


def encode(response, request=None, **rules):
    return codec(**rules).encode_infer_response(request or InferRequest("m"), response)


def text_of(response, request=None, **rules):
    buffers, size = encode(response, request, **rules)
    assert size is None
    return b"".join(buffers)


def response_with(*tensors, **fields):
    return InferResponse("m", "1", outputs=list(tensors), **fields)


def tensor(name, datatype, values):
    if datatype is DataType.BYTES:
        return Tensor(name, datatype, (len(values),), encode_strings(values, name))
    return Tensor.from_numpy(name, np.array(values, datatype.numpy), datatype)


Y = tensor("y", DataType.INT8, [1, 2])


def test_keys_come_in_the_order_of_the_protocol():
    response = response_with(Y, id="42", parameters={"a": 1})
    assert text_of(response) == (
        b'{"id":"42","model_name":"m","model_version":"1","parameters":{"a":1},"outputs":'
        b'[{"name":"y","datatype":"INT8","shape":[2],"data":[1,2]}]}'
    )


def test_an_answer_without_id_and_parameters_has_neither():
    assert text_of(response_with(Y)) == (
        b'{"model_name":"m","model_version":"1","outputs":'
        b'[{"name":"y","datatype":"INT8","shape":[2],"data":[1,2]}]}'
    )


def test_an_answer_may_have_no_outputs():
    assert text_of(response_with()) == b'{"model_name":"m","model_version":"1","outputs":[]}'
    text = text_of(response_with(id="é", parameters={"k": "v"}))
    assert json.loads(text) == {
        "id": "é",
        "model_name": "m",
        "model_version": "1",
        "parameters": {"k": "v"},
        "outputs": [],
    }


@pytest.mark.parametrize("text", ['"', "\\", "é", "\0", "\n", "</script>", "\u2028"])
def test_every_text_is_escaped(text):
    response = InferResponse(text, text, text, [tensor(text, DataType.INT8, [1])], {text: text})
    got = json.loads(text_of(response))
    assert (got["id"], got["model_name"], got["model_version"]) == (text, text, text)
    assert got["parameters"] == {text: text} and got["outputs"][0]["name"] == text


def test_parameters_of_outputs_come_before_their_data():
    one = Tensor("y", DataType.INT8, (1,), b"\x01", {"k": "v"})
    assert b'"shape":[1],"parameters":{"k":"v"},"data":[1]}]}' in text_of(response_with(one))
    buffers, size = encode(response_with(one), InferRequest("m", binary_output=True))
    assert b'"shape":[1],"parameters":{"k":"v","binary_data_size":1}}]}' in buffers[0]
    assert size == len(buffers[0]) and bytes(buffers[1]) == b"\x01"


@pytest.mark.parametrize("datatype", DataType)
def test_every_datatype_is_written_under_its_own_name(datatype):
    values = {DataType.BYTES: ["a", "b"], DataType.BF16: [0x3F80, 0x4000]}.get(datatype, [1, 0])
    [output] = json.loads(text_of(response_with(tensor("y", datatype, values))))["outputs"]
    assert (output["datatype"], output["shape"]) == (datatype.value, [2])
    expected = {DataType.BYTES: ["a", "b"], DataType.BF16: [1, 2], DataType.BOOL: [True, False]}
    assert output["data"] == expected.get(datatype, [1, 0])


@pytest.mark.parametrize("datatype", [d for d in DataType if d.size_bytes])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
def test_shapes_are_written_as_they_are(datatype, shape):
    array = np.zeros(shape, datatype.numpy)
    response = response_with(Tensor.from_numpy("y", array, datatype))
    [output] = json.loads(text_of(response))["outputs"]
    assert output["shape"] == list(shape) and output["data"] == [0] * array.size
    buffers, size = encode(response, InferRequest("m", binary_output=True))
    assert json.loads(buffers[0])["outputs"][0]["shape"] == list(shape)
    assert (size is None) == (array.nbytes == 0)
    assert b"".join(buffers[1:]) == array.tobytes()


def test_binary_and_json_may_be_mixed():
    outputs = [Y, tensor("f", DataType.FP32, [1.5]), tensor("s", DataType.BYTES, ["ab"])]
    wanted = [WantedOutput("y", True), WantedOutput("f"), WantedOutput("s", True)]
    buffers, size = encode(response_with(*outputs), InferRequest("m", outputs=wanted))
    body = b"".join(buffers)
    document = json.loads(body[:size])
    assert [o.get("parameters") for o in document["outputs"]] == [
        {"binary_data_size": 2},
        None,
        {"binary_data_size": 6},
    ]
    assert [o.get("data") for o in document["outputs"]] == [None, [1.5], None]
    assert body[size:] == b"\x01\x02" + b"\x02\x00\x00\x00ab"


@pytest.mark.parametrize("binary_output", [True, False])
def test_the_choice_for_all_is_for_unlisted_outputs_only(binary_output):
    request = InferRequest("m", outputs=[WantedOutput("y")], binary_output=binary_output)
    assert b'"data":[1,2]' in text_of(response_with(Y), request)
    buffers, size = encode(response_with(Y), InferRequest("m", binary_output=binary_output))
    assert (size is not None) == binary_output
    assert b"".join(buffers).endswith(b"\x01\x02") == binary_output


def test_binary_outputs_of_no_bytes_are_plain_json():
    empty = [tensor("a", DataType.FP32, []), tensor("b", DataType.BYTES, [])]
    text = text_of(response_with(*empty), InferRequest("m", binary_output=True))
    assert [o["parameters"] for o in json.loads(text)["outputs"]] == [{"binary_data_size": 0}] * 2


def test_one_output_with_bytes_makes_the_answer_binary():
    outputs = [tensor("a", DataType.FP32, []), Y]
    buffers, size = encode(response_with(*outputs), InferRequest("m", binary_output=True))
    assert size == len(buffers[0]) and b"".join(buffers[1:]) == b"\x01\x02"


def test_large_binary_outputs_are_not_copied():
    array = np.arange(4000, dtype=np.float32)
    one = Tensor.from_numpy("y", array, DataType.FP32)
    buffers, _ = encode(response_with(one), InferRequest("m", binary_output=True))
    assert np.shares_memory(np.frombuffer(buffers[1], np.float32), array)


@pytest.mark.parametrize("count", [10, 100_000])
@pytest.mark.parametrize("more", [0, 1])
def test_large_answers_are_whole(count, more):
    outputs = [tensor("y", DataType.INT32, range(count))] + [Y] * more
    buffers, _ = codec().encode_infer_response(
        InferRequest("m"), response_with(*outputs), in_thread=True
    )
    document = json.loads(b"".join(buffers))
    assert document["outputs"][0]["data"] == list(range(count))
    assert [o["data"] for o in document["outputs"][1:]] == [[1, 2]] * more


@pytest.mark.parametrize("datatype", [DataType.FP32, DataType.FP16, DataType.BOOL, DataType.UINT8])
def test_an_answer_in_several_pieces_says_all_of_it(datatype):
    array = np.zeros(2 * PIECE + 1, datatype.numpy)
    array[[0, PIECE - 1, PIECE, 2 * PIECE]] = 1
    if datatype.value.startswith("FP"):
        array[PIECE + 1] = math.nan
    one = Tensor.from_numpy("y", array, datatype)
    request = InferRequest("m")
    with pytest.raises(NotFast):
        codec().encode_infer_response(request, response_with(one))
    [text, *rest], _ = codec().encode_infer_response(request, response_with(one), in_thread=True)
    found = json.loads(b"".join((text, *rest)))["outputs"][0]["data"]
    np.testing.assert_array_equal(np.array(found, datatype.numpy), array)


@pytest.mark.parametrize(
    "elements", [[b"x"] * (INLINE_STRINGS + 1), [bytes(INLINE_STRING_BYTES)], ["é"] * PIECE * 2]
)
def test_strings_that_take_long_to_write_are_left_to_a_thread(elements):
    one = tensor("y", DataType.BYTES, elements)
    request = InferRequest("m")
    with pytest.raises(NotFast):
        codec().encode_infer_response(request, response_with(one))
    buffers, _ = codec().encode_infer_response(request, response_with(one), in_thread=True)
    found = json.loads(b"".join(buffers))["outputs"][0]["data"]
    assert found == [e if isinstance(e, str) else e.decode() for e in elements]


@pytest.mark.parametrize("rule", ["tokens", "null", "error"])
def test_what_json_cannot_say_is_said_by_the_rule(rule):
    response = response_with(tensor("y", DataType.FP32, [math.nan, 1]))
    if rule == "error":
        with pytest.raises(InvalidRequest, match="'y' holds nan"):
            encode(response, non_finite=rule)
    else:
        expected = {"tokens": b"[NaN,1.0]", "null": b"[null,1.0]"}[rule]
        assert expected in text_of(response, non_finite=rule)
    buffers, _ = encode(response, InferRequest("m", binary_output=True), non_finite=rule)
    assert math.isnan(struct.unpack("<2f", buffers[1])[0])


@pytest.mark.parametrize("datatype", [DataType.FP16, DataType.BF16])
def test_halves_as_numbers_can_be_turned_off(datatype):
    response = response_with(tensor("y", datatype, [1]))
    with pytest.raises(InvalidRequest, match=rf"sending {datatype.value} .*'y'.*binary_data"):
        encode(response, half_floats=False)
    buffers, _ = encode(response, InferRequest("m", binary_output=True), half_floats=False)
    assert len(buffers[1]) == 2


def test_strings_that_are_not_utf8_name_the_way_out_and_can_go_it():
    response = response_with(tensor("y", DataType.BYTES, [b"\xff"]))
    with pytest.raises(InvalidRequest, match=r"'y'.*binary_data"):
        encode(response)
    buffers, _ = encode(response, InferRequest("m", binary_output=True))
    assert bytes(buffers[1]) == b"\x01\x00\x00\x00\xff"


# --- what takes long ---


@pytest.mark.parametrize("count", [10, INLINE_EXACT_BYTES])
def test_a_long_text_that_takes_long_is_left_to_a_thread(count):
    body = json.dumps({"inputs": [INPUT | {"shape": [count], "data": [1.0] * count}]}).encode()
    request = ("m", "", memoryview(body), len(body))
    if count > 10:
        with pytest.raises(NotFast):
            codec().decode_infer_request(*request)
        tensors = codec().decode_slowly(*request).inputs
    else:
        tensors = codec().decode_infer_request(*request).inputs
    assert bytes(tensors[0].view()) == b"\1" * count


def test_json_that_takes_long_to_read_is_left_to_a_thread():
    body = json.dumps({"inputs": [INPUT]}).encode() + b" " * INLINE_JSON_BYTES
    request = ("m", "", memoryview(body), len(body))
    with pytest.raises(NotFast):
        codec().decode_infer_request(*request)
    assert bytes(codec().decode_large(*request).inputs[0].view()) == b"\1"


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.simdjson
def test_many_strings_in_json_are_left_to_a_thread(nested):
    count = INLINE_STRINGS + 1
    data = [["é"]] * count if nested else ["é"] * count
    body = json.dumps(
        {"inputs": [INPUT | {"datatype": "BYTES", "shape": [count], "data": data}]}
    ).encode()
    request = ("m", "", memoryview(body), len(body))
    with pytest.raises(NotFast):
        codec().decode_infer_request(*request)
    assert codec().decode_large(*request).inputs[0].strings() == ["é".encode()] * count


def test_many_binary_strings_are_left_to_a_thread():
    count = INLINE_STRINGS + 1
    parameters = {"binary_data_size": 4 * count}
    one = {"name": "x", "datatype": "BYTES", "shape": [count], "parameters": parameters}
    text = json.dumps({"inputs": [one]}).encode()
    request = ("m", "", memoryview(text + bytes(4 * count)), len(text))
    with pytest.raises(NotFast):
        codec().decode_infer_request(*request)
    assert codec().decode_large(*request).inputs[0].strings() == [b""] * count
    cut = ("m", "", memoryview(text + bytes(4 * count - 1)), len(text))
    with pytest.raises(InvalidRequest, match="declares"):  # what is refused unread needs no thread
        codec().decode_infer_request(*cut)


# --- errors ---


def test_each_reason_has_its_status():
    assert set(HTTP_STATUS) == set(Code)
    assert {code.name for code, status in HTTP_STATUS.items() if status == 400} == {
        "UNKNOWN",
        "INVALID_ARG",
        "ALREADY_EXISTS",
        "CANCELLED",
    }


@pytest.mark.parametrize("message", ["", "a", 'é"\n', "m" * MAX_ERROR])
def test_an_error_is_an_object_with_its_text(message):
    assert json.loads(encode_error(message)) == {"error": message}


def test_a_long_error_keeps_both_ends():
    text = json.loads(encode_error("begin" + "x" * 10**6 + "end"))["error"]
    assert text.startswith("begin") and text.endswith("end") and len(text) < MAX_ERROR + 10
