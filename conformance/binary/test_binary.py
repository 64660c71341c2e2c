"""The binary tensor data extension: blobs after the JSON, both ways."""

import pytest
from conformance.bodies import (
    HALVES,
    INPUT0_BYTES,
    INPUT1_BYTES,
    OUTPUT0,
    OUTPUT0_BYTES,
    OUTPUT1,
    OUTPUT1_BYTES,
    both_binary,
    ok_body,
    one_binary,
    prefixed,
)
from conformance.checks import check_refused, output, values
from conformance.points import point
from conformance.rest import INFERENCE_HEADER, Rest

BINARY = {"binary_data": True}
JSON = {"binary_data": False}


@point(59, "MUST", "both inputs binary, header right: 200")
def test_binary_inputs_are_read(rest: Rest):
    response = rest.infer_binary("m", both_binary(), INPUT0_BYTES, INPUT1_BYTES)
    assert values(response, "OUTPUT0") == OUTPUT0
    assert values(response, "OUTPUT1") == OUTPUT1


@point(60, "MUST", "one JSON and one binary input: 200")
@pytest.mark.parametrize("index", [0, 1])
def test_json_and_binary_inputs_mix(rest: Rest, index: int):
    body = ok_body()
    del body["inputs"][index]["data"]
    body["inputs"][index]["parameters"] = {"binary_data_size": 16}
    blob = (INPUT0_BYTES, INPUT1_BYTES)[index]
    response = rest.infer_binary("m", body, blob)
    assert values(response, "OUTPUT0") == OUTPUT0
    assert values(response, "OUTPUT1") == OUTPUT1


@point(61, "MUST", "outputs binary_data true/false: header, octet-stream, one blob")
@pytest.mark.parametrize(
    ("first", "second", "blobs"),
    [
        (BINARY, JSON, {"OUTPUT0": OUTPUT0_BYTES}),
        (JSON, BINARY, {"OUTPUT1": OUTPUT1_BYTES}),
    ],
)
def test_only_the_output_asked_for_is_binary(rest: Rest, first: dict, second: dict, blobs: dict):
    outputs = [
        {"name": "OUTPUT0", "parameters": first},
        {"name": "OUTPUT1", "parameters": second},
    ]
    response = rest.infer("m", ok_body(outputs=outputs))
    assert response.status == 200
    assert response.header("content-type") == "application/octet-stream"
    assert response.header(INFERENCE_HEADER) is not None
    body, found = response.split()
    assert found == blobs
    for tensor in body["outputs"]:
        assert ("data" in tensor) != (tensor["name"] in blobs)


@point(62, "MUST", "binary_data_output true: all outputs binary, in order")
def test_all_outputs_can_be_binary(rest: Rest):
    response = rest.infer("m", ok_body(parameters={"binary_data_output": True}))
    body, blobs = response.split()
    assert blobs == {"OUTPUT0": OUTPUT0_BYTES, "OUTPUT1": OUTPUT1_BYTES}
    assert list(blobs) == [tensor["name"] for tensor in body["outputs"]]


@point(63, "MUST", 'BYTES binary "abc","": exact prefix format back')
def test_binary_strings_keep_their_prefixes(rest: Rest):
    blob = prefixed(b"abc", b"")
    body = one_binary("BYTES", 2, len(blob), is_binary=True)
    assert rest.infer_binary("all", body, blob).split()[1] == {"OUT_BYTES": blob}


def check_half(rest: Rest, datatype: str) -> None:
    blob = HALVES[datatype][1] + b"\x01\x00\xff\x7f"
    body = one_binary(datatype, 5, len(blob), is_binary=True)
    head, blobs = rest.infer_binary("all", body, blob).split()
    assert blobs == {f"OUT_{datatype}": blob}
    assert [tensor["datatype"] for tensor in head["outputs"]] == [datatype]


@point(64, "MUST", "FP16 binary in and out: bytes equal")
def test_fp16_keeps_its_bytes(rest: Rest):
    check_half(rest, "FP16")


@point(65, "SHOULD", "BF16 binary in and out: bytes equal")
def test_bf16_keeps_its_bytes(rest: Rest):
    check_half(rest, "BF16")


@point(66, "MUST", "blob short by 8 bytes: 400")
def test_a_short_blob_is_refused(rest: Rest):
    response = rest.infer_binary("m", both_binary(), INPUT0_BYTES, INPUT1_BYTES[:8])
    check_refused(response, naming="INPUT1")


@point(67, "MUST", "2 extra bytes: 400")
def test_bytes_left_over_are_refused(rest: Rest):
    check_refused(rest.infer_binary("m", both_binary(), INPUT0_BYTES, INPUT1_BYTES, b"xx"))


@point(68, "MUST", 'header larger than the body, negative, "abc": 400')
@pytest.mark.parametrize("size", ["99999", "-1", "abc", "99999999999999999999999", "12x", "1.5"])
def test_a_header_length_that_cannot_be_is_refused(rest: Rest, size: str):
    response = rest.infer_binary("m", both_binary(), INPUT0_BYTES, INPUT1_BYTES, header_size=size)
    check_refused(response)


@point(69, "MUST", "binary_data_size 12 for 16 bytes: 400")
def test_a_size_that_does_not_fit_the_shape_is_refused(rest: Rest):
    body = both_binary()
    body["inputs"][1]["parameters"]["binary_data_size"] = 12
    check_refused(rest.infer_binary("m", body, INPUT0_BYTES, INPUT1_BYTES[:12]), naming="INPUT1")


@point(70, "MUST", "data and binary_data_size together: 400")
def test_an_input_has_one_source(rest: Rest):
    body = both_binary()
    body["inputs"][0]["data"] = [1, 2, 3, 4]
    check_refused(rest.infer_binary("m", body, INPUT0_BYTES, INPUT1_BYTES), naming="INPUT0")


@point(71, "SHOULD", "header 0 on a one-input model: 200, binary outputs")
def test_a_raw_request_is_its_one_input(rest: Rest):
    headers = [(INFERENCE_HEADER, "0")]
    response = rest.request("POST", "/v2/models/single/infer", INPUT0_BYTES, headers)
    assert output(response, "OUTPUT0")["shape"] == [4]
    assert response.split()[1] == {"OUTPUT0": INPUT0_BYTES}


@point(72, "SHOULD", "header 0 on m: 400")
def test_a_raw_request_needs_a_model_with_one_input(rest: Rest):
    headers = [(INFERENCE_HEADER, "0")]
    check_refused(rest.request("POST", "/v2/models/m/infer", INPUT0_BYTES, headers))


@point(73, "MUST", "BYTES length past the end: 400")
def test_a_string_past_the_end_is_refused(rest: Rest):
    blob = b"\xff\x00\x00\x00ab"
    body = one_binary("BYTES", 1, len(blob))
    check_refused(rest.infer_binary("all", body, blob), naming="IN_BYTES")
