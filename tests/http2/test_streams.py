"""Streams: states, ids, how many; padding, priority, resets, push (RFC 9113 §5, §6.1-6.4, §6.6)."""

import struct

import pytest
from raw_http2 import (
    CHECK,
    END_STREAM,
    INFER,
    NOTHING,
    PADDED,
    PRIORITY,
    REFLECT,
    WATCH,
    Error,
    Setting,
    Type,
    block,
    call,
    data,
    frame,
    headers,
    infer,
    point,
    request,
    rst_stream,
    settings,
    window_update,
)

TO_ITSELF = struct.pack(">IB", 1, 15)
TO_NOBODY = struct.pack(">IB", 0, 15)


def watching(peer, stream=1):
    """Leave `stream` half-closed: we have ended it, the server has not."""
    peer.send(call(stream, WATCH))
    peer.wait_for(lambda f: f.kind == Type.DATA and f.stream == stream)


def answered(peer, stream=1):
    """Leave `stream` closed by both sides."""
    peer.send(call(stream))
    peer.expect_ok(stream)


# --- idle (§5.1) --------------------------------------------------------------------------------


@point("RFC 9113 §5.1", "MUST", "on an idle stream only HEADERS and PRIORITY may come")
@pytest.mark.parametrize(
    "sent",
    [data(1, NOTHING), rst_stream(1), window_update(1, 1), frame(Type.CONTINUATION, 4, 1)],
    ids=["DATA", "RST_STREAM", "WINDOW_UPDATE", "CONTINUATION"],
)
def test_other_frames_on_an_idle_stream_are_a_protocol_error(peer, sent):
    peer.send(sent)
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §5.1", "MUST", "PRIORITY on an idle stream is fine")
def test_priority_on_an_idle_stream_is_fine(peer):
    peer.send(frame(Type.PRIORITY, 0, 1, TO_NOBODY), call(1))
    peer.expect_ok(1)


# --- half-closed (§5.1) -------------------------------------------------------------------------


@point("RFC 9113 §5.1", "MUST", "DATA after END_STREAM is STREAM_CLOSED")
def test_data_after_the_end_is_stream_closed(peer):
    watching(peer)
    peer.send(data(1, NOTHING))
    peer.expect_error(1, Error.STREAM_CLOSED)


@point("RFC 9113 §5.1", "MUST", "HEADERS after END_STREAM is STREAM_CLOSED")
def test_headers_after_the_end_are_stream_closed(peer):
    watching(peer)
    peer.send(headers(1, block([("x-late", "1")]), end=True))
    peer.expect_error(1, Error.STREAM_CLOSED)


@point("RFC 9113 §5.1", "MUST", "WINDOW_UPDATE and PRIORITY after END_STREAM are fine")
def test_window_updates_after_the_end_are_fine(peer):
    watching(peer)
    peer.send(window_update(1, 1), frame(Type.PRIORITY, 0, 1, TO_NOBODY))
    peer.expect_alive()
    assert not peer.find(Type.RST_STREAM)


@point(
    "RFC 9113 §5.1", "MUST", "RST_STREAM after END_STREAM ends the stream; nothing follows on it"
)
def test_a_reset_ends_a_half_closed_stream(peer):
    watching(peer)
    peer.send(rst_stream(1))
    peer.expect_alive()
    assert not peer.find(Type.RST_STREAM)
    assert not any(f.ends_stream for f in peer.seen)


# --- closed (§5.1) ------------------------------------------------------------------------------


@point("RFC 9113 §5.1", "MUST", "DATA on a stream both sides have ended is STREAM_CLOSED")
def test_data_on_a_closed_stream_is_stream_closed(peer):
    answered(peer)
    peer.send(data(1, NOTHING))
    peer.expect_error(1, Error.STREAM_CLOSED)


@point("RFC 9113 §5.1", "MUST", "HEADERS on a stream both sides have ended is an error")
def test_headers_on_a_closed_stream_are_an_error(peer):
    answered(peer)
    peer.send(headers(1, block(request()), end=True))
    peer.expect_error(1, Error.STREAM_CLOSED, Error.PROTOCOL_ERROR)


@point("RFC 9113 §5.1", "MUST", "DATA after the client's own RST_STREAM is STREAM_CLOSED")
def test_data_after_a_reset_is_stream_closed(peer):
    peer.send(headers(1, block(request())), rst_stream(1), data(1, NOTHING))
    peer.expect_error(1, Error.STREAM_CLOSED)


