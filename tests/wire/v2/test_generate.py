"""Flat JSON objects to tensors and back."""

import contextlib
import json

import numpy as np
import pytest

from inferd.aio.inline import INLINE_ELEMENTS, INLINE_EXACT_BYTES, NotFast
from inferd.core.metadata import TensorMetadata
from inferd.core.request import InferResponse, Span, WantedOutput
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.json import document as json_document
from inferd.wire.json.document import LONG_BYTES, MAX_EXACT_BYTES, MOST_MEMBERS
from inferd.wire.shared_memory import no_regions
from inferd.wire.v2 import generate as v2_generate
from inferd.wire.v2.generate import GenerateMessage, V2Generate, encode_event
from inferd.wire.v2.rest.codec import JsonRules, encode_error

RULES = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**26)
BYTES, FP32, INT32 = DataType.BYTES, DataType.FP32, DataType.INT32
TEXT = TensorMetadata("text_input", BYTES, (1,))


def declared(name="x", datatype=FP32, shape=(-1,)):
    return TensorMetadata(name, datatype, shape)


def decoded(codec, message, *, on_loop=False):
    """Have `codec` decode `message` as on the event loop, or as in threads; return the message."""
    if on_loop:
        message.request = codec.decode(message, None)
        return message
    try:
        message.request = codec.decode_large(message, None)
    except NotFast:
        message.request = codec.decode_large(message, None, slowly=True)
    return message


def decode(body, *inputs, rules=RULES, **how):
    text = memoryview(body if isinstance(body, bytes | memoryview) else json.dumps(body).encode())
    message = GenerateMessage("m", "2", text, inputs, len(text), is_v2=False)
    return decoded(V2Generate(rules), message, **how)


def refusal(body, *inputs, **how):
    with pytest.raises(InvalidRequest) as caught:
        decode(body, *inputs, **how)
    return caught.value.message


# --- in ---


def test_members_that_have_an_inputs_name_are_inputs_the_others_parameters():
    requested = decode({"text_input": "hi", "n": 3, "t": 0.5, "s": "x", "b": True}, TEXT)
    request = requested.request
    assert (request.model, request.version, requested.is_v2) == ("m", "2", False)
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
    requested = decode({name: [1, 2] for name in names}, *inputs)
    assert [tensor.name for tensor in requested.request.inputs] == list(names)
    assert (requested.request.id, requested.request.parameters, requested.is_v2) == ("", {}, False)


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
        ((-1, -1), [[1, 2], [3, 4]], (2, 2)),
        ((-1, -1), [[1, 2, 3]], (1, 3)),
        ((-1, -1), [[1], [2], [3]], (3, 1)),
        ((-1, -1), [[], []], (2, 0)),
        ((-1, 2, 2), [[1, 2], [3, 4]], (1, 2, 2)),
        ((-1, -1, -1), [[1, 2], [3, 4], [5, 6]], (1, 3, 2)),
        ((-1, -1, -1), [[[1], [2]], [[3], [4]]], (2, 2, 1)),
        ((-1, 4), [[1, 2], [3, 4]], (1, 4)),
        ((-1, 1), [[[1]]], (1, 1)),
        ((-1, -1), [[1.5] * 3] * LONG_BYTES, (LONG_BYTES, 3)),
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
    assert text == (
        f"The schema can not convert input 'x' to tensor with proper shape: it is FP32 "
        f"{list(shape)}, which {count} elements do not fill"
    )


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2], [3]],
        [[1, 2], 3],
        [1, [2]],
        [[1, [2]], [3, 4]],
        [[1], [[2]]],
        [[], [1]],
        [[[1], [2]], [[3, 4], []]],
        [[1, 2]] * LONG_BYTES + [[3]],
        [[1, 2]] * LONG_BYTES + [3, 4],
    ],
)
@pytest.mark.parametrize("shape", [(-1,), (-1, -1), (2, 2), (4,)])
def test_ragged_arrays_are_refused(shape, value):
    text = refusal({"x": value}, declared(shape=shape))
    assert text.startswith("input 'x': its arrays are ragged, expected")


