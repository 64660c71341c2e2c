"""gRPC over HTTP/2: heads, timeouts, messages, compression, statuses, metadata.

Sections are those of gRPC's PROTOCOL-HTTP2.md and compression.md.
"""

import base64
import gzip
import zlib
from urllib.parse import unquote

import pytest
from raw_http2 import (
    CHECK,
    INFER,
    LIST_SERVICES,
    METADATA,
    NOTHING,
    REFLECT,
    WATCH,
    Error,
    Type,
    block,
    call,
    data,
    framed,
    headers,
    infer,
    literal,
    pieces,
    point,
    request,
    rst_stream,
)
from tritonclient.grpc import service_pb2 as pb

CANCELLED, UNKNOWN, INVALID, LATE, NOT_FOUND = 1, 2, 3, 4, 5
EXHAUSTED, UNIMPLEMENTED, INTERNAL = 8, 12, 13
SERVING = b"\0\0\0\0\2\x08\1"
NO_SUCH = "/no.such.Service/Method"


@pytest.fixture(scope="session")
def small(start):
    """A server that takes messages of 100,000 bytes at most."""
    with start("--grpc-max-message-bytes=100000", "--grpc-http2-max-ping-strikes=0") as run:
        yield run


def ask(peer, stream, fields, message=NOTHING):
    peer.send(headers(stream, block(fields)), data(stream, message, end=True))
    return peer.answer(stream)


def of_model(name):
    return framed(pb.ModelMetadataRequest(name=name).SerializeToString())


# --- the shape of an answer ---------------------------------------------------------------------


@point(
    "gRPC Responses", "MUST", "an answer is headers, a framed message, and trailers with a status"
)
def test_an_answer_is_headers_message_trailers(peer):
    peer.send(call(1))
    answer = peer.expect_ok(1)
    assert answer.sections[0][":status"] == "200"
    assert answer.sections[0]["content-type"].startswith("application/grpc")
    assert len(answer.sections) == 2 and "grpc-status" not in answer.sections[0]
    assert answer.body == SERVING
    kinds = [f.kind for f in peer.seen if f.stream == 1]
    assert kinds == [Type.HEADERS, Type.DATA, Type.HEADERS]


@point("gRPC Responses", "MUST", "an error without a message is one HEADERS frame: trailers alone")
def test_an_error_is_trailers_alone(peer):
    peer.send(call(1, METADATA, of_model("nobody")))
    answer = peer.answer(1)
    assert answer.status == NOT_FOUND and answer.is_trailers_only
    assert answer.headers[":status"] == "200"
    assert answer.headers["content-type"].startswith("application/grpc")
    assert "nobody" in answer.headers["grpc-message"]


@point("gRPC Requests", "MUST", "a call is not answered before its message is whole")
def test_a_call_waits_for_its_message(peer):
    peer.send(headers(1, block(request())), data(1, NOTHING[:3]))
    peer.expect_alive()
    assert not [f for f in peer.seen if f.stream == 1]
    peer.send(data(1, NOTHING[3:], end=True))
    peer.expect_ok(1)


# --- the head -----------------------------------------------------------------------------------


@point("gRPC Requests", "MUST", "content-type application/grpc, bare or with a suffix, is a call")
@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto"])
def test_a_grpc_content_type_is_a_call(peer, kind):
    assert ask(peer, 1, request(content_type=kind)).status == 0


@point("gRPC Requests", "SHOULD", "another content-type is HTTP 415")
@pytest.mark.parametrize(
    "kind", ["application/json", "text/plain", "application/grpcx", "application/gr", "", None]
)
def test_another_content_type_is_415(peer, kind):
    answer = ask(peer, 1, request(content_type=kind))
    assert answer.headers[":status"] == "415", answer
    peer.expect_alive()


@point("gRPC Requests", "MUST", "a method other than POST is no call")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "post"])
def test_another_method_is_no_call(peer, method):
    answer = ask(peer, 1, request(method=method))
    if answer.sections:
        assert answer.headers[":status"] != "200" or answer.status != 0
    else:
        assert answer.reset == Error.PROTOCOL_ERROR
    peer.expect_alive()