@point("RFC 9113 §5.1", "MUST", "HEADERS after the client's own RST_STREAM is STREAM_CLOSED")
def test_headers_after_a_reset_are_stream_closed(peer):
    peer.send(headers(1, block(request())), rst_stream(1))
    peer.send(headers(1, block([("x-late", "1")]), end=True))
    peer.expect_error(1, Error.STREAM_CLOSED, Error.PROTOCOL_ERROR)


@point("RFC 9113 §5.1", "MUST", "WINDOW_UPDATE, RST_STREAM, PRIORITY on a closed stream do nothing")
def test_late_small_frames_are_ignored(peer):
    answered(peer)
    peer.send(window_update(1, 1), rst_stream(1), frame(Type.PRIORITY, 0, 1, TO_NOBODY), call(3))
    peer.expect_ok(3)
    peer.expect_alive()
    assert not peer.find(Type.RST_STREAM)


@point("RFC 9113 §5.1", "MUST", "the server forgives DATA on a stream that it has itself reset")
def test_data_on_a_stream_the_server_has_reset_is_forgiven(peer):
    peer.send(headers(1, block(request(method=None))))
    peer.send(data(1, NOTHING), data(1, NOTHING, end=True))
    peer.expect_malformed(1)
    peer.send(call(3))
    peer.expect_ok(3)


# --- ids (§5.1.1) -------------------------------------------------------------------------------


@point("RFC 9113 §5.1.1", "MUST", "a client's stream with an even id is a PROTOCOL_ERROR")
def test_an_even_id_is_a_protocol_error(peer):
    peer.send(headers(2, block(request()), end=True))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §5.1.1", "MUST", "a new stream's id is larger than all before")
def test_a_smaller_id_is_an_error(peer):
    peer.send(call(5))
    peer.expect_ok(5)
    peer.send(headers(3, block(request()), end=True))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §5.1.1", "MUST", "a new stream closes the idle ones with smaller ids")
def test_a_new_stream_closes_those_left_out(peer):
    peer.send(call(5))
    peer.expect_ok(5)
    peer.send(data(3, NOTHING))
    peer.expect_error(3, Error.STREAM_CLOSED, Error.PROTOCOL_ERROR)


@point("RFC 9113 §5.1.1", "MUST", "ids may jump, up to 2^31-1")
def test_ids_may_jump(peer):
    for stream in (1, 99, 2**31 - 1):
        peer.send(call(stream))
        peer.expect_ok(stream)


@point("RFC 9113 §5.1.1", "MUST", "stream frames on stream 0 are a PROTOCOL_ERROR")
@pytest.mark.parametrize(
    "sent",
    [
        data(0, NOTHING),
        headers(0, block(request())),
        frame(Type.PRIORITY, 0, 0, TO_ITSELF),  # stream 1: not on itself
        rst_stream(0),
        frame(Type.CONTINUATION, 4, 0, block(request())),
    ],
    ids=["DATA", "HEADERS", "PRIORITY", "RST_STREAM", "CONTINUATION"],
)
def test_stream_frames_on_stream_0_are_a_protocol_error(peer, sent):
    peer.send(sent)
    peer.expect_goaway(Error.PROTOCOL_ERROR)


# --- how many (§5.1.2) --------------------------------------------------------------------------


@pytest.mark.slow
@point("RFC 9113 §5.1.2", "MUST", "streams beyond the limit are refused, those within go on")
def test_streams_beyond_the_limit_are_refused(peer):
    limit = peer.settings[Setting.MAX_CONCURRENT_STREAMS]
    within = range(1, 2 * limit, 2)
    beyond = 2 * limit + 1
    for stream in within:
        peer.send(headers(stream, block(request())))
    peer.send(headers(beyond, block(request())))
    peer.expect_reset(beyond, Error.REFUSED_STREAM, Error.PROTOCOL_ERROR)
    for stream in within:
        peer.send(data(stream, NOTHING, end=True))
    for stream in within:
        peer.expect_ok(stream)


@point("RFC 9113 §5.1.2", "MUST", "ended streams make room for others")
def test_ended_streams_make_room(peer):
    limit = peer.settings[Setting.MAX_CONCURRENT_STREAMS]
    for stream in range(1, 2 * limit, 2):
        peer.send(headers(stream, block(request())))
    for stream in (1, 3):
        peer.send(rst_stream(stream) if stream == 1 else data(stream, NOTHING, end=True))
    peer.expect_ok(3)
    for number in range(2):
        stream = 2 * (limit + number) + 1
        peer.send(call(stream))
        peer.expect_ok(stream)


