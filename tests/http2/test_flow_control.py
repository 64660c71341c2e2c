"""Windows, of both sides (RFC 9113 §5.2, §6.9)."""

import struct

import pytest
from raw_http2 import (
    INFER,
    LARGEST,
    LIST_SERVICES,
    NOTHING,
    PADDED,
    REFLECT,
    WATCH,
    WINDOW,
    Error,
    Setting,
    Type,
    block,
    call,
    data,
    frame,
    framed,
    headers,
    infer,
    pieces,
    point,
    request,
    rst_stream,
    settings,
    window_update,
)

ELEMENTS = 100_000  # 400 kB: more than the default windows


def upload(peer, stream, message, size=16_384):
    """Send a call whose message goes beyond what windows the server has not widened allow."""
    peer.send(headers(stream, block(request(INFER))))
    parts = pieces(message, size)
    for part in parts[:-1]:
        peer.send(data(stream, part))
    peer.send(data(stream, parts[-1], end=True))


def body_bytes(peer, stream):
    return sum(len(f.payload) for f in peer.find(Type.DATA, stream))


# --- wrong updates (§6.9, §6.9.1) ---------------------------------------------------------------


@point("RFC 9113 §6.9", "MUST", "an update of the connection's window by 0 is a PROTOCOL_ERROR")
def test_an_update_by_0_of_the_connection_is_a_protocol_error(peer):
    peer.send(window_update(0, 0))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.9", "MUST", "an update of a stream's window by 0 is a PROTOCOL_ERROR")
def test_an_update_by_0_of_a_stream_is_a_stream_error(peer):
    peer.send(headers(1, block(request())), window_update(1, 0), call(3))
    peer.expect_error(1, Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.9", "MUST", "a WINDOW_UPDATE of another length than 4 is a FRAME_SIZE_ERROR")
@pytest.mark.parametrize("length", [0, 3, 5, 16_385])
@pytest.mark.parametrize("stream", [0, 1])
def test_an_update_of_another_length_is_a_frame_size_error(peer, length, stream):
    peer.send(headers(1, block(request())), frame(Type.WINDOW_UPDATE, 0, stream, bytes(length)))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR)


@point("RFC 9113 §6.9.1", "MUST", "a connection's window above 2^31-1 is a FLOW_CONTROL_ERROR")
def test_too_large_a_window_of_the_connection_is_a_flow_control_error(peer):
    peer.send(window_update(0, LARGEST))
    peer.expect_goaway(Error.FLOW_CONTROL_ERROR)


@point("RFC 9113 §6.9.1", "MUST", "a stream's window above 2^31-1 resets it, FLOW_CONTROL_ERROR")
def test_too_large_a_window_of_a_stream_resets_it(peer):
    peer.send(headers(1, block(request())), window_update(1, LARGEST), call(3))
    peer.expect_reset(1, Error.FLOW_CONTROL_ERROR)
    peer.expect_ok(3)


@point("RFC 9113 §6.9.1", "MUST", "windows may grow to exactly 2^31-1")
def test_windows_may_be_as_large_as_can_be(peer):
    peer.send(window_update(0, LARGEST - WINDOW), headers(1, block(request())))
    peer.send(window_update(1, LARGEST - WINDOW), data(1, NOTHING, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §6.9", "MUST", "the reserved bit of an update is ignored")
def test_the_reserved_bit_of_an_update_is_ignored(peer):
    peer.send(frame(Type.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 31 | 1)), call(1))
    peer.expect_ok(1)


@point("RFC 9113 §6.9.2", "MUST", "an initial window that makes a stream's too large is an error")
def test_an_initial_window_that_overflows_a_stream_is_an_error(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(call(1, WATCH), window_update(1, LARGEST - 7))
    peer.wait_for(lambda f: f.kind == Type.DATA)
    peer.send(settings((Setting.INITIAL_WINDOW_SIZE, 1000)))
    peer.expect_goaway(Error.FLOW_CONTROL_ERROR)


# --- the server keeps within our windows (§5.2.1, §6.9.1, §6.9.2) -------------------------------


@point("RFC 9113 §6.9.1", "MUST", "no more DATA comes than the stream's window allows")
def test_no_more_comes_than_the_stream_allows(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 100))
    peer.send(call(1, INFER, infer(100)))
    peer.wait_for(lambda f: f.kind == Type.DATA)
    peer.expect_alive()
    assert body_bytes(peer, 1) == 100
    for allowed in (101, 111, 211):
        peer.send(window_update(1, allowed - body_bytes(peer, 1)))
        peer.wait_for(lambda f, size=allowed: body_bytes(peer, 1) >= size)
        peer.expect_alive()
        assert body_bytes(peer, 1) == allowed
    peer.send(window_update(1, 10_000))
    peer.expect_ok(1)


@point("RFC 9113 §6.9.1", "MUST", "no more DATA comes than the connection's window allows")
def test_no_more_comes_than_the_connection_allows(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 2**30))
    upload(peer, 1, infer(ELEMENTS))
    peer.wait_for(lambda f: body_bytes(peer, 1) >= WINDOW)
    peer.expect_alive()
    assert body_bytes(peer, 1) == WINDOW
    peer.send(window_update(0, 2**20))
    peer.expect_ok(1)


