"""JSON data to wire bytes and back; every reader gives the same."""

import base64
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.aio.inline import NotFast
from inferd.errors import InferdError, InvalidRequest
from inferd.tensor.dtype import DATATYPES, DataType
from inferd.tensor.halves import bf16_to_float32, float64_to_half
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor
from inferd.wire.json import document as json_document
from inferd.wire.json.data import decode_data, encode_data, flatten, json_text, resolve_shape
from inferd.wire.v2.rest.codec import JsonRules, V2Rest

PADDING = b" " * json_document.LARGE_BYTES


def decode_whole(codec, *request):
    """Decode as the server does: what takes long goes another way."""
    try:
        return codec.decode_infer_request(*request)
    except NotFast:
        return codec.decode_slowly(*request)


def tensor_of(body, **rules):
    codec = V2Rest(
        JsonRules(**{"half_floats": True, "non_finite": "tokens"} | rules, max_json_bytes=2**30)
    )
    request = decode_whole(codec, "m", "", memoryview(body), len(body))
    [tensor] = request.inputs
    return tensor


def outcome(body, **rules):
    """Return name, datatype, shape and bytes of the one input of `body`, or the refusal."""
    try:
        tensor = tensor_of(body, **rules)
    except InferdError as error:
        return error.message
    return tensor.name, tensor.datatype, tensor.shape, bytes(tensor.view())


def every_outcome(body, **rules):
    """Return what the small, the large and the large reader without simdjson make of `body`."""
    with pytest.MonkeyPatch.context() as patch:
        small = outcome(body, **rules)
        large = outcome(body + PADDING, **rules)
        patch.setattr(json_document, "simdjson", None)  # stands for a missing package
        return small, large, outcome(body + PADDING, **rules)


def body_of(datatype, data, shape=b"[1]"):
    head = b'{"inputs":[{"name":"x","shape":%b,"datatype":"%b","data":%b}]}'
    return head % (shape, datatype.encode(), data if isinstance(data, bytes) else data.encode())


def decoded(datatype, data, shape=b"[1]", **rules):
    small, large, without = every_outcome(body_of(datatype, data, shape), **rules)
    assert small == large == without
    return small


def values(datatype, data, shape=b"[1]"):
    result = decoded(datatype, data, shape)
    assert not isinstance(result, str), result
    tensor = Tensor(*result)
    return tensor.strings() if tensor.datatype is DataType.BYTES else tensor.numpy().tolist()


def refusal(datatype, data, shape=b"[1]", **rules):
    result = decoded(datatype, data, shape, **rules)
    assert isinstance(result, str), result
    return result


# --- single elements: what is taken ---


@pytest.mark.parametrize(
    ("datatype", "text", "expected"),
    [
        ("FP32", "1", 1.0),
        ("FP32", "1.5", 1.5),
        ("FP32", "Infinity", math.inf),
        ("FP32", "-Infinity", -math.inf),
        ("FP32", "Inf", math.inf),
        ("FP32", "-Inf", -math.inf),
        ("FP64", "1e308", 1e308),
        ("FP32", "0.1", struct.unpack("f", struct.pack("f", 0.1))[0]),
        ("FP64", "0.1", 0.1),
        ("FP32", "16777217", 16777216.0),
        ("FP64", "9007199254740993", 9007199254740992.0),
        ("FP64", "18446744073709551615", 1.8446744073709552e19),
        ("FP64", "18446744073709551616", 1.8446744073709552e19),
        ("FP32", "1e-46", 0.0),
        ("FP64", "1e-400", 0.0),
        ("FP64", "1e-99999999999999999999", 0.0),
        ("FP64", "0e99999999999999999999", 0.0),
        ("FP32", "3.4028235e38", 3.4028234663852886e38),
        ("INT32", "1.0", 1),
        ("INT32", "1e2", 100),
        ("INT32", "1.5e1", 15),
        ("INT32", "-0", 0),
        ("INT32", "-0.0", 0),
        ("UINT8", "1.0", 1),
        ("INT64", "9223372036854775807", 2**63 - 1),
        ("INT64", "-9223372036854775808", -(2**63)),
        ("INT64", "9.223372036854775807e18", 2**63 - 1),
        ("UINT64", "18446744073709551615", 2**64 - 1),
        ("UINT64", "1.8446744073709551615e19", 2**64 - 1),
        ("BOOL", "true", True),
        ("BOOL", "false", False),
        ("BOOL", "1", True),
        ("BOOL", "0", False),
        ("BOOL", "1.0", True),
        ("BOOL", "-0.0", False),
        ("BYTES", '"abc"', b"abc"),
        ("BYTES", '""', b""),
        ("BYTES", r'"\u00e9\ud83d\ude00"', "é😀".encode()),
        ("BYTES", '"é😀"', "é😀".encode()),
        ("BYTES", r'"\u0000x"', b"\x00x"),
        ("BYTES", r'"\"\\\/\b\f\n\r\t"', b'"\\/\b\f\n\r\t'),
        ("STRING", '"abc"', b"abc"),
        ("FP16", "1.5", 1.5),
        ("FP16", "65519", 65504.0),
        ("FP16", "Infinity", math.inf),
        ("BF16", "1.5", 0x3FC0),
        ("BF16", "-Infinity", 0xFF80),
        ("BF16", "3.3895e38", 0x7F7F),
    ],
)
def test_values_are_taken_exactly(datatype, text, expected):
    assert values(datatype, f"[{text}]") == [expected]


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_nan_tokens_are_nan(datatype):
    [got] = values(datatype, "[NaN]")
    assert math.isnan(got)


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_minus_zero_keeps_its_sign(datatype):
    [got] = values(datatype, "[-0.0]")
    assert math.copysign(1, got) == -1