@point("RFC 9113 §5.1.2", "MUST", "the field block of a refused stream still counts for HPACK")
def test_the_block_of_a_refused_stream_changes_the_table(peer):
    limit = peer.settings[Setting.MAX_CONCURRENT_STREAMS]
    for stream in range(1, 2 * limit, 2):
        peer.send(headers(stream, block(request())))
    refused = 2 * limit + 1
    with_entry = block(request(te=None)) + b"\x40\2te\x08trailers"
    peer.send(headers(refused, with_entry), rst_stream(1))
    peer.expect_reset(refused, Error.REFUSED_STREAM, Error.PROTOCOL_ERROR)
    peer.send(headers(refused + 2, block(request(te=None)) + b"\xbe"))
    peer.send(data(refused + 2, NOTHING, end=True))
    peer.expect_ok(refused + 2)


# --- DATA and padding (§6.1) --------------------------------------------------------------------


@point("RFC 9113 §6.1", "MUST", "padding of DATA is taken away, whatever its length")
@pytest.mark.parametrize("padding", [0, 1, 255])
def test_padded_data_is_data(peer, padding):
    peer.send(headers(1, block(request())))
    padded = bytes([padding]) + NOTHING + bytes(padding)
    peer.send(frame(Type.DATA, PADDED | END_STREAM, 1, padded))
    peer.expect_ok(1)


@point("RFC 9113 §6.1", "MUST", "DATA may be nothing but padding")
def test_data_may_be_padding_alone(peer):
    peer.send(headers(1, block(request())))
    peer.send(frame(Type.DATA, PADDED, 1, b"\x08" + bytes(8)), data(1, NOTHING, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §6.1", "MUST", "padding of DATA as long as the frame is a PROTOCOL_ERROR")
@pytest.mark.parametrize("payload", [b"\x06" + NOTHING, b"\1", b"\xff" + NOTHING])
def test_too_much_padding_of_data_is_a_protocol_error(peer, payload):
    peer.send(headers(1, block(request())), frame(Type.DATA, PADDED, 1, payload))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.1", "MUST", "padded DATA without the length of the padding is an error")
def test_padded_data_without_a_length_is_an_error(peer):
    peer.send(headers(1, block(request())), frame(Type.DATA, PADDED, 1))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR, Error.PROTOCOL_ERROR)


@point("RFC 9113 §8.1", "MUST", "END_STREAM may come in an empty DATA frame")
def test_the_end_may_come_in_an_empty_frame(peer):
    peer.send(headers(1, block(request())), data(1, NOTHING), data(1), data(1, end=True))
    peer.expect_ok(1)


# --- HEADERS: padding and priority (§6.2, §6.3) -------------------------------------------------


@point("RFC 9113 §6.2", "MUST", "padding and priority of HEADERS are taken away")
@pytest.mark.parametrize("flags", [PADDED, PRIORITY, PADDED | PRIORITY])
def test_padded_headers_are_headers(peer, flags):
    payload = (b"\x09" if flags & PADDED else b"") + (TO_NOBODY if flags & PRIORITY else b"")
    payload += block(request()) + (bytes(9) if flags & PADDED else b"")
    peer.send(headers(1, payload, flags=flags), data(1, NOTHING, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §6.2", "MUST", "padding of HEADERS beyond the frame is a PROTOCOL_ERROR")
@pytest.mark.parametrize("flags", [PADDED, PADDED | PRIORITY])
def test_too_much_padding_of_headers_is_a_protocol_error(peer, flags):
    peer.send(headers(1, b"\xff" + TO_NOBODY + b"\x82\x84", flags=flags))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.2", "MUST", "HEADERS too short for their padding or priority are an error")
@pytest.mark.parametrize(("flags", "payload"), [(PADDED, b""), (PRIORITY, b"\0\0\0")])
def test_headers_too_short_for_their_flags_are_an_error(peer, flags, payload):
    peer.send(headers(1, payload, flags=flags))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR, Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.3", "MUST", "a PRIORITY frame of another length than 5 is a FRAME_SIZE_ERROR")
@pytest.mark.parametrize("length", [0, 4, 6])
def test_priority_of_another_length_is_a_frame_size_error(peer, length):
    peer.send(headers(1, block(request())), frame(Type.PRIORITY, 0, 1, bytes(length)))
    peer.expect_error(1, Error.FRAME_SIZE_ERROR)


@point("RFC 9113 §6.3", "MUST", "that holds on an idle stream, which cannot be reset, too")
def test_priority_of_another_length_on_an_idle_stream_is_a_frame_size_error(peer):
    peer.send(frame(Type.PRIORITY, 0, 9, bytes(4)))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR)


@point("RFC 7540 §5.3.1", "MUST", "a stream that depends on itself is a PROTOCOL_ERROR")
@pytest.mark.parametrize(
    "sent",
    [
        headers(1, TO_ITSELF + block(request()), flags=PRIORITY),
        headers(1, block(request())) + frame(Type.PRIORITY, 0, 1, TO_ITSELF),
        headers(1, block(request(REFLECT)))
        + headers(1, TO_ITSELF + block([("x-a", "1")]), end=True, flags=PRIORITY),
    ],
    ids=["HEADERS", "PRIORITY", "trailers"],
)
def test_a_stream_that_depends_on_itself_is_a_protocol_error(peer, sent):
    peer.send(sent)
    peer.expect_error(1, Error.PROTOCOL_ERROR)


@point("RFC 9113 §5.3.2", "MUST", "PRIORITY_UPDATE (RFC 9218), unknown to us, is ignored")
def test_priority_update_is_ignored(peer):
    peer.send(frame(0x10, 0, 0, b"\0\0\0\1u=1"), call(1))
    peer.expect_ok(1)


# --- RST_STREAM (§6.4) --------------------------------------------------------------------------


@point("RFC 9113 §6.4", "MUST", "an RST_STREAM of another length than 4 is a FRAME_SIZE_ERROR")
@pytest.mark.parametrize("length", [0, 3, 5])
def test_a_reset_of_another_length_is_a_frame_size_error(peer, length):
    peer.send(headers(1, block(request())), frame(Type.RST_STREAM, 0, 1, bytes(length)))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR)


@point("RFC 9113 §6.4", "MUST", "a reset ends one call; its neighbours go on")
def test_a_reset_ends_one_call_alone(peer):
    for stream in (1, 3, 5):
        peer.send(headers(stream, block(request())))
    peer.send(rst_stream(3), data(1, NOTHING, end=True), data(5, NOTHING, end=True))
    peer.expect_ok(1)
    peer.expect_ok(5)
    peer.expect_alive()
    assert not [f for f in peer.seen if f.stream == 3]


@point("RFC 9113 §6.4", "MUST", "a reset stops an answer that is on its way")
def test_a_reset_stops_an_answer(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 10))
    peer.send(call(1, INFER, infer(1000)))
    peer.wait_for(lambda f: f.kind == Type.DATA)
    peer.send(rst_stream(1), window_update(1, 10_000), settings((4, 65_535)), call(3))
    peer.expect_ok(3)
    peer.expect_alive()
    assert sum(len(f.payload) for f in peer.find(Type.DATA, 1)) <= 10


