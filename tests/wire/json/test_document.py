"""Three readers of one document; the exact one has the last word."""

import contextlib
import gc
import json
import math
import runpy
import sys
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.errors import InvalidRequest
from inferd.wire.json import document as json_document
from inferd.wire.json.document import (
    KEEP_PARSER_BYTES,
    LARGE_BYTES,
    MAX_EXACT_BYTES,
    MAX_RANK,
    JsonReader,
    NotFast,
    loads_exact,
    read_exact,
)

PADDING = b" " * LARGE_BYTES
INPUT = b'{"name":"x","shape":[1],"datatype":"INT8","data":[1]}'
DOCUMENT = b'{"inputs":[%b]}' % INPUT


def read_fast(text):
    return JsonReader().read_fast(memoryview(text))


def is_fast(text):
    try:
        read_fast(text)
    except NotFast:
        return False
    return True


def refusal(text):
    with pytest.raises(InvalidRequest) as caught:
        read_exact(memoryview(text))
    return caught.value.message


def with_input(**fields):
    one = {"name": "x", "shape": [1], "datatype": "INT8", "data": [1]} | fields
    one = {key: value for key, value in one.items() if value != "absent"}
    return json.dumps({"inputs": [one]}).encode()


# --- what the readers leave ---


@pytest.mark.parametrize("padding", [b"", PADDING])
def test_a_whole_document_is_read(padding):
    text = (
        b'{"id":"42","parameters":{"a":1,"b":"c"},"model_name":"ignored","inputs":[{"name":"x",'
        b'"shape":[1,2],"datatype":"INT8","parameters":{"k":[1]},"data":[1,2],"more":{}}],'
        b'"outputs":[{"name":"y","parameters":{"binary_data":true,"classification":3,"k":{}}},'
        b'{"name":"z"}]}' + padding
    )
    for document in (read_fast(text), read_exact(memoryview(text))):
        assert (document.id, document.parameters) == ("42", {"a": 1, "b": "c"})
        [one] = document.inputs
        assert (one.name, one.shape, one.datatype) == ("x", (1, 2), "INT8")
        assert one.parameters == {"k": [1]}
        first, second = document.outputs
        assert (first.name, first.parameters.binary_data, first.parameters.classification) == (
            "y",
            True,
            3,
        )
        assert (second.name, second.parameters) == ("z", None)


@pytest.mark.simdjson
def test_data_is_left_raw_when_small_an_array_when_large_and_values_when_exact():
    raw = read_fast(DOCUMENT).inputs[0].data
    assert type(raw) is msgspec.Raw and bytes(raw) == b"[1]"
    assert read_fast(DOCUMENT + PADDING).inputs[0].data.as_list() == [1]
    assert read_exact(memoryview(DOCUMENT)).inputs[0].data == [1]


@pytest.mark.parametrize("padding", [b"", PADDING])
def test_null_is_as_good_as_absent(padding):
    text = (
        b'{"id":null,"parameters":null,"outputs":null,"inputs":[{"name":"x","shape":[],'
        b'"datatype":"INT8","parameters":null}]}' + padding
    )
    for document in (read_fast(text), read_exact(memoryview(text))):
        assert (document.id, document.parameters, document.outputs) == (None, None, None)
        assert document.inputs[0].parameters is None
        assert document.inputs[0].data is msgspec.UNSET


@pytest.mark.parametrize("padding", [b"", PADDING])
def test_parameters_of_outputs_may_be_null_or_of_no_meaning(padding):
    text = (
        b'{"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":null,'
        b'"classification":null,"shared_memory_region":null,"other":[1,{}]}},'
        b'{"name":"z","parameters":null}]}' + padding
    )
    for document in (read_fast(text), read_exact(memoryview(text))):
        requested = document.outputs[0].parameters
        assert (
            requested.binary_data,
            requested.classification,
            requested.shared_memory_region,
        ) == (None,) * 3
        assert document.outputs[1].parameters is None


def test_the_last_of_several_equal_keys_counts():
    text = b'{"id":"a","inputs":[%b],"id":"b"}' % INPUT.replace(
        b'{"name":"x"', b'{"name":"w","name":"x"'
    )
    for padded in (text, text + PADDING):
        assert read_exact(memoryview(padded)).id == "b"
        assert read_exact(memoryview(padded)).inputs[0].name == "x"
    assert read_fast(text).id == "b" and read_fast(text).inputs[0].name == "x"