@pytest.mark.parametrize("datatype", [d for d in DataType if d.value.startswith(("INT", "UINT"))])
def test_integers_are_exact_up_to_their_limits_and_not_beyond(datatype):
    info = np.iinfo(datatype.numpy)
    low, high = int(info.min), int(info.max)
    assert values(datatype.value, f"[{low}, {high}]", b"[2]") == [low, high]
    for beyond in (low - 1, high + 1):
        text = refusal(datatype.value, f"[{beyond}]")
        assert str(beyond) in text and f"{low} to {high}" in text and datatype.value in text


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
@pytest.mark.parametrize(
    ("data", "shape"), [("[null]", b"[1]"), ("[1.5,null,-2]", b"[3]"), ("[[1],[null]]", b"[2,1]")]
)
def test_null_is_nan_in_floats(datatype, data, shape):
    name, _, taken, packed = decoded(datatype, data, shape)
    found = Tensor(name, DataType(datatype), taken, packed).numpy()
    if datatype == "BF16":
        found = bf16_to_float32(found)
    wanted = [math.nan if one is None else one for one in np.ravel(json.loads(data))]
    np.testing.assert_array_equal(found.ravel().astype(float), wanted)
    assert list(taken) == json.loads(shape)


@pytest.mark.simdjson
@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("row", ["1.5,null,7", "[1.5,null,7]"])
def test_long_arrays_with_nulls_are_read_by_the_fast_reader(datatype, row):
    count = 2 * json_document.LARGE_BYTES // len(row)
    text = body_of(datatype, f"[{','.join([row] * count)}]", b"[%d,3]" % count)
    document = json_document.JsonReader().read_fast(memoryview(text))
    found = decode_data("x", DataType(datatype), (-1, 3), document.inputs[0].data).numpy()
    np.testing.assert_array_equal(found.reshape(-1, 3)[-1].astype(float), [1.5, math.nan, 7])


@pytest.mark.parametrize("odd", ["true", '"1"', "{}", "1e39", "1e400"])
def test_values_beside_nulls_are_still_refused(odd):
    assert "element 1 is" in refusal("FP32", f"[null,{odd}]", b"[2]")


# --- single elements: what is refused ---