@point("RFC 9113 §6.9.1", "MUST", "streams together keep within the connection's window")
def test_streams_together_keep_within_the_connections_window(peer):
    for stream in (1, 3, 5):
        upload(peer, stream, infer(10_000))
    peer.wait_for(lambda f: sum(body_bytes(peer, s) for s in (1, 3, 5)) >= WINDOW)
    peer.expect_alive()
    assert sum(body_bytes(peer, stream) for stream in (1, 3, 5)) == WINDOW
    peer.send(window_update(0, 2**20))
    for stream in (1, 3, 5):
        peer.expect_ok(stream)


@point("RFC 9113 §6.9", "MUST", "only DATA counts: headers and trailers need no window")
def test_headers_need_no_window(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(call(1, "/no.such.Service/Method"), call(3, REFLECT, b""))
    assert peer.answer(1).status == 12
    assert peer.answer(3).status == 0


@point("RFC 9113 §6.9.2", "MUST", "a larger initial window lets waiting streams go on")
def test_a_larger_initial_window_lets_streams_go_on(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(call(1), call(3))
    peer.wait_for(lambda f: f.kind == Type.HEADERS and f.stream == 3)
    peer.expect_alive()
    assert not peer.find(Type.DATA)
    peer.send(settings((Setting.INITIAL_WINDOW_SIZE, 1000)))
    peer.expect_ok(1)
    peer.expect_ok(3)


@point("RFC 9113 §6.9.2", "MUST", "a smaller initial window may make windows negative")
def test_a_window_may_become_negative(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 100))
    peer.send(call(1, INFER, infer(100)))
    peer.wait_for(lambda f: body_bytes(peer, 1) >= 100)
    peer.send(settings((Setting.INITIAL_WINDOW_SIZE, 20)))  # the stream's window is -80
    peer.send(window_update(1, 80))  # and 0
    peer.expect_alive()
    assert body_bytes(peer, 1) == 100
    peer.send(window_update(1, 1))
    peer.wait_for(lambda f: body_bytes(peer, 1) >= 101)
    peer.expect_alive()
    assert body_bytes(peer, 1) == 101
    peer.send(settings((Setting.INITIAL_WINDOW_SIZE, WINDOW)))
    peer.expect_ok(1)


@point("RFC 9113 §6.9.2", "MUST", "the initial window is of streams, not of the connection")
def test_the_connections_window_is_not_set_by_settings(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(settings((Setting.INITIAL_WINDOW_SIZE, 2**20)))
    upload(peer, 1, infer(ELEMENTS))
    peer.wait_for(lambda f: body_bytes(peer, 1) >= WINDOW)
    peer.expect_alive()
    assert body_bytes(peer, 1) == WINDOW


@point("RFC 9113 §6.9", "MUST", "an answer through a window of one byte at a time arrives whole")
def test_a_window_of_one_byte_at_a_time_is_enough(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 1))
    peer.send(call(1))
    for _ in range(6):
        peer.send(window_update(1, 1))
    assert peer.expect_ok(1).body == b"\0\0\0\0\2\x08\1"


@point("RFC 9113 §5.2.2", "SHOULD", "a stream without a window does not hold up the others")
def test_a_blocked_stream_holds_nobody_up(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 10))
    peer.send(call(1, INFER, infer(1000)), call(3))
    peer.expect_ok(3)
    peer.send(window_update(1, 10_000))
    peer.expect_ok(1)


# --- we keep to the server's windows, or not (§6.9, §6.9.1) -------------------------------------


def opened(peer):
    """Return how much the server lets be sent on the connection before it has to say more."""
    updates = [f for f in peer.find(Type.WINDOW_UPDATE) if f.stream == 0]
    return WINDOW + sum(int.from_bytes(f.payload) for f in updates)


