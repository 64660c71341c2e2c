"""HTTP/2 frames in, calls and frames out; RFC 9113 by section, without a socket."""

import struct
from itertools import pairwise

import pytest
from h2_peer import BLOCK, REQUEST, Noting, Peer, data, head, request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferd.http.h2 import budget as h2_budget
from inferd.http.h2.connection import FRAME_BYTES
from inferd.http.h2.frames import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    ErrorCode,
    Setting,
    encode_frame,
    encode_rst_stream,
    encode_settings,
    encode_window_update,
)
from inferd.http.h2.hpack import encode_fields
from inferd.http.h2.receiver import CONNECTION_WINDOW
from inferd.http.h2.stream import STREAM_WINDOW

# --- the start ---


def test_the_server_begins_with_settings_and_a_large_window():
    (kind, _, _, payload), (update, _, _, increment) = Peer(ready=False).got()
    offered = dict(struct.iter_unpack(">HL", payload))
    assert (kind, offered[Setting.INITIAL_WINDOW_SIZE]) == (SETTINGS, STREAM_WINDOW)
    assert offered[Setting.MAX_FRAME_SIZE] == FRAME_BYTES
    assert update == WINDOW_UPDATE
    assert int.from_bytes(increment, "big") + 65535 == CONNECTION_WINDOW


@pytest.mark.parametrize("size", [1, 3, 24, 1000])
def test_a_start_may_come_in_pieces(size):
    peer = Peer(ready=False)
    sent = PREFACE + encode_frame(SETTINGS, 0, 0) + request()
    for at in range(0, len(sent), size):
        peer.send(sent[at : at + size])
    assert peer.connection.is_ready
    assert peer.seen[1].data == b"hello" and peer.seen[1].events == ["open", "end"]


