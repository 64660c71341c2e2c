"""What the page's modules make of numbers, texts and files, in the browser itself."""

import ast
import base64
import io

import numpy as np
import pytest

NUMBERS = {
    "INT8": "|i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "UINT8": "|u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
TO_TEXT = "(module, type, bytes) => module.decode(type, Uint8Array.from(bytes)).map(String)"
TEXT_TO_BYTES = """async (module, type, text) => {
    const json = await import('/ui/static/app/json.js');
    return [...module.encode(type, json.parseJson(text))];
}"""
TO_BYTES = "(module, type, values) => [...module.encode(type, values)]"


@pytest.fixture(scope="module")
def page(browser):
    """A visit for all tests here: they change nothing."""
    from fake_site import Fake, FakeSite
    from visits import Visit

    with FakeSite(Fake()) as site:
        visit = Visit(browser, site.url)
        yield visit
        visit.close()
    assert visit.complaints == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[9007199254740993]", "[9007199254740993]"),
        (
            '{"a": [-9223372036854775808, 1.5, true, null, "x\\"y"]}',
            '{"a":[-9223372036854775808,1.5,true,null,"x\\"y"]}',
        ),
        ('{"n": 18446744073709551615, "e": 1e300}', '{"n":18446744073709551615,"e":1e+300}'),
        ('{"long": "1234567890123456789"}', '{"long":"1234567890123456789"}'),
        ("[]", "[]"),
        ("[1234567890123456, [], {}]", "[1234567890123456,[],{}]"),
    ],
)
def test_json_keeps_every_integer(page, text, said):
    code = "(module, text) => module.writeJson(module.parseJson(text))"
    assert page.module("app/json.js", code, text) == said


@pytest.mark.parametrize(
    "text",
    ["[1234567890123456,]", "[1234567890123456", "{1234567890123456: 1}x", "[1 1234567890123456]"],
)
def test_what_is_no_json_is_refused(page, text):
    code = "(module, text) => module.parseJson(text)"
    assert page.problem("app/json.js", code, text)


@pytest.mark.parametrize("text", ["1 2 3", "1, 2,3", "[1, 2, 3]", " 1\n2\n3 "])
def test_numbers_may_be_typed_without_brackets(page, text):
    assert page.module("app/json.js", "(module, text) => module.parseTyped(text)", text) == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize("datatype", NUMBERS)
def test_each_datatype_is_written_and_read_as_numpy_does(page, datatype):
    kind = np.dtype(NUMBERS[datatype])
    if kind.kind == "f":
        array = np.array([0, -0.0, 1, -1.5, 0.1, 65504, 1e-7, 6e-8, 3.14159, 2049], kind)
    else:
        info = np.iinfo(kind)
        array = np.array([0, 1, info.min, info.max], kind)
    texts = page.module("try/datatypes.js", TO_TEXT, datatype, list(array.tobytes()))
    assert [kind.type(text) for text in texts] == array.tolist()
    given = f"[{', '.join(texts)}]" if kind.kind != "f" else None
    if given is not None:
        assert (
            bytes(page.module("try/datatypes.js", TEXT_TO_BYTES, datatype, given))
            == array.tobytes()
        )
    else:
        values = [float(value) for value in array]
        assert bytes(page.module("try/datatypes.js", TO_BYTES, datatype, values)) == array.tobytes()


def test_halves_are_rounded_as_numpy_rounds_them(page):
    rng = np.random.default_rng(1)
    doubles = np.concatenate(
        [rng.normal(size=300), 10.0 ** rng.uniform(-9, 5, 300), [65519.99, 65520, 2048.5, 5.96e-8]]
    )
    with np.errstate(over="ignore"):
        expected = doubles.astype("<f2").tobytes()
    assert bytes(page.module("try/datatypes.js", TO_BYTES, "FP16", doubles.tolist())) == expected


def test_bf16_is_the_upper_half_of_a_float_rounded_to_even(page):
    given = [1.0, -2.5, 1.00390625, 1.01171875, 3.0e38]
    bytes_ = bytes(page.module("try/datatypes.js", TO_BYTES, "BF16", given))
    bits = np.frombuffer(bytes_, "<u2").tolist()
    assert bits == [0x3F80, 0xC020, 0x3F80, 0x3F82, 0x7F62]


