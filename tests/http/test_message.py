"""Request heads into requests, answers into heads."""

import pytest

from inferd.http.message import REASONS, HttpAnswer, HttpError, body_length, encode_head, parse_head
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


@pytest.mark.parametrize("line", [b"\xffGET /v2", b"G\xc3\xa9T /\xc3\xa9", b"\x80 /"])
def test_a_method_that_no_method_can_be_called_is_no_http(line):
    with pytest.raises(HttpError, match="is not valid HTTP") as caught:
        parse_head(line + b" HTTP/1.1\r\n\r\n")
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


def test_a_length_of_what_is_no_http_does_not_count():
    huge = f"Content-Length: {'9' * 30}".encode()
    for line in (b"\xffPOST /v2 HTTP/1.1", b"POST /v2 x HTTP/1.1", b"POST"):
        with pytest.raises(HttpError) as caught:
            parse_head(line + b"\r\n" + huge + b"\r\n\r\n")
        assert caught.value.status == 400


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