def test_brackets_in_long_strings_are_no_arrays():
    value = ["[" * LONG_BYTES, "[1]"]
    [tensor] = decode({"x": value}, declared(datatype=BYTES)).request.inputs
    assert (tensor.shape, tensor.strings()) == ((2,), [one.encode() for one in value])


def test_arrays_of_another_shape_than_the_variable_dims_are_refused():
    text = refusal({"x": [[[1, 2]], [[3, 4]]]}, declared(shape=(-1, -1)))
    assert text.endswith("it is FP32 [-1, -1], and its arrays have the shape [2, 1, 2]")


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
    text = refusal({"x": value}, declared("x", datatype))
    assert "input 'x': element 0 is" in text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "failed to parse the request JSON"),
        (b"{", "failed to parse the request JSON"),
        (b'"text"', "not an object"),
        (b"[]", "not an object"),
        (b'{"x":"\xff"}', "not UTF-8"),
        (b'{"x":' + b"[" * 100_000, "nested too deeply"),
        ({"parameters": [1]}, "Expected JSON object for keyword: 'parameters'"),
        ({"p": None}, "parameter 'p' has invalid type. It is null"),
        ({"p": {}}, "parameter 'p' has invalid type. It is an object"),
        ({"p": [1]}, "parameter 'p' has invalid type. It is an array"),
        ({"parameters": {"p": [1]}}, "parameter 'p' has invalid type. It is an array"),
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
    assert "receiving BF16 data via JSON is not supported" in refusal({"x": 1}, half, rules=rules)
    assert decode({"x": 1}, half).request.inputs[0].datatype is DataType.BF16


def test_what_takes_long_is_left_to_a_thread():
    body = {"text_input": "x" * INLINE_EXACT_BYTES}
    with pytest.raises(NotFast):
        decode(body, TEXT, on_loop=True)
    assert decode(body, TEXT).request.inputs[0].size_bytes == INLINE_EXACT_BYTES + 4


def test_a_body_has_a_limit():
    rules = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=100)
    text = refusal(b" " * 101, rules=rules, on_loop=True)
    assert text == (
        "the body has 101 bytes of JSON, the limit is 100 (--http-max-input-size); an inference "
        "request, which this call takes as well, may have its tensors as binary data"
    )


# --- long bodies ---

LONG = "x" * (LONG_BYTES + 1)
NUMBERS = [*range(100), *[7] * LONG_BYTES]


def request_of(body, *inputs):
    """Return what a body asks, in what can be compared; or the refusal."""
    try:
        requested = decode(body, *inputs)
    except InvalidRequest as error:
        return error.message
    request = requested.request
    tensors = [(one.name, one.datatype, one.shape, bytes(one.view())) for one in request.inputs]
    return requested.is_v2, request.id, request.parameters, tensors