@pytest.mark.parametrize(
    ("datatype", "text", "wrong", "expected"),
    [
        ("FP32", "true", "true", "a number"),
        ("FP32", '"1.5"', '"1.5"', "a number"),
        ("FP64", "{}", "an object", "a number"),
        ("FP64", '{"a": [1]}', "an object", "a number"),
        ("FP32", "1e39", "1E+39", "3.4028235e38"),
        ("FP32", "-3.5e38", "-3.5E+38", "3.4028235e38"),
        ("FP32", "1e400", "1E+400", "double precision"),
        ("FP64", "1e400", "1E+400", "double precision"),
        ("FP64", "-1e400", "-1E+400", "double precision"),
        ("FP64", "1e999999999", "1E+999999999", "double precision"),
        ("FP64", "1e99999999999999999999", "1E+1000000000", "double precision"),
        ("FP64", "9" * 400, "999...", "double precision"),
        ("FP16", "70000", "70000", "65504"),
        ("FP16", "65520", "65520", "65504"),
        ("FP16", "1e400", "1E+400", "double precision"),
        ("BF16", "3.4e38", "3.4e+38", "3.3895e+38"),
        ("BF16", "-1e300", "-1e+300", "3.3895e+38"),
        ("BF16", "true", "true", "a number"),
        ("INT32", "1.5", "1.5", "whole number"),
        ("INT32", "1e-99999999", "1E-99999999", "whole number"),
        ("INT32", "1e-99999999999999999999", "1E-1000000000", "whole number"),
        ("INT32", "1e999999999", "1E+999999999", "whole number"),
        ("INT32", "1.00000000000000000000000000000000000001", "1.000", "whole number"),
        ("UINT64", "18446744073709551614.9999999999999999999999999999", "184", "whole number"),
        ("INT32", "true", "true", "whole number"),
        ("INT32", '"1"', '"1"', "whole number"),
        ("INT32", "null", "null", "whole number"),
        ("UINT8", "null", "null", "0 to 255"),
        ("INT32", "NaN", "NaN", "whole number"),
        ("INT32", "-Infinity", "-Infinity", "whole number"),
        ("INT8", "200", "200", "-128 to 127"),
        ("INT8", "-129", "-129", "-128 to 127"),
        ("INT16", "40000", "40000", "-32768 to 32767"),
        ("INT32", "2147483648", "2147483648", "2147483647"),
        ("INT64", "1e30", "1E+30", "9223372036854775807"),
        ("INT64", "9" * 4000, "999...", "9223372036854775807"),
        ("UINT8", "-1", "-1", "0 to 255"),
        ("UINT8", "300", "300", "0 to 255"),
        ("UINT64", "-1", "-1", "18446744073709551615"),
        ("UINT8", '"1"', '"1"', "whole number"),
        ("BOOL", "2", "2", "true or false"),
        ("BOOL", "-1", "-1", "true or false"),
        ("BOOL", "0.5", "0.5", "true or false"),
        ("BOOL", '"true"', '"true"', "true or false"),
        ("BOOL", "null", "null", "true or false"),
        ("BOOL", "NaN", "NaN", "true or false"),
        ("BYTES", "1", "1", "a string"),
        ("BYTES", "1.5", "1.5", "a string"),
        ("BYTES", "true", "true", "a string"),
        ("BYTES", "null", "null", "a string"),
        ("BYTES", '{"b64":"YQ=="}', "an object", "a string"),
        ("FP32", '"' + "é" * 100 + '"', "é" * 36 + "...", "a number"),
    ],
)
def test_other_values_are_refused_by_name(datatype, text, wrong, expected):
    message = refusal(datatype, f"[{text}]")
    assert "'x'" in message
    assert wrong in message and expected in message and datatype in message
    assert len(message) < 250


def test_the_refusal_counts_elements_over_nested_arrays():
    assert "element 3 is null" in refusal("INT32", "[[1,2],[3,null]]", b"[2,2]")


@pytest.mark.parametrize(
    "text",
    [
        "nan",
        "NAN",
        "inf",
        "+1",
        "01",
        "-01",
        ".5",
        "5.",
        "1e",
        "-",
        "0x1",
        "1_0",
        "+Inf",
        "-NaN",
        "tru",
        "True",
        "None",
        "'a'",
        '"a',
        r'"\x"',
        r'"\u12"',
        '"\t"',
        '"\x00"',
        "1,",
        ",1",
        "1 2",
        "/* */ 1",
        "1 // one",
        "[1",
        "1]",
        "{",
        "undefined",
        "\ufeff1",
        "1;",
        "Inf1",
    ],
)
@pytest.mark.parametrize("datatype", ["FP32", "INT32", "BYTES", "FP16"])
def test_what_is_not_json_is_refused(datatype, text):
    assert "failed to parse the request JSON" in refusal(datatype, f"[{text}]")


