"""Hostile peers: each ends in an error or a limit, with little memory, while others are served."""

import contextlib
import struct
import threading

import pytest
from raw_http2 import (
    CHECK,
    INFER,
    LARGEST,
    NOTHING,
    PREFACE,
    REFLECT,
    WATCH,
    Error,
    Peer,
    Setting,
    Type,
    block,
    call,
    continuation,
    data,
    frame,
    headers,
    infer,
    literal,
    pieces,
    ping,
    point,
    request,
    rst_stream,
    settings,
    window_update,
)

pytestmark = pytest.mark.slow

MOST_MEMORY = 40_000_000
MOST_CPU_OF_A_CALL_S = 2.0
MOST_CPU_S = 10.0


@pytest.fixture(scope="module")
def victim(start):
    """A server with its ordinary limits, warmed up."""
    with start() as run:
        peer = Peer(run.port)
        for stream in range(1, 401, 2):
            peer.send(call(stream))
            peer.expect_ok(stream)
        peer.close()
        yield run


@pytest.fixture
def attack(victim, connect):
    """attack(settings...) opens a hostile connection.

    When the test is over: calls on another connection were answered soon all the time, the server
    has used little CPU time and memory, and still takes connections. Soon is measured by what else
    the server has done before it answered, which is the same on a machine with much to do.
    """
    memory, cpu = victim.resident_bytes, victim.cpu_s
    over, waits = threading.Event(), []

    def use():
        peer = Peer(victim.port)
        for stream in range(1, 2**31, 2):
            before = victim.cpu_s
            peer.send(call(stream))
            peer.expect_ok(stream)
            waits.append(victim.cpu_s - before)
            if over.wait(0.02):
                break
        peer.close()

    user = threading.Thread(target=use)
    user.start()
    yield lambda *values, **options: connect(*values, port=victim.port, **options)
    over.set()
    user.join()
    assert waits, "the user of the server got no answer at all"
    assert max(waits) < MOST_CPU_OF_A_CALL_S
    assert victim.resident_bytes - memory < MOST_MEMORY, victim.resident_bytes - memory
    assert victim.cpu_s - cpu < MOST_CPU_S
    after = Peer(victim.port)
    after.send(call(1))
    after.expect_ok(1)
    after.close()


def flood(peer, chunk, times):
    """Send `chunk` many times, until the server has had enough."""
    for _ in range(times):
        peer.send(chunk)
        try:
            while peer.read(timeout_s=0.0001):
                continue
        except (TimeoutError, BlockingIOError):
            pass
        if peer.at_end or peer.find(Type.GOAWAY):
            return


def expect_refused(peer, stream):
    """Expect that a request with too large a head fails; return whether the connection goes on."""
    found = peer.wait_for(
        lambda f: f.kind == Type.GOAWAY or (f.stream == stream and f.kind != Type.DATA), "a refusal"
    )
    if found.kind == Type.GOAWAY:
        codes = (Error.ENHANCE_YOUR_CALM, Error.PROTOCOL_ERROR, Error.COMPRESSION_ERROR)
        assert found.code in codes
        return False
    answer = peer.answer(stream)
    refused = answer.reset is not None or answer.headers[":status"] == "431"
    assert refused or answer.status != 0
    return True


# --- floods (RFC 9113 §10.5) --------------------------------------------------------------------


@point("RFC 9113 §10.5", "SHOULD", "rapid reset ends in ENHANCE_YOUR_CALM")
@pytest.mark.parametrize("message", [b"", NOTHING])
def test_rapid_reset_is_stopped(attack, message):
    peer = attack()
    fields = block(request())
    for base in range(1, 100_000, 200):
        frames = []
        for stream in range(base, base + 200, 2):
            frames.append(headers(stream, fields))
            frames += [data(stream, message)] if message else []
            frames.append(rst_stream(stream))
        flood(peer, b"".join(frames), 1)
        if peer.at_end or peer.find(Type.GOAWAY):
            break
    peer.expect_goaway(Error.ENHANCE_YOUR_CALM)