@point("gRPC Requests", "SHOULD", "a call without te: trailers is answered or refused, at once")
def test_a_call_without_te_is_not_left_alone(peer):
    answer = ask(peer, 1, request(te=None))
    assert answer.sections and (answer.headers[":status"] in ("200", "400"))
    peer.expect_alive()


@point("gRPC Requests", "MUST", "an unknown method or service is UNIMPLEMENTED, trailers alone")
@pytest.mark.parametrize(
    "path",
    [
        NO_SUCH,
        "/inference.GRPCInferenceService/Nothing",
        "/inference.GRPCInferenceService",
        "/",
        "/a/b/c",
        CHECK + "/",
        CHECK.lower(),
        CHECK + "?x=1",
        "/grpc.health.v1.Health/%43heck",
    ],
)
def test_an_unknown_method_is_unimplemented(peer, path):
    answer = ask(peer, 1, request(path))
    assert answer.status == UNIMPLEMENTED and answer.is_trailers_only, answer


@point("gRPC Requests", "MUST", "an unknown method is refused before the message came")
def test_an_unknown_method_is_refused_at_once(peer):
    peer.send(headers(1, block(request(NO_SUCH))))
    assert peer.answer(1).status == UNIMPLEMENTED


@point("gRPC Requests", "MUST", "message-type and user-agent and unknown grpc- fields do no harm")
def test_other_fields_of_the_head_do_no_harm(peer):
    more = [("user-agent", "grpc-raw/1"), ("grpc-message-type", "x.Y"), ("grpc-unknown", "1")]
    assert ask(peer, 1, request(CHECK, *more)).status == 0


# --- timeouts -----------------------------------------------------------------------------------


@point("gRPC Requests", "MUST", "grpc-timeout has up to eight digits and one of six units")
@pytest.mark.parametrize(
    "timeout", ["1H", "5M", "10S", "20000m", "10000000u", "99999999u", "99999999H", "00000010S"]
)
def test_a_timeout_is_understood(peer, timeout):
    assert ask(peer, 1, request(CHECK, ("grpc-timeout", timeout))).status == 0


@point("gRPC Requests", "MUST", "a grpc-timeout of another form does not pass as none or as some")
@pytest.mark.parametrize(
    "timeout", ["", "10", "S", "10s", "-1S", "+1S", "1.5S", "1 S", "123456789S"]
)
def test_a_timeout_of_another_form_is_refused(peer, timeout):
    answer = ask(peer, 1, request(CHECK, ("grpc-timeout", timeout)))
    if answer.sections and answer.headers[":status"] == "200":
        assert answer.status in (INTERNAL, INVALID), answer
    peer.expect_alive()


@point("gRPC Requests", "MUST", "a call whose time has passed ends with DEADLINE_EXCEEDED")
@pytest.mark.parametrize("timeout", ["1n", "100000n", "1u", "50m", "0S"])
@pytest.mark.parametrize("model", ["slow", "endless"])
def test_a_call_whose_time_has_passed_is_late(peer, timeout, model):
    fields = request(INFER, ("grpc-timeout", timeout))
    assert ask(peer, 1, fields, infer(1, model)).status == LATE


@point("gRPC Requests", "MUST", "a stream whose time has passed ends with DEADLINE_EXCEEDED")
def test_a_stream_whose_time_has_passed_is_late(peer):
    peer.send(headers(1, block(request(WATCH, ("grpc-timeout", "100m")))))
    peer.send(data(1, NOTHING, end=True))
    assert peer.answer(1).status == LATE
    peer.send(headers(3, block(request(REFLECT, ("grpc-timeout", "100m")))))
    assert peer.answer(3).status == LATE


@point("gRPC Requests", "MUST", "a client that never sends its message is not waited for beyond it")
def test_a_message_that_never_comes_is_late(peer):
    peer.send(headers(1, block(request(CHECK, ("grpc-timeout", "100m")))), data(1, NOTHING[:2]))
    assert peer.answer(1).status == LATE


# --- messages -----------------------------------------------------------------------------------


