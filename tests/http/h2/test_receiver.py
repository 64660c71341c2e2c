"""What DATA frames bring to a connection, whole or in pieces, and its windows."""

import struct

import pytest
from h2_peer import REQUEST, Noting, Peer, data, head, request
from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.http.h2.frames import END_STREAM, HEADERS, PADDED, RST_STREAM, ErrorCode
from inferd.http.h2.hpack import encode_fields
from inferd.http.h2.stream import STREAM_WINDOW


def test_a_declared_length_is_held_to():
    block = encode_fields([*REQUEST, (b"content-length", b"2")])
    peer = Peer()
    peer.send(head(1, 0, block), data(1, b"xx", END_STREAM))
    peer.send(head(3, 0, block), data(3, b"xxx"))
    peer.send(head(5, 0, block), data(5, b"x", END_STREAM), head(7, END_STREAM, block))
    peer.send(head(9, 0, block), head(9, END_STREAM, b""))
    assert peer.seen[1].events == ["open", "end"]
    codes = {stream: payload[-1] for kind, _, stream, payload in peer.got() if kind == RST_STREAM}
    assert codes == dict.fromkeys((3, 5, 7, 9), ErrorCode.PROTOCOL_ERROR)


def test_data_that_comes_in_pieces_is_handed_on_in_pieces():
    peer = Peer()
    frame = data(1, b"\x02" + b"ab" * 4000 + b"\0\0", PADDED | END_STREAM)
    peer.send(head(1), frame[:9])
    for at in range(9, len(frame), 100):
        peer.send(frame[at : at + 100])
    peer.send(request(3))
    assert peer.seen[1].data == b"ab" * 4000 and peer.seen[3].data == b"hello"


def test_a_fault_inside_a_frame_that_is_coming_drops_its_rest():
    peer = Peer()
    frame = data(1, b"x" * 5000)
    peer.send(head(1), data(1, b"", END_STREAM), frame[:500])
    peer.send(frame[500:], request(3))
    assert peer.seen[3].data == b"hello"