@point("RFC 9113 §10.5", "SHOULD", "resets provoked by malformed requests end the same way")
def test_provoked_resets_are_stopped(attack):
    peer = attack()
    fields = block([("Wrong", "1")])
    for base in range(1, 100_000, 200):
        flood(peer, b"".join(headers(s, fields, end=True) for s in range(base, base + 200, 2)), 1)
        if peer.at_end or peer.find(Type.GOAWAY):
            break
    peer.expect_goaway(Error.ENHANCE_YOUR_CALM)


@point("RFC 9113 §10.5", "SHOULD", "a flood of small frames that bring nothing is stopped")
@pytest.mark.parametrize(
    "chunk",
    [
        settings() * 100,
        settings((Setting.INITIAL_WINDOW_SIZE, 100), (Setting.HEADER_TABLE_SIZE, 7)) * 100,
        ping() * 100,
        data(1) * 100,
        frame(Type.DATA, 0x8, 1, b"\0") * 100,
        frame(Type.PRIORITY, 0, 3, struct.pack(">IB", 0, 1)) * 100,
        window_update(1, 1) * 100,
        frame(0x42, 0, 0) * 100,
    ],
    ids=["SETTINGS", "SETTINGS with values", "PING", "empty DATA", "padding alone", "PRIORITY",
         "WINDOW_UPDATE", "unknown type"],
)  # fmt: skip
def test_a_flood_of_small_frames_is_stopped(attack, chunk):
    peer = attack()
    peer.send(headers(1, block(request(REFLECT))))
    flood(peer, chunk, 1000)
    peer.expect_goaway(Error.ENHANCE_YOUR_CALM)


@point("RFC 9113 §10.5", "SHOULD", "answers that nobody reads are not heaped up: PING and SETTINGS")
@pytest.mark.parametrize("chunk", [settings() * 1000, ping() * 1000], ids=["SETTINGS", "PING"])
def test_acknowledgements_are_not_heaped_up(attack, victim, chunk):
    peer = attack()
    before = victim.resident_bytes
    peer.socket.settimeout(3)
    try:
        for _ in range(3000):
            peer.socket.sendall(chunk)  # and read nothing
    except OSError:
        pass
    assert victim.resident_bytes - before < MOST_MEMORY


@point("RFC 9113 §10.5", "SHOULD", "a CONTINUATION flood ends, long before the peer is done")
@pytest.mark.parametrize("part", [b"", b"\x82", literal("x-more", "a" * 1000)])
def test_a_continuation_flood_is_stopped(attack, part):
    peer = attack()
    peer.send(headers(1, block(request()), whole=False))
    flood(peer, continuation(1, part, whole=False) * 100, 1000)
    peer.expect_goaway(Error.ENHANCE_YOUR_CALM, Error.PROTOCOL_ERROR, Error.COMPRESSION_ERROR)


@point("RFC 9113 §10.5.1", "SHOULD", "an endless field list is not kept")
def test_an_endless_field_list_is_not_kept(attack):
    peer = attack()
    parts = pieces(literal("x-endless", "a" * 50_000_000), 16_384)
    peer.send(headers(1, parts[0], whole=False))
    for part in parts[1:]:
        flood(peer, continuation(1, part, whole=False), 1)
        if peer.at_end or peer.find(Type.GOAWAY):
            break
    peer.expect_goaway(Error.ENHANCE_YOUR_CALM, Error.PROTOCOL_ERROR, Error.COMPRESSION_ERROR)


@point("RFC 7541 §7.3", "SHOULD", "an HPACK bomb is refused before it is unpacked")
def test_an_hpack_bomb_is_not_unpacked(attack):
    peer = attack()
    fill = literal("x-bomb", "a" * 4000, first=0x40)
    peer.send(headers(1, block(request()) + fill), data(1, NOTHING, end=True))
    peer.expect_ok(1)
    bomb = block(request()) + b"\xbe" * 15_000  # 60 MB of fields
    for stream in range(3, 43, 2):
        peer.send(headers(stream, bomb), data(stream, NOTHING, end=True))
        if not expect_refused(peer, stream):
            return