@pytest.mark.parametrize(
    "text",
    [
        b'{"id":"a","id":"b","inputs":[]}',
        b'{"inputs":[],"inputs":[%b]}' % INPUT,
        b'{"inputs":[{"name":"w",%b]}' % INPUT[1:],
        b'{"inputs":[{"data":[2],%b]}' % INPUT[1:],
    ],
)
@pytest.mark.simdjson
def test_equal_keys_in_a_large_document_are_left_to_the_exact_reader(text):
    assert not is_fast(text + PADDING)


def test_keys_may_be_spelled_with_escapes():
    text = DOCUMENT.replace(b'"inputs"', rb'"inp\u0075ts"').replace(b'"name"', rb'"n\u0061me"')
    for padded in (text, text + PADDING):
        assert read_fast(padded).inputs[0].name == "x"
        assert read_exact(memoryview(padded)).inputs[0].name == "x"


# --- the large reader ---


@pytest.mark.simdjson
def test_a_document_is_large_by_its_bytes():
    small = DOCUMENT + b" " * (LARGE_BYTES - 1 - len(DOCUMENT))
    assert type(read_fast(small).inputs[0].data) is msgspec.Raw
    assert type(read_fast(small + b" ").inputs[0].data) is not msgspec.Raw


def test_large_documents_are_read_without_simdjson(monkeypatch):
    monkeypatch.setattr(json_document, "simdjson", None)  # stands for a missing package
    assert bytes(read_fast(DOCUMENT + PADDING).inputs[0].data) == b"[1]"


def test_simdjson_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "simdjson", None)  # what import finds of a missing package
    module = runpy.run_path(json_document.__file__)
    assert module["simdjson"] is None
    assert module["JsonReader"]().read_fast(memoryview(DOCUMENT + PADDING)).inputs[0].name == "x"


def test_a_reader_reads_one_document_after_another():
    reader = JsonReader()
    for name in ("a", "b", "c"):
        text = DOCUMENT.replace(b'"x"', f'"{name}"'.encode()) + PADDING
        assert reader.read_fast(memoryview(text)).inputs[0].name == name


@pytest.mark.simdjson
def test_a_document_that_is_retained_does_not_disturb_the_next():
    reader = JsonReader()
    retained = reader.read_fast(memoryview(DOCUMENT + PADDING))
    with pytest.raises(NotFast):  # simdjson lets go of its first document before the next
        reader.read_fast(memoryview(DOCUMENT + PADDING))
    assert reader.read_fast(memoryview(DOCUMENT + PADDING)).inputs[0].data.as_list() == [1]
    assert retained.inputs[0].data.as_list() == [1]


def test_a_reader_reads_on_after_a_document_it_refused():
    reader = JsonReader()
    for broken in (b"[" + PADDING, b'{"inputs":[1]}' + PADDING, b'{"inputs":[{}]}' + PADDING):
        with pytest.raises(NotFast):
            reader.read_fast(memoryview(broken))
        assert reader.read_fast(memoryview(DOCUMENT + PADDING)).inputs[0].name == "x"


@pytest.mark.simdjson
def test_the_memory_of_a_huge_document_is_not_retained():
    reader = JsonReader()
    reader.read_fast(memoryview(DOCUMENT + PADDING))
    retained = reader._parser
    assert retained is not None
    huge = DOCUMENT + b" " * KEEP_PARSER_BYTES
    reader.read_fast(memoryview(huge))
    assert reader._parser is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        b'{"inputs":[{"name":"x","datatype":"INT8","data":[],"shape":[%b]}]}',
        b'{"inputs":[],"outputs":[%b]}',
        b'{"inputs":[],"parameters":{"p":[[%b]]}}',
        b'{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["a"],"parameters":[%b]}]}',
    ],
)
def test_small_keys_with_more_elements_than_simdjson_can_count_are_no_danger(text):
    text %= b",".join([b"1"] * (2**24 + 99))
    # What as_list writes past its end shows at the latest when the list is freed.
    with contextlib.suppress(NotFast):
        assert read_fast(text).parameters["p"][0][-1] == 1
    gc.collect()
    assert read_fast(DOCUMENT + PADDING).inputs[0].name == "x"


