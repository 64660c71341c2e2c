"""InferRequestHeader as text: our readers against protobuf's own, on real and on broken texts."""

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from inferd.errors import InvalidRequest
from inferd.wire.proto import message_class
from inferd.wire.trtis.header import InferHeader, InputHeader, OutputHeader
from inferd.wire.trtis.http import decode_request_header
from inferd.wire.trtis.text import read_header

CLIENT = (
    'batch_size: 1 input { name: "INPUT0" dims: 16 batch_byte_size: 64 } '
    'input { name: "INPUT1" dims: 4 dims: 4 } output { name: "OUTPUT0" } '
    'output { name: "OUTPUT1" cls { count: 3 } } correlation_id: 9 id: 17 flags: 3'
)
PRINTED = (
    'batch_size: 1 input { name: "input" byte_size: 602112 } '
    'output { name: "output" byte_size: 4000 cls { count: 3 } }'
)


def by_protobuf(text):
    """The header as protobuf's own reader has it, None for a text it refuses."""
    message = message_class("nvidia.inferenceserver.InferRequestHeader")()
    try:
        text_format.Parse(text, message)
    except (text_format.ParseError, UnicodeError, DeprecationWarning):  # of unknown escapes
        return None
    return InferHeader(
        message.batch_size,
        [
            InputHeader(one.name, tuple(one.dims), one.batch_byte_size, shared(one))
            for one in message.input
        ],
        [
            OutputHeader(one.name, one.cls.count, shared(one), one.byte_size)
            for one in message.output
        ],
        message.correlation_id,
        message.id,
        message.flags,
        message.priority,
        message.timeout_microseconds,
        any(one.byte_size for one in message.output),
    )


def shared(one):
    if not one.HasField("shared_memory"):
        return None
    place = one.shared_memory
    return place.name, place.offset, place.byte_size


def written(header):
    """The text of `header` on one line, as protobuf writes it."""
    message = message_class("nvidia.inferenceserver.InferRequestHeader")(
        batch_size=header.batch_size,
        correlation_id=header.correlation_id,
        id=header.id,
        flags=header.flags,
        priority=header.priority,
        timeout_microseconds=header.timeout_us,
    )
    for one in header.inputs:
        place = named(one.shared)
        message.input.add(
            name=one.name, dims=one.dims, batch_byte_size=one.batch_byte_size, shared_memory=place
        )
    for one in header.outputs:
        classes = {"count": one.top_k} if one.top_k else None
        message.output.add(name=one.name, cls=classes, shared_memory=named(one.shared))
    return text_format.MessageToString(message, as_one_line=True, as_utf8=False)


def named(place):
    return place and dict(zip(("name", "offset", "byte_size"), place, strict=True))


def ours(text):
    """The header as we have it, None for a text we refuse."""
    try:
        found = decode_request_header(text.encode(errors="surrogatepass"))
    except InvalidRequest:
        return None
    found.words = b""
    assert read_header(text) == found  # both of our readers say the same
    return found


numbers = st.integers(0, 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
places = st.none() | st.tuples(names, numbers, numbers)
inputs = st.builds(InputHeader, names, st.lists(numbers, max_size=4).map(tuple), numbers, places)
outputs = st.builds(OutputHeader, names, st.integers(0, 2**32 - 1), places)
small = st.integers(0, 2**32 - 1)
headers = st.builds(
    InferHeader,
    small,
    st.lists(inputs, max_size=3),
    st.lists(outputs, max_size=3),
    numbers,
    numbers,
    small,
    small,
    numbers,
)


@pytest.mark.slow
@given(headers)
def test_what_protobuf_writes_both_readers_read(header):
    text = written(header)
    assert text.isascii()
    assert "\n" not in text
    assert ours(text) == by_protobuf(text) == header


PIECES = [
    *("batch_size: 1", "id: 7", "flags: 1", "correlation_id: 5", "priority: 2", "id:0x1F"),
    *('input { name: "a" }', 'input{name:"a"dims:1 dims:2}', "input {}"),
    *("input < dims: [1, 2,3] >", "id: a"),
    *('output { name: "o" cls { count: 3 } }', "output: { name: 'o' }", 'output { cls: <> }'),
    *('input { name: "a" "b" \'c\' }', "dims: 1", "batch_size: -1", "id: 18446744073709551615"),
    *("id: 18446744073709551616", "batch_size: 4294967296", "input { dims: -5 }", "id: 010"),
    *("# all of this\n", ",", ";", " ", "\t", "}", "{", "<", ">", "[", "]", ":", '"', "'", "\\"),
    *("nothing: 1", "[extension.name]: 1", "input { input { } }", "cls { count: 1 }", "id: 1.5"),
    *('output { name: "\\303\\251\\n\\"\\x41" }', 'output { name: "é" }', 'input { name: "\\q" }'),
    *("output { shared_memory { name: 's' offset: 1 byte_size: 2 } }", "id: true", "batch_size 1"),
    *("output { cls { count: 1 } cls { count: 2 } }", "input { batch_byte_size: 1 id: 2 }"),
    *("output { name: 'o' } # }", 'output { name: "} id: 1" }', "output { name: \"o\" } #}"),
    *("timeout_microseconds: 10", "input { dims: [] }", "id: --1", "id: 1 id: 1", "id: 0 id: 1"),
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=6), st.sampled_from(["", " ", "\n"]))
def test_we_take_what_protobuf_takes_and_nothing_else(pieces, between):
    text = between.join(pieces)
    assert ours(text) == by_protobuf(text)


