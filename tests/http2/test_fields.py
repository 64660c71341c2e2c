"""What a request must be (RFC 9113 §8): pseudo-header fields, names, values, lengths, trailers."""

import pytest
from raw_http2 import (
    CHECK,
    NOTHING,
    REFLECT,
    WATCH,
    Error,
    Type,
    block,
    call,
    data,
    headers,
    literal,
    point,
    request,
)

PSEUDO = [(":method", "POST"), (":scheme", "http"), (":path", CHECK)]
PLAIN = [("te", "trailers"), ("content-type", "application/grpc")]


def send(peer, fields, stream=1):
    peer.send(headers(stream, block(fields)), data(stream, NOTHING, end=True))


# --- pseudo-header fields (§8.3) ----------------------------------------------------------------


@point("RFC 9113 §8.3", "MUST", "pseudo-header fields come before the others")
def test_a_late_pseudo_field_is_malformed(peer):
    send(peer, [*PSEUDO[:2], *PLAIN, PSEUDO[2]])
    peer.expect_malformed(1)


@point("RFC 9113 §8.3", "MUST", "unknown pseudo-header fields are malformed")
def test_an_unknown_pseudo_field_is_malformed(peer):
    send(peer, [(":unknown", "1"), *request()])
    peer.expect_malformed(1)


@point("RFC 9113 §8.3", "MUST", ":status in a request is malformed")
def test_a_status_in_a_request_is_malformed(peer):
    send(peer, [(":status", "200"), *request()])
    peer.expect_malformed(1)


@point("RFC 9113 §8.3", "MUST", "a pseudo-header field comes once")
@pytest.mark.parametrize("twice", [*PSEUDO, (":authority", "localhost")])
def test_a_pseudo_field_twice_is_malformed(peer, twice):
    send(peer, [twice, *request()])
    peer.expect_malformed(1)


@point("RFC 9113 §8.3.1", "MUST", "a request has :method, :scheme and :path")
@pytest.mark.parametrize("missing", ["method", "scheme", "path"])
def test_a_missing_pseudo_field_is_malformed(peer, missing):
    send(peer, [pair for pair in request() if pair[0] != f":{missing}"])
    peer.expect_malformed(1)


@point("RFC 9113 §8.3.1", "MUST", "the :path is not empty")
def test_an_empty_path_is_malformed(peer):
    send(peer, request(""))
    peer.expect_malformed(1)


@point("RFC 9113 §8.3.1", "MUST", ":authority may be missing")
def test_the_authority_may_be_missing(peer):
    send(peer, request(authority=None))
    peer.expect_ok(1)


@point("RFC 9113 §8.3.1", "MUST", "host may stand for :authority")
def test_host_may_stand_for_the_authority(peer):
    send(peer, [*request(authority=None), ("host", "localhost")])
    peer.expect_ok(1)


@point("RFC 9113 §8.1", "MUST", "trailers have no pseudo-header fields")
def test_a_pseudo_field_in_trailers_is_malformed(peer):
    peer.send(headers(1, block(request(REFLECT))))
    peer.send(headers(1, block([(":path", CHECK)]), end=True))
    peer.expect_malformed(1)


@point("RFC 9113 §8.5", "MUST", "CONNECT with :path or :scheme is malformed")
def test_connect_with_a_path_is_malformed(peer):
    send(peer, request(method="CONNECT"))
    peer.expect_malformed(1)


# --- names and values (§8.2) --------------------------------------------------------------------


@point("RFC 9113 §8.2.1", "MUST", "upper-case letters in a name are malformed")
@pytest.mark.parametrize("name", ["X-Upper", "x-uppeR", "TE"])
def test_an_upper_case_name_is_malformed(peer, name):
    send(peer, [*request(), (name, "trailers")])
    peer.expect_malformed(1)


@point("RFC 9113 §8.2.1", "MUST", "characters no name may have are malformed")
@pytest.mark.parametrize(
    "name", [b"", b"x y", b"x:y", b"x\0", b"x\x7f", b"x\n", b"x\r", b"x\tz", b"x\xffy", b" x"]
)
def test_a_name_with_a_wrong_character_is_malformed(peer, name):
    peer.send(headers(1, block(request()) + literal(name, "1")), data(1, NOTHING, end=True))
    peer.expect_malformed(1)


@point("RFC 9113 §8.2.1", "MUST", "NUL, CR and LF in a value are malformed")
@pytest.mark.parametrize("value", [b"a\0b", b"a\rb", b"a\nb", b"\0", b"a\r\nx-injected: 1"])
def test_a_value_with_a_line_end_is_malformed(peer, value):
    peer.send(headers(1, block(request()) + literal("x-text", value)), data(1, NOTHING, end=True))
    peer.expect_malformed(1)


@point("gRPC", "SHOULD", "space around a value is taken, as gRPC's own servers do (not §8.2.1)")
@pytest.mark.parametrize("value", [" a", "a ", "\ta", "a\t", " "])
def test_a_value_with_space_around_it_is_taken(peer, value):
    send(peer, [*request(), ("x-text", value)])
    peer.expect_ok(1)