@point("RFC 7541 §7.3", "SHOULD", "many tiny fields count more than their bytes")
def test_many_tiny_fields_are_refused(attack):
    peer = attack()
    tiny = block(request()) + b"\x00\x01x\x00" * 4000  # 132 kB as lists are counted
    peer.send(headers(1, tiny), data(1, NOTHING, end=True))
    expect_refused(peer, 1)


@point("RFC 9113 §10.5", "SHOULD", "changing the table size in every block costs little")
def test_table_sizes_in_every_block_cost_little(attack):
    peer = attack()
    sizes = b"\x20\x3f\xe1\x1f"  # 0, then 4096
    fields = sizes + block(request()) + literal("x-a", "b" * 3000, first=0x40)
    for stream in range(1, 2001, 2):
        peer.send(headers(stream, fields), data(stream, NOTHING, end=True))
        peer.expect_ok(stream)


# --- streams and windows ------------------------------------------------------------------------


@point("RFC 9113 §5.1.2", "MUST", "streams that are opened and left cost nothing beyond the limit")
def test_streams_that_are_left_are_limited(attack):
    peer = attack()
    fields = block(request(REFLECT))
    for base in range(1, 60_000, 200):
        flood(peer, b"".join(headers(s, fields) for s in range(base, base + 200, 2)), 1)
        if peer.at_end or peer.find(Type.GOAWAY):
            break
    found = peer.wait_for(
        lambda f: f.kind == Type.GOAWAY or len(peer.find(Type.RST_STREAM)) > 1000, "a refusal"
    )
    if found.kind == Type.GOAWAY:
        peer.expect_goaway(Error.ENHANCE_YOUR_CALM)


@point(
    "RFC 9113 §10.5", "SHOULD", "large answers that nobody takes are few, or made only when taken"
)
def test_answers_that_nobody_takes_are_limited(attack, victim):
    peer = attack((Setting.INITIAL_WINDOW_SIZE, 0))
    message = infer(250_000)
    for stream in range(1, 21, 2):
        peer.send(headers(stream, block(request(INFER))))
        for part in pieces(message, 16_000):
            peer.send(data(stream, part))
        peer.send(data(stream, end=True))
    for stream in (1, 19):
        peer.wait_for(lambda f, s=stream: f.kind == Type.HEADERS and f.stream == s)
    assert not peer.find(Type.DATA)
    peer.send(*(rst_stream(stream) for stream in range(1, 21, 2)))
    peer.expect_alive()


