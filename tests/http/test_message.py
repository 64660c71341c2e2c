"""Request heads into requests, answers into heads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.http.message import (
    REASONS,
    HttpAnswer,
    HttpError,
    body_length,
    changing_head,
    encode_head,
    known_head,
    parse_head,
)
from inferd.wire.v2.rest.codec import HTTP_STATUS


def head(*lines, method="GET", version="1.1"):
    return "\r\n".join([f"{method} /v2 HTTP/{version}", *lines, "", ""]).encode("latin-1")


def test_a_head_becomes_a_request():
    request = parse_head(head("Host: a", "X-Name:  Some Value ", "X-Empty:", "x-name: b"))
    assert request.method == b"GET"
    assert request.target == b"/v2"
    assert request.headers == {b"host": b"a", b"x-name": b"Some Value, b", b"x-empty": b""}
    assert request.body == b""


@pytest.mark.parametrize("second", ["b", "a", ""])
def test_a_second_host_is_refused(second):
    with pytest.raises(HttpError, match="more than one Host") as caught:
        parse_head(head("Host: a", f"HOST: {second}"))
    assert caught.value.status == 400


@pytest.mark.parametrize("method", ["FOO", "get", "M-SEARCHES"])
def test_a_method_nobody_knows_is_not_implemented(method):
    with pytest.raises(HttpError, match=f"there is no method {method} here") as caught:
        parse_head(f"{method} /v2 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert caught.value.status == 501


@pytest.mark.parametrize("line", ["FOO", "FOO /v2", "F(O /v2 HTTP/1.1", "FOO /v2 FTP/1.1"])
def test_what_is_no_request_line_is_refused(line):
    with pytest.raises(HttpError) as caught:
        parse_head(f"{line}\r\n\r\n".encode())
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("version", "lines", "kept"),
    [
        ("1.1", [], True),
        ("1.1", ["Connection: close"], False),
        ("1.1", ["Connection: Close"], False),
        ("1.1", ["Connection: keep-alive, close"], False),
        ("1.1", ["Connection: foo", "Connection: close"], False),
        ("1.1", ["Connection: closed"], True),
        ("1.1", ["Connection: close", "Upgrade: h2c"], False),
        ("1.1", ["Connection: close", "Content-Length: 5"], False),
        ("1.0", [], False),
        ("1.0", ["Connection: keep-alive"], True),
        ("1.0", ["Connection: Keep-Alive", "Content-Length: 5"], True),
        ("1.0", ["Connection: keep-alive, close"], False),
    ],
)
def test_a_connection_is_kept_as_the_client_wishes(version, lines, kept):
    assert parse_head(head(*lines, version=version)).is_kept_alive is kept


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_methods_are_told(method):
    assert parse_head(head(method=method)).method == method.encode()


@pytest.mark.parametrize(
    ("lines", "length"),
    [
        ([], 0),
        (["Content-Length: 0"], 0),
        (["Content-Length: 1000"], 1000),
        (["Content-Length: \t 1000 \t"], 1000),
        (["Content-Length: 0000000000000999"], 999),
        (["Transfer-Encoding: chunked"], -1),
        (["Transfer-Encoding: CHUNKED"], -1),
    ],
)
def test_a_body_has_its_declared_length(lines, length):
    assert body_length(parse_head(head(*lines, method="POST")), 1000) == length


@pytest.mark.parametrize(
    ("headers", "status"),
    [  # most of these the parser refuses as well; the rule does not lean on that
        ({b"content-length": b""}, 400),
        ({b"content-length": b"-1"}, 400),
        ({b"content-length": b"+1"}, 400),
        ({b"content-length": b"5, 5"}, 400),
        ({b"content-length": "٣".encode()}, 400),
        ({b"content-length": b"1001"}, 413),
        ({b"content-length": b"9" * 5000}, 413),
        ({b"transfer-encoding": b"gzip, chunked"}, 501),
        ({b"transfer-encoding": b"chunked, chunked"}, 501),
        ({b"transfer-encoding": b""}, 501),
        ({b"transfer-encoding": b"chunked", b"content-length": b"5"}, 400),
    ],
)
def test_a_body_of_no_sound_length_is_refused(headers, status):
    request = parse_head(head(method="POST"))
    request.headers = headers
    with pytest.raises(HttpError) as caught:
        body_length(request, 1000)
    assert caught.value.status == status


def test_a_target_beyond_ascii_is_taken_as_if_it_were_encoded():
    plain = parse_head("GET /größe?x=é HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert plain.target == b"/gr%C3%B6%C3%9Fe?x=%C3%A9"
    assert parse_head(b"GET /\xff HTTP/1.1\r\n\r\n").target == b"/%FF"
    for line in (b"G\xc3T / HTTP/1.1", b"GET / HTTP/1.1\xff", b"GET /\xff \xff HTTP/1.1"):
        with pytest.raises(HttpError):
            parse_head(line + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("Content-Length: 18446744073709551616", 413),  # 2^64
        ("content-length:" + "9" * 5000, 413),
        ("Content-Length: 000" + "9" * 20 + " ", 413),
        ("Content-Length: " + "9" * 20 + "x", 400),
        ("Content-Length: -" + "9" * 20, 400),
        ("X-Length: 1\r\nContent-Length: ten", 400),
    ],
)
def test_a_length_the_parser_has_no_room_for_is_too_large(line, status):
    with pytest.raises(HttpError) as caught:
        parse_head(head(line, method="POST"))
    assert caught.value.status == status


def test_chunks_are_refused_in_http_10():
    request = parse_head(head("Transfer-Encoding: chunked", method="POST", version="1.0"))
    with pytest.raises(HttpError, match="has no Transfer-Encoding"):
        body_length(request, 1000)


@pytest.mark.parametrize("status", sorted({200, *HTTP_STATUS.values()}))
def test_every_status_has_a_reason(status):
    first, *lines = encode_head(HttpAnswer(status, []), 7).split(b"\r\n")
    assert first == b"HTTP/1.1 %d %b" % (status, REASONS[status])
    assert lines == [b"Content-Type: application/json", b"Content-Length: 7", b"", b""]


def test_further_headers_come_last():
    answer = HttpAnswer(200, [], b"application/octet-stream", b"A: b\r\nC: d\r\n")
    assert encode_head(answer, 0).endswith(b"Content-Length: 0\r\nA: b\r\nC: d\r\n\r\n")


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
    changing = changing_head(before, request, max_bytes)
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
    return known_head(before, parse_head(before)).request(head)


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
    known = known_head(before, first)
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