@pytest.mark.parametrize("padding", [b"", PADDING])
@pytest.mark.parametrize(
    "text", [DOCUMENT, b"{", b"[1]", b'{"inputs":[{"data":[1]}]}', b'{"a":NaN}']
)
def test_nothing_holds_on_to_the_body(text, padding):
    reader = JsonReader()
    body = memoryview(bytearray(text + padding))
    gc.disable()
    try:
        for read in (reader.read_fast, read_exact):
            with contextlib.suppress(NotFast, InvalidRequest):
                read(body)
        body.release()  # raises BufferError while anybody has a view
    finally:
        gc.enable()


# --- left to the exact reader, which takes it ---


@pytest.mark.parametrize(
    "text",
    [
        DOCUMENT.replace(b"[1]}", b"[NaN]}"),
        DOCUMENT.replace(b"[1]}", b"[-Infinity]}"),
        DOCUMENT.replace(b"[1]}", b"[Inf]}"),
        DOCUMENT.replace(b"[1]}", b"[-Inf, [Inf]]}"),
        b'{"x":NaN,' + DOCUMENT[1:],
    ],
)
def test_tokens_beyond_json_are_for_the_exact_reader(text):
    assert not is_fast(text) and not is_fast(text + PADDING)
    assert read_exact(memoryview(text)).inputs[0].name == "x"


def test_a_byte_order_mark_is_skipped():
    text = b"\xef\xbb\xbf" + DOCUMENT
    assert not is_fast(text)
    assert read_exact(memoryview(text)).inputs[0].name == "x"
    assert "failed to parse the request JSON" in refusal(b"\xef\xbb\xbf" + text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1.50", Decimal("1.50")),
        (b"1e999999999", Decimal("1e999999999")),
        (b"1e99999999999999999999", Decimal("1e100000000000000000")),
        (b"-1.5E-99999999999999999999", Decimal("-1.5e-100000000000000000")),
        (b"2e+99999999999999999999", Decimal("2e100000000000000000")),
        (b"18446744073709551616", 2**64),
        (b"1" * 4000, int("1" * 4000)),
        (b"[Infinity,-Infinity]", [math.inf, -math.inf]),
        (b"[Inf,-Inf]", [math.inf, -math.inf]),
        (
            rb'["Inf", Inf, "a\"Inf\\", {"Inf": Inf}, "\\"]',
            ["Inf", math.inf, 'a"Inf\\', {"Inf": math.inf}, "\\"],
        ),
        (rb'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        (rb'"\\ud800"', r"\ud800"),
        (rb'["\\ud800", "\u00e9", 1, null, {"a": true}]', [r"\ud800", "é", 1, None, {"a": True}]),
        (b" \t\r\n1 \t\r\n", 1),
        (b'"\\u0000\x7f\xe2\x80\xa8"', "\0\x7f\u2028"),
    ],
)
def test_values_are_read_by_the_letter(text, expected):
    assert loads_exact(text) == expected
    assert type(loads_exact(text)) is type(expected)


# --- refused by all ---


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"}",
        b"nul",
        b"{} {}",
        b"{}x",
        b"[1,]",
        b"{,}",
        b'{"a"}',
        b'{"a":}',
        b"'a'",
        b"{a:1}",
        b"/**/{}",
        b"{}\x00",
        b"\x00{}",
        b'"\n"',
        b'{"a":1,}',
        b"infinity",
        b"Infinit",
        b"_Inf",
        b"Inf Inf",
        b'"Inf',
        b"{}\xc2\xa0",
        b"-",
        b"--1",
        b"1.e5",
        b"\xc2\xa0{}",
        b"{}\x0b",
        b"<a>",
    ],
)
def test_what_is_not_json_is_refused_with_its_place(text):
    assert not is_fast(text) and not is_fast(text + PADDING)
    message = refusal(text)
    assert (
        "failed to parse the request JSON" in message and "line 1 column" in message
    ) or b"\n" in text
    assert "at at" not in message