@point("gRPC Requests", "MUST", "frame borders of DATA mean nothing for messages")
@pytest.mark.parametrize("size", [1, 2, 4, 6, 11])
def test_a_message_may_be_cut_anywhere(peer, size):
    peer.send(headers(1, block(request(INFER))))
    for part in pieces(infer(3), size):
        peer.send(data(1, part), data(1))
    peer.send(data(1, end=True))
    peer.expect_ok(1)


@point("gRPC Requests", "MUST", "one DATA frame may bring several messages of a stream")
def test_one_frame_may_bring_several_messages(peer):
    peer.send(headers(1, block(request(REFLECT))))
    peer.send(data(1, LIST_SERVICES * 3 + LIST_SERVICES[:4]), data(1, LIST_SERVICES[4:], end=True))
    body = peer.expect_ok(1).body
    size = 5 + int.from_bytes(body[1:5])
    assert body == body[:size] * 4


@point("gRPC Responses", "MUST", "a stream's answers come as they are made, before the client ends")
def test_a_streams_answers_come_as_they_are_made(peer):
    peer.send(headers(1, block(request(REFLECT))))
    for turn in range(1, 4):
        peer.send(data(1, LIST_SERVICES))
        peer.wait_for(lambda f, n=turn: len(peer.find(Type.DATA, 1)) >= n)
    peer.send(data(1, end=True))
    peer.expect_ok(1)


@point("gRPC Requests", "MUST", "a stream without messages ends OK")
def test_a_stream_without_messages_ends_ok(peer):
    peer.send(headers(1, block(request(REFLECT)), end=True))
    answer = peer.expect_ok(1)
    assert not answer.body


@point("gRPC Requests", "MUST", "a unary call needs exactly one message")
@pytest.mark.parametrize("body", [b"", NOTHING * 2, NOTHING + LIST_SERVICES])
def test_a_unary_call_has_one_message(peer, body):
    assert ask(peer, 1, request(), body).status in (INTERNAL, UNIMPLEMENTED, INVALID)
    peer.expect_alive()


@point("gRPC Requests", "MUST", "a unary call that ends with its head is an error, not a wait")
def test_a_unary_call_without_data_is_an_error(peer):
    peer.send(headers(1, block(request()), end=True))
    assert peer.answer(1).status in (INTERNAL, UNIMPLEMENTED, INVALID)


@point("gRPC Requests", "MUST", "a message cut off by the end of the stream is an error")
@pytest.mark.parametrize("body", [NOTHING[:1], NOTHING[:4], b"\0\0\0\0\5abc", NOTHING + b"\0"])
def test_a_cut_off_message_is_an_error(peer, body):
    assert ask(peer, 1, request(), body).status in (INTERNAL, INVALID, UNIMPLEMENTED)
    peer.send(headers(3, block(request(REFLECT))), data(3, body[:4], end=True))
    assert peer.answer(3).status in (INTERNAL, INVALID)


@point("gRPC Requests", "MUST", "the compressed flag is 0 or 1")
@pytest.mark.parametrize("flag", [2, 0x80, 255])
def test_another_compressed_flag_is_internal(peer, flag):
    assert ask(peer, 1, request(), framed(b"", flag)).status == INTERNAL


@point("gRPC Responses", "MUST", "bytes that are no message of the method are an error of the call")
@pytest.mark.parametrize("body", [b"\xff" * 10, b"\x0a\x05ab"])
def test_bytes_that_are_no_message_are_an_error(peer, body):
    assert ask(peer, 1, request(INFER), framed(body)).status in (INTERNAL, INVALID)
    peer.expect_alive()


# --- sizes --------------------------------------------------------------------------------------


@point("gRPC Responses", "MUST", "a message larger than the server takes is RESOURCE_EXHAUSTED")
@pytest.mark.parametrize("size", [100_001, 2**31 - 1, 2**32 - 1])
def test_too_large_a_message_is_resource_exhausted(connect, small, size):
    peer = connect(port=small.port)
    peer.send(headers(1, block(request(INFER))), data(1, b"\0" + size.to_bytes(4) + b"begin"))
    assert peer.answer(1).status == EXHAUSTED  # by its length alone
    peer.send(call(3))
    peer.expect_ok(3)