def test_a_number_with_more_digits_than_can_be_read_is_refused():
    assert "too many digits" in refusal("INT64", "[" + "1" * 10_000 + "]")
    assert values("FP64", "[0." + "1" * 10_000 + "]") == [1 / 9]
    assert values("INT64", "[1." + "0" * 10_000 + "]") == [1]


@pytest.mark.parametrize("text", [r"\ud800", r"\udc00", r"a\ud800\u0041", r"\\\ud83d", r"\uDBFF"])
@pytest.mark.parametrize("datatype", ["BYTES", "INT8"])
def test_half_a_surrogate_pair_is_refused(datatype, text):
    assert "surrogate" in refusal(datatype, f'["{text}"]')


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"a\x80"])
def test_bytes_that_are_not_utf8_are_refused(raw):
    message = refusal("BYTES", b'["' + raw + b'"]')
    assert "not UTF-8" in message and "0x" in message


# --- shape and count ---


@pytest.mark.parametrize(
    "data", ["[1,2,3,4]", "[[1,2],[3,4]]", "[[1],[2,3,4]]", "[[[1,2]],3,[[4]]]"]
)
@pytest.mark.parametrize("datatype", ["FP32", "INT8", "UINT64", "FP16"])
def test_any_grouping_of_the_right_count_is_taken(datatype, data):
    assert np.ravel(values(datatype, data, b"[2,2]")).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("data", ['[["a"],["b"]]', '["a",["b"]]', '["a","b"]'])
def test_strings_may_be_nested(data):
    assert values("BYTES", data, b"[2]") == [b"a", b"b"]


def test_booleans_may_be_numbers_among_others():
    assert values("BOOL", "[1,false,[0.0],true]", b"[4]") == [True, False, False, True]


def test_booleans_may_be_nested():
    assert values("BOOL", "[[true],[false]]", b"[1,2]") == [[True, False]]


@pytest.mark.parametrize("depth", [1, 100, 500])
def test_nesting_may_be_deep(depth):
    assert values("FP32", "[" * depth + "1" + "]" * depth) == [1.0]


@pytest.mark.parametrize("depth", [100_000])
@pytest.mark.parametrize("closed", [True, False])
def test_nesting_beyond_reason_is_refused(depth, closed):
    text = "[" * depth + "1" + "]" * depth * closed
    assert "nested too deeply" in refusal("FP32", text)


@pytest.mark.parametrize("data", ["[]", "[1,2]", "[[1],[2]]", "[1,2,3,4,5]"])
@pytest.mark.parametrize("shape", [b"[3]", b"[1,3]", b"[3,1,1]"])
def test_another_count_of_elements_is_refused(shape, data):
    count = len(flatten(json.loads(data)))
    message = refusal("INT32", data, shape)
    assert f"3 elements, but 'data' holds {count}" in message and "'x'" in message


@pytest.mark.parametrize("datatype", list(DATATYPES))
def test_no_elements_are_taken_for_a_shape_without_any(datatype):
    for data in ("[]", "[[]]", "[[],[[]]]", '""'):
        assert decoded(datatype, data, b"[2,0]") == ("x", DATATYPES[datatype], (2, 0), b"")


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL", "BYTES", "FP16"])
def test_a_shape_without_dims_takes_one_element(datatype):
    data = {"BOOL": "[true]", "BYTES": '["a"]'}.get(datatype, "[1]")
    assert decoded(datatype, data, b"[]")[2] == ()


@pytest.mark.parametrize("data", ["1", "1.5", "null", "true", "{}", '{"0": 1}', "NaN"])
@pytest.mark.parametrize("datatype", ["FP32", "INT32", "BYTES", "FP16", "BOOL"])
def test_data_that_is_neither_array_nor_text_is_refused(datatype, data):
    assert "array or a base64 string" in refusal(datatype, data)


