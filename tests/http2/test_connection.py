"""Starting a connection, frames as such, SETTINGS, PING, GOAWAY (RFC 9113 §3.4, §4, §6.5-6.8)."""

import struct

import pytest
from raw_http2 import (
    ACK,
    CHECK,
    INFER,
    NOTHING,
    PREFACE,
    WATCH,
    Error,
    Peer,
    Setting,
    Type,
    block,
    call,
    data,
    frame,
    headers,
    infer,
    ping,
    point,
    request,
    settings,
    window_update,
)

# --- the start (§3.4) ---------------------------------------------------------------------------


@point("RFC 9113 §3.4", "MUST", "the server's first frame is SETTINGS")
def test_the_first_frame_is_settings(connect):
    peer = connect(start=False)
    peer.send(PREFACE, settings())
    first = peer.read()
    assert first.kind == Type.SETTINGS and not first.flags & ACK and first.stream == 0


@point("RFC 9113 §3.4", "MUST", "a preface that comes byte by byte is a preface")
def test_a_preface_in_pieces_is_accepted(connect):
    peer = connect(start=False)
    for byte in PREFACE + settings():
        peer.send(bytes([byte]))
    peer.send(call(1))
    peer.expect_ok(1)


@point("RFC 9113 §3.4", "MUST", "requests may follow the preface before the server's SETTINGS came")
def test_requests_may_come_right_after_the_preface(connect):
    peer = connect(start=False)
    peer.send(PREFACE, settings(), call(1), call(3))
    peer.expect_ok(1)
    peer.expect_ok(3)


@point("RFC 9113 §3.4", "MUST", "a wrong preface ends the connection")
@pytest.mark.parametrize(
    "opening",
    [
        PREFACE[:-1] + b"x" + settings(),
        b"GET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        bytes(range(64)),
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(40),
    ],
    ids=["one letter", "HTTP/1", "noise", "TLS"],
)
def test_a_wrong_preface_ends_the_connection(connect, peer, opening):
    stranger = connect(start=False)
    stranger.send(opening)
    stranger.socket.settimeout(10)
    while stranger.socket.recv(65_536):
        continue
    peer.send(call(1))
    peer.expect_ok(1)


@point("RFC 9113 §3.4", "MUST", "the client's first frame is SETTINGS, else PROTOCOL_ERROR")
@pytest.mark.parametrize("first", [ping(), call(1), window_update(0, 1)])
def test_another_first_frame_is_a_protocol_error(connect, first):
    peer = connect(start=False)
    peer.send(PREFACE, first)
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §3.4", "MUST", "a client that leaves within the preface disturbs nobody")
def test_a_client_that_leaves_within_the_preface_disturbs_nobody(connect, peer):
    for length in (0, 1, 10, len(PREFACE)):
        stranger = connect(start=False)
        stranger.send(PREFACE[:length])
        stranger.close()
    peer.send(call(1))
    peer.expect_ok(1)


# --- frames (§4) --------------------------------------------------------------------------------


