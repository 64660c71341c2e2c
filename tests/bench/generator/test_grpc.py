"""Calls over HTTP/2: frames in pieces, windows, statuses, streams."""

import pytest

from inferd.bench.generator.grpc import FINAL, GrpcLoadConnection
from inferd.http.h2 import frames
from inferd.http.h2.frames import Setting, encode_frame, encode_settings, encode_window_update
from inferd.http.h2.hpack import encode_fields
from inferd.wire.proto import encode

HEAD = encode_fields([(b":status", b"200"), (b"content-type", b"application/grpc")])
GOOD = encode_fields([(b"grpc-status", b"0")])


def trailers(stream, block=GOOD):
    flags = frames.END_HEADERS | frames.END_STREAM
    return encode_frame(frames.HEADERS, flags, stream, block)


def answer(stream, message=b"answer", block=GOOD):
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return (
        encode_frame(frames.HEADERS, frames.END_HEADERS, stream, HEAD)
        + encode_frame(frames.DATA, 0, stream, body)
        + trailers(stream, block)
    )


def sent_frames(data):
    """Return type, flags, stream and payload of each frame."""
    found = []
    while data:
        high, low, kind, flags, stream = frames.read_header(data, 0)
        length = high << 8 | low
        found.append((kind, flags, stream, data[9 : 9 + length]))
        data = data[9 + length :]
    return found


@pytest.fixture
def greeted(opened):
    """greeted(**plan) is a connection that has sent its greeting."""

    def open_(**more):
        connection, transport, ends = opened(GrpcLoadConnection, head=b"head", **more)
        assert transport.take().startswith(frames.PREFACE)
        return connection, transport, ends

    return open_


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_calls_are_answered_however_their_frames_come(greeted, receive, size):
    connection, transport, ends = greeted()
    receive(connection, encode_settings({Setting.MAX_CONCURRENT_STREAMS: 9}), size)
    assert sent_frames(transport.take()) == [(frames.SETTINGS, frames.ACK, 0, b"")]
    for stream in (1, 3, 5):
        connection.send(b"message")
        sent = sent_frames(transport.take())
        assert sent == [
            (frames.HEADERS, frames.END_HEADERS, stream, b"head"),
            (frames.DATA, frames.END_STREAM, stream, b"message"),
        ]
        receive(connection, answer(stream), size)
        assert not connection.is_busy
    assert ends == ["", "", ""]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ([(b"grpc-status", b"3"), (b"grpc-message", b"no%20input")], "INVALID_ARGUMENT: no input"),
        ([(b"grpc-status", b"99")], "99: "),
        ([(b"x", b"y")], "the answer has no status of gRPC"),
    ],
)
def test_a_status_is_an_error_with_its_name(greeted, receive, fields, error):
    connection, _, ends = greeted()
    for stream in (1, 3):  # the second block is known
        connection.send(b"message")
        receive(connection, answer(stream, block=encode_fields(fields)))
    assert ends == [error, error]


def test_an_answer_without_a_message_is_an_error(greeted, receive):
    connection, _, ends = greeted()
    connection.send(b"message")
    block = encode_fields([(b":status", b"200"), (b"grpc-status", b"14"), (b"grpc-message", b"x")])
    receive(connection, trailers(1, block))
    connection.send(b"message")
    receive(connection, trailers(3, encode_fields([(b":status", b"404")])))
    assert ends == ["UNAVAILABLE: x", "the server answers with status 404 of HTTP, not gRPC"]


def test_a_large_message_waits_for_windows_and_is_cut_into_frames(greeted, receive):
    connection, transport, ends = greeted()
    content = bytes(range(256)) * 400  # 102,400 bytes
    connection.send(content)
    sent = sent_frames(transport.take())[1:]
    assert [len(one[3]) for one in sent] == [16384, 16384, 16384, 16383]
    receive(connection, encode_window_update(0, 100_000))
    assert not transport.take()
    receive(connection, encode_window_update(1, 100_000))
    sent += sent_frames(transport.take())
    assert b"".join(one[3] for one in sent) == content
    assert [one[1] for one in sent] == [0] * (len(sent) - 1) + [frames.END_STREAM]
    receive(connection, answer(1))
    assert ends == [""]


