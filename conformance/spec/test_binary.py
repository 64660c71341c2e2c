"""The binary extension beyond the checklist: its parameters, headers and edges."""

import json
import struct
from typing import Any

import pytest
from conformance.bodies import (
    INPUT0_BYTES,
    INPUT1_BYTES,
    OUTPUT0,
    OUTPUT0_BYTES,
    both_binary,
    ok_body,
    one_binary,
    prefixed,
)
from conformance.checks import check_ok, check_refused, output, values
from conformance.points import point
from conformance.rest import INFERENCE_HEADER, Rest


@point("S86", "SHOULD", "a listed output without binary_data is JSON, whatever binary_data_output")
def test_a_listed_output_is_json_by_default(rest: Rest):
    body = ok_body(outputs=[{"name": "OUTPUT0"}], parameters={"binary_data_output": True})
    assert values(rest.infer("m", body), "OUTPUT0") == OUTPUT0


@point("S87", "MUST", "header names are case-insensitive")
@pytest.mark.parametrize("name", [INFERENCE_HEADER.lower(), INFERENCE_HEADER.upper()])
def test_header_names_have_no_case(rest: Rest, name: str):
    head = json.dumps(both_binary()).encode()
    body = head + INPUT0_BYTES + INPUT1_BYTES
    response = rest.request("POST", "/v2/models/m/infer", body, [(name, str(len(head)))])
    assert values(response, "OUTPUT0") == OUTPUT0


@point("S88", "MUST", "binary_data_size, binary_data, binary_data_output of another type: 400")
@pytest.mark.parametrize("size", ["16", -16, 16.5, True, [16]])
def test_binary_data_size_is_a_size(rest: Rest, size: Any):
    body = one_binary("FP32", 4, size)
    check_refused(rest.infer_binary("all", body, INPUT0_BYTES))


@point("S89", "MUST", "binary_data and binary_data_output that are no booleans: 400")
@pytest.mark.parametrize("value", ["true", 1, 0, [True]])
def test_binary_choices_are_booleans(rest: Rest, value: Any):
    outputs = [{"name": "OUTPUT0", "parameters": {"binary_data": value}}]
    check_refused(rest.infer("m", ok_body(outputs=outputs)))
    check_refused(rest.infer("m", ok_body(parameters={"binary_data_output": value})))


@point("S90", "MUST", "an empty tensor is a blob of no bytes, both ways")
def test_an_empty_blob_is_a_tensor(rest: Rest):
    body = one_binary("FP32", 0, 0, is_binary=True)
    response = rest.infer_binary("all", body)
    tensor = output(response, "OUT_FP32")
    assert tensor["shape"] == [0]
    assert tensor["parameters"]["binary_data_size"] == 0
    assert response.split()[1] == {"OUT_FP32": b""}


@point("S91", "MUST", "binary_data_size without the header: 400")
def test_blobs_need_the_header(rest: Rest):
    check_refused(rest.infer("m", both_binary()))


@point("S92", "MUST", "BYTES: another number of elements than the shape says, broken prefix: 400")
@pytest.mark.parametrize(
    "blob",
    [
        prefixed(b"a"),
        prefixed(b"a", b"b", b"c"),
        prefixed(b"a", b"b") + b"\x00",
        prefixed(b"a") + b"\x01\x00",
        prefixed(b"a") + b"\xff\xff\xff\xff",
        prefixed(b"a") + b"\xff\xff\xff\x7fx",
        b"",
    ],
)
def test_strings_that_do_not_add_up_are_refused(rest: Rest, blob: bytes):
    body = one_binary("BYTES", 2, len(blob))
    check_refused(rest.infer_binary("all", body, blob), naming="IN_BYTES")


@point("S93", "SHOULD", "raw request of one BYTES element: the body is the string itself")
@pytest.mark.parametrize("text", [b"hello", b"\x01\x00\x00\x00a", "é".encode()])
def test_a_raw_string_has_no_prefix(rest: Rest, text: bytes):
    response = rest.request("POST", "/v2/models/text/infer", text, [(INFERENCE_HEADER, "0")])
    assert check_ok(response)["model_name"] == "text"
    assert response.split()[1] == {"OUTPUT0": prefixed(text)}


@point("S94", "MUST", "a raw request whose bytes are no whole number of elements: 400")
def test_a_raw_body_has_whole_elements(rest: Rest):
    headers = [(INFERENCE_HEADER, "0")]
    check_refused(rest.request("POST", "/v2/models/single/infer", b"12345", headers))


@point("S95", "MUST", "the JSON header of a binary body that is no JSON: 400")
@pytest.mark.parametrize("size", ["1", "10"])
def test_the_json_part_is_json(rest: Rest, size: str):
    blobs = (INPUT0_BYTES, INPUT1_BYTES)
    check_refused(rest.infer_binary("m", both_binary(), *blobs, header_size=size))


@point("S96", "MUST", "a binary answer's Content-Length counts JSON and blobs together")
def test_the_length_counts_everything(rest: Rest):
    response = rest.infer("m", ok_body(parameters={"binary_data_output": True}))
    size = int(response.header(INFERENCE_HEADER) or 0)
    assert int(response.header("content-length") or 0) == len(response.body)
    assert len(response.body) == size + 2 * len(OUTPUT0_BYTES)


@point("S97", "MUST", "a binary body of 8 MiB comes back whole")
def test_a_large_blob_comes_back(rest: Rest):
    blob = struct.pack("<I", 0xDEADBEEF) * (2 * 2**20)
    body = one_binary("UINT32", 2 * 2**20, len(blob), is_binary=True)
    assert rest.infer_binary("all", body, blob).split()[1] == {"OUT_UINT32": blob}