@pytest.mark.parametrize(
    ("shape", "count", "expected"),
    [
        (b"[-1]", 4, (4,)),
        (b"[-1,2]", 4, (2, 2)),
        (b"[2,-1]", 4, (2, 2)),
        (b"[1,-1,1]", 4, (1, 4, 1)),
        (b"[-1]", 0, (0,)),
        (b"[-1,4]", 0, (0, 4)),
    ],
)
@pytest.mark.parametrize("datatype", ["INT32", "FP64", "BF16"])
def test_one_dim_left_open_is_found_from_the_count(datatype, shape, count, expected):
    data = json.dumps([1] * count)
    assert decoded(datatype, data, shape)[2] == expected
    raw = base64.b64encode(bytes(count * DATATYPES[datatype].size_bytes)).decode()
    assert decoded(datatype, f'"{raw}"', shape)[2] == expected


@pytest.mark.parametrize(
    "shape", [b"[-1,3]", b"[-1,-1]", b"[-1,0]", b"[0,-1]", b"[-1,-1,-4]", b"[-1,8]"]
)
def test_an_open_dim_that_the_count_does_not_decide_is_refused(shape):
    text = refusal("INT32", "[1,2,3,4]", shape)
    assert "'x'" in text and ("metadata" in text or "expected" in text)
    assert "metadata" in refusal("INT32", '"' + "AAAA" * 4 + '"', b"[-1,-1]")


@pytest.mark.parametrize("shape", [(-1, 3), (-1, -1), (0, -1), (5,)])
def test_resolve_shape_says_what_it_got(shape):
    with pytest.raises(InvalidRequest, match="'x' has shape") as caught:
        resolve_shape("x", shape, 4)
    assert str(list(shape)) in caught.value.message and "4" in caught.value.message


def test_strings_need_no_open_dim_only_in_base64():
    assert values("BYTES", '["a","b"]', b"[-1]") == [b"a", b"b"]
    assert "[-1]" in refusal("BYTES", '"AQAAAGE="', b"[-1]")


# --- base64 ---


@pytest.mark.parametrize("datatype", [d for d in DataType if d.size_bytes])
@pytest.mark.parametrize("half_floats", [True, False])
def test_base64_is_the_bytes_of_the_tensor(datatype, half_floats):
    raw = bytes(range(1, 1 + 3 * datatype.size_bytes))
    data = '"' + base64.b64encode(raw).decode() + '"'
    got = decoded(datatype.value, data, b"[3]", half_floats=half_floats)
    assert got == ("x", datatype, (3,), raw)


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "AAA",
        "AAAA=",
        "AAAA====",
        "AA=A",
        "AAAA AAAA",
        r"AAAA\n",
        "AA-_",
        "=",
        "====",
        "A===",
        "é",
        r"\u0000",
        "AAAAAA==AAAA",
        "AAAAA",
        "[1]",
    ],
)
def test_what_is_not_base64_is_refused(text):
    assert "not base64" in refusal("FP32", f'"{text}"')


@pytest.mark.parametrize("size", [0, 1, 3, 5, 8])
def test_base64_of_another_length_is_refused(size):
    message = refusal("FP32", '"' + base64.b64encode(bytes(size)).decode() + '"')
    assert f"{size} bytes" in message if size % 4 else f"holds {size // 4}" in message


@pytest.mark.parametrize("elements", [[b"ab", b""], [b"\xff\xfe", b"\x00"]])
@pytest.mark.parametrize("datatype", ["BYTES", "STRING"])
def test_base64_of_strings_has_lengths(datatype, elements):
    text = base64.b64encode(encode_strings(elements, "x")).decode()
    assert values(datatype, f'"{text}"', b"[2]") == elements


@pytest.mark.parametrize("raw", [b"\xff\xd8\xff\xe0 an image", b"", b"abc", b"\x05\x00\x00\x00a"])
def test_base64_of_one_string_may_be_the_bare_element(raw):
    text = base64.b64encode(raw).decode()
    assert values("BYTES", f'"{text}"', b"[1,1]") == [raw]


def test_base64_of_one_prefixed_string_is_that_string():
    text = base64.b64encode(b"\x01\x00\x00\x00a").decode()
    assert values("BYTES", f'"{text}"') == [b"a"]


