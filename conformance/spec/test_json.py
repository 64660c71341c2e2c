"""JSON itself (RFC 8259): what is none is refused, what is unusual is read."""

import json

import pytest
from conformance.bodies import OUTPUT0, ok_body, one, raw_json
from conformance.checks import check_ok, check_refused, values
from conformance.points import point
from conformance.rest import Rest

OK = json.dumps(ok_body())


@point("S78", "MUST", "RFC 8259: text that is no JSON: 400")
@pytest.mark.parametrize(
    "data",
    ["01", "+1", ".5", "5.", "1,", ",1", "nan", "inf", "0x1", "1 2", "1]", "// one\n1", "'1'",
     "1e", "-", "--1", "1_0", "True"],
)  # fmt: skip
def test_elements_that_are_no_json_are_refused(rest: Rest, data: str):
    check_refused(rest.infer("all", raw_json("FP32", data)))


@point("S79", "MUST", "RFC 8259: strings with raw controls, bad escapes or bad UTF-8: 400")
@pytest.mark.parametrize(
    "data",
    [b'"a\nb"', b'"a\x00b"', rb'"\x41"', rb'"\ud800"', rb'"\udc00\ud800"', rb'"\u12"', b'"\xff"',
     b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"open'],
)  # fmt: skip
def test_strings_that_are_no_json_are_refused(rest: Rest, data: bytes):
    body = raw_json("BYTES", "@").replace(b"@", data)
    check_refused(rest.infer("all", body))


@point("S80", "MUST", "RFC 8259: documents that are no object, or more than one: 400")
@pytest.mark.parametrize(
    "body", ["", " ", "null", "1", '"a"', "[]", "{}{}", OK + "x", OK + OK, OK[:-1], "\x00", "{"]
)
def test_documents_that_are_no_object_are_refused(rest: Rest, body: str):
    check_refused(rest.infer("m", body.encode()))


@point("S81", "SHOULD", "a byte order mark, and white space around the document, are tolerated")
@pytest.mark.parametrize("body", [b"\xef\xbb\xbf" + OK.encode(), b" \r\n\t" + OK.encode() + b"\n "])
def test_a_byte_order_mark_is_tolerated(rest: Rest, body: bytes):
    assert values(rest.infer("m", body), "OUTPUT0") == OUTPUT0


@point("S82", "MUST", "a key twice: accepted, one of the two counts")
def test_a_key_twice_counts_once(rest: Rest):
    body = OK.replace('"inputs"', '"id": "a", "id": "b", "inputs"', 1)
    response = rest.infer("m", body.encode())
    assert check_ok(response)["id"] in ("a", "b")
    assert values(response, "OUTPUT0") == OUTPUT0


@point("S83", "MUST", "keys in any order and with escapes are the same keys")
def test_keys_come_in_any_order_and_spelling(rest: Rest):
    tensors = [dict(reversed(tensor.items())) for tensor in ok_body()["inputs"]]
    body = json.dumps({"id": "1", "inputs": tensors}).replace('"name"', r'"n\u0061me"')
    assert values(rest.infer("m", body.encode()), "OUTPUT0") == OUTPUT0


@point("S84", "MUST", "nesting of any depth is answered, and harms nobody")
@pytest.mark.parametrize("depth", [2_000, 200_000])
@pytest.mark.parametrize("where", ["data", "key"])
def test_deep_nesting_is_answered(rest: Rest, depth: int, where: str):
    deep = "[" * depth + "1" + "]" * depth
    data = deep if where == "data" else "1"
    extra = f',"x":{deep}' if where == "key" else ""
    body = raw_json("FP32", data)[:-1] + f"{extra}}}".encode()
    response = rest.infer("all", body)
    assert response.status in (200, 400), response.status
    check_ok(rest.get("/v2/health/live"))


@point("S85", "MUST", "a large array (a million elements) comes back whole")
def test_a_large_tensor_comes_back(rest: Rest):
    data = list(range(1_000_000))
    assert values(rest.infer("all", one("INT32", data)), "OUT_INT32") == data


@point("S138", "MUST", "a lone surrogate in any string: 400 where it would come back, never 5xx")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"inputs"', '"id": "@", "inputs"'),
        ('"INPUT0"', '"@"'),
        ('"FP32"', '"@"'),
        ('"inputs"', '"outputs": [{"name": "@"}], "inputs"'),
    ],
)
def test_lone_surrogates_are_refused_everywhere(rest: Rest, before: str, after: str):
    body = OK.replace(before, after.replace("@", r"\ud800"), 1)
    check_refused(rest.infer("m", body.encode()))


@point("S139", "MUST", "a lone surrogate in a parameter: answered or refused, never 5xx")
@pytest.mark.parametrize("parameters", [r'{"\ud800": 1}', r'{"a": "\udfff"}', r'{"\ud800": {}}'])
def test_lone_surrogates_in_parameters_harm_nobody(rest: Rest, parameters: str):
    body = OK.replace('"inputs"', f'"parameters": {parameters}, "inputs"', 1)
    response = rest.infer("m", body.encode())
    if response.status != 200:
        check_refused(response, 400)