@point("RFC 9113 §4.1", "MUST", "frames of unknown type are ignored, on every stream")
@pytest.mark.parametrize("stream", [0, 1, 3])
def test_unknown_frame_types_are_ignored(peer, stream):
    peer.send(headers(1, block(request())), frame(0x42, 0xFF, stream, b"whatever"))
    peer.send(data(1, NOTHING, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §4.1", "MUST", "flags that mean nothing for a frame's type are ignored")
def test_flags_without_a_meaning_are_ignored(peer):
    peer.send(frame(Type.SETTINGS, 0xFE, 0), frame(Type.WINDOW_UPDATE, 0xFF, 0, b"\0\0\0\1"))
    peer.send(headers(1, block(request()), flags=0x42))
    peer.send(frame(Type.DATA, 0xF7 & ~0x08, 1, NOTHING), ping(b"flagged!", 0xFE))
    peer.expect_ok(1)
    peer.wait_for(lambda f: f.kind == Type.PING and f.flags & ACK and f.payload == b"flagged!")


@point("RFC 9113 §4.1", "MUST", "the reserved bit before the stream id is ignored")
def test_the_reserved_bit_is_ignored(peer):
    reserved = 1 << 31
    peer.send(headers(1 | reserved, block(request())), data(1 | reserved, NOTHING, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §4.1", "MUST", "frames are found wherever the bytes are cut")
@pytest.mark.parametrize("size", [1, 2, 5, 8, 9, 10, 13])
def test_frames_are_found_wherever_the_bytes_are_cut(peer, size):
    sent = call(1) + ping() + call(3)
    for at in range(0, len(sent), size):
        peer.send(sent[at : at + size])
    peer.expect_ok(1)
    peer.expect_ok(3)


@point("RFC 9113 §4.2", "MUST", "a frame as large as the server allows is taken")
def test_the_largest_frame_is_taken(peer):
    largest = peer.settings.get(Setting.MAX_FRAME_SIZE, 16_384)
    assert peer.settings.get(Setting.INITIAL_WINDOW_SIZE, 65_535) >= largest
    elements = (largest - 100) // 4
    missing = largest - len(infer(elements, name="x"))
    message = infer(elements, name="x" * (1 + missing))
    assert len(message) == largest
    peer.send(headers(1, block(request(INFER))), data(1, message, end=True))
    assert len(peer.answer(1, credit=True).body) > elements * 4


@point("RFC 9113 §4.2", "MUST", "a frame larger than the server allows is a FRAME_SIZE_ERROR")
@pytest.mark.parametrize(
    ("kind", "stream"),
    [(Type.DATA, 1), (Type.HEADERS, 3), (Type.SETTINGS, 0), (Type.PING, 0), (0x42, 0)],
)
def test_a_frame_that_is_too_large_is_a_frame_size_error(peer, kind, stream):
    largest = peer.settings.get(Setting.MAX_FRAME_SIZE, 16_384)
    peer.send(headers(1, block(request())))
    size = largest + 1 if kind != Type.SETTINGS else largest // 6 * 6 + 6
    # The head alone must do: a server that waits for the rest would read what it must not.
    peer.send(frame(kind, 0, stream, bytes(size))[: 9 + 16_384])
    if kind == Type.DATA:
        peer.expect_error(1, Error.FRAME_SIZE_ERROR)
    else:
        peer.expect_goaway(Error.FRAME_SIZE_ERROR)


@point("RFC 9113 §4.2", "MUST", "the server's frames are no larger than the client allows")
@pytest.mark.parametrize("allowed", [16_384, 20_000, 2**24 - 1])
def test_the_servers_frames_are_no_larger_than_allowed(connect, allowed):
    peer = connect((Setting.MAX_FRAME_SIZE, allowed), (Setting.INITIAL_WINDOW_SIZE, 2**30))
    peer.send(window_update(0, 2**30))
    message = infer(100_000)
    peer.send(headers(1, block(request(INFER))))
    for at in range(0, len(message), 16_384):
        peer.send(data(1, message[at : at + 16_384], end=at + 16_384 >= len(message)))
    assert len(peer.expect_ok(1).body) > 400_000
    assert max(len(f.payload) for f in peer.seen) <= allowed


# --- SETTINGS (§6.5) ----------------------------------------------------------------------------


@point("RFC 9113 §6.5.3", "MUST", "each SETTINGS frame is acknowledged")
def test_each_settings_frame_is_acknowledged(peer):
    peer.send(settings(), settings((Setting.MAX_FRAME_SIZE, 20_000)), settings())
    peer.expect_alive()
    acks = [f for f in peer.find(Type.SETTINGS) if f.flags & ACK]
    assert len(acks) == 4 and not any(f.payload for f in acks)


@point("RFC 9113 §6.5", "MUST", "SETTINGS values of the server are within what §6.5.2 allows")
def test_the_servers_settings_are_valid(peer):
    assert peer.settings.get(Setting.ENABLE_PUSH, 0) == 0
    assert peer.settings.get(Setting.INITIAL_WINDOW_SIZE, 0) <= 2**31 - 1
    assert 16_384 <= peer.settings.get(Setting.MAX_FRAME_SIZE, 16_384) <= 2**24 - 1


@point("RFC 9113 §6.5.2", "SHOULD", "the server says how many streams and how much header it takes")
def test_the_server_names_its_limits(peer):
    assert peer.settings[Setting.MAX_CONCURRENT_STREAMS] >= 100
    assert peer.settings[Setting.MAX_HEADER_LIST_SIZE] >= 8192


@point("RFC 9113 §6.5", "MUST", "a SETTINGS acknowledgement with a payload is a FRAME_SIZE_ERROR")
def test_an_acknowledgement_with_a_payload_is_a_frame_size_error(peer):
    peer.send(frame(Type.SETTINGS, ACK, 0, bytes(6)))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR)


@point("RFC 9113 §6.5", "MUST", "SETTINGS of a length that is no multiple of 6: FRAME_SIZE_ERROR")
@pytest.mark.parametrize("length", [1, 5, 7, 11])
def test_settings_of_an_odd_length_are_a_frame_size_error(peer, length):
    peer.send(frame(Type.SETTINGS, 0, 0, bytes(length)))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR)


@point("RFC 9113 §6.5", "MUST", "SETTINGS on a stream are a PROTOCOL_ERROR")
def test_settings_on_a_stream_are_a_protocol_error(peer):
    peer.send(headers(1, block(request())), frame(Type.SETTINGS, 0, 1))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.5.2", "MUST", "unknown settings are ignored")
def test_unknown_settings_are_ignored(peer):
    peer.send(settings((0x4242, 7), (0, 0), (0xFFFF, 2**32 - 1), (8, 1)), call(1))
    peer.expect_ok(1)


@point("RFC 9113 §6.5.2", "MUST", "SETTINGS_ENABLE_PUSH other than 0 and 1 is a PROTOCOL_ERROR")
@pytest.mark.parametrize("value", [2, 2**32 - 1])
def test_a_wrong_enable_push_is_a_protocol_error(peer, value):
    peer.send(settings((Setting.ENABLE_PUSH, value)))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.5.2", "MUST", "an initial window above 2^31-1 is a FLOW_CONTROL_ERROR")
@pytest.mark.parametrize("value", [2**31, 2**32 - 1])
def test_an_initial_window_too_large_is_a_flow_control_error(peer, value):
    peer.send(settings((Setting.INITIAL_WINDOW_SIZE, value)))
    peer.expect_goaway(Error.FLOW_CONTROL_ERROR)


@point("RFC 9113 §6.5.2", "MUST", "a frame size outside 2^14 to 2^24-1 is a PROTOCOL_ERROR")
@pytest.mark.parametrize("value", [0, 16_383, 2**24, 2**32 - 1])
def test_a_wrong_frame_size_is_a_protocol_error(peer, value):
    peer.send(settings((Setting.MAX_FRAME_SIZE, value)))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.5.3", "MUST", "values of one SETTINGS frame are taken in order: the last stays")
def test_the_last_of_repeated_settings_stays(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 100_000), (Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(call(1))
    peer.wait_for(lambda f: f.kind == Type.HEADERS)
    peer.expect_alive()
    assert not peer.find(Type.DATA)
    peer.send(window_update(1, 100))
    peer.expect_ok(1)


@point(
    "RFC 9113 §6.5.2", "MUST", "a client that allows no streams of the server's gets its answers"
)
def test_no_streams_for_the_server_is_fine(connect):
    peer = connect((Setting.MAX_CONCURRENT_STREAMS, 0), (Setting.ENABLE_PUSH, 0))
    peer.send(call(1))
    peer.expect_ok(1)


# --- PING (§6.7) --------------------------------------------------------------------------------


@point("RFC 9113 §6.7", "MUST", "a PING is answered with its own eight bytes")
def test_a_ping_is_answered_with_its_bytes(peer):
    sent = [struct.pack(">Q", number * 0x0102030405) for number in range(5)]
    peer.send(*map(ping, sent))
    peer.wait_for(lambda f: f.kind == Type.PING and f.payload == sent[-1])
    answered = [f for f in peer.find(Type.PING) if f.flags & ACK]
    assert [f.payload for f in answered] == sent


@point("RFC 9113 §6.7", "MUST", "a PING acknowledgement is not answered")
def test_an_acknowledged_ping_is_not_answered(peer):
    peer.send(ping(b"unasked.", ACK), call(1))
    peer.expect_ok(1)
    peer.expect_alive()
    assert b"unasked." not in [f.payload for f in peer.find(Type.PING)]


@point("RFC 9113 §6.7", "MUST", "a PING of another length than 8 is a FRAME_SIZE_ERROR")
@pytest.mark.parametrize("length", [0, 7, 9, 16, 20_000])
@pytest.mark.parametrize("flags", [0, ACK])
def test_a_ping_of_another_length_is_a_frame_size_error(peer, length, flags):
    peer.send(ping(bytes(length), flags))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR)


@point("RFC 9113 §6.7", "MUST", "a PING on a stream is a PROTOCOL_ERROR")
def test_a_ping_on_a_stream_is_a_protocol_error(peer):
    peer.send(headers(1, block(request())), frame(Type.PING, 0, 1, bytes(8)))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


# --- GOAWAY (§6.8) ------------------------------------------------------------------------------


@point("RFC 9113 §6.8", "MUST", "after the client's GOAWAY its open streams are answered")
def test_streams_before_a_goaway_are_answered(peer):
    peer.send(headers(1, block(request())), frame(Type.GOAWAY, 0, 0, bytes(8) + b"good bye"))
    peer.send(data(1, NOTHING, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §6.8", "MUST", "a GOAWAY shorter than 8 bytes is a FRAME_SIZE_ERROR")
@pytest.mark.parametrize("length", [0, 7])
def test_a_short_goaway_is_a_frame_size_error(peer, length):
    peer.send(frame(Type.GOAWAY, 0, 0, bytes(length)))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR)


@point("RFC 9113 §6.8", "MUST", "a GOAWAY on a stream is a PROTOCOL_ERROR")
def test_a_goaway_on_a_stream_is_a_protocol_error(peer):
    peer.send(headers(1, block(request())), frame(Type.GOAWAY, 0, 1, bytes(8)))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.8", "MUST", "the server's GOAWAY names the last stream it has acted on")
def test_a_goaway_names_the_last_stream(peer):
    peer.send(call(1), call(5))
    peer.expect_ok(5)
    peer.send(ping(b"short"))
    goaway = peer.expect_goaway(Error.FRAME_SIZE_ERROR)
    assert int.from_bytes(goaway.payload[:4]) == 5


@point("RFC 9113 §5.4.1", "SHOULD", "an error of one connection leaves the others alone")
def test_an_error_of_one_connection_leaves_others_alone(connect, peer):
    peer.send(headers(1, block(request(WATCH))), data(1, NOTHING, end=True))
    peer.wait_for(lambda f: f.kind == Type.DATA)
    wrong = connect()
    wrong.send(ping(b"short"))
    wrong.expect_goaway(Error.FRAME_SIZE_ERROR)
    peer.send(call(3, CHECK))
    peer.expect_ok(3)
    peer.expect_alive()
    assert not peer.find(Type.RST_STREAM)


def test_the_peer_itself_reads_what_it_writes(server):
    peer = Peer(server.port)
    peer.send(call(1))
    assert peer.expect_ok(1).body == b"\0\0\0\0\2\x08\1"
    peer.close()