def test_another_preface_is_a_protocol_error():
    peer = Peer(ready=False)
    peer.send(b"GET / HTTP/1.1\r\n\r\n")
    assert peer.error() == (0, ErrorCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("frame", [encode_frame(PING, 0, 0, b"8" * 8), encode_frame(4, ACK, 0)])
def test_the_first_frame_must_be_settings(frame):
    peer = Peer(ready=False)
    peer.send(PREFACE, frame)
    assert peer.error() == (0, ErrorCode.PROTOCOL_ERROR)
    peer.send(request())
    assert peer.got() == [] and not peer.seen


# --- requests ---


def test_one_head_serves_all_requests_that_repeat_its_block():
    peer = Peer()
    peer.send(request(1), request(3))
    assert peer.seen[1].stream.head is peer.seen[3].stream.head
    assert peer.seen[1].stream.head.path == b"/a.Service/Method"


def test_a_changed_table_makes_remembered_blocks_void():
    name = b"\x40\x01a"  # literal with incremental indexing
    first = BLOCK + name + b"\x01x"
    indexed = BLOCK + b"\xbe"  # the newest entry of the dynamic table
    peer = Peer()
    peer.send(head(1, END_STREAM, first), head(3, END_STREAM, indexed))
    peer.send(head(5, END_STREAM, BLOCK + name + b"\x01y"), head(7, END_STREAM, indexed))
    peer.send(head(9, END_STREAM, indexed))
    values = [peer.seen[n].stream.head.fields[-1] for n in (1, 3, 5, 7, 9)]
    assert values == [(b"a", b"x"), (b"a", b"x"), (b"a", b"y"), (b"a", b"y"), (b"a", b"y")]


def test_padding_and_priority_are_taken_off():
    peer = Peer()
    block = b"\x02" + struct.pack(">LB", 0, 16) + BLOCK + b"\0\0"
    peer.send(encode_frame(HEADERS, END_HEADERS | PADDED | WITH_PRIORITY, 1, block))
    peer.send(data(1, b"\x03" + b"abc" + b"\0\0\0", PADDED | END_STREAM))
    assert peer.seen[1].data == b"abc"


def test_a_block_may_come_in_continuations():
    peer = Peer()
    peer.send(encode_frame(HEADERS, END_STREAM, 1, BLOCK[:5]))
    peer.send(encode_frame(CONTINUATION, 0, 1, BLOCK[5:9]))
    peer.send(encode_frame(CONTINUATION, END_HEADERS, 1, BLOCK[9:]))
    assert peer.seen[1].events == ["open", "end"]


def test_trailers_end_a_request():
    peer = Peer()
    peer.send(head(1), data(1), head(1, END_STREAM, encode_fields([(b"a", b"b")])))
    assert peer.seen[1].events == ["open", "end"]


def test_more_streams_than_may_be_are_refused():
    peer = Peer(max_streams=1)
    peer.send(head(1), head(3))
    assert peer.got() == [(RST_STREAM, 0, 3, struct.pack(">L", ErrorCode.REFUSED_STREAM))]
    assert list(peer.seen) == [1]


# --- rules and their errors ---

BAD_FRAMES = {
    "DATA on stream 0": (data(0), ErrorCode.PROTOCOL_ERROR),
    "DATA on an idle stream": (data(5), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on stream 0": (head(0), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on an even stream": (head(2), ErrorCode.PROTOCOL_ERROR),
    "padding as long as the frame": (data(1, b"\x01", PADDED), ErrorCode.PROTOCOL_ERROR),
    "no room for the pad length": (data(1, b"", PADDED), ErrorCode.FRAME_SIZE_ERROR),
    "no room for the priority": (
        encode_frame(HEADERS, END_HEADERS | WITH_PRIORITY, 3, b"1234"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "PRIORITY on stream 0": (encode_frame(PRIORITY, 0, 0, b"12345"), ErrorCode.PROTOCOL_ERROR),
    "short PRIORITY, idle": (encode_frame(PRIORITY, 0, 9, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "short RST_STREAM": (encode_frame(RST_STREAM, 0, 1, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "RST_STREAM on an idle stream": (
        encode_rst_stream(9, ErrorCode.CANCEL),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "SETTINGS on a stream": (encode_frame(SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "SETTINGS ACK with a payload": (encode_frame(4, ACK, 0, b"123456"), ErrorCode.FRAME_SIZE_ERROR),
    "PUSH_PROMISE": (encode_frame(PUSH_PROMISE, 4, 1, b"1234"), ErrorCode.PROTOCOL_ERROR),
    "PING on a stream": (encode_frame(PING, 0, 1, b"8" * 8), ErrorCode.PROTOCOL_ERROR),
    "short PING": (encode_frame(PING, 0, 0, b"7"), ErrorCode.FRAME_SIZE_ERROR),
    "GOAWAY on a stream": (encode_frame(GOAWAY, 0, 1, b"8" * 8), ErrorCode.PROTOCOL_ERROR),
    "short GOAWAY": (encode_frame(GOAWAY, 0, 0, b"7"), ErrorCode.FRAME_SIZE_ERROR),
    "short WINDOW_UPDATE": (encode_frame(WINDOW_UPDATE, 0, 0, b"3"), ErrorCode.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of nothing": (encode_window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
    "WINDOW_UPDATE of too much": (
        encode_window_update(0, MAX_WINDOW),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "WINDOW_UPDATE on an idle stream": (encode_window_update(9, 1), ErrorCode.PROTOCOL_ERROR),
    "CONTINUATION alone": (encode_frame(CONTINUATION, 4, 1), ErrorCode.PROTOCOL_ERROR),
    "a block interrupted": (encode_frame(HEADERS, 0, 3) + data(1), ErrorCode.PROTOCOL_ERROR),
    "a block that means nothing": (head(3, 0, b"\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
    "a frame too large": (b"\x20\0\0\0\0\0\0\0\x01", ErrorCode.FRAME_SIZE_ERROR),
    "a large PING": (b"\x00\x50\x00\x06\0\0\0\0\0", ErrorCode.FRAME_SIZE_ERROR),
    "a large SETTINGS": (b"\x00\x50\x00\x04\0\0\0\0\0", ErrorCode.ENHANCE_YOUR_CALM),
    "a window too large by SETTINGS": (
        encode_window_update(1, MAX_WINDOW - 65535)
        + encode_settings({Setting.INITIAL_WINDOW_SIZE: 65536}),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_broken_rule_of_the_connection_ends_it(name):
    frames, code = BAD_FRAMES[name]
    peer = Peer()
    peer.send(head(1), frames)
    assert peer.error() == (max(peer.seen), code)
    assert peer.seen[1].events == ["open", "reset"]


BAD_STREAMS = {
    "malformed head": (head(3, 0, encode_fields(REQUEST[:2])), 3, ErrorCode.PROTOCOL_ERROR),
    "head that depends on itself": (
        encode_frame(HEADERS, END_HEADERS | WITH_PRIORITY, 3, b"\0\0\0\x03\0" + BLOCK),
        3,
        ErrorCode.PROTOCOL_ERROR,
    ),
    "trailers without an end": (head(1), 1, ErrorCode.PROTOCOL_ERROR),
    "trailers that depend on themselves": (
        encode_frame(HEADERS, 0x25, 1, b"\0\0\0\x01\0"),
        1,
        ErrorCode.PROTOCOL_ERROR,
    ),
    "trailers with a pseudo-header field": (head(1, END_STREAM), 1, ErrorCode.PROTOCOL_ERROR),
    "DATA after the end": (data(1, b"", END_STREAM) + data(1), 1, ErrorCode.STREAM_CLOSED),
    "HEADERS after the end": (data(1, b"", END_STREAM) + head(1), 1, ErrorCode.STREAM_CLOSED),
    "WINDOW_UPDATE of nothing": (encode_window_update(1, 0), 1, ErrorCode.PROTOCOL_ERROR),
    "WINDOW_UPDATE of too much": (
        encode_window_update(1, MAX_WINDOW),
        1,
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "PRIORITY on itself": (
        encode_frame(PRIORITY, 0, 1, b"\0\0\0\x01\0"),
        1,
        ErrorCode.PROTOCOL_ERROR,
    ),
    "short PRIORITY": (encode_frame(PRIORITY, 0, 1, b"1"), 1, ErrorCode.FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
def test_a_broken_rule_of_a_stream_ends_it_alone(name):
    frames, stream_id, code = BAD_STREAMS[name]
    peer = Peer()
    peer.send(head(1), frames)
    assert peer.got()[-1] == (RST_STREAM, 0, stream_id, struct.pack(">L", code))
    peer.send(request(11))
    assert peer.seen[11].events == ["open", "end"]


def test_what_comes_on_a_stream_that_we_reset_is_pardoned():
    peer = Peer()
    peer.send(head(1))
    peer.sender.reset(1, ErrorCode.CANCEL)
    peer.send(data(1), head(1, END_STREAM, b""), encode_window_update(1, 1), data(1, b"x" * 100))
    assert peer.seen[1].events == ["open", "reset"] and not peer.sender.is_failed


@pytest.mark.parametrize("frame", [data(1), head(1)])
def test_what_comes_on_a_stream_that_is_closed_ends_the_connection(frame):
    peer = Peer()
    peer.send(request(1))
    peer.sender.send_data(peer.seen[1].stream, [b"x"], b"")
    peer.send(frame)
    assert peer.error() == (1, ErrorCode.STREAM_CLOSED)


def test_a_stream_that_was_passed_over_cannot_be_opened():
    peer = Peer()
    peer.send(request(1), request(9), request(5))
    assert peer.error() == (9, ErrorCode.PROTOCOL_ERROR)


def test_a_reset_by_the_client_is_told_once():
    peer = Peer()
    peer.send(
        head(1), encode_rst_stream(1, ErrorCode.CANCEL), encode_rst_stream(1, ErrorCode.CANCEL)
    )
    assert peer.seen[1].events == ["open", "reset"] and peer.got() == []


def test_unknown_frames_are_passed_over_whole_or_in_pieces():
    peer = Peer()
    unknown = encode_frame(0xEE, 0xFF, 77, b"?" * 40_000)
    peer.send(unknown[:1000])
    peer.send(unknown[1000:], unknown, request(1))
    assert peer.seen[1].data == b"hello"


def test_a_ping_is_answered_and_told():
    peer = Peer()
    peer.send(encode_frame(PING, 0, 0, b"12345678"), encode_frame(PING, ACK, 0, b"87654321"))
    assert peer.got() == [(PING, ACK, 0, b"12345678")] and peer.pings == 1


def test_unknown_settings_are_passed_over_and_all_are_acknowledged():
    peer = Peer()
    peer.send(encode_frame(SETTINGS, 0, 0, struct.pack(">HL", 99, 1)))
    assert peer.got() == [(SETTINGS, ACK, 0, b"")]


# --- the end ---


def test_after_the_last_goaway_new_streams_are_passed_over():
    peer = Peer()
    peer.send(head(1))
    peer.sender.announce_end()
    peer.send(head(3))
    peer.sender.go_away()
    peer.sender.go_away()
    peer.send(request(5), data(3, b"", END_STREAM))
    assert list(peer.seen) == [1, 3] and peer.seen[3].events == ["open", "end"]
    ends = [struct.unpack(">LL", p) for k, _, _, p in peer.got() if k == GOAWAY]
    assert ends == [(MAX_WINDOW, 0), (3, 0)]


def test_a_client_that_goes_away_still_gets_its_answers():
    peer = Peer()
    peer.send(head(1), encode_frame(GOAWAY, 0, 0, bytes(8)), data(1, b"", END_STREAM))
    assert peer.seen[1].events == ["open", "end"]


def test_streams_hear_of_a_lost_connection():
    peer = Peer()
    peer.send(head(1), head(3))
    peer.sender.lose()
    peer.sender.fail(ErrorCode.NO_ERROR, "")
    assert peer.seen[1].events == peer.seen[3].events == ["open", "reset"]


# --- floods ---

FLOODS = {
    "SETTINGS": encode_frame(SETTINGS, 0, 0),
    "PING": encode_frame(PING, 0, 0, bytes(8)),
    "PRIORITY": encode_frame(PRIORITY, 0, 7, bytes(5)),
    "empty DATA": data(1, b""),
    "unknown": encode_frame(99, 0, 0),
    "small WINDOW_UPDATE": encode_window_update(0, 1),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_in_enhance_your_calm(name):
    peer = Peer()
    peer.send(head(1), FLOODS[name] * (h2_budget.EMPTY_FRAMES - 100))
    assert not peer.sender.is_failed
    peer.connection.tick()
    peer.send(FLOODS[name] * (h2_budget.EMPTY_FRAMES - 100))
    assert not peer.sender.is_failed
    peer.send(FLOODS[name] * 200)
    assert peer.error()[1] == ErrorCode.ENHANCE_YOUR_CALM


def test_a_ping_after_each_message_is_no_flood():
    peer = Peer()
    peer.send(request(1))
    stream = peer.seen[1].stream
    for _ in range(3 * h2_budget.EMPTY_FRAMES):
        peer.sender.send_data(stream, [b"a message"], None)
        peer.send(FLOODS["PING"])
    assert not peer.sender.is_failed
    peer.send(FLOODS["PING"] * (h2_budget.EMPTY_FRAMES + 100))
    assert peer.error()[1] == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("stream_id", [0, 1])
def test_small_updates_that_give_back_what_was_sent_are_no_flood(stream_id):
    peer = Peer()
    peer.send(request(1), encode_window_update(stream_id, 5000))
    stream = peer.seen[1].stream
    for _ in range(3 * h2_budget.EMPTY_FRAMES):
        peer.sender.send_data(stream, [b"a message"], None)
        peer.send(encode_window_update(stream_id, 9))
        if stream_id:  # and the other window is kept open
            peer.sender.send_window += 9
        else:
            stream.send_window += 9
    assert not peer.sender.is_failed
    peer.send(encode_window_update(stream_id, 9) * (h2_budget.EMPTY_FRAMES + 100))
    assert peer.error()[1] == ErrorCode.ENHANCE_YOUR_CALM


def test_what_was_under_way_when_a_stream_was_reset_is_no_flood():
    frame = data(1, bytes(1000))
    peer = Peer()
    peer.send(head(1))
    peer.sender.reset(1, ErrorCode.CANCEL)
    peer.send(frame * (STREAM_WINDOW // 1000))
    assert not peer.sender.is_failed
    peer.send(frame * (h2_budget.EMPTY_FRAMES + 100))  # no peer that counts has more under way
    assert peer.error()[1] == ErrorCode.ENHANCE_YOUR_CALM


def test_rapid_reset_ends_in_enhance_your_calm():
    peer = Peer()
    for stream_id in range(1, 4 * h2_budget.RESETS, 2):
        peer.send(head(stream_id), encode_rst_stream(stream_id, ErrorCode.CANCEL))
    assert peer.error()[1] == ErrorCode.ENHANCE_YOUR_CALM


def test_a_proxy_whose_clients_have_gone_may_reset_all_their_streams_at_once():
    peer = Peer(max_streams=1000)
    stream_ids = range(1, 2000, 2)
    peer.send(*map(head, stream_ids))
    peer.connection.tick()
    peer.send(*[encode_rst_stream(stream_id, ErrorCode.CANCEL) for stream_id in stream_ids])
    assert not peer.sender.is_failed and not peer.sender.handlers
    peer.send(request(2001))
    assert not peer.sender.is_failed


def test_provoked_resets_end_in_enhance_your_calm():
    peer = Peer()
    for stream_id in range(1, 4 * h2_budget.RESETS, 2):
        peer.send(head(stream_id), encode_window_update(stream_id, 0))
    assert peer.error()[1] == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("piece", [b"", b"x", b"x" * 16384])
def test_a_continuation_flood_ends_in_enhance_your_calm(piece):
    peer = Peer()
    peer.send(encode_frame(HEADERS, 0, 1, b""))
    for _ in range(300):
        peer.send(encode_frame(CONTINUATION, 0, 1, piece))
    assert peer.error()[1] == ErrorCode.ENHANCE_YOUR_CALM


# --- anything at all ---

CAPTURE = (
    PREFACE
    + encode_settings({Setting.INITIAL_WINDOW_SIZE: 1000, Setting.HEADER_TABLE_SIZE: 100})
    + request(1)
    + encode_frame(HEADERS, 0, 3, BLOCK[:9])
    + encode_frame(CONTINUATION, END_HEADERS, 3, BLOCK[9:] + b"\x40\x01a\x01b")
    + data(3, b"\x04abc\0\0\0\0", PADDED)
    + encode_frame(PING, 0, 0, b"12345678")
    + encode_window_update(0, 5000)
    + encode_window_update(3, 70)
    + data(3, b"y" * 300, END_STREAM)
    + encode_rst_stream(3, ErrorCode.CANCEL)
    + head(5, END_STREAM, BLOCK + b"\xbe")
)

FRAMES = st.builds(
    encode_frame,
    st.integers(0, 11),
    st.sampled_from([0, 1, 4, 5, 8, 9, 0xC, 0x2D, 0xFF]),
    st.sampled_from([0, 1, 1, 2, 3, 5, 2**31 - 1]),
    st.one_of(
        st.binary(max_size=30),
        st.just(BLOCK),
        st.sampled_from([b"\0\0\0\x01", b"\0\0\xff\xff", b"\x7f\xff\xff\xff", bytes(8), bytes(5)]),
    ),
)
MUTATIONS = st.lists(
    st.tuples(st.integers(0, len(CAPTURE) - 1), st.integers(0, 255)), min_size=1, max_size=4
)


class Answering(Noting):
    """A stream that answers everything with more than the windows allow."""

    def on_end(self):
        super().on_end()
        self.sender.send_headers(self.stream, b"\x88")
        self.sender.send_data(self.stream, [b"z" * 3000], b"")


def outcome(sent, cuts):
    """What a connection does with `sent`, cut at `cuts`."""
    peer = Peer(ready=False, handler=Answering)
    places = sorted({cut % (len(sent) + 1) for cut in cuts} | {0, len(sent)})
    for start, stop in pairwise(places):
        peer.send(sent[start:stop])
    frames = peer.got()
    assert len(peer.connection._rest) <= 4 * 16384 + 265
    if peer.sender.is_failed:
        assert frames[-1][0] == GOAWAY and not peer.sender.handlers
    events = {n: (s.events, s.data) for n, s in peer.seen.items()}
    return frames, events


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(FRAMES, max_size=12), st.lists(st.integers(0, 10**4), max_size=6))
def test_any_frames_in_any_pieces_end_the_same_way(frames, cuts):
    sent = PREFACE + encode_frame(SETTINGS, 0, 0) + b"".join(frames)
    assert outcome(sent, cuts) == outcome(sent, [])


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(MUTATIONS, st.lists(st.integers(0, 10**4), max_size=6))
def test_a_spoilt_conversation_in_any_pieces_ends_the_same_way(mutations, cuts):
    sent = bytearray(CAPTURE)
    for at, value in mutations:
        sent[at] = value
    assert outcome(bytes(sent), cuts) == outcome(bytes(sent), [])


LENGTH = encode_fields([*REQUEST, (b"content-length", b"5")])


@pytest.mark.parametrize(
    "frames",
    [
        (request(3), request(5)),
        (request(3, b""), request(5)),
        (request(3), request(7), request(5)),
        (request(3), request(3)),
        (request(3), data(3)),
        (head(3), data(3), data(3, b"y", END_STREAM)),
        (head(3), data(1, b"y", END_STREAM)),
        (head(3), data(5, b"y", END_STREAM)),
        (head(3), data(3, b"\1yz", PADDED | END_STREAM)),
        (head(3, END_STREAM), data(3, b"y", END_STREAM)),
        (head(3), encode_frame(HEADERS, END_HEADERS | END_STREAM, 3, b"")),
        (head(3, block=LENGTH), data(3, b"hello", END_STREAM)) * 2,
        (
            *(head(3, block=LENGTH), data(3, b"hello", END_STREAM)),
            *(head(5, block=LENGTH), data(5, b"hell", END_STREAM)),
        ),
        (encode_frame(PING, 0, 0, bytes(8)), request(3), encode_window_update(0, 9), request(5)),
    ],
)
def test_a_request_like_one_before_means_the_same_in_pieces(frames):
    sent = PREFACE + encode_frame(SETTINGS, 0, 0) + request(1) + b"".join(frames)
    assert outcome(sent, []) == outcome(sent, range(len(sent)))


class Refusing(Noting):
    """Refuses every request at its head."""

    def on_open(self):
        super().on_open()
        self.sender.send_headers(self.stream, b"\x88", ends=True)


def test_the_data_of_a_request_like_one_before_that_is_refused_are_dropped():
    peer = Peer(handler=Refusing)
    peer.send(request(1), request(3), request(5))
    assert all(stream.events == ["open"] and not stream.data for stream in peer.seen.values())
    kinds = [(kind, stream_id) for kind, _, stream_id, _ in peer.got()]
    assert kinds == [(kind, n) for n in (1, 3, 5) for kind in (HEADERS, RST_STREAM)]


def test_a_request_like_one_before_is_refused_above_the_limit_of_streams():
    peer = Peer(max_streams=2)
    peer.send(request(1), request(3), request(5))
    [(kind, _, stream_id, code)] = peer.got()
    assert (kind, stream_id, int.from_bytes(code, "big")) == (
        RST_STREAM,
        5,
        ErrorCode.REFUSED_STREAM,
    )
    assert list(peer.seen) == [1, 3]


def test_a_request_like_one_before_is_ignored_after_goaway():
    peer = Peer()
    peer.send(request(1))
    peer.sender.go_away()
    peer.send(request(3))
    assert list(peer.seen) == [1] and not peer.sender.is_failed


class Dropping(Noting):
    """Takes data, keeps none, and answers at the end."""

    def on_data(self, data, start, stop, *, ends):
        if ends:
            self.sender.send_headers(self.stream, b"\x88", ends=True)


@pytest.mark.slow
def test_requests_like_one_before_open_the_connections_window_again():
    peer = Peer(handler=Dropping)
    body = bytes(FRAME_BYTES)
    for number in range(CONNECTION_WINDOW // FRAME_BYTES + 2):
        peer.send(request(2 * number + 1, body))
    kinds = [kind for kind, *_ in peer.got()]
    assert kinds.count(HEADERS) == len(peer.seen) and kinds.count(WINDOW_UPDATE) == 2
