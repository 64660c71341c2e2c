"""Datatypes beyond the round trip: STRING, the 16-bit floats in JSON, layout of the bytes."""

import base64
import struct

import pytest
from conformance.bodies import (
    HALVES,
    OUT_OF_RANGE,
    SAMPLES,
    one,
    one_binary,
    outputs_of,
    prefixed,
    raw_json,
)
from conformance.checks import check_ok, check_refused, output, same, values
from conformance.points import point
from conformance.rest import Rest
from conformance.rpc import Rpc, one_raw, one_typed

WORDS = ["abc", ""]
BLOB = prefixed(b"abc", b"")


@point("S21", "MUST", "JSON schema, TensorDatatype: STRING is read over REST, BYTES comes back")
@pytest.mark.parametrize("data", [WORDS, base64.b64encode(BLOB).decode()])
def test_string_is_an_alias_of_bytes(rest: Rest, data: list[str] | str):
    response = rest.infer("all", one("STRING", data, [2]))
    assert output(response, "OUT_BYTES")["datatype"] == "BYTES"
    assert values(response, "OUT_BYTES") == WORDS


@point("S22", "MUST", "STRING in a binary body; BYTES comes back")
def test_string_is_an_alias_in_binary_bodies(rest: Rest):
    body = one_binary("STRING", 2, len(BLOB), is_binary=True)
    head, blobs = rest.infer_binary("all", body, BLOB).split()
    assert head["outputs"][0]["datatype"] == "BYTES"
    assert blobs == {"OUT_BYTES": BLOB}


@point("S23", "MUST", "STRING over gRPC, raw and bytes_contents; BYTES comes back")
@pytest.mark.parametrize("form", ["raw", "typed"])
def test_string_is_an_alias_over_grpc(rpc: Rpc, form: str):
    raw = one_raw("STRING", [2], BLOB)
    response = rpc.infer(raw if form == "raw" else one_typed("STRING", [b"abc", b""]))
    assert [tensor.datatype for tensor in response.outputs] == ["BYTES"]
    assert list(response.raw_output_contents) == [BLOB]


@point("S24", "SHOULD", "FP16 and BF16 as JSON numbers, both ways, shortest text of the half")
@pytest.mark.parametrize("datatype", HALVES)
def test_halves_are_json_numbers(rest: Rest, datatype: str):
    data, blob = HALVES[datatype]
    response = rest.infer("all", one(datatype, data))
    assert output(response, f"OUT_{datatype}")["datatype"] == datatype
    assert same(values(response, f"OUT_{datatype}"), data)
    body = one(datatype, data, is_binary=True)
    assert rest.infer("all", body).split()[1] == {f"OUT_{datatype}": blob}


@point("S25", "SHOULD", "FP16 and BF16 from JSON are rounded to nearest, ties to even")
@pytest.mark.parametrize(
    ("datatype", "number", "bits"),
    [
        ("FP16", 1 + 2**-11, 0x3C00),
        ("FP16", 1 + 3 * 2**-11, 0x3C02),
        ("FP16", 1 + 2**-11 + 2**-30, 0x3C01),
        ("FP16", 65519, 0x7BFF),
        ("FP16", 2**-24, 0x0001),
        ("FP16", 2**-26, 0x0000),
        ("BF16", 1 + 2**-8, 0x3F80),
        ("BF16", 1 + 3 * 2**-8, 0x3F82),
        ("BF16", 1 + 2**-8 + 2**-40, 0x3F81),
        ("BF16", 3.3895313892515355e38, 0x7F7F),
    ],
)
def test_halves_are_rounded_to_nearest_even(rest: Rest, datatype: str, number: float, bits: int):
    body = one(datatype, [number], is_binary=True)
    blobs = rest.infer("all", body).split()[1]
    assert blobs == {f"OUT_{datatype}": struct.pack("<H", bits)}


@point("S26", "SHOULD", "a number too large for FP16 or BF16: 400")
@pytest.mark.parametrize(("datatype", "number"), [("FP16", 65520), ("BF16", 3.4e38)])
@pytest.mark.parametrize("sign", [1, -1])
def test_halves_do_not_overflow_to_infinity(rest: Rest, datatype: str, number: float, sign: int):
    check_refused(rest.infer("all", one(datatype, [sign * number])), naming=f"IN_{datatype}")


@point("S27", "MUST", "Tensor Data Representation: JSON in, little-endian packed bytes out")
@pytest.mark.parametrize("datatype", SAMPLES)
def test_outputs_are_little_endian(rest: Rest, datatype: str):
    data, blob = SAMPLES[datatype]
    body = one(datatype, data, is_binary=True)
    assert rest.infer("all", body).split()[1] == {f"OUT_{datatype}": blob}


@point("S28", "MUST", "Tensor Data Representation: little-endian packed bytes in, JSON out")
@pytest.mark.parametrize("datatype", SAMPLES)
def test_inputs_are_little_endian(rest: Rest, datatype: str):
    data, blob = SAMPLES[datatype]
    response = rest.infer_binary("all", one_binary(datatype, 3, len(blob)), blob)
    assert same(values(response, f"OUT_{datatype}"), data)


