"""Heads that are read by what is known of earlier ones say the same as when they are parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.http.known_head import Variations, changing_head, known_head
from inferd.http.message import HttpError, parse_head

VARIATIONS = Variations(b"nv-inferrequest", (b"inference-header-content-length",))


# --- heads that differ in NV-InferRequest alone ---

LINES = ["Host: x", "NV-InferRequest: id: 1", "nv-inferrequest: id: 2", "NV-InferRequest:", "A: b"]


def head_of(lines, value="id: 7"):
    text = "\r\n".join(["POST /api/infer/m HTTP/1.1", *lines, f"NV-InferRequest: {value}", "C: d"])
    return f"{text}\r\n\r\n".encode("latin-1")


def parsed(head):
    try:
        return parse_head(head)
    except HttpError:
        return None


def read_behind(before, head, max_bytes=65536):
    """The request that `head` behind `before` makes, and where it ends, 0: that is to be parsed."""
    request = parse_head(before)
    changing = changing_head(before, request, VARIATIONS, max_bytes)
    if changing is None:
        return request, 0
    buffer = bytearray(b"what was before" + head + b"what is behind")
    end = changing.read(buffer, 15, 15 + len(head))
    return request, end - 15 if end else 0


@given(
    st.lists(st.sampled_from(LINES), max_size=3),
    st.lists(st.sampled_from(LINES), max_size=3),
    st.text(st.characters(max_codepoint=255), max_size=12),
    st.sampled_from(["id: 7", " id: 8 \t", "", "a\r\n b"]),
)
def test_a_changed_head_is_read_as_if_it_were_new(lines, other, value, first):
    before = head_of(lines, first)
    for others in (lines, other):
        head = head_of(others, value)
        if parsed(before) is not None:
            found, end = read_behind(before, head)
            assert end in (0, len(head))
            assert not end or found == parsed(head)


@pytest.mark.parametrize("name", [b"NV-InferRequest", b"nv-inferrequest", b"Nv-Inferrequest"])
def test_a_head_with_another_id_is_not_parsed_anew(name):
    before, head = (
        head_of(["Host: x"], value).replace(b"NV-InferRequest", name)
        for value in ("id: 7", "id: 1234")
    )
    found, end = read_behind(before, head)
    assert (found, end) == (parse_head(head), len(head))
    assert found.headers[b"nv-inferrequest"] == b"id: 1234"


@pytest.mark.parametrize("missing", [1, 3, 5, 8, 12, 60])
def test_a_changed_head_that_has_not_come_whole_is_not_taken(missing):
    before, head = head_of(["Host: x"], "id: 7"), head_of(["Host: x"], "id: 1234")
    assert read_behind(before, head[:-missing])[1] == 0


def test_a_changed_head_may_not_become_too_large():
    before = head_of([], "id: 7")
    for extra, is_taken in ((20, True), (21, False)):
        head = head_of([], f"id: 7{'0' * extra}")
        assert bool(read_behind(before, head, len(before) + 20)[1]) is is_taken


@pytest.mark.parametrize(
    "head",
    [
        head_of(["Host: y"]),
        head_of([]),
        head_of(["Host: x"]).replace(b"C: d", b"C: e"),
        head_of(["Host: x"], "id\x00"),
        head_of(["Host: x"]).replace(b"/m", b"/n"),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_any_other_change_is_parsed_anew(head):
    assert read_behind(head_of(["Host: x"]), head)[1] == 0


# --- heads that differ in lengths alone ---

LENGTHS = ["0", "7", " 12", "12 ", "+1", "", "1 1", "0012", "99", "9" * 15, "9" * 16, "9" * 25]
SIZES = ["Host: x", "A: b", "Inference-Header-Content-Length: 5"]
SIZES += ["inference-header-content-length:4 ", "Content-Length: 7"]


def sized_head(lines=(), length=" 7", name="Content-Length"):
    text = "\r\n".join(["POST /v2/models/m/infer HTTP/1.1", *lines, f"{name}:{length}", "C: d"])
    return f"{text}\r\n\r\n".encode()


def read_like(before, head):
    """What `head` says as one that is like `before`, None: it is to be parsed."""
    return known_head(before, parse_head(before), VARIATIONS).request(head)


@given(
    st.lists(st.sampled_from(SIZES), max_size=3),
    st.lists(st.sampled_from(SIZES), max_size=3),
    st.sampled_from(LENGTHS),
    st.sampled_from(LENGTHS),
)
def test_a_head_with_other_lengths_is_read_as_if_it_were_new(lines, other, length, next_length):
    before = sized_head(lines, length)
    for others in (lines, other):
        head = sized_head(others, next_length)
        if parsed(before) is not None and (found := read_like(before, head)) is not None:
            assert found == parsed(head)


@pytest.mark.parametrize("name", ["Content-Length", "content-length", "CONTENT-LENGTH"])
def test_a_head_with_other_lengths_is_not_parsed_anew(name):
    before, head = (
        sized_head([f"Inference-Header-Content-Length: {size}"], f" {size + 1}", name)
        for size in (250, 1250)
    )
    assert read_like(before, head) == parse_head(head)


def test_what_a_head_says_does_not_change_with_the_next_one():
    before, head = sized_head(), sized_head((), " 9")
    first = parse_head(before)
    known = known_head(before, first, VARIATIONS)
    second = known.request(head)
    assert known.request(before) == first == parse_head(before)
    assert second == parse_head(head)


@pytest.mark.parametrize(
    "head",
    [
        sized_head(["Host: y"]),
        sized_head(),
        sized_head(["Host: x"]).replace(b"C: d", b"C: e"),
        sized_head(["Host: x"])[:-2] + b"D: e\r\n\r\n",
        sized_head(["Host: x"], " 0x1"),
        sized_head(["Host: x"], " " + "9" * 16),
        sized_head(["Host: x"]).replace(b"/m/", b"/n/"),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_head_with_any_other_change_is_parsed_anew(head):
    assert read_like(sized_head(["Host: x"]), head) is None