def test_base64_of_several_strings_must_be_well_formed():
    text = base64.b64encode(b"\x01\x00\x00\x00a").decode()
    assert "expected 2 string elements for tensor 'x'" in refusal("BYTES", f'"{text}"', b"[2]")
    text = base64.b64encode(b"\xff\x00\x00\x00a").decode()
    assert "length 255" in refusal("BYTES", f'"{text}"', b"[2]")


# --- halves ---


@pytest.mark.parametrize(
    ("datatype", "text", "bits"),
    [
        ("FP16", "1.00048828125", 0x3C00),  # halfway between 1 and the next: to even
        ("FP16", "1.00048828126", 0x3C01),
        ("FP16", "1.00146484375", 0x3C02),
        ("FP16", "2.980232238769531e-08", 0x0000),  # half of the least subnormal
        ("FP16", "2.980232238769532e-08", 0x0001),
        ("BF16", "1.00390625", 0x3F80),
        ("BF16", "1.01171875", 0x3F82),
        ("BF16", "1.0039062500000002", 0x3F81),  # by way of float32 this would be the tie
        ("BF16", "1.0117187499999998", 0x3F81),
        ("BF16", "1", 0x3F80),
        ("BF16", "-0.0", 0x8000),
    ],
)
def test_halves_are_rounded_once_to_nearest_even(datatype, text, bits):
    assert decoded(datatype, f"[{text}]")[3] == struct.pack("<H", bits)


@given(st.lists(st.floats(-65000, 65000), max_size=8), st.sampled_from(["FP16", "BF16"]))
@settings(deadline=None)
def test_halves_are_those_of_the_doubles(numbers, datatype):
    wide = np.array(numbers, np.float64)
    expected = float64_to_half(wide, DATATYPES[datatype]).tobytes()
    shape = f"[{len(numbers)}]".encode()
    assert decoded(datatype, json.dumps(numbers), shape)[3] == expected


@pytest.mark.parametrize("data", ["[1.5]", "[[1.5]]", "[NaN]", "[]", "[true]", " [1]"])
@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_halves_as_numbers_can_be_turned_off(datatype, data):
    message = refusal(datatype, data, half_floats=False)
    assert datatype in message and "binary" in message and "'x'" in message


# --- agreement of the readers ---

ESCAPED = st.text(max_size=4).map(json.dumps)
PLAIN = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), max_size=3
)
NUMBERS = st.one_of(
    st.integers(-300, 300).map(str),
    st.sampled_from([2**31, 2**53 + 1, 2**63, 2**64, 10**30]).flatmap(
        lambda n: st.sampled_from([str(n - 1), str(n), str(-n), f"-{n + 1}", f"{n}.0", f"{n}.5"])
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.tuples(st.integers(-30, 30), st.integers(-12, 45)).map(lambda p: f"{p[0]}e{p[1]}"),
    st.tuples(st.integers(-30, 30), st.integers(-5, 5)).map(lambda p: f"{p[0]}.0E+{abs(p[1])}"),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "Inf", "-0", "-0.0", "1e400", "1e-400"]),
)
VALUES = {
    "BOOL": st.sampled_from(["true", "false"]),
    "BYTES": st.one_of(ESCAPED, PLAIN.map(lambda s: f'"{s}"')),
}
ODD = st.sampled_from(["null", "true", '"1"', "{}", "1", "1.0", r'"\ud800"', "[", '{"a":NaN}'])


def nested(elements):
    return st.recursive(
        st.lists(elements, max_size=4), lambda inner: st.lists(inner | elements, max_size=3)
    ).map(lambda tree: json.dumps(tree) if not tree else text_of(tree))


def text_of(tree):
    return "[" + ",".join(text_of(x) if isinstance(x, list) else x for x in tree) + "]"


@st.composite
def requests(draw):
    datatype = draw(st.sampled_from(list(DATATYPES)))
    elements = VALUES.get(datatype, NUMBERS)
    if draw(st.integers(0, 4)) == 0:
        elements = elements | ODD
    data = draw(st.one_of(st.lists(elements, max_size=5).map(text_of), nested(elements)))
    shape = draw(st.sampled_from(["[-1]", "[-1]", "[-1]", "[1]", "[2]", "[-1,2]", "[0]", "[]"]))
    return body_of(datatype, data, shape.encode())


