"""V2 over JSON from the client's side, against the server's."""

import json
import math

import pytest
from fields import with_fields
from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.aio.inline import NotFast
from inferd.core.request import InferRequest, InferResponse, Sequence, WantedOutput
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.binary import HEADER, json_length
from inferd.wire.v2.rest.client import decode_infer_response, encode_infer_request
from inferd.wire.v2.rest.codec import JsonRules, V2Rest

SERVER = V2Rest(JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**26))
Y = Tensor("y", DataType.INT8, (2,), b"\1\2")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
PARAMETERS = st.dictionaries(TEXTS.map(lambda key: "k" + key), SCALARS, max_size=2)


@st.composite
def tensors(draw, name="x"):
    datatype = draw(st.sampled_from(list(DataType)))
    shape = draw(SHAPES)
    count = math.prod(shape)
    if datatype is DataType.BYTES:
        texts = draw(st.lists(TEXTS, min_size=count, max_size=count))
        return Tensor(name, datatype, shape, bytes(encode_strings(texts, name)))
    size = count * datatype.size_bytes
    raw = draw(st.binary(min_size=size, max_size=size))
    if datatype is DataType.BOOL:
        raw = bytes(byte & 1 for byte in raw)
    return Tensor(name, datatype, shape, raw)


def values_of(one):
    """Return the elements as comparable text, any NaN as good as another."""
    if one.datatype is DataType.BYTES:
        return one.strings()
    if one.datatype is DataType.BF16:
        return ["nan" if bits & 0x7FFF > 0x7F80 else bits for bits in one.numpy().ravel().tolist()]
    return [repr(value) for value in one.numpy().ravel().tolist()]


def same(one, other):
    assert (one.name, one.datatype, one.shape) == (other.name, other.datatype, other.shape)
    assert values_of(one) == values_of(other)
    assert (one.parameters or None) == (other.parameters or None)


def sent(buffers, size):
    body = b"".join(buffers)
    return memoryview(body), len(body) if size is None else size


@pytest.mark.slow
@given(st.data(), st.booleans())
@settings(deadline=None, max_examples=150)
def test_a_request_survives_the_way_to_the_server(data, binary):
    inputs = [data.draw(tensors(name)) for name in ("a", "b")[: data.draw(st.integers(0, 2))]]
    for one in inputs:
        one.parameters = data.draw(PARAMETERS) or None
    sequences = st.builds(
        Sequence, st.integers(1, 2**64 - 1) | TEXTS.map("s".__add__), st.booleans()
    )
    wanted = st.builds(WantedOutput, TEXTS, st.booleans(), st.integers(0, 9))
    request = with_fields(
        InferRequest(
            "m",
            "3",
            data.draw(TEXTS),
            inputs,
            data.draw(st.lists(wanted, max_size=2)),
            data.draw(PARAMETERS),
        ),
        priority=data.draw(st.integers(0, 2**64 - 1)),
        timeout_us=data.draw(st.integers(0, 2**64 - 1)),
        sequence=data.draw(st.none() | sequences),
    )
    body, size = sent(*encode_infer_request(request, binary=binary))
    try:
        got = SERVER.decode_infer_request("m", "3", body, size)
    except NotFast:
        got = SERVER.decode_slowly("m", "3", body, size)
    for one, other in zip(inputs, got.inputs, strict=True):
        same(one, other)
    assert got.binary_output == (binary and not request.outputs)
    got.inputs, got.binary_output, got.batch_key = inputs, False, None  # may be of a text before
    assert got == request