def test_bytes_stand_after_their_lengths(page):
    made = bytes(page.module("try/datatypes.js", TO_BYTES, "BYTES", ["é", ""]))
    assert made == b"\x02\0\0\0\xc3\xa9\0\0\0\0"


@pytest.mark.parametrize(
    ("datatype", "value", "words"),
    [
        ("UINT8", 300, "300 does not fit UINT8: it takes 0 to 255."),
        ("INT32", 1.5, "1.5 is no integer, as INT32 wants."),
        ("FP32", "x", '"x" is no number.'),
        ("BOOL", 2, "2 is no BOOL: write true or false."),
    ],
)
def test_what_does_not_fit_is_said(page, datatype, value, words):
    code = "(module, type, value) => module.encode(type, [value])"
    assert page.problem("try/datatypes.js", code, datatype, value) == words


SETTLE = "(module, ...given) => module.settle(...given)"


@pytest.mark.parametrize(
    ("declared", "count", "given", "typed", "shape"),
    [
        ([-1, 8, 8], 64, [8, 8], None, [1, 8, 8]),
        ([-1, 8, 8], 128, [2, 8, 8], None, [2, 8, 8]),
        ([-1, 8, 8], 128, [128], None, [2, 8, 8]),
        ([-1, -1], 5, [5], None, [1, 5]),
        ([4], 4, [4], None, [4]),
        ([-1, 3], 4, [4], None, "4 elements do not fit any × 3."),
        ([4], 5, [5], None, "The model wants 4: 4 elements. There are 5."),
        ([-1, -1], 6, [6], [2, 3], [2, 3]),
        ([-1, -1], 6, [6], [2, 2], "2 × 2 are 4 elements; there are 6."),
    ],
)
def test_a_shape_is_what_the_elements_allow(page, declared, count, given, typed, shape):
    ask = page.problem if isinstance(shape, str) else page.module
    assert ask("try/shapes.js", SETTLE, declared, count, given, typed) == shape


@pytest.mark.parametrize(
    ("shape", "has_batch", "layout"),
    [
        ([-1, 8, 8], True, ("HW", 1, 8, 8)),
        ([3, 224, 224], False, ("CHW", 3, 224, 224)),
        ([-1, 3, 224, 224], True, ("CHW", 3, 224, 224)),
        ([1, 299, 299, 3], False, ("HWC", 3, 299, 299)),
        ([-1, -1, 3], False, ("HWC", 3, 0, 0)),
        ([-1, 16], True, None),
        ([-1], False, None),
        ([-1, 2, 8, 8], True, None),
    ],
)
def test_inputs_that_may_be_pictures_are_found(page, shape, has_batch, layout):
    found = page.module(
        "try/shapes.js",
        "(module, shape, batch) => module.pictureOf(shape, batch)",
        shape,
        has_batch,
    )
    assert (
        found and (found["layout"], found["channels"], found["height"], found["width"])
    ) == layout


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype="<i8").reshape(2, 3, 4),
        np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3)),
        np.array([True, False]),
        np.array(3.5),
        np.array([2**63 - 1, -(2**63)]),
        np.array(["a", "Grüße"]),
        np.array([b"x", b"longer"]),
        np.array(["a\0b", "c"]),
    ],
    ids=str,
)
def test_files_of_numpy_are_read(page, array):
    file = io.BytesIO()
    np.save(file, array)
    code = """(module, bytes) => {
        const { shape, values } = module.readNpy(Uint8Array.from(bytes));
        const isText = (one) => one instanceof Uint8Array;
        const write = (one) => isText(one) ? new TextDecoder().decode(one) : String(one);
        return { shape, values: values.map(write) };
    }"""
    read = page.module("try/npy.js", code, list(file.getvalue()))
    flat = [one.decode() if isinstance(one, bytes) else one for one in array.ravel().tolist()]
    expected = [
        str(one).lower()
        if isinstance(one, bool)
        else f"{one:g}"
        if isinstance(one, float)
        else str(one)
        for one in flat
    ]
    assert read == {"shape": list(array.shape), "values": expected}