@pytest.mark.parametrize("raw", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80"])
def test_what_is_not_utf8_is_refused_with_its_place(raw):
    text = b'{"id":"' + raw + b'","inputs":[]}'
    assert not is_fast(text) and not is_fast(text + PADDING)
    message = refusal(text)
    assert "byte 7" in message and f"0x{raw[0]:02x}" in message


@pytest.mark.parametrize(
    "text",
    [
        rb'{"id":"\ud800","inputs":[]}',
        rb'{"id":"a\udfffb","inputs":[]}',
        rb'{"inputs":[],"parameters":{"\uD800":1}}',
        rb'{"inputs":[],"parameters":{"a":"\ude00\ud83d"}}',
        rb'{"inputs":[{"name":"\uDBFF","shape":[1],"datatype":"INT8","data":[1]}]}',
        rb'{"inputs":[],"outputs":[{"name":"\udc00"}]}',
        rb'{"inputs":[],"unknown":[[["\udc00"]]], "x": NaN}',
    ],
)
def test_half_a_surrogate_pair_is_refused_anywhere(text):
    assert not is_fast(text) and not is_fast(text + PADDING)
    assert "surrogate" in refusal(text)


@pytest.mark.parametrize("depth", [100_000])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_document_nested_too_deeply_is_refused(depth, brackets):
    opening, closing = brackets
    for text in (opening * depth, opening * depth + b"1" + closing * depth):
        for where in (b'{"inputs":[],"x":%b}' % text, text):
            assert not is_fast(where) and not is_fast(where + PADDING)
            assert "nested too deeply" in refusal(where)


def test_nesting_as_deep_as_the_stack_allows_is_no_failure():
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 50, 7):
        text = b'{"inputs":[],"x":' + b"[" * depth + b"NaN" + b"]" * depth + b"}"
        refused = ""
        try:
            read_exact(memoryview(text))
        except InvalidRequest as error:
            refused = error.message
        assert refused in ("", "the request body is nested too deeply")


@pytest.mark.slow
@pytest.mark.parametrize("unit", [rb"\"", rb"\\", b'"', b"a", rb"\u0041", b'"a', rb'\"a"'])
@pytest.mark.parametrize("end", [b" Inf", b'" Inf', b"Inf,", b""])
def test_no_text_makes_the_search_for_inf_slow(unit, end):
    text = b'[Inf,"' + unit * 200_000 + end  # a search that is quadratic would take hours
    assert "failed to parse the request JSON" in refusal(text)