@point(
    "RFC 9113 §10.5", "SHOULD", "a reader that stalls with open windows does not fill the memory"
)
def test_a_reader_that_stalls_does_not_fill_the_memory(attack, victim):
    peer, other = attack((Setting.INITIAL_WINDOW_SIZE, LARGEST)), attack()
    before = victim.resident_bytes
    name = b"inference.GRPCInferenceService"  # which files describe it: kilobytes
    asked = b"\x22" + bytes([len(name)]) + name
    question = b"\0" + struct.pack(">I", len(asked)) + asked
    # All that may be sent without reading anything.
    questions = question * (peer.settings[Setting.INITIAL_WINDOW_SIZE] // len(question))
    unsent = b"".join(data(1, piece) for piece in pieces(questions, 16_000))
    peer.send(window_update(0, LARGEST - 65_535), headers(1, block(request(REFLECT))))
    peer.socket.setblocking(False)
    for stream in range(1, 400, 2):  # however slow the server is, it has turns for both
        with contextlib.suppress(BlockingIOError):
            unsent = unsent[peer.socket.send(unsent) :] if unsent else unsent
        other.send(call(stream))
        other.expect_ok(stream)
        assert victim.resident_bytes - before < MOST_MEMORY
    # It has not been cut off for what it sent: a thousandth of the answers are there.
    peer.wait_for(lambda _: len(peer.find(Type.DATA)) >= 100)


@point("RFC 9113 §6.9", "SHOULD", "a window of one byte at a time costs the others nothing")
def test_a_window_of_one_byte_costs_others_nothing(attack):
    peer = attack((Setting.INITIAL_WINDOW_SIZE, 1))
    peer.send(call(1, INFER, infer(1000)))
    for _ in range(3000):
        peer.send(window_update(1, 1))
    peer.wait_for(
        lambda f: (
            len(peer.find(Type.DATA)) >= 2000
            or (f.kind == Type.GOAWAY and f.code == Error.ENHANCE_YOUR_CALM)
        )
    )


@point("RFC 9113 §6.9.2", "SHOULD", "settings that widen and narrow all windows again cost little")
def test_windows_that_change_all_the_time_cost_little(attack):
    peer = attack()
    limit = min(peer.settings.get(Setting.MAX_CONCURRENT_STREAMS, 100), 100)
    for stream in range(1, 2 * limit, 2):
        peer.send(call(stream, WATCH))
    for turn in range(50):
        peer.send(settings((Setting.INITIAL_WINDOW_SIZE, turn % 2 * 100_000)))
    peer.send(settings((Setting.INITIAL_WINDOW_SIZE, 100_000)))
    peer.wait_for(
        lambda f: (
            len([s for s in peer.find(Type.SETTINGS) if s.flags & 1]) >= 52 or f.kind == Type.GOAWAY
        )
    )


@point("RFC 9113 §5.1", "SHOULD", "DATA on and on after the end of its stream is not kept")
def test_data_after_the_end_is_not_kept(attack):
    peer = attack()
    peer.send(call(1))
    peer.expect_ok(1)
    flood(peer, data(1, bytes(16_384)), 3000)
    assert peer.at_end or peer.find(Type.GOAWAY) or peer.find(Type.RST_STREAM)


@point("RFC 9113 §8.1", "SHOULD", "an upload to a method that has already failed is not kept")
def test_an_upload_after_the_answer_is_not_kept(attack):
    peer = attack()
    peer.send(headers(1, block(request("/no.such.Service/Method"))))
    assert peer.answer(1).status == 12
    flood(peer, data(1, bytes(16_384)), 3000)


# --- connections --------------------------------------------------------------------------------


@point("RFC 9113 §10.5", "SHOULD", "many connections that say nothing harm nobody")
def test_silent_connections_harm_nobody(attack):
    silent = [attack(start=False) for _ in range(300)]
    half = [attack(start=False) for _ in range(100)]
    for each in half:
        each.send(PREFACE[:15])
    used = attack()
    used.send(call(1))
    used.expect_ok(1)
    for each in silent + half:
        each.close()


@point("RFC 9113 §10.5", "SHOULD", "connections that vanish with open streams leave nothing behind")
def test_connections_that_vanish_leave_nothing(attack, victim):
    for _ in range(100):
        peer = attack()
        peer.send(call(1, WATCH), call(3, INFER, infer(1, "endless")))
        peer.send(headers(5, block(request(REFLECT))), data(5, NOTHING[:3]))
        peer.wait_for(lambda f: f.kind == Type.DATA)
        # A reset instead of an orderly end, as when the peer's machine has gone.
        peer.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))
        peer.close()


@point("RFC 9113 §5.4.1", "MUST", "a peer that ignores the GOAWAY and goes on is cut off")
def test_a_peer_that_goes_on_after_the_goaway_is_cut_off(attack):
    peer = attack()
    peer.send(ping(b"short"), *(call(stream, CHECK) for stream in range(1, 21, 2)))
    peer.expect_goaway(Error.FRAME_SIZE_ERROR)
    for _ in range(100):
        peer.send(data(1, bytes(16_384)))
    peer.wait_end()
    assert not [f for f in peer.seen if f.stream]
