"""What a connection sends: windows, turns, ends."""

import struct

from h2_peer import Peer, head, request
from hypothesis import given
from hypothesis import strategies as st

from inferd.http.h2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_WINDOW,
    RST_STREAM,
    ErrorCode,
    Setting,
    encode_settings,
    encode_window_update,
)


def answered(peer, stream_id, size, ending=b""):
    peer.sender.send_headers(peer.seen[stream_id].stream, b"\x88")
    peer.sender.send_data(peer.seen[stream_id].stream, [bytes(size)], ending)


def sent_data(frames, stream_id):
    return sum(len(p) for kind, _, stream, p in frames if (kind, stream) == (DATA, stream_id))


def test_answers_keep_to_the_windows_of_the_client():
    peer = Peer()
    peer.send(encode_settings({Setting.INITIAL_WINDOW_SIZE: 100}), request(1), request(3))
    peer.got()
    answered(peer, 1, 250)
    answered(peer, 3, 150)
    frames = peer.got()
    assert (sent_data(frames, 1), sent_data(frames, 3)) == (100, 100)
    peer.send(encode_window_update(1, 70))
    assert sent_data(peer.got(), 1) == 70
    peer.send(encode_settings({Setting.INITIAL_WINDOW_SIZE: 1000}))
    frames = peer.got()
    assert (sent_data(frames, 1), sent_data(frames, 3)) == (80, 50)
    assert [f for k, f, _, _ in frames if k == DATA] == [END_STREAM, END_STREAM]
    assert not peer.sender.handlers


def test_a_window_may_become_negative():
    peer = Peer()
    peer.send(request(1))
    answered(peer, 1, 100_000)
    assert sent_data(peer.got(), 1) == 65535
    peer.send(encode_window_update(0, 10**6), encode_settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    peer.send(encode_window_update(1, 65535))
    assert sent_data(peer.got(), 1) == 0
    peer.send(encode_window_update(1, 10))
    assert sent_data(peer.got(), 1) == 10


def test_the_window_of_the_connection_is_shared_by_turns():
    peer = Peer()
    peer.send(encode_settings({Setting.INITIAL_WINDOW_SIZE: MAX_WINDOW}), request(1), request(3))
    peer.got()
    answered(peer, 1, 200_000)
    answered(peer, 3, 200_000)
    peer.got()
    peer.send(encode_window_update(0, 2 * 16384))
    frames = peer.got()
    assert sent_data(frames, 1) == sent_data(frames, 3) == 16384


def test_nothing_is_put_into_frames_while_the_socket_takes_nothing():
    peer = Peer()
    peer.send(request(1))
    peer.sender.is_paused = True
    answered(peer, 1, 10)
    assert sent_data(peer.got(), 1) == 0 and peer.seen[1].stream.pending_bytes
    peer.sender.is_paused = False
    peer.sender.pump()
    assert sent_data(peer.got(), 1) == 10 and not peer.sender.handlers


def test_a_stream_hears_when_what_it_sent_is_in_frames():
    peer = Peer()
    peer.send(request(1))
    stream = peer.seen[1]
    peer.sender.send_data(stream.stream, [b"a", b"", memoryview(b"bc")], None)
    assert stream.events[-1] == "drained"
    peer.sender.send_data(stream.stream, [], b"\x88")
    assert peer.got() == [(DATA, 0, 1, b"abc"), (HEADERS, END_HEADERS | END_STREAM, 1, b"\x88")]


def test_an_empty_end_is_an_empty_frame():
    peer = Peer()
    peer.send(request(1))
    peer.sender.send_data(peer.seen[1].stream, [], b"")
    assert peer.got() == [(DATA, END_STREAM, 1, b"")]


def test_an_answer_before_the_end_of_the_request_asks_for_no_more_of_it():
    peer = Peer()
    peer.send(head(1))
    peer.sender.send_headers(peer.seen[1].stream, b"\x88", ends=True)
    assert peer.got()[-1] == (RST_STREAM, 0, 1, struct.pack(">L", ErrorCode.NO_ERROR))
    assert peer.seen[1].events == ["open"]


def test_a_smaller_table_is_answered_before_the_next_block():
    peer = Peer()
    peer.send(encode_settings({Setting.HEADER_TABLE_SIZE: 0}), request(1), request(3))
    peer.got()
    assert not peer.sender.send_at_once(peer.seen[1].stream, b"frames", 1)
    assert not peer.got()
    for stream_id in (1, 3):
        peer.sender.send_headers(peer.seen[stream_id].stream, b"\x88")
    assert [payload for *_, payload in peer.got()] == [b"\x20\x88", b"\x88"]


def test_a_large_block_goes_on_in_continuations():
    peer = Peer()
    peer.send(request(1))
    peer.sender.send_headers(peer.seen[1].stream, b"x" * 40_000, ends=True)
    assert [(k, f, len(p)) for k, f, _, p in peer.got()] == [
        (HEADERS, END_STREAM, 16384),
        (CONTINUATION, 0, 16384),
        (CONTINUATION, END_HEADERS, 40_000 - 2 * 16384),
    ]


FRAME = 16384
SIZES = st.builds(
    lambda frames, more: max(0, frames * FRAME + more),
    st.integers(0, 4),
    st.sampled_from([-1, 0, 1, 5, 9000]),
)


@given(
    st.lists(SIZES, max_size=5), st.integers(0, 10 * FRAME), st.sampled_from([None, b"", b"\x88"])
)
def test_whatever_the_buffers_their_bytes_come_in_order_in_frames_as_large_as_may_be(
    sizes, window, ending
):
    peer = Peer()
    settings = encode_settings({Setting.INITIAL_WINDOW_SIZE: window})
    peer.send(settings, encode_window_update(0, 10**6), request(1))
    peer.got()
    buffers = [bytes([number]) * size for number, size in enumerate(sizes)]
    expected = b"".join(buffers)
    peer.sender.send_data(peer.seen[1].stream, buffers, ending)
    frames = peer.got()
    sent = [len(payload) for kind, _, _, payload in frames if kind == DATA]
    assert sum(sent) == min(window, len(expected))
    assert all(length == FRAME for length in sent[:-1]) and max(sent, default=0) <= FRAME
    peer.send(encode_window_update(1, 10**6))
    frames += peer.got()
    assert b"".join(payload for kind, _, _, payload in frames if kind == DATA) == expected
    ends = [bool(flags & END_STREAM) for _, flags, _, _ in frames]
    assert ends == [*[False] * (len(ends) - 1), ending is not None][len(ends) == 0 :]


def test_what_is_sent_is_not_copied():
    peer = Peer()
    peer.send(encode_settings({Setting.INITIAL_WINDOW_SIZE: MAX_WINDOW}), request(1))
    peer.got()
    data = bytes(3 * FRAME)
    peer.sender.send_data(peer.seen[1].stream, [b"prefix", data], b"")
    views = [one for one in peer.sender.out if isinstance(one, memoryview)]
    assert len(views) == 4 and all(view.obj is data for view in views)