@point("S29", "MUST", "integers outside their datatype: 400, never a wrap")
@pytest.mark.parametrize("datatype", OUT_OF_RANGE)
@pytest.mark.parametrize("end", [0, 1])
def test_integers_never_wrap(rest: Rest, datatype: str, end: int):
    number = OUT_OF_RANGE[datatype][end]
    check_refused(rest.infer("all", one(datatype, [number])), naming=f"IN_{datatype}")


@point("S30", "SHOULD", "whole numbers in float spelling are integers")
@pytest.mark.parametrize("text", ["1.0", "1e2", "-0.0", "10e-1"])
def test_whole_floats_are_integers(rest: Rest, text: str):
    assert values(rest.infer("all", raw_json("INT32", text)), "OUT_INT32") == [int(float(text))]


@point(
    "S31", "SHOULD", "NaN, also as null, and the infinities: read and written as Triton's tokens"
)
@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_non_finite_floats_pass(rest: Rest, datatype: str):
    response = rest.infer("all", raw_json(datatype, "NaN,null,Infinity,-Infinity"))
    assert str(values(response, f"OUT_{datatype}")) == "[nan, nan, inf, -inf]"


@point("S32", "SHOULD", "a number too large for its float type: 400")
@pytest.mark.parametrize(
    ("datatype", "text"),
    [("FP32", "1e39"), ("FP32", "-1e39"), ("FP32", "1e400"), ("FP64", "1e400")],
)
def test_floats_do_not_overflow_to_infinity(rest: Rest, datatype: str, text: str):
    check_refused(rest.infer("all", raw_json(datatype, text)), naming=f"IN_{datatype}")


@point("S33", "MUST", "floats keep every bit: the extremes of FP32 and FP64")
@pytest.mark.parametrize(
    ("datatype", "text"),
    [
        ("FP32", "3.4028234663852886e38"),
        ("FP32", "1e-45"),
        ("FP32", "0.1"),
        ("FP64", "1.7976931348623157e308"),
        ("FP64", "5e-324"),
        ("FP64", "0.1"),
        ("FP64", "-0.0"),
    ],
)
def test_floats_are_exact(rest: Rest, datatype: str, text: str):
    code = "<f" if datatype == "FP32" else "<d"
    found = values(rest.infer("all", raw_json(datatype, text)), f"OUT_{datatype}")
    assert struct.pack(code, found[0]) == struct.pack(code, float(text))


@point("S34", "SHOULD", "elements of another JSON type than the datatype's: 400")
@pytest.mark.parametrize(
    ("datatype", "text"),
    [
        ("FP32", "true"),
        ("FP32", '"1.5"'),
        ("FP32", "{}"),
        ("FP64", "false"),
        ("FP16", '"1"'),
        ("INT32", "true"),
        ("INT32", '"1"'),
        ("INT32", "null"),
        ("UINT64", "false"),
        ("INT8", "[{}]"),
        ("BOOL", "null"),
        ("BOOL", "2"),
        ("BOOL", "{}"),
        ("BYTES", "1"),
        ("BYTES", "true"),
        ("BYTES", "null"),
        ("BYTES", "{}"),
    ],
)
def test_elements_are_not_converted_silently(rest: Rest, datatype: str, text: str):
    check_refused(rest.infer("all", raw_json(datatype, text)), naming=f"IN_{datatype}")


@point("S35", "SHOULD", "a BOOL byte other than 0 and 1 is true")
def test_a_nonzero_byte_is_true(rest: Rest):
    response = rest.infer_binary("all", one_binary("BOOL", 2, 2), b"\x00\x02")
    assert values(response, "OUT_BOOL") == [False, True]


@point("S36", "SHOULD", "BYTES that are no UTF-8 asked for as JSON: an error naming the output")
def test_bytes_json_cannot_carry_are_an_error(rest: Rest):
    blob = prefixed(b"\xff\xfe")
    response = rest.infer_binary("all", one_binary("BYTES", 1, len(blob)), blob)
    text = check_refused(response, response.status if response.status in (400, 500) else 400)
    assert "OUT_BYTES" in text and "binary" in text


@point("S37", "MUST", "BYTES escapes: NUL, surrogate pairs, quotes, controls are exact")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'"\u0000"', "\0"),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t'),
        ('"\u2028\u007f"', "\u2028\u007f"),
    ],
)
def test_escapes_are_decoded(rest: Rest, text: str, expected: str):
    assert values(rest.infer("all", raw_json("BYTES", text)), "OUT_BYTES") == [expected]


@point("S38", "MUST", "several datatypes in one request, each answered as its own")
def test_datatypes_mix_in_one_request(rest: Rest):
    inputs = [one(datatype, data)["inputs"][0] for datatype, (data, _) in SAMPLES.items()]
    body = check_ok(rest.infer("all", {"inputs": inputs, "outputs": outputs_of(*SAMPLES)}))
    found = {tensor["datatype"]: tensor["data"] for tensor in body["outputs"]}
    assert found == {datatype: data for datatype, (data, _) in SAMPLES.items()}