@pytest.mark.parametrize("values", [[1.5, 2.5], ["one", "two"], [b"one", b"two"]], ids=str)
def test_a_file_of_numpy_that_is_cut_off_is_refused(page, values):
    file = io.BytesIO()
    np.save(file, np.array(values))
    code = "(module, bytes) => module.readNpy(Uint8Array.from(bytes))"
    assert "cut off" in page.problem("try/npy.js", code, list(file.getvalue()[:-1]))


@pytest.mark.parametrize("language", ["inferd", "triton"])
def test_texts_in_a_program_are_those_of_the_request(page, language):
    parameters = {"nullable": True, "prompt": "is it true, false or null?", "n": None, "l": [1.5]}
    code = """(module, language, parameters) => module.program(language, {
        model: 'm', parameters, tensors: [
            { name: 'x', datatype: 'BOOL', shape: [1], bytes: Uint8Array.of(1) },
        ],
    }, {}).text"""
    text = page.module("try/code.js", code, language, parameters)
    calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.keyword)]
    [given] = [one.value for one in calls if one.arg == "parameters"]
    assert ast.literal_eval(given) == parameters


@pytest.mark.parametrize(("is_stream", "call"), [(False, "infer"), (True, "start_stream")])
def test_a_program_for_the_client_of_triton_sends_the_key(page, is_stream, call):
    code = """(module, isStream) => module.program('triton', {
        model: 'm', tensors: [{ name: 'x', datatype: 'BOOL', shape: [1], bytes: Uint8Array.of(1) }],
    }, { isStream, hasKey: true }).text"""
    text = page.module("try/code.js", code, is_stream)
    calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
    [name] = [one.func.attr for one in calls if "headers" in [word.arg for word in one.keywords]]
    assert name == call
    assert "import os\n" in text and "os.environ['INFERD_API_KEY']" in text


def test_objects_of_python_in_a_file_are_refused(page):
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    code = "(module, bytes) => module.readNpy(Uint8Array.from(bytes))"
    assert "no model takes" in page.problem("try/npy.js", code, list(file.getvalue()))


@pytest.mark.parametrize("kind", ["<f4", "<i8", "|u1", "|b1"])
def test_numpy_reads_the_files_that_the_page_writes(page, kind):
    array = np.arange(6).reshape(2, 3).astype(kind)
    datatype = {"<f4": "FP32", "<i8": "INT64", "|u1": "UINT8", "|b1": "BOOL"}[kind]
    code = """(module, datatype, shape, bytes) =>
        [...module.writeNpy({ datatype, shape, bytes: Uint8Array.from(bytes) })]"""
    made = page.module("try/npy.js", code, datatype, [2, 3], list(array.tobytes()))
    read = np.load(io.BytesIO(bytes(made)))
    assert read.dtype == np.dtype(kind)
    assert np.array_equal(read, array)


WRITE_TEXTS = """(module, shape, bytes) => {
    const tensor = { datatype: 'BYTES', shape, bytes: Uint8Array.from(bytes) };
    return { file: [...module.writeNpy(tensor)], pickle: module.needsPickle(tensor) };
}"""


@pytest.mark.parametrize(
    ("elements", "shape", "pickled"),
    [
        ([b"a\0", b"", b"\0\0", "é".encode()], [2, 2], True),
        ([b"\xff\0"], [1], True),
        ([b"\0"], [], True),
        ([b"\0a", b"longer", b""], [3, 1], False),
        ([b"x"], [], False),
        ([], [0, 2], False),
    ],
    ids=str,
)
def test_texts_in_the_files_that_the_page_writes_are_whole(page, elements, shape, pickled):
    bytes_ = b"".join(len(one).to_bytes(4, "little") + one for one in elements)
    made = page.module("try/npy.js", WRITE_TEXTS, shape, list(bytes_))
    read = np.load(io.BytesIO(bytes(made["file"])), allow_pickle=pickled)
    assert made["pickle"] == pickled
    assert list(read.shape) == shape
    assert read.astype(object).ravel().tolist() == elements