@point("gRPC Responses", "MUST", "a message as large as the server takes is taken")
def test_the_largest_message_is_taken(connect, small):
    peer = connect(port=small.port)
    message = infer(24_900)
    message = infer(24_900, name="x" * (100_005 - len(message) - 3))
    assert len(message) == 100_005
    peer.send(headers(1, block(request(INFER))))
    for part in pieces(message, 16_000):
        peer.send(data(1, part))
    peer.send(data(1, end=True))
    assert len(peer.answer(1, credit=True).body) > 99_000


@pytest.mark.slow
@point(
    "gRPC compression", "MUST", "what inflates to more than the server takes: RESOURCE_EXHAUSTED"
)
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_message_that_inflates_too_far_is_resource_exhausted(connect, small, coding):
    peer = connect(port=small.port)
    bomb = (gzip if coding == "gzip" else zlib).compress(bytes(60_000_000))
    assert len(bomb) < 100_000
    before = small.resident_bytes
    peer.send(headers(1, block(request(INFER, ("grpc-encoding", coding)))))
    for part in pieces(framed(bomb, 1), 16_000):
        peer.send(data(1, part))
    peer.send(data(1, end=True))
    assert peer.answer(1).status == EXHAUSTED
    assert small.resident_bytes - before < 20_000_000


# --- compression --------------------------------------------------------------------------------


@point("gRPC compression", "MUST", "gzip and deflate messages are read, and plain ones beside them")
@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity"])
def test_compressed_messages_are_read(peer, coding):
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}.get(coding)
    fields = request(REFLECT, ("grpc-encoding", coding))
    body = framed(LIST_SERVICES[5:])
    if pack:
        body += framed(pack(LIST_SERVICES[5:]), 1)
    answer = ask(peer, 1, fields, body)
    assert answer.status == 0, answer
    size = 5 + int.from_bytes(answer.body[1:5])
    assert len(answer.body) == size * (2 if pack else 1)


@point("gRPC compression", "MUST", "an unknown grpc-encoding: UNIMPLEMENTED, and which are known")
@pytest.mark.parametrize("coding", ["snappy", "br", "GZIPP"])
def test_an_unknown_coding_is_unimplemented(peer, coding):
    answer = ask(peer, 1, request(CHECK, ("grpc-encoding", coding)), framed(b"", 1))
    assert answer.status == UNIMPLEMENTED
    known = set(answer.headers["grpc-accept-encoding"].replace(" ", "").split(","))
    assert {"gzip", "deflate"} <= known <= {"gzip", "deflate", "identity"}


@point("gRPC compression", "MUST", "a compressed message without grpc-encoding is INTERNAL")
@pytest.mark.parametrize("more", [(), (("grpc-encoding", "identity"),)])
def test_a_compressed_message_without_a_coding_is_internal(peer, more):
    answer = ask(peer, 1, request(CHECK, *more), framed(gzip.compress(b""), 1))
    assert answer.status == INTERNAL
    assert "names no compression" in answer.trailers["grpc-message"]


@point("gRPC compression", "MUST", "a message that does not inflate is an error of the call")
@pytest.mark.parametrize("body", [b"", b"garbage", gzip.compress(b"abc" * 50, mtime=0)[:-9]])
def test_a_message_that_does_not_inflate_is_an_error(peer, body):
    answer = ask(peer, 1, request(CHECK, ("grpc-encoding", "gzip")), framed(body, 1))
    assert answer.status in (INTERNAL, INVALID)
    peer.expect_alive()


@pytest.mark.slow
@point("gRPC compression", "MUST", "answers are not compressed for a client that accepts no coding")
def test_answers_are_plain_for_a_client_that_accepts_nothing(connect, start):
    with start("--grpc-infer-response-compression-level=high") as compressing:
        peer = connect(port=compressing.port)
        peer.send(call(1, INFER, infer(1000)))
        assert peer.expect_ok(1).body[0] == 0
        peer.send(call(3, INFER, infer(1000), ("grpc-accept-encoding", "identity,gzip")))
        answer = peer.expect_ok(3)
        assert answer.headers["grpc-encoding"] == "gzip" and answer.body[0] == 1
        plain = pb.ModelInferResponse.FromString(gzip.decompress(answer.body[5:]))
        assert plain.raw_output_contents[0] == b"\1\2\3\4" * 1000