class Sender:
    """Sends DATA on a stream as far as the server's windows allow, waiting for updates."""

    def __init__(self, peer):
        self.peer = peer
        self.frame_bytes = peer.settings.get(Setting.MAX_FRAME_SIZE, 16_384)
        self.initial = peer.settings.get(Setting.INITIAL_WINDOW_SIZE, WINDOW)
        self.windows = {0: opened(peer)}
        self.counted = len(peer.seen)

    def send(self, stream, payload, *, end=False):
        view = memoryview(payload)
        self.windows.setdefault(stream, self.initial)
        at = 0
        while at < len(view):
            room = min(self.windows[0], self.windows[stream])
            size = min(len(view) - at, self.frame_bytes, room)
            if size > 0:
                ends = end and at + size == len(view)
                self.peer.send(data(stream, bytes(view[at : at + size]), end=ends))
                at += size
                self.windows[0] -= size
                self.windows[stream] -= size
            else:
                assert self.peer.read() is not None, "the connection ended"
            self._count()

    def _count(self):
        for found in self.peer.seen[self.counted :]:
            if found.kind == Type.WINDOW_UPDATE and found.stream in self.windows:
                self.windows[found.stream] += int.from_bytes(found.payload)
        self.counted = len(self.peer.seen)


@point("RFC 9113 §6.9", "MUST", "the server widens a stream's window as it takes DATA in")
def test_the_server_widens_a_streams_window(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 2**30))
    peer.send(window_update(0, 2**30))
    sender = Sender(peer)
    assert sender.initial < 2**26, "too generous a window to go through it in a test"
    message = infer(sender.initial // 4 + 100_000)
    peer.send(headers(1, block(request(INFER))))
    sender.send(1, message, end=True)
    assert len(peer.expect_ok(1).body) > sender.initial


@point("RFC 9113 §6.9", "MUST", "DATA of ended streams is given back to the connection's window")
@pytest.mark.slow
def test_data_of_ended_streams_is_given_back(peer):
    sender = Sender(peer)
    length = min(sender.initial, 2**23)
    cut_off = b"\0" + struct.pack(">I", length) + bytes(length - 5)  # five bytes are missing
    stream = 1
    for _ in range(sender.windows[0] // length + 2):
        peer.send(headers(stream, block(request(INFER))))
        sender.send(stream, cut_off)
        peer.send(rst_stream(stream))
        stream += 2
    peer.send(call(stream))
    peer.expect_ok(stream)


@point("RFC 9113 §6.9.1", "MUST", "DATA beyond the server's window is a FLOW_CONTROL_ERROR")
def test_data_beyond_the_window_is_a_flow_control_error(connect):
    peer = connect((Setting.INITIAL_WINDOW_SIZE, 0))
    initial = peer.settings.get(Setting.INITIAL_WINDOW_SIZE, WINDOW)
    peer.send(headers(1, block(request(REFLECT))))
    # Its answers, which repeat the question, cannot be sent: the server stops to take questions.
    host = b"\x0a\x80\x7d" + b"h" * 16_000
    question = framed(host + LIST_SERVICES[5:])
    # A few at a time: not so slowly that the call ends as one whose client does not read, and not
    # so much more than the window that the connection is cut before its last word is read.
    sent, widened = 0, 0
    while sent <= initial + widened and not is_over(peer, 1):
        peer.send(data(1, question) * 8)
        sent += 8 * len(question)
        widened = sum(int.from_bytes(f.payload) for f in peer.find(Type.WINDOW_UPDATE, 1))
        assert widened < initial, "the window was widened while nobody took the messages"
    peer.expect_error(1, Error.FLOW_CONTROL_ERROR)


def is_over(peer, stream):
    """Whether the server has reset `stream` or ended the connection, so far."""
    try:
        while peer.read(timeout_s=0.0001):
            continue
    except (TimeoutError, BlockingIOError):
        pass
    return peer.at_end or peer.find(Type.RST_STREAM, stream) or peer.find(Type.GOAWAY)


@point("RFC 9113 §6.9.1", "MUST", "padding counts in the windows: it is credited like data")
@pytest.mark.slow
def test_padding_is_credited(peer):
    initial = peer.settings.get(Setting.INITIAL_WINDOW_SIZE, WINDOW)
    assert initial < 2**26, "too generous a window to go through it in a test"
    size = 1000 + 256
    message = framed(bytes(2 * initial))
    padded = frame(Type.DATA, PADDED, 1, b"\xff" + bytes(1255))
    peer.send(headers(1, block(request(INFER))))
    peer.send(frame(Type.DATA, PADDED, 1, b"\xff" + message[:1000] + bytes(255)))
    count = initial // size * 3 // 2
    for _ in range(count // 100):
        peer.send(padded * 100)
        is_over(peer, 1)
    peer.expect_alive()
    credited = sum(int.from_bytes(f.payload) for f in peer.find(Type.WINDOW_UPDATE, 1))
    without_padding = count // 100 * 100 * 1000
    assert credited > without_padding - initial // 2
    # All that was sent is more than was allowed plus what is credited for the data alone.
    assert initial + credited >= count // 100 * 100 * size