@pytest.mark.parametrize("has_simdjson", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        {"s": LONG, "n": 3, "t": 0.1, "b": True, "id": "7"},
        {"s": [LONG, "ü"], "p": LONG},
        {"parameters": {"s": LONG, "n": 2**63}, "x": [1, 2.5]},
        {"parameters": {"x": [0.1] * LONG_BYTES, "i": [1, 2]}, "s": "\N{GRINNING FACE}"},
        {"i": NUMBERS, "x": 1, "h": [0.5] * LONG_BYTES, "o": [True, False] * LONG_BYTES},
        {"i": [[[1, 2]] * LONG_BYTES]},
        {"i": [1.0] * LONG_BYTES},
        {"i": [1, "a"] * LONG_BYTES},
        {"i": LONG},
        {"i": {"a": LONG}},
        {"s": NUMBERS},
        {"p": NUMBERS},
        {"triton_x": NUMBERS},
        {"p": {"a": LONG}},
        {"parameters": {"p": {"a": LONG}}},
        {"parameters": NUMBERS},
        {"parameters": LONG},
        {"s": LONG, "p": None},
        {"s": LONG, "parameters": {"s": "again"}},
        {str(name): 1 for name in range(MOST_MEMBERS + 1)},
        {"s": LONG, "inputs": "a text"},
        {"s": LONG, "inputs": [1]},
        {"p": LONG, "inputs": [{"name": "s", "datatype": "BYTES", "shape": [1], "data": ["a"]}]},
        {"inputs": [{"name": "s", "datatype": "BYTES", "shape": [1], "data": [LONG]}]},
        {"inputs": [{"name": "i", "datatype": "INT32", "shape": [-1], "data": NUMBERS}]},
        LONG,
        NUMBERS,
        b'{"s":"%b","a":1,"a":2}' % LONG.encode(),
        b'{"s":"%b","parameters":{"a":1,"a":2}}' % LONG.encode(),
        b'{"s":"%b","s":"a"}' % LONG.encode(),
        b'{"s":"%b","s":"a","x":1}' % LONG.encode(),
        b'{"x":[1e999%b]}' % (b",1" * LONG_BYTES),
        b'{"s":["\xff"%b]}' % (b',"a"' * LONG_BYTES),
        b' { "s" :\n"%b" , "t" :\t1e2\r} ' % LONG.encode(),
        b'{"s":"%b","a\\"b":1e2,"x":NaN}' % LONG.encode(),
        b'{"s":"\\ud83d\\ude00%b","x":Inf}' % LONG.encode(),
        b'{"s":"\\ud83d%b"}' % LONG.encode(),
        b'{"s":"\xff%b"}' % LONG.encode(),
        b'{"s":"%b","x":01}' % LONG.encode(),
        b'{"s":"%b"}}' % LONG.encode(),
        b'\xef\xbb\xbf{"s":"%b"}' % LONG.encode(),
        b"{%b}" % (b" " * LONG_BYTES),
        b'{"s":"a","a":' + b"[" * LONG_BYTES,
    ],
)
def test_a_long_body_means_what_it_means_to_the_exact_reader(monkeypatch, body, has_simdjson):
    if not has_simdjson:
        monkeypatch.setattr(json_document, "simdjson", None)  # stands for a missing package
    inputs = [declared("s", BYTES), declared("x"), declared("i", INT32)]
    inputs += [declared("h", DataType.FP16), declared("o", DataType.BOOL)]
    found = request_of(body, *inputs)
    monkeypatch.setattr(v2_generate, "INLINE_EXACT_BYTES", 2**40)  # no body is long then
    assert found == request_of(body, *inputs)


@pytest.mark.parametrize("has_simdjson", [True, False])
def test_a_plain_body_may_be_longer_than_the_exact_reader_reads(monkeypatch, has_simdjson):
    if not has_simdjson:
        monkeypatch.setattr(json_document, "simdjson", None)  # stands for a missing package
    text = "x" * (MAX_EXACT_BYTES + 1)
    [tensor] = decode({"text_input": text, "n": 0.1}, TEXT).request.inputs
    assert tensor.strings() == [text.encode()]
    body = b'{"x":[%b]}' % b",".join([b"0.12345678"] * 800_000)
    assert len(body) > MAX_EXACT_BYTES
    [tensor] = decode(body, declared()).request.inputs
    assert tensor.shape == (800_000,)
    assert set(tensor.numpy().tolist()) == {float(np.float32(0.12345678))}


@pytest.mark.parametrize("odd", [b'"n":NaN', b'"n":1,"n":1', b'"n":'])
def test_what_is_not_plain_may_not_be_so_long(odd):
    body = b'{"text_input":"%b",%b}' % (b"x" * MAX_EXACT_BYTES, odd)
    text = refusal(body, TEXT)
    assert text.startswith(f"the body has {len(body)} bytes and is not plain: it is malformed, ")
    assert "Only up to 8388608 bytes are read then" in text


def test_nothing_holds_on_to_a_long_body():
    for body in ({"s": LONG, "i": NUMBERS, "x": [0.1] * LONG_BYTES}, {"i": NUMBERS, "p": NUMBERS}):
        text = memoryview(bytearray(json.dumps(body).encode()))
        inputs = [declared("s", BYTES), declared("x"), declared("i", INT32)]
        with contextlib.suppress(InvalidRequest):
            decode(text, *inputs)
        text.release()  # raises BufferError while anybody has a view


# --- an inference request instead ---


def v2_body(**more):
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["hi"]}
    return {"inputs": [tensor], "id": "7", "parameters": {"n": 1}, **more}