@point("RFC 9113 §5.4.2", "MUST", "a reset is never answered with a reset")
def test_a_reset_is_not_answered(peer):
    peer.send(headers(1, block(request())), rst_stream(1))
    answered(peer, 3)
    peer.send(rst_stream(3))
    peer.expect_alive()
    assert not peer.find(Type.RST_STREAM)


@point("RFC 9113 §7", "MUST", "unknown error codes are codes like any other")
def test_unknown_error_codes_are_accepted(peer):
    peer.send(headers(1, block(request())), rst_stream(1, 0xDEADBEEF), call(3))
    peer.expect_ok(3)


# --- push (§6.6, §8.4) --------------------------------------------------------------------------


@point("RFC 9113 §8.4", "MUST", "a client cannot push: PUSH_PROMISE is a PROTOCOL_ERROR")
@pytest.mark.parametrize("stream", [0, 1])
def test_a_push_promise_is_a_protocol_error(peer, stream):
    promise = struct.pack(">I", 2) + block(request())
    peer.send(headers(1, block(request())), frame(Type.PUSH_PROMISE, 4, stream, promise))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@pytest.mark.slow
@point("RFC 9113 §5.1", "MUST", "streams are answered as they finish, not in the order they came")
def test_streams_are_answered_as_they_finish(peer):
    peer.send(call(1, INFER, infer(1, "slow")), call(3, CHECK), call(5, REFLECT))
    peer.expect_ok(1)
    ends = [f.stream for f in peer.seen if f.ends_stream]
    assert ends.index(3) < ends.index(1) and ends.index(5) < ends.index(1)