# --- statuses and metadata ----------------------------------------------------------------------


@point("gRPC Responses", "MUST", "grpc-message is percent-encoded: printable ASCII without bare %")
def test_a_status_message_is_percent_encoded(peer):
    name = "100% \u00fcn\u00efc\u00f6de \u6a21\u578b\n\t\x7f end"
    peer.send(call(1, METADATA, of_model(name)))
    answer = peer.answer(1)
    assert answer.status in (NOT_FOUND, INVALID)
    text = answer.headers["grpc-message"]
    assert all(" " <= letter <= "~" for letter in text)
    assert "100%25 %C3%BCn" in text
    assert "\u6a21\u578b\n" in unquote(text)


@point("gRPC Responses", "SHOULD", "a status message stays small enough for every client")
def test_a_status_message_stays_small(peer):
    peer.send(call(1, METADATA, of_model("\u6a21" * 5000)))
    answer = peer.answer(1)
    assert answer.status == NOT_FOUND
    assert len(answer.headers["grpc-message"]) < 8000


@point("gRPC Requests", "MUST", "-bin metadata is base64, padded or not")
@pytest.mark.parametrize("value", ["AAEC", "AAE=", "AAE", "AA==", "AA", "", "AAEC,AAEC"])
def test_binary_metadata_is_taken(peer, value):
    assert ask(peer, 1, request(CHECK, ("trace-bin", value))).status == 0


@point("gRPC Requests", "SHOULD", "-bin metadata that is no base64 harms its own call at most")
@pytest.mark.parametrize("value", ["!!!!", "A", "AA=A", "\u00fc"])
def test_wrong_binary_metadata_harms_its_own_call_at_most(peer, value):
    answer = ask(peer, 1, request(CHECK, ("trace-bin", value)))
    assert answer.sections or answer.reset == Error.PROTOCOL_ERROR
    peer.send(call(3))
    peer.expect_ok(3)


@point("gRPC Requests", "MUST", "metadata may repeat keys and hold any value")
def test_metadata_may_repeat(peer):
    binary = base64.b64encode(bytes(range(256))).decode()
    more = [("x-key", "1"), ("x-key", "2"), ("x-key-bin", binary), ("x-empty", "")]
    fields = block(request(CHECK, *more)) + literal("x-latin", b"caf\xe9")
    peer.send(headers(1, fields), data(1, NOTHING, end=True))
    peer.expect_ok(1)


# --- ends ---------------------------------------------------------------------------------------


@point("gRPC Requests", "MUST", "a client cancels with RST_STREAM; the server forgets the call")
def test_a_cancelled_call_is_forgotten(peer):
    for stream in range(1, 401, 2):
        peer.send(call(stream, INFER, infer(1, "endless")), rst_stream(stream, Error.CANCEL))
    peer.send(call(401))
    peer.expect_ok(401)
    peer.expect_alive()
    assert {f.stream for f in peer.seen} <= {0, 401}


@point("gRPC Requests", "MUST", "a stream is cancelled while it waits for messages")
def test_a_waiting_stream_is_cancelled(peer):
    peer.send(headers(1, block(request(REFLECT))), data(1, LIST_SERVICES))
    peer.wait_for(lambda f: f.kind == Type.DATA)
    peer.send(rst_stream(1), call(3))
    peer.expect_ok(3)
    assert not any(f.ends_stream for f in peer.seen if f.stream == 1)


@point("gRPC Errors", "SHOULD", "an error of one stream is no error of the connection")
def test_an_error_of_one_stream_leaves_the_others_alone(peer):
    peer.send(headers(1, block(request(REFLECT))), data(1, LIST_SERVICES))
    peer.send(headers(3, block([*request(), ("Wrong", "1")])))
    peer.send(headers(5, block(request(CHECK))), data(5, framed(b"", 7), end=True))
    peer.expect_malformed(3)
    assert peer.answer(5).status == INTERNAL
    peer.send(data(1, LIST_SERVICES, end=True))
    peer.expect_ok(1)