def test_the_peers_settings_count_for_the_call_under_way(greeted, receive):
    connection, transport, _ = greeted()
    connection.send(b"x" * 100_000)
    transport.take()
    settings = {Setting.INITIAL_WINDOW_SIZE: 200_000, Setting.MAX_FRAME_SIZE: 50_000}
    receive(connection, encode_settings(settings) + encode_window_update(0, 100_000))
    sizes = [len(one[3]) for one in sent_frames(transport.take()) if one[0] == frames.DATA]
    assert sum(sizes) == 100_000 - frames.DEFAULT_WINDOW


@pytest.mark.parametrize("size", [7, 65536])
def test_large_answers_are_counted_and_windows_renewed(greeted, receive, size, monkeypatch):
    monkeypatch.setattr("inferd.bench.generator.grpc._RENEWED_AT", 50_000)
    connection, transport, ends = greeted()
    connection.send(b"message")
    transport.take()
    receive(connection, answer(1, b"x" * 60_000), size)
    updates = [one for one in sent_frames(transport.take()) if one[0] == frames.WINDOW_UPDATE]
    assert [one[3] for one in updates] == [(60_005).to_bytes(4, "big")] and ends == [""]


def test_pings_are_answered_and_resets_and_goaways_end_calls(greeted, receive):
    connection, transport, ends = greeted()
    receive(connection, encode_frame(frames.PING, 0, 0, b"12345678"))
    assert sent_frames(transport.take()) == [(frames.PING, frames.ACK, 0, b"12345678")]
    connection.send(b"message")
    receive(connection, frames.encode_rst_stream(1, frames.ErrorCode.CANCEL))
    assert ends == ["the server reset the stream (error 8)"]
    connection.send(b"message")
    receive(connection, encode_frame(frames.GOAWAY, 0, 0, bytes(8)))
    assert connection.is_lost and connection.is_busy
    receive(connection, answer(3))
    assert ends[1:] == [""] and transport.is_closed


def test_http_1_is_named(greeted, receive):
    connection, transport, ends = greeted()
    connection.send(b"message")
    receive(connection, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert ends == ["what listens there speaks HTTP/1.1, not gRPC"] and transport.is_closed


# --- streams ---


def response(*outputs, final=False):
    parameters = {"triton_final_response": {"bool_param": final}}
    inner = {"model_name": "m", "id": "1", "parameters": parameters}
    inner["outputs"] = [{"name": name, "datatype": "FP32", "shape": [1]} for name in outputs]
    return encode("inference.ModelStreamInferResponse", infer_response=inner)


def message_frame(*messages):
    body = b"".join(b"\0" + len(one).to_bytes(4, "big") + one for one in messages)
    return encode_frame(frames.DATA, 0, 1, body)


def test_the_final_entry_is_as_messages_have_it():
    assert FINAL in response(final=True) and FINAL not in response(final=False)


@pytest.mark.parametrize("size", [5, 1000])
def test_the_answers_of_a_stream_are_counted_until_the_final_one(greeted, receive, size):
    connection, transport, ends = greeted(is_stream=True)
    connection.send(b"message")
    sent = sent_frames(transport.take())
    assert [one[:3] for one in sent] == [(frames.HEADERS, 4, 1), (frames.DATA, 0, 1)]
    receive(connection, message_frame(response("y"), response("y")), size)
    assert connection.answers == 2 and connection.first_ns and not ends
    receive(connection, message_frame(response(final=True)), size)
    assert connection.answers == 2 and ends == [""]  # the last one was empty
    connection.answers = 0
    connection.send(b"next")  # on the same stream
    assert [one[:3] for one in sent_frames(transport.take())] == [(frames.DATA, 0, 1)]
    receive(connection, message_frame(response("y", final=True)), size)
    assert connection.answers == 1 and ends == ["", ""]


def test_without_a_decoupled_model_the_first_answer_is_the_last(greeted, receive):
    connection, _, ends = greeted(is_stream=True, has_one_answer=True)
    connection.send(b"message")
    receive(connection, message_frame(response("y", final=False)))
    assert ends == [""] and connection.answers == 1


def test_an_error_message_ends_a_request_and_an_end_of_the_stream_the_call(greeted, receive):
    connection, _, ends = greeted(is_stream=True)
    connection.send(b"message")
    text = "it broke " * 30
    receive(
        connection, message_frame(encode("inference.ModelStreamInferResponse", error_message=text))
    )
    assert ends == [text[:300]]
    connection.send(b"message")
    receive(connection, trailers(1))
    assert ends[1] == "the server ended the stream before the last answer"