@point("RFC 9113 §8.2.1", "MUST", "values may be empty, have spaces within, and bytes above 127")
@pytest.mark.parametrize("value", [b"", b"a b\tc", b"caf\xc3\xa9", b"\xff\xfe", b"!" * 500])
def test_ordinary_values_are_taken(peer, value):
    fields = block(request()) + literal("x-text", value)
    peer.send(headers(1, fields), data(1, NOTHING, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §8.2.2", "MUST", "connection-specific fields are malformed")
@pytest.mark.parametrize(
    "wrong",
    [
        ("connection", "close"),
        ("connection", "keep-alive"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
    ],
)
def test_a_connection_specific_field_is_malformed(peer, wrong):
    send(peer, [*request(), wrong])
    peer.expect_malformed(1)


@point("RFC 9113 §8.2.2", "MUST", "te is trailers or nothing")
@pytest.mark.parametrize("value", ["gzip", "trailers, deflate", "chunked"])
def test_another_te_is_malformed(peer, value):
    send(peer, request(te=value))
    peer.expect_malformed(1)


@point("RFC 9113 §8.2.3", "MUST", "cookies may come in crumbs")
def test_cookies_may_come_in_crumbs(peer):
    send(peer, [*request(), ("cookie", "a=1"), ("cookie", "b=2")])
    peer.expect_ok(1)


@point("RFC 9113 §8.1.1", "MUST", "a malformed field in trailers is malformed too")
@pytest.mark.parametrize("wrong", [("X-Upper", "1"), ("connection", "close"), ("x", "a\nb")])
def test_a_malformed_field_in_trailers_is_malformed(peer, wrong):
    peer.send(headers(1, block(request(REFLECT))), headers(1, block([wrong]), end=True))
    peer.expect_malformed(1)


# --- lengths (§8.1.1) ---------------------------------------------------------------------------


@point("RFC 9113 §8.1.1", "MUST", "a content-length that is not the DATA's is malformed")
@pytest.mark.parametrize("length", ["0", "4", "6", "1000000"])
def test_a_wrong_content_length_is_malformed(peer, length):
    peer.send(headers(1, block(request(CHECK, ("content-length", length)))))
    peer.send(data(1, NOTHING, end=True))
    peer.expect_malformed(1)


@point("RFC 9113 §8.1.1", "MUST", "a content-length without any DATA is malformed")
def test_a_content_length_without_data_is_malformed(peer):
    peer.send(headers(1, block(request(REFLECT, ("content-length", "5"))), end=True))
    peer.expect_malformed(1)


@point("RFC 9113 §8.1.1", "MUST", "a content-length that is no number is malformed")
@pytest.mark.parametrize("length", ["", "-5", "+5", "5 5", "0x5", "five", "5.0"])
def test_a_content_length_that_is_no_number_is_malformed(peer, length):
    send(peer, [*request(), ("content-length", length)])
    peer.expect_malformed(1)


@point("RFC 9113 §8.1.1", "MUST", "two different content-lengths are malformed")
def test_two_content_lengths_are_malformed(peer):
    send(peer, [*request(), ("content-length", "5"), ("content-length", "6")])
    peer.expect_malformed(1)


@point("RFC 9113 §8.1.1", "MUST", "a right content-length is fine, over several DATA frames too")
def test_a_right_content_length_is_fine(peer):
    peer.send(headers(1, block(request(CHECK, ("content-length", "5")))))
    peer.send(data(1, NOTHING[:2]), data(1, NOTHING[2:]), data(1, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §8.1.1", "MUST", "padding does not count in the content-length")
def test_padding_does_not_count_in_the_content_length(peer):
    peer.send(headers(1, block(request(CHECK, ("content-length", "5")))))
    padded = b"\4" + NOTHING + bytes(4)
    peer.send(bytes([0, 0, len(padded), Type.DATA, 0x9, 0, 0, 0, 1]) + padded)
    peer.expect_ok(1)


# --- trailers (§8.1) ----------------------------------------------------------------------------


@point("RFC 9113 §8.1", "MUST", "a request may end with trailers")
def test_a_request_may_end_with_trailers(peer):
    peer.send(headers(1, block(request())), data(1, NOTHING))
    peer.send(headers(1, block([("x-checksum", "1")]), end=True))
    peer.expect_ok(1)


@point("RFC 9113 §8.1", "MUST", "a second HEADERS that does not end the stream is malformed")
def test_a_second_headers_without_the_end_is_malformed(peer):
    peer.send(headers(1, block(request(REFLECT))), headers(1, block([("x-more", "1")])))
    peer.expect_malformed(1)


# --- what the server sends ----------------------------------------------------------------------


@point("RFC 9113 §8.3.2", "MUST", "an answer begins with :status, its one pseudo-header field")
def test_an_answer_begins_with_its_status(peer):
    peer.send(call(1), call(3, "/no.such.Service/Method"))
    peer.answer(1)
    peer.answer(3)
    for stream in (1, 3):
        first, *others = [f.fields for f in peer.find(Type.HEADERS, stream)]
        assert first[0] == (":status", "200")
        names = [name for name, _ in first[1:]] + [name for more in others for name, _ in more]
        assert not any(name.startswith(":") for name in names)


@point("RFC 9113 §8.2", "MUST", "the server's names are lower case, and none is of the connection")
def test_the_servers_fields_are_clean(peer):
    peer.send(call(1), call(3, "/no.such.Service/Method"), call(5, WATCH))
    peer.answer(1)
    peer.answer(3)
    peer.wait_for(lambda f: f.stream == 5 and f.kind == Type.DATA)
    fields = [pair for f in peer.find(Type.HEADERS) for pair in f.fields]
    wrong = {"connection", "keep-alive", "transfer-encoding", "upgrade", "proxy-connection"}
    assert all(name == name.lower() and name not in wrong for name, _ in fields)
    assert all(value == value.strip() for _, value in fields)


@point("RFC 9113 §8.1", "MUST", "an answer that comes early ends the stream without an error")
def test_an_early_answer_does_not_break_the_stream(peer):
    peer.send(headers(1, block(request("/no.such.Service/Method"))))
    answer = peer.answer(1)
    assert answer.status == 12
    peer.send(data(1, NOTHING), data(1, NOTHING, end=True), call(3))
    peer.expect_ok(3)
    resets = peer.find(Type.RST_STREAM, 1)
    assert [f.code for f in resets] in ([], [Error.NO_ERROR]), resets