def test_an_integer_of_too_many_digits_is_refused():
    text = DOCUMENT.replace(b"[1]}", b"[" + b"1" * 10_000 + b"]}")
    assert "too many digits" in refusal(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[]", ["object", "array"]),
        (b'"a"', ["object", "str"]),
        (b"1", ["object", "int"]),
        (b"null", ["object", "null"]),
        (b"{}", ["inputs", "missing"]),
        (b'{"inputs":{}}', ["$.inputs", "array", "object"]),
        (b'{"inputs":null}', ["$.inputs", "array", "null"]),
        (b'{"inputs":"x"}', ["$.inputs", "array", "str"]),
        (b'{"inputs":[1]}', ["$.inputs[0]", "object", "int"]),
        (b'{"inputs":[null]}', ["$.inputs[0]", "object", "null"]),
        (b'{"inputs":[[]]}', ["$.inputs[0]", "object", "array"]),
        (b'{"id":1,"inputs":[]}', ["$.id", "str", "int"]),
        (b'{"id":1.5,"inputs":[]}', ["$.id", "str", "decimal"]),
        (b'{"id":[],"inputs":[]}', ["$.id", "str", "array"]),
        (b'{"parameters":[],"inputs":[]}', ["$.parameters", "object", "array"]),
        (b'{"parameters":"a","inputs":[]}', ["$.parameters", "object", "str"]),
        (b'{"outputs":{},"inputs":[]}', ["$.outputs", "array", "object"]),
        (b'{"outputs":["x"],"inputs":[]}', ["$.outputs[0]", "object", "str"]),
        (b'{"outputs":[{}],"inputs":[]}', ["$.outputs[0]", "name", "missing"]),
        (b'{"outputs":[{"name":1}],"inputs":[]}', ["$.outputs[0].name", "str", "int"]),
        (
            b'{"outputs":[{"name":"y","parameters":{"binary_data":1}}],"inputs":[]}',
            ["binary_data", "bool", "int"],
        ),
        (
            b'{"outputs":[{"name":"y","parameters":{"binary_data":"true"}}],"inputs":[]}',
            ["binary_data", "bool", "str"],
        ),
        (
            b'{"outputs":[{"name":"y","parameters":{"classification":"3"}}],"inputs":[]}',
            ["classification", "int", "str"],
        ),
        (
            b'{"outputs":[{"name":"y","parameters":{"classification":3.0}}],"inputs":[]}',
            ["classification", "int", "decimal"],
        ),
        (
            b'{"outputs":[{"name":"y","parameters":{"shared_memory_region":7}}],"inputs":[]}',
            ["shared_memory_region", "str", "int"],
        ),
        (b'{"outputs":[{"name":"y","parameters":[]}],"inputs":[]}', ["parameters", "object"]),
        (with_input(name="absent"), ["$.inputs[0]", "name"]),
        (with_input(name=1), ["$.inputs[0].name", "str", "int"]),
        (with_input(name=None), ["$.inputs[0].name", "str", "null"]),
        (with_input(datatype="absent"), ["$.inputs[0]", "datatype"]),
        (with_input(datatype=7), ["$.inputs[0].datatype", "str", "int"]),
        (with_input(shape="absent"), ["$.inputs[0]", "shape"]),
        (with_input(shape=4), ["$.inputs[0].shape", "array", "int"]),
        (with_input(shape="1,4"), ["$.inputs[0].shape", "array", "str"]),
        (with_input(shape=None), ["$.inputs[0].shape", "array", "null"]),
        (with_input(shape={}), ["$.inputs[0].shape", "array", "object"]),
        (with_input(shape=[1.5]), ["$.inputs[0].shape[0]", "int", "decimal"]),
        (with_input(shape=[1, 1.0]), ["$.inputs[0].shape[1]", "int", "decimal"]),
        (with_input(shape=["1"]), ["$.inputs[0].shape[0]", "int", "str"]),
        (with_input(shape=[True]), ["$.inputs[0].shape[0]", "int", "bool"]),
        (with_input(shape=[None]), ["$.inputs[0].shape[0]", "int", "null"]),
        (with_input(shape=[[1]]), ["$.inputs[0].shape[0]", "int", "array"]),
        (with_input(shape=[float("nan")]), ["$.inputs[0].shape[0]", "int", "float"]),
        (with_input(parameters=[]), ["$.inputs[0].parameters", "object", "array"]),
        (with_input(parameters=1), ["$.inputs[0].parameters", "object", "int"]),
        (b'{"Inputs":[]}', ["inputs", "missing"]),
        (with_input(Name="x", name="absent"), ["name", "missing"]),
    ],
)
def test_what_is_no_inference_request_is_refused_with_its_place(text, words):
    assert not is_fast(text) and not is_fast(text + PADDING)
    message = refusal(text)
    assert "not an inference request" in message
    assert all(word in message for word in words), message


# --- dims ---


@pytest.mark.parametrize("dim", [-2, -(2**63), 2**63, 2**64 - 1, 2**64, 2**200, 10**4000])
@pytest.mark.parametrize("shape", [[], [0], [1, 1]])
def test_a_dim_no_tensor_has_is_refused_by_name(dim, shape):
    text = with_input(shape=[*shape, dim])
    assert not is_fast(text) and not is_fast(text + PADDING)
    message = refusal(text)
    assert f"'x': dim {len(shape)} is {dim}" in message and "2^63 - 1" in message


def test_dims_are_read_up_to_the_largest():
    text = with_input(shape=[0, 2**63 - 1, -1])
    for padded in (text, text + PADDING):
        for document in (read_fast(padded), read_exact(memoryview(padded))):
            assert document.inputs[0].shape == (0, 2**63 - 1, -1)


def test_a_shape_has_so_many_dims_at_most():
    for padding in (b"", PADDING):
        text = with_input(shape=[1] * MAX_RANK) + padding
        assert len(read_fast(text).inputs[0].shape) == MAX_RANK
        assert len(read_exact(memoryview(text)).inputs[0].shape) == MAX_RANK
        text = with_input(shape=[1] * (MAX_RANK + 1)) + padding
        assert not is_fast(text)
        assert "'x' has 65 dims, expected at most 64" in refusal(text)