@pytest.mark.slow
@given(st.data(), st.booleans())
@settings(deadline=None, max_examples=150)
def test_an_answer_survives_the_way_to_the_client(data, binary):
    outputs = [data.draw(tensors(name)) for name in ("a", "b")[: data.draw(st.integers(0, 2))]]
    for one in outputs:
        one.parameters = data.draw(PARAMETERS) or None
    response = InferResponse("m", "1", data.draw(TEXTS), outputs, data.draw(PARAMETERS))
    request = InferRequest("m", binary_output=binary)
    got = decode_infer_response(*sent(*SERVER.encode_infer_response(request, response)))
    for one, other in zip(outputs, got.outputs, strict=True):
        same(one, other)
    got.outputs = outputs
    assert got == response


@pytest.mark.parametrize("binary", [True, False])
def test_outputs_are_requested_as_the_inputs_go(binary):
    request = InferRequest("m", outputs=[WantedOutput("a"), WantedOutput("b", not binary)])
    buffers, _ = encode_infer_request(request, binary=binary)
    assert json.loads(buffers[0])["outputs"] == [
        {"name": "a", "parameters": {"binary_data": binary}},
        {"name": "b", "parameters": {"binary_data": not binary}},
    ]


def test_binary_outputs_can_be_requested_with_json_inputs():
    buffers, size = encode_infer_request(
        InferRequest("m", inputs=[Y], binary_output=True), binary=False
    )
    assert size is None
    assert json.loads(buffers[0]) == {
        "inputs": [{"name": "y", "shape": [2], "datatype": "INT8", "data": [1, 2]}],
        "parameters": {"binary_data_output": True},
    }


@pytest.mark.parametrize(
    "fields", [{"id": "\ud800"}, {"parameters": {"a": 2**64}}, {"parameters": {"\ud800": 1}}]
)
def test_a_request_json_cannot_say_is_refused(fields):
    with pytest.raises(InvalidRequest, match="JSON"):
        encode_infer_request(with_fields(InferRequest("m"), **fields), binary=False)


def test_answers_of_other_servers_are_read():
    body = (
        b'{"outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":[[1,NaN]],'
        b'"parameters":{"content_type":"np","x":1.5,"o":{}}}],"parameters":{"a":0.5,"o":[]},'
        b'"model_name":"m","model_version":null,"id":null,"extra":1}'
    )
    response = decode_infer_response(memoryview(body), len(body))
    assert (response.model, response.version, response.id) == ("m", "", "")
    assert response.parameters == {"a": 0.5}
    assert response.outputs[0].parameters == {"content_type": "np", "x": 1.5}
    assert response.outputs[0].shape == (1, 2)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "failed to parse the request JSON"),
        (b"{}", "not an inference response"),
        (b'{"error":"x"}', "not an inference response"),
        (b'{"model_name":"m","outputs":[{}]}', "not an inference response"),
        (b'{"model_name":"m","outputs":[{"name":"y","shape":[-2],"datatype":"INT8"}]}', "shape"),
        (b'{"model_name":"m","outputs":[{"name":"y","shape":[1],"datatype":"INT8"}]}', "'y'"),
        (b'{"model_name":"m","outputs":[{"name":"y","shape":[1],"datatype":"X"}]}', "'X'"),
        (
            b'{"model_name":"m","outputs":[{"name":"y","shape":[2],"datatype":"INT8","data":[1]}]}',
            "holds 1",
        ),
    ],
)
def test_answers_that_are_none_are_refused(body, words):
    with pytest.raises(InvalidRequest, match=words):
        decode_infer_response(memoryview(body), len(body))


def test_bytes_an_answer_does_not_account_for_are_refused():
    body = b'{"model_name":"m","outputs":[]}'
    with pytest.raises(InvalidRequest, match="3 bytes more"):
        decode_infer_response(memoryview(body + b"abc"), len(body))


def test_the_header_of_an_answer_counts_its_json():
    response = InferResponse("m", "1", outputs=[Y])
    request = InferRequest("m", binary_output=True)
    buffers, size = SERVER.encode_infer_response(request, response)
    length = sum(len(one) for one in buffers)
    assert json_length(str(size).encode(), length) == size
    assert HEADER == "Inference-Header-Content-Length"