def test_an_array_of_inputs_is_an_inference_request():
    requested = decode(v2_body(), TEXT)
    assert requested.is_v2
    assert (requested.request.model, requested.request.version, requested.request.id) == (
        "m",
        "2",
        "7",
    )
    assert requested.request.inputs[0].strings() == [b"hi"]
    assert requested.request.parameters == {"n": 1}


def test_its_answer_is_one_too_and_never_binary():
    wanted = [{"name": "y", "parameters": {"binary_data": True}}]
    requested = decode(v2_body(outputs=wanted, parameters={"binary_data_output": True}), TEXT)
    assert requested.request.outputs == [WantedOutput("y")]
    response = InferResponse("m", "2", "7", [row("y", [1.5])])
    answer = V2Generate(RULES).encode(requested.request, response, requested, None, in_thread=True)
    assert json.loads(answer) == {
        "id": "7",
        "model_name": "m",
        "model_version": "2",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1.5]}],
    }


def test_inputs_that_are_no_array_are_a_parameter():
    requested = decode({"inputs": "a text"}, TEXT)
    assert (requested.is_v2, requested.request.parameters) == (False, {"inputs": "a text"})


def test_a_bad_inference_request_is_refused_as_one():
    assert "not an inference request" in refusal({"inputs": [1]}, TEXT)


def infer_request(body, json_size=None, resolve=no_regions, **how):
    size = len(body) if json_size is None else json_size
    message = GenerateMessage("m", "2", memoryview(body), (), size, is_v2=True)
    return decoded(V2Generate(RULES, resolve), message, **how)


@pytest.mark.parametrize("on_loop", [True, False])
def test_bytes_behind_the_json_are_its_tensors(on_loop):
    parameters = {"binary_data_size": 6}
    tensor = {"name": "s", "datatype": "BYTES", "shape": [1], "parameters": parameters}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    requested = infer_request(text + b"\2\0\0\0hi", len(text), on_loop=on_loop)
    assert requested.is_v2 and not requested.request.binary_output
    assert requested.request.inputs[0].strings() == [b"hi"]


def test_a_raw_binary_request_is_answered_in_json():
    requested = infer_request(b"\0\0\x80\x3f", 0, on_loop=True)
    assert requested.is_v2 and requested.request.raw and not requested.request.binary_output


def test_an_odd_inference_request_is_read_in_the_end():
    body = json.dumps(v2_body(parameters={"n": float("nan")})).encode()
    assert infer_request(body, on_loop=False).request.inputs[0].strings() == [b"hi"]


@pytest.mark.parametrize("padding", [b"", b" " * INLINE_EXACT_BYTES])
def test_its_tensors_may_be_in_shared_memory(padding):
    def place(name):
        where = {"shared_memory_region": name, "shared_memory_byte_size": 4}
        return {"name": name, "datatype": "FP32", "shape": [1], "parameters": where}

    spans = {
        name: Span(memoryview(bytearray(4)), ((n,), 0, 4), name) for n, name in enumerate("xyz")
    }
    body = json.dumps({"inputs": [place("x")], "outputs": [place("z"), place("y")]}).encode()
    codec = V2Generate(RULES, lambda region, _offset, _size: spans[region])
    text = memoryview(body + padding)
    for is_v2 in (False, True):
        message = GenerateMessage("m", "2", text, [], len(text), is_v2=is_v2)
        request = decoded(codec, message).request
        assert request.inputs[0].data is spans["x"].view
        assert [one.place for one in request.outputs] == [spans["z"], spans["y"]]
    # A decoupled model may leave one out: what is placed has no data in the answer.
    response = InferResponse("m", "2", "", [placed("y")])
    answer = json.loads(codec.encode(request, response, message, None, in_thread=True))
    assert answer["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1]}]


def placed(name):
    return Tensor(name, FP32, (1,), b"")


# --- out ---


def row(name, values, datatype=FP32):
    return Tensor.from_numpy(name, np.array(values, datatype.numpy), datatype)


def encode(*outputs, rules=RULES, request_id="", parameters=None, on_loop=False):
    response = InferResponse("m", "2", request_id, list(outputs), parameters or {})
    codec, message = V2Generate(rules), decode({})
    return codec.encode(message.request, response, message, None, in_thread=not on_loop)


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
    assert encode_event(encode_error("two\nlines")) == b'data: {"error":"two\\nlines"}\n\n'