def test_what_is_taken_is_credited_to_the_stream():
    peer = Peer()
    peer.send(head(1))
    for _ in range(STREAM_WINDOW // 2**19):
        peer.send(data(1, bytes(2**19)))
    credited = [int.from_bytes(p, "big") for k, _, s, p in peer.got() if (k, s) == (8, 1)]
    assert sum(credited) == STREAM_WINDOW


def test_more_than_the_window_ends_the_connection():
    class Idle(Noting):
        def on_data(self, data, start, stop, *, ends):
            pass

    peer = Peer(handler=Idle)
    peer.send(head(1))
    for _ in range(STREAM_WINDOW // 2**20):
        peer.send(data(1, bytes(2**20)))
    assert not peer.sender.is_failed
    peer.send(data(1, b"x"))
    assert peer.error() == (1, ErrorCode.FLOW_CONTROL_ERROR)


def test_a_large_frame_is_received_into_the_streams_own_memory():
    class Direct(Noting):
        def on_open(self):
            self.memory = memoryview(bytearray(200_000))
            self.at = 0

        def on_data(self, data, start, stop, *, ends):
            self.memory[self.at : self.at + stop - start] = data[start:stop]
            self.on_filled(stop - start, ends=ends)

        def room(self):
            return self.memory[self.at :]

        def on_filled(self, count, *, ends):
            self.at += count
            if ends:
                self.on_end()

    peer = Peer(handler=Direct)
    payload = bytes(range(250)) * 800
    frame = data(1, payload, END_STREAM)
    peer.send(head(1), frame[:100])
    assert peer.connection.receiver.room() is not None
    at = 100
    while (room := peer.connection.receiver.room()) is not None:
        count = min(len(room), 70_000, len(frame) - at)
        room[:count] = frame[at : at + count]
        peer.connection.receiver.filled(count)
        at += count
    peer.send(frame[at:])
    assert bytes(peer.seen[1].memory) == payload and peer.seen[1].events == ["end"]


class Dropping(Noting):
    def on_open(self):
        self.stream.drop_bytes = 100
        super().on_open()


@pytest.mark.parametrize(
    "rest",
    [
        data(1, b"x" * 50) + data(1, b"", END_STREAM),
        data(1, b"x" * 50, END_STREAM),
        head(1, END_STREAM, b""),
    ],
)
@pytest.mark.parametrize("piece", [12, 10**6])
def test_an_early_answer_may_let_the_rest_of_the_request_come(rest, piece):
    peer = Peer(handler=Dropping)
    peer.send(head(1))
    peer.sender.send_headers(peer.seen[1].stream, b"\x88", ends=True)
    for at in range(0, len(rest), piece):
        peer.send(rest[at : at + piece])
    assert [kind for kind, *_ in peer.got()] == [HEADERS]
    assert peer.seen[1].events == ["open"] and not peer.sender.handlers


def test_what_is_dropped_has_an_end():
    peer = Peer(handler=Dropping)
    peer.send(head(1))
    peer.sender.send_headers(peer.seen[1].stream, b"\x88", ends=True)
    peer.send(data(1, b"x" * 60), data(1, b"x" * 60), data(1, b"x" * 60))
    assert peer.got()[-1] == (RST_STREAM, 0, 1, struct.pack(">L", ErrorCode.NO_ERROR))
    assert not peer.sender.handlers and not peer.sender.is_failed


class Together(Noting):
    """Takes frames that are alike together."""

    takes_runs = True
    runs = 0

    def on_data_run(self, data, starts, length):
        self.runs += 1
        for start in starts:
            self.on_data(data, start, start + length, ends=False)


def test_frames_with_the_same_header_are_taken_together():
    peer = Peer(handler=Together)
    alike = [data(1, b"%04d" % number) for number in range(50)]
    peer.send(head(1), *alike, data(1, b"end", END_STREAM))
    stream = peer.seen[1]
    assert stream.data == b"".join(b"%04d" % number for number in range(50)) + b"end"
    assert (stream.runs, stream.events) == (1, ["open", "end"])


def test_a_declared_length_is_held_to_by_frames_taken_together():
    block = encode_fields([*REQUEST, (b"content-length", b"20")])
    peer = Peer(handler=Together)
    peer.send(head(1, 0, block), *[data(1, b"12345")] * 3, data(1, b"12345", END_STREAM))
    peer.send(head(3, 0, block), *[data(3, b"12345")] * 5)
    peer.send(head(5, 0, block), *[data(5, b"12345")] * 3, data(5, b"", END_STREAM))
    assert peer.seen[1].events == ["open", "end"]
    codes = {stream: payload[-1] for kind, _, stream, payload in peer.got() if kind == RST_STREAM}
    assert codes == dict.fromkeys((3, 5), ErrorCode.PROTOCOL_ERROR)


def test_frames_taken_together_count_against_the_window():
    class Idle(Together):
        def on_data(self, data, start, stop, *, ends):
            pass

    peer = Peer(handler=Idle)
    frame = data(1, bytes(2**14))
    peer.send(head(1), *[frame] * (STREAM_WINDOW // 2**14))
    assert not peer.sender.is_failed
    peer.send(*[data(1, b"x")] * 2)
    assert peer.error() == (1, ErrorCode.FLOW_CONTROL_ERROR)


FRAMES = st.tuples(
    st.sampled_from([1, 3, 5, 7]), st.sampled_from([b"", b"ab", b"cd", b"efg"]), st.integers(0, 9)
)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(FRAMES, max_size=30), st.integers(1, 200))
def test_taken_together_or_not_frames_mean_the_same(frames, size):
    declared = encode_fields([*REQUEST, (b"content-length", b"8")])
    sent = head(1) + head(3) + head(5, 0, declared)
    for stream_id, payload, rare in frames:
        sent += data(stream_id, payload, END_STREAM if rare == 9 else 0)
    outcomes = []
    for kind in (Noting, Together):
        peer = Peer(handler=kind)
        for at in range(0, len(sent), size):
            peer.send(sent[at : at + size])
        streams = [(one.data, one.events, one.stream.uncredited) for one in peer.seen.values()]
        outcomes.append((streams, peer.sender.is_failed, peer.got()))
    assert outcomes[0] == outcomes[1]
