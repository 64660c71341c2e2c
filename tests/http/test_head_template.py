"""Heads that are read by the template of an earlier one say the same as when they are parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.http.head_template import Variations, head_template
from inferd.http.message import HttpError, body_length, parse_head

VARIATIONS = Variations(b"nv-inferrequest", (b"inference-header-content-length",))
MAX_BODY_BYTES = 10**16


# --- heads that differ in NV-InferRequest alone ---

LINES = ["Host: x", "NV-InferRequest: id: 1", "nv-inferrequest: id: 2", "NV-InferRequest:", "A: b"]


def head_of(lines, value="id: 7"):
    text = "\r\n".join(["POST /api/infer/m HTTP/1.1", *lines, f"NV-InferRequest: {value}", "C: d"])
    return f"{text}\r\n\r\n".encode("latin-1")


def parsed(head):
    try:
        body_length(request := parse_head(head), MAX_BODY_BYTES)
    except HttpError:
        return None
    return request


def template_of(before, max_bytes=65536):
    request = parse_head(before)
    length = body_length(request, MAX_BODY_BYTES)
    return head_template(before, request, length, VARIATIONS, (max_bytes, MAX_BODY_BYTES))


def read_behind(before, head, max_bytes=65536):
    """The request that `head` behind `before` makes, and where it ends, 0: that is to be parsed."""
    template = template_of(before, max_bytes)
    buffer = bytearray(b"what was before" + head + b"what is behind")
    end = template.read(buffer, 15, 15 + len(head))
    if end:
        assert template.length == body_length(template.request, MAX_BODY_BYTES)
    return template.request, end - 15 if end else 0


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
    found, end = read_behind(before, head)
    return found if end else None


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


def test_a_head_that_does_not_fit_changes_nothing():
    before = sized_head()
    template = template_of(before)
    for bad in (sized_head((), " 9")[:-1], sized_head(["A: b"], " 9"), sized_head((), " 9x")):
        assert not template.read(bad, 0, len(bad))
    large = sized_head((), f" {MAX_BODY_BYTES // 10 - 1}")
    small = template_of(before)
    small._max_body_bytes = 8
    assert template.read(large, 0, len(large)) and not small.read(large, 0, len(large))
    assert small.request == parse_head(before) and small.length == 7


def test_an_id_and_lengths_may_change_together():
    before, head = (
        head_of([f"Content-Length: {size}", f"Inference-Header-Content-Length: {size}"], value)
        for size, value in ((7, "id: 1"), (123, "id: 22"))
    )
    template = template_of(before)
    assert template.has_id and template.read(head, 0, len(head)) == len(head)
    assert (template.request, template.length) == (parse_head(head), 123)


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