def test_a_program_reads_texts_with_zero_bytes_at_their_ends(page):
    code = """(module, texts) => module.program('inferd', { model: 'm', tensors: [{
        name: 'x', datatype: 'BYTES', shape: [2], bytes: Uint8Array.from(texts),
    }] }, {}).text"""
    zeros, plain = b"\1\0\0\0\xff\2\0\0\0\xff\0", b"\1\0\0\0\xff\1\0\0\0\xff"
    assert 'np.load("x.npy", allow_pickle=True)' in page.module("try/code.js", code, list(zeros))
    assert 'np.load("x.npy").astype' in page.module("try/code.js", code, list(plain))


@pytest.mark.parametrize(
    ("datatype", "value", "text"),
    [
        ("FP64", 3.141592653589793, "3.141592653589793"),
        ("FP64", 0.1, "0.1"),
        ("FP32", float(np.float32(0.1)), "0.1"),
        ("FP32", float(np.float32(16777217.0)), "16777216"),
        ("FP16", float(np.float16(0.1)), "0.0999755859"),
        ("BF16", 1.0078125, "1.0078125"),
        ("INT32", 2147483647, "2147483647"),
        ("UINT32", 4294967291, "4294967291"),
        ("BOOL", True, "true"),
    ],
)
def test_a_number_is_shown_with_all_digits_that_it_has(page, datatype, value, text):
    code = "(module, type, value) => module.writeNumber(type, value)"
    assert page.module("try/datatypes.js", code, datatype, value) == text


@pytest.mark.parametrize(
    ("asked", "ways"), [(True, ["classes", "table"]), (False, ["text", "table"])]
)
def test_texts_are_classes_only_if_classes_were_asked_for(page, asked, ways):
    code = """(module, isClasses) => module.waysOf({
        name: 'y', datatype: 'BYTES', shape: [1], values: ['12:30'], isClasses })"""
    assert page.module("try/answers.js", code, asked) == ways


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("duration(1234567)", "1.23 ms"),
        ("duration(850)", "850 ns"),
        ("duration(12_300)", "12.3 µs"),
        ("duration(125e9)", "2 min 5 s"),
        ("duration(null)", "–"),
        ("figures(NaN)", "–"),
        ("rate(3400)", "3,400/s"),
        ("rate(0.25)", "0.3/s"),
        ("bytes(1536)", "1.5 KiB"),
        ("bytes(0)", "0 B"),
        ("percent(0.00001)", "< 0.01 %"),
        ("percent(0.99999)", "> 99.99 %"),
        ("percent(1)", "100 %"),
        ("span(7_500_000)", "2 h 5 min"),
        ("count(1234567)", "1,234,567"),
        ("plural(1, 'model')", "1 model"),
    ],
)
def test_figures_are_readable(page, call, text):
    assert page.module("app/format.js", f"(module) => module.{call}") == text


def test_a_form_goes_through_an_address(page):
    code = """async (module, value) => {
        const text = await module.pack(value);
        return { text, back: await module.unpack(text) };
    }"""
    form = {"fields": {"x": {"text": "Grüße €" * 50, "strokes": [[[0.1, 0.2]]]}}, "more": {}}
    made = page.module("try/share.js", code, form)
    assert made["back"] == form
    assert set(made["text"]) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )
    assert len(made["text"]) < 200


@pytest.mark.parametrize(
    "text", ["%%%", "AAAA", base64.urlsafe_b64encode(b"\x03\x00").decode(), ""]
)
def test_an_address_that_holds_no_form_does_no_harm(page, text):
    assert page.module("try/share.js", "(module, text) => module.unpack(text)", text) is None


def test_an_address_cannot_put_into_a_field_what_a_field_has_not(page):
    code = "(module, start, given) => module.fieldFrom(start, given, ['numbers'])"
    start = {"way": "numbers", "text": "", "strokes": []}
    given = {"way": "evil", "text": {"a": 1}, "strokes": [["x"]], "file": "x", "__proto__": 1}
    assert page.module("try/share.js", code, start, given) == start
