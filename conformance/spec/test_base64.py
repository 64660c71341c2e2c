"""`data` as a base64 string (JSON schema, RequestInput.data): the tensor's little-endian bytes."""

import base64
from typing import Any

import pytest
from conformance.bodies import HALVES, INPUT0_BYTES, OUTPUT0, SAMPLES, body_with, one, prefixed
from conformance.checks import check_refused, output, same, values
from conformance.points import point
from conformance.rest import Rest


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@point("S14", "MUST", "JSON schema, RequestInput.data: a base64 string of every datatype")
@pytest.mark.parametrize("datatype", [*SAMPLES, *HALVES])
def test_base64_is_the_tensors_bytes(rest: Rest, datatype: str):
    data, raw = {**SAMPLES, **HALVES}[datatype]
    response = rest.infer("all", one(datatype, text(raw), [3]))
    assert output(response, f"OUT_{datatype}")["shape"] == [3]
    assert same(values(response, f"OUT_{datatype}"), data)


@point("S15", "MUST", "base64 beside a JSON array in one request, and for an empty tensor")
def test_base64_mixes_with_arrays(rest: Rest):
    body = body_with(0, data=text(INPUT0_BYTES))
    assert values(rest.infer("m", body), "OUTPUT0") == OUTPUT0
    assert values(rest.infer("all", one("FP32", "", [0])), "OUT_FP32") == []


@point("S16", "SHOULD", "base64 of one BYTES element without a prefix is the element itself")
@pytest.mark.parametrize("element", [b"a bare element", b"ab", b"\xff\x00\x00\x00bare"])
def test_a_bare_element_needs_no_prefix(rest: Rest, element: bytes):
    body = one("BYTES", text(element), [1], is_binary=True)
    assert rest.infer("all", body).split()[1] == {"OUT_BYTES": prefixed(element)}


@point("S17", "MUST", "base64 outside the standard alphabet, padding missing, or spaced: 400")
@pytest.mark.parametrize(
    "data",
    [
        "AACAPwAAAEAAAEBAAACAQA",  # no padding
        "AACAPwAAAEAAAEBAAACAQA=",  # half of it
        "AACAPwAAAEAAAEBAAACAQA===",
        "AACAPwAAAEAA AEBAAACAQA==",
        "AACAPwAAAEAAAEBAAACAQA==\n",
        "\tAACAPwAAAEAAAEBAAACAQA==",
        "AACAPwAAAEAAAEBAAACA-_==",  # the URL alphabet
        "AACAPwAAAEAAAEBAAACAé===",
        "not base64!",
        "====",
    ],
)
def test_base64_that_is_none_is_refused(rest: Rest, data: str):
    check_refused(rest.infer("m", body_with(0, data=data)), naming="INPUT0")


@point("S18", "MUST", "base64 of another length than shape and datatype say: 400")
@pytest.mark.parametrize("size", [0, 12, 15, 17, 20])
def test_base64_of_the_wrong_length_is_refused(rest: Rest, size: int):
    check_refused(rest.infer("m", body_with(0, data=text(bytes(size)))), naming="INPUT0")


@point("S19", "MUST", "base64 BYTES whose prefixes do not add up: 400")
@pytest.mark.parametrize(
    "raw", [b"", b"a", prefixed(b"a"), prefixed(b"a", b"b", b"c"), b"\xff\xff\xff\xffab"]
)
def test_base64_strings_with_wrong_prefixes_are_refused(rest: Rest, raw: bytes):
    check_refused(rest.infer("all", one("BYTES", text(raw), [2])), naming="IN_BYTES")


@point("S20", "MUST", "base64 together with binary_data_size or shared memory: 400")
@pytest.mark.parametrize(
    "parameters",
    [
        {"binary_data_size": 16},
        {"shared_memory_region": "r", "shared_memory_byte_size": 16},
    ],
)
def test_base64_is_the_only_source(rest: Rest, parameters: dict[str, Any]):
    body = body_with(0, data=text(INPUT0_BYTES), parameters=parameters)
    check_refused(rest.infer("m", body))
    blob = (INPUT0_BYTES,) if "binary_data_size" in parameters else ()
    check_refused(rest.infer_binary("m", body, *blob))