@pytest.mark.slow
@given(requests())
@settings(deadline=None, max_examples=300)
def test_every_reader_gives_the_same_tensor_or_refusal(body):
    small, large, without = every_outcome(body)
    assert small == large == without


def test_large_arrays_are_read_whole_by_every_reader():
    numbers = list(range(-5000, 5000))
    for datatype in ("INT32", "INT64", "FP32", "FP64", "BF16"):
        small, large, without = every_outcome(body_of(datatype, json.dumps(numbers), b"[10000]"))
        assert small == large == without
        assert len(small[3]) == 10_000 * DATATYPES[datatype].size_bytes
    assert values("INT32", json.dumps(numbers), b"[100,100]")[99][99] == 4999
    texts = [f"t{n}" for n in numbers]
    assert values("BYTES", json.dumps(texts), b"[10000]") == [t.encode() for t in texts]


@pytest.mark.parametrize("datatype", ["INT8", "UINT8", "INT32"])
def test_one_element_out_of_range_among_many_is_found_by_every_reader(datatype):
    data = json.dumps([1] * 9999 + [2**40])
    assert "element 9999 is 1099511627776" in refusal(datatype, data, b"[10000]")


@pytest.mark.parametrize(
    ("datatype", "value"), [("FP32", "1e39"), ("FP16", "1e5"), ("BF16", "1e39")]
)
def test_one_overflow_among_many_is_found_by_every_reader(datatype, value):
    data = "[" + "1," * 9999 + value + "]"
    assert datatype in refusal(datatype, data, b"[10000]")


@pytest.mark.slow
def test_far_more_elements_than_declared_are_counted():
    data = "[" + "1," * 999_999 + "1]"
    assert "10 elements, but 'data' holds 1000000" in outcome(body_of("INT32", data, b"[10]"))


# --- out ---


def encoded(datatype, values, non_finite="tokens"):
    if datatype is DataType.BYTES:
        return encode_data(
            Tensor("y", datatype, (len(values),), encode_strings(values, "y")), non_finite
        )
    array = np.array(values, datatype.numpy)
    return encode_data(Tensor.from_numpy("y", array, datatype), non_finite)


@pytest.mark.parametrize("datatype", [d for d in DataType if d.value.startswith(("INT", "UINT"))])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 1000])
def test_integers_are_written_exactly(datatype, count):
    info = np.iinfo(datatype.numpy)
    values = [int(info.min), int(info.max), 7][:count] + [1] * max(0, count - 3)
    assert json.loads(encoded(datatype, values)) == values


def test_floats_are_written_in_their_own_shortest_form():
    assert encoded(DataType.FP32, [0.1, 2.0, -0.0, 3.4028235e38]) == b"[0.1,2.0,-0.0,3.4028235e+38]"
    assert encoded(DataType.FP64, [0.1, 2.0, 1e308]) == b"[0.1,2.0,1e+308]"


def test_halves_are_written_in_their_own_shortest_form():
    texts = encoded(DataType.FP16, [0.1, 2.0, -0.0, 65504.0])
    assert texts.startswith(b"[0.1,2.0,-0.0,6.55e")
    bits = np.array([0x3DCD, 0x4000, 0x8000], np.uint16)
    assert encoded(DataType.BF16, bits) == b"[0.1,2.0,-0.0]"


@pytest.mark.slow
@pytest.mark.parametrize("datatype", [DataType.FP16, DataType.BF16])
def test_every_half_comes_back_from_its_text(datatype):
    bits = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    finite = bits[
        (bits & (0x7C00 if datatype is DataType.FP16 else 0x7F80))
        < (0x7C00 if datatype is DataType.FP16 else 0x7F80)
    ]
    text = encode_data(Tensor("y", datatype, finite.shape, finite), "error")
    shape = f"[{finite.size}]".encode()
    assert outcome(body_of(datatype.value, text, shape))[3] == finite.tobytes()


@pytest.mark.parametrize("datatype", [DataType.FP32, DataType.FP64])
@given(data=st.data())
@settings(deadline=None)
def test_floats_come_back_from_their_text(datatype, data):
    width = 8 * datatype.size_bytes
    numbers = data.draw(st.lists(st.floats(width=width, allow_nan=False), max_size=8))
    array = np.array(numbers, datatype.numpy)
    text = encode_data(Tensor.from_numpy("y", array, datatype), "tokens")
    assert decoded(datatype.value, text, f"[{len(numbers)}]".encode())[3] == array.tobytes()