def test_a_long_text_that_needs_the_exact_reader_is_refused_unread():
    text = with_input(data=[1.0]) + b" " * MAX_EXACT_BYTES
    assert f"{len(text)} bytes and is not plain" in refusal(text)


def test_very_many_huge_dims_are_refused_at_once():
    text = b'{"inputs":[{"name":"x","shape":[' + b"9223372036854775807," * 400_000
    text += b'1],"datatype":"INT8","data":[1]}]}'
    assert not is_fast(text)
    assert "400001 dims" in refusal(text)


# --- the readers agree ---

TEXTS = st.text(max_size=3) | st.sampled_from(["x", "y", "INT8", ""])
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), TEXTS, st.just([])
)
ANY = st.recursive(
    LEAVES, lambda x: st.lists(x, max_size=2) | st.dictionaries(TEXTS, x, max_size=2), max_leaves=4
)
SCALARS = st.dictionaries(TEXTS, ANY, max_size=3)
OUTPUT_PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "binary_data": st.booleans() | LEAVES,
        "classification": st.integers(-1, 5) | LEAVES,
        "shared_memory_region": TEXTS | LEAVES,
        "k": ANY,
    },
)
SHAPES = st.lists(st.integers(-1, 3), max_size=3)
INPUTS = st.fixed_dictionaries(
    {"name": TEXTS, "shape": SHAPES, "datatype": TEXTS},
    optional={"data": ANY, "parameters": st.none() | SCALARS, "k": ANY},
)
ODD_INPUTS = st.fixed_dictionaries({}, optional={"name": ANY, "shape": ANY, "datatype": ANY})
OUTPUTS = st.fixed_dictionaries(
    {"name": TEXTS}, optional={"parameters": st.none() | OUTPUT_PARAMETERS, "k": ANY}
)
DOCUMENTS = st.fixed_dictionaries(
    {"inputs": st.lists(INPUTS | INPUTS | INPUTS | ODD_INPUTS, max_size=3)},
    optional={
        "id": st.none() | TEXTS | LEAVES,
        "parameters": st.none() | SCALARS,
        "outputs": st.none() | st.lists(OUTPUTS, max_size=2),
        "k": ANY,
    },
)


def comparable(value):
    """Return what was read with Decimal as float, and data that no reader reads left out."""
    if isinstance(value, dict):
        return {key: comparable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(one) for one in value]
    if isinstance(value, Decimal) or (type(value) is int and not -(2**63) <= value < 2**64):
        return repr(float(value))
    return repr(value)


def seen(document):
    inputs = [(i.name, i.shape, i.datatype, comparable(i.parameters)) for i in document.inputs]
    has_data = [i.data is msgspec.UNSET for i in document.inputs]
    return document.id, comparable(document.parameters), document.outputs, inputs, has_data


@pytest.mark.slow
@given(DOCUMENTS, st.booleans())
@settings(deadline=None, max_examples=300)
def test_a_fast_reader_reads_what_the_exact_one_reads(document, ascii_only):
    text = json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    for padded in (text, text + PADDING):
        try:
            fast = seen(read_fast(padded))
        except NotFast:
            continue
        assert fast == seen(read_exact(memoryview(padded)))


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, max_examples=200)
def test_nothing_but_a_refusal_comes_of_a_broken_document(data):
    text = bytearray(json.dumps(data.draw(DOCUMENTS)).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        to = data.draw(st.integers(at, min(len(text), at + 4)))
        text[at:to] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"[", b"\\", b"Inf"])
        )
    for padded in (bytes(text), bytes(text) + PADDING):
        try:
            fast = seen(read_fast(padded))
        except NotFast:
            fast = None
        try:
            exact = seen(read_exact(memoryview(padded)))
        except InvalidRequest as error:
            exact = error.message
        assert fast is None or fast == exact or "not UTF-8" in exact


@pytest.mark.parametrize("ignored", [b'"k\xff":1', b'"k":"\xff"', b'"k":["\xc3"]'])
def test_bytes_that_are_not_utf8_may_be_skipped_where_nothing_reads_them(ignored):
    assert read_fast(b'{"inputs":[],%b}' % ignored).inputs == []


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_nothing_but_a_refusal_comes_of_random_bytes(text):
    for padded in (text, text + PADDING):
        assert not is_fast(padded)
        assert refusal(padded)
