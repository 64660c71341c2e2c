"""The binary extension: the header, the blobs, raw requests."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.wire.v2.binary import Blobs, decode_raw_request, json_length
from inferd.wire.v2.rest.codec import JsonRules, V2Rest

FIXED = [d for d in DataType if d.size_bytes]
FOUR = struct.pack("<4f", 1, 2, 3, 4)
LIMIT = 2**20


def decode(document, blob=b"", json_size=None):
    head = document if isinstance(document, bytes) else json.dumps(document).encode()
    codec = V2Rest(JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=LIMIT))
    size = len(head) if json_size is None else json_size
    return codec.decode_infer_request("m", "", memoryview(head + blob), size)


def one(size, shape=(4,), datatype="FP32", name="x", **fields):
    parameters = {"binary_data_size": size}
    return {"name": name, "shape": shape, "datatype": datatype, "parameters": parameters} | fields


def refusal(document, blob=b"", json_size=None):
    with pytest.raises(InvalidRequest) as caught:
        decode(document, blob, json_size)
    return caught.value.message


# --- the header ---


def test_without_the_header_everything_is_json():
    assert json_length(None, 7) == 7
    assert json_length(None, 0) == 0


@pytest.mark.parametrize("header", [b"0", b"1", b"7", b"007"])
def test_the_header_counts_the_bytes_of_json(header):
    assert json_length(header, 7) == int(header)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b" 5",
        b"5 ",
        b"+5",
        b"-1",
        b"-0",
        b"5, 5",
        b"5,5",
        b"5;q=1",
        b"12x",
        b"abc",
        b"0x5",
        b"5.0",
        b"5e0",
        b"1_0",
        b"\xb2",
        b"\xd9\xa1",
        "٣".encode(),
        b"\x00",
        b"5\x00",
        b"\xff" * 99,
    ],
)
def test_another_header_is_refused(header):
    with pytest.raises(InvalidRequest, match="Inference-Header-Content-Length") as caught:
        json_length(header, 100)
    assert header[:40].decode("latin-1") in caught.value.message
    assert "JSON" in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("header", [b"8", b"99999", b"9" * 19, b"9" * 20, b"9" * 100_000])
def test_a_header_beyond_the_body_is_refused(header):
    with pytest.raises(InvalidRequest, match=r"in range \(0, 7\)") as caught:
        json_length(header, 7)
    assert header[:40].decode() in caught.value.message and len(caught.value.message) < 200


@given(st.binary(max_size=24), st.integers(0, 2**40))
def test_a_header_gives_a_length_within_the_body_or_a_refusal(header, length):
    try:
        size = json_length(header, length)
    except InvalidRequest:
        return
    assert 0 <= size <= length and header.isdigit()


@pytest.mark.parametrize("size", [1, 5, 10, 40])
def test_a_header_that_cuts_the_json_is_refused(size):
    assert "failed to parse the request JSON" in refusal({"inputs": [one(16)]}, FOUR, size)


def test_a_header_that_counts_binary_bytes_is_refused():
    document = json.dumps({"inputs": [one(16)]}).encode()
    message = refusal(document, FOUR, len(document) + 4)
    assert "failed to parse the request JSON" in message or "UTF-8" in message


# --- blobs ---


@pytest.mark.parametrize("datatype", FIXED)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,), (3, 0, 2)])
def test_every_datatype_is_a_view_of_the_body(datatype, shape):
    count = 1
    for dim in shape:
        count *= dim
    blob = bytes(i % 256 for i in range(count * datatype.size_bytes))
    [tensor] = decode({"inputs": [one(len(blob), shape, datatype.value)]}, blob).inputs
    assert (tensor.name, tensor.datatype, tensor.shape) == ("x", datatype, shape)
    assert bytes(tensor.view()) == blob and isinstance(tensor.data, memoryview)


@pytest.mark.parametrize("datatype", ["BYTES", "STRING"])
@pytest.mark.parametrize("elements", [[b"a", b"", b"\xff\x00" * 9], [b""], []])
def test_strings_have_lengths(datatype, elements):
    blob = bytes(encode_strings(elements, "x"))
    [tensor] = decode({"inputs": [one(len(blob), [len(elements)], datatype)]}, blob).inputs
    assert tensor.datatype is DataType.BYTES and tensor.strings() == elements


def test_blobs_follow_in_the_order_of_the_inputs_with_json_between():
    document = {
        "inputs": [
            one(2, [2], "INT8", "a"),
            {"name": "b", "shape": [2], "datatype": "INT8", "data": [5, 6]},
            one(0, [0], "INT8", "c"),
            one(1, [1], "UINT8", "d"),
        ]
    }
    inputs = decode(document, b"\x01\x02\xff").inputs
    assert [t.numpy().tolist() for t in inputs] == [[1, 2], [5, 6], [], [255]]


def test_unknown_parameters_stand_beside_binary_data_size():
    document = {
        "inputs": [one(1, [1], "INT8", parameters={"binary_data_size": 1, "k": 2, "o": {}})]
    }
    [tensor] = decode(document, b"\x01").inputs
    assert tensor.parameters == {"k": 2}
    [tensor] = decode({"inputs": [one(1, [1], "INT8")]}, b"\x01").inputs
    assert tensor.parameters is None


@pytest.mark.parametrize("left", [0, 1, 15])
def test_missing_bytes_are_refused(left):
    message = refusal({"inputs": [one(16)]}, FOUR[:left])
    assert f"input 'x', expecting {16 - left} additional bytes" in message
    assert "it declares 16 bytes" in message and f"{left} left" in message


def test_the_second_blob_may_lack_bytes_too():
    message = refusal({"inputs": [one(16), one(16, name="y")]}, FOUR + FOUR[:8])
    assert "input 'y', expecting 8 additional bytes" in message and "8 left" in message


@pytest.mark.parametrize(
    "inputs", [[one(16)], [], [{"name": "x", "shape": [1], "datatype": "INT8", "data": [1]}]]
)
def test_bytes_left_over_are_refused(inputs):
    blob = FOUR * len([i for i in inputs if "parameters" in i])
    assert "3 bytes more" in refusal({"inputs": inputs}, blob + b"abc")


@pytest.mark.parametrize("size", ["16", -16, 1.5, True, [], {}, 16.0, "", -1, 2**70])
def test_a_size_that_is_no_byte_count_is_refused(size):
    message = refusal({"inputs": [one(size)]}, FOUR)
    assert "'x'" in message and "bytes" in message


@pytest.mark.parametrize(
    "shape", [[3], [5], [1, 3], [], [0], [2**62], [2**32, 2**32], [2**63 - 1] * 60]
)
def test_a_size_that_does_not_fit_the_shape_is_refused(shape):
    message = refusal({"inputs": [one(16, shape)]}, FOUR)
    assert message.startswith("input byte size mismatch for input 'x' for model 'm'. Expected ")
    assert "got 16 bytes" in message and "FP32" in message and str(shape)[:9] in message


def test_no_bytes_are_not_four_elements():
    assert "Expected 16, got 0 bytes" in refusal({"inputs": [one(0)]}, b"")


@pytest.mark.parametrize("shape", [[-1], [-1, 4], [4, -1], [-1, -1]])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_an_open_dim_is_refused(shape, datatype):
    message = refusal({"inputs": [one(16, shape, datatype)]}, FOUR)
    assert "metadata" in message and "'x'" in message and str(shape) in message


@pytest.mark.parametrize(
    "source", [{"data": [1, 2, 3, 4]}, {"data": "AAAA"}, {"data": None}, {"data": []}]
)
def test_data_in_two_places_is_refused(source):
    message = refusal({"inputs": [one(16, **source)]}, FOUR)
    assert "'x'" in message and "two places" in message and "binary_data_size" in message


def test_a_null_size_is_none():
    assert "none of them" in refusal({"inputs": [one(None)]})
    [tensor] = decode({"inputs": [one(None, [1], "INT8", data=[3])]}).inputs
    assert tensor.numpy().tolist() == [3]


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        (b"\x01\x00\x00\x00a", ["expected 2 string elements", "got 1"]),
        (b"\x00\x00\x00\x00" * 3, ["number of string elements 3", "expecting 2"]),
        (b"", ["expected 2 string elements", "got 0"]),
        (b"\x01\x00\x00\x00a\xff\x00\x00\x00b", ["length 255 but only 1 bytes", "element 1"]),
        (b"\x01\x00\x00\x00a\x01\x00", ["2 bytes left", "4-byte length"]),
        (b"\xff\xff\xff\xff", ["4294967295 but only 0 bytes"]),
    ],
)
def test_strings_that_are_not_well_formed_are_refused(blob, words):
    message = refusal({"inputs": [one(len(blob), [2], "BYTES")]}, blob)
    assert "'x'" in message and all(word in message for word in words)


def test_strings_for_a_shape_beyond_memory_are_refused_at_once():
    message = refusal({"inputs": [one(0, [2**62, 2**62], "BYTES")]})
    assert str(2**124) in message


def test_binary_data_need_the_header():
    document = json.dumps({"inputs": [one(16)]}).encode()
    assert "0 left" in refusal(document)
    message = refusal(document + FOUR)
    assert "failed to parse the request JSON" in message or "UTF-8" in message


@given(st.data())
def test_any_sizes_over_any_body_give_views_or_a_refusal(data):
    body = data.draw(st.binary(max_size=40))
    start = data.draw(st.integers(0, len(body)))
    blobs = Blobs(memoryview(body), start)
    taken = b""
    try:
        for _ in range(data.draw(st.integers(0, 4))):
            datatype = data.draw(st.sampled_from(list(DataType)))
            shape = tuple(data.draw(st.lists(st.integers(-1, 3), max_size=2)))
            size = data.draw(st.integers(-1, 16))
            tensor = blobs.take("x", datatype, shape, size)
            assert tensor.size_bytes == size
            taken += tensor.data
        blobs.check_used_up()
    except InvalidRequest:
        return
    assert taken == body[start:]


# --- raw requests ---


@pytest.mark.parametrize("body", [b"", b"\x00\xff{", b'{"inputs":[]}'])
def test_no_json_at_all_is_a_raw_request(body):
    for request in (decode(body, json_size=0), decode_raw_request("m", "", memoryview(body))):
        [tensor] = request.inputs
        assert request.raw and request.binary_output and bytes(tensor.data) == body
        assert (request.model, request.outputs) == ("m", [])


def test_a_raw_request_keeps_to_the_limit():
    assert decode(bytes(LIMIT), json_size=0).raw
    message = refusal(bytes(LIMIT + 1), json_size=0)
    assert str(LIMIT) in message and str(LIMIT + 1) in message and "raw" in message


def test_the_json_part_keeps_to_the_limit_and_blobs_need_not():
    blob = bytes(LIMIT + 1)
    document = {"inputs": [one(len(blob), [len(blob)], "INT8")]}
    assert decode(document, blob).inputs[0].size_bytes == LIMIT + 1
    message = refusal(json.dumps(document).encode() + b" " * LIMIT, blob)
    assert str(LIMIT) in message and "JSON part" in message and "binary" in message