@given(st.data())
def test_a_damaged_header_is_never_taken_for_another(data):
    text = CLIENT
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        put = data.draw(st.sampled_from(["", "{", "}", '"', ":", " ", "7", "d", "\\", "#", "\n"]))
        text = text[:at] + put + text[at + data.draw(st.integers(0, 2)) :]
    assert ours(text) == by_protobuf(text)


@given(st.text(alphabet="batch_sizeinpuod:{}<>[]\"'\\ 0x19,;#\n", max_size=60))
def test_noise_is_refused_or_read_as_protobuf_reads_it(text):
    assert ours(text) == by_protobuf(text)


def test_the_spec_s_example_is_of_an_old_client():
    header = ours(PRINTED)
    assert header.is_old
    assert header.inputs == [InputHeader("input", byte_size=602112)]
    assert header.outputs == [OutputHeader("output", 3, None, 4000)]


@pytest.mark.parametrize(
    "text",
    [
        'input { name: "a" byte_size: 4 dims: 1 }',
        'input { name: "a" byte_size: 4 } output { shared_memory { } }',
        "output { byte_size: 4 } id: 7",
        "output { byte_size: 4 } flags: 1",
        "output { byte_size: 4 } timeout_microseconds: 1",
    ],
)
def test_what_is_of_no_version_is_refused(text):
    assert ours(text) is None


def test_an_old_client_may_name_a_correlation():
    assert ours("output { byte_size: 4 } correlation_id: 7").is_old


@pytest.mark.parametrize("number", ["0b1", "0o7", "1_000", "1e3", "1.0", "08", "0x", "-", "+1"])
def test_numbers_are_whole_and_plain(number):
    assert ours(f"id: {number}") is None


IDS = st.sampled_from(
    ["", "id: 5", " correlation_id: 3 id: 1 flags: 2", " id: 0", " flags: 1", "  id: 1", "#",
     " id: 9999999999999999999", " id: -1", " correlation_id:1", " batch_size: 2", " # id: 1",
     " id: 1 id: 2"]
)  # fmt: skip


@given(st.lists(IDS, min_size=2, max_size=4), st.sampled_from(["", "id: 4 ", "flags: 1 ", "# }"]))
def test_words_that_came_before_mean_the_same_with_other_ids(ids, before):
    words = CLIENT[: CLIENT.index(" correlation_id")]
    for one in ids:
        text = before + words + one
        assert ours(text) == by_protobuf(text)


def test_headers_that_differ_in_their_ids_have_the_same_words():
    one, other = (decode_request_header(CLIENT.encode() + end) for end in (b"", b" "))
    third = decode_request_header(CLIENT.replace("id: 17", "id: 18").encode())
    assert one.words is other.words is third.words
    assert one.words == CLIENT[: CLIENT.rindex("}") + 1].encode()
    assert (third.id, third.correlation_id, third.flags) == (18, 9, 3)


def test_an_id_may_stand_before_the_tensors():
    words = '{}batch_size: 1 {}output {{ name: "o" }}'
    found = [
        ours(words.format(*one) + behind)
        for one in (("id: 5 ", ""), ("", "id: 6 "), ("id:7 ", ""), ("", "correlation_id: 4 id: 8 "))
        for behind in ("", " flags: 2", " id: 0", " id: 3", " # id: 9")
    ]
    assert [one and one.id for one in found[:10]] == [5, 5, None, None, 5, 6, 6, None, None, 6]
    ids = (("id: 1 ", ""), ("", "id: 2 "))
    known = [decode_request_header(words.format(*one).encode()) for one in ids]
    assert known[0].words == known[1].words == words.format("", "").encode()
    assert [one.id for one in known] == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        'output { name: "o" } flags: 1 output { }',
        'input { name: "id: 3 " }',
        'output { name: "é#" } # }',
        "output < >",
    ],
)
def test_words_that_may_hold_an_id_or_a_comment_are_not_remembered(text):
    assert decode_request_header(text.encode()).words == b""


@pytest.mark.parametrize("before", ["", "batch_size: 1 "])
@pytest.mark.parametrize("kind", ["input", "output"])
def test_an_id_between_a_tensor_and_its_brace_is_refused(before, kind):
    with pytest.raises(InvalidRequest, match=f"{kind} is a message"):
        decode_request_header(f'{before}{kind} id: 5 {{ name: "x" }}'.encode())


def test_an_empty_header_says_nothing():
    assert ours("") == ours("  # nothing") == InferHeader(inputs=[], outputs=[])


@pytest.mark.parametrize("value", [b'input { name: "\xff" }', b"\xfe"])
def test_what_is_no_utf8_is_refused(value):
    with pytest.raises(InvalidRequest, match="UTF-8"):
        decode_request_header(value)


def test_a_complaint_says_what_was_expected():
    with pytest.raises(InvalidRequest, match=r"no field 'nothing' here, only batch_size, input"):
        read_header("nothing: 1")


MANY = 300_000
HOSTILE = [
    'input { name: "' + "a" * MANY,
    "input { " * (MANY // 8),
    "output { cls { count: 1 } } " * (MANY // 60),
    'input { name: "a" ' + "dims: 1 " * (MANY // 8),
    'output { name: "' + "\\" * MANY + '" }',
    "#" * MANY,
    "#" * MANY + "\n!",
    " " * MANY + "!",
    "id: " + "9" * MANY,
    '"a" ' * (MANY // 4),
    "input { dims: [" + "1," * (MANY // 2),
]


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_takes_long(text):
    # What looked at it again and again would not end before the time of a test is over.
    ours(text)