SPECIAL = [math.nan, 1.5, math.inf, -math.inf]
FLOATS = {
    DataType.FP16: np.array(SPECIAL, np.float16),
    DataType.FP32: np.array(SPECIAL, np.float32),
    DataType.FP64: np.array(SPECIAL, np.float64),
    DataType.BF16: np.array([0x7FC0, 0x3FC0, 0x7F80, 0xFF80], np.uint16),
}


@pytest.mark.parametrize("datatype", FLOATS)
@pytest.mark.parametrize("repeat", [1, 200])
def test_what_json_cannot_say_is_written_as_the_rules_say(datatype, repeat):
    tensor = Tensor.from_numpy("y", np.tile(FLOATS[datatype], repeat), datatype)
    tokens = ",".join(["NaN,1.5,Infinity,-Infinity"] * repeat)
    assert encode_data(tensor, "tokens") == f"[{tokens}]".encode()
    assert json.loads(encode_data(tensor, "null")) == [None, 1.5, None, None] * repeat
    with pytest.raises(InvalidRequest, match=r"'y' holds nan.*binary_data"):
        encode_data(tensor, "error")


@pytest.mark.parametrize("datatype", FLOATS)
@pytest.mark.parametrize("count", [1, 600])
def test_what_json_can_say_is_written_under_any_rule(datatype, count):
    tensor = Tensor.from_numpy("y", np.tile(FLOATS[datatype][1:2], count), datatype)
    for rule in ("tokens", "null", "error"):
        assert json.loads(encode_data(tensor, rule)) == [1.5] * count


@pytest.mark.parametrize("raw", [b"\x00\x01\x02\xff", b""])
def test_any_byte_but_zero_is_true(raw):
    text = encode_data(Tensor("y", DataType.BOOL, (len(raw),), raw), "tokens")
    assert json.loads(text) == [byte != 0 for byte in raw]


def test_strings_are_written_as_utf8():
    text = encoded(DataType.BYTES, ["é😀".encode(), b"", b'"\\\n\x00'])
    assert json.loads(text) == ["é😀", "", '"\\\n\x00']


@pytest.mark.parametrize("raw", [b"\xff", b"a\xc3", b"\xed\xa0\x80"])
def test_strings_that_are_not_utf8_name_the_output_and_the_way_out(raw):
    with pytest.raises(InvalidRequest, match=r"'y'.*UTF-8.*binary_data"):
        encoded(DataType.BYTES, [b"fine", raw])


@pytest.mark.parametrize("datatype", [d for d in DataType if d.size_bytes])
def test_a_tensor_without_dims_is_a_list_of_one(datatype):
    array = np.zeros((), datatype.numpy)
    text = encode_data(Tensor.from_numpy("y", array, datatype), "tokens")
    assert json.loads(text) == [0] and text.startswith(b"[")


def test_decode_data_takes_values_without_a_reader():
    assert decode_data("x", DataType.INT8, (2,), [1, [2]]).numpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("a", '"a"'),
        (1, "1"),
        (10**30, str(10**30)),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        ("\ud800", "\ud800"),
        (True, "true"),
    ],
)
def test_json_text_never_fails(value, text):
    assert json_text(value) == text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("datatype", "element", "size_bytes"), [("BYTES", b'""', 4), ("BOOL", b"true", 1)]
)
def test_arrays_of_more_elements_than_simdjson_can_count_are_read_whole(
    datatype, element, size_bytes
):
    count = 2**24 + 1
    text = (
        b'{"parameters":{"p":1.5},"inputs":[{"name":"x","datatype":"%b","shape":[%d],"data":[%b]}]}'
    ) % (datatype.encode(), count, b",".join([element] * count))
    assert len(text) > json_document.MAX_LIST_BYTES
    codec = V2Rest(JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**30))
    request = codec.decode_large("m", "", memoryview(text), len(text))
    assert request.parameters == {"p": 1.5}
    assert request.inputs[0].size_bytes == count * size_bytes
