"""Mutated conversations and frames made at random: the server stays sound, whatever comes.

FUZZ_SECONDS says for how long (30), FUZZ_SEED where to begin. A failure names the seed of its
connection: FUZZ_SEED with that number and FUZZ_SECONDS=0 sends the same bytes again.
"""

import os
import random
import time

import pytest
from raw_http2 import (
    CHECK,
    END_HEADERS,
    INFER,
    LIST_SERVICES,
    METADATA,
    NOTHING,
    PADDED,
    PREFACE,
    PRIORITY,
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
    ping,
    request,
    rst_stream,
    settings,
    window_update,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0)]

SECONDS = float(os.environ.get("FUZZ_SECONDS", "30"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
MOST_MEMORY = 60_000_000
READ_S = 0.002

TABLE = literal("x-a", "1", first=0x40) + literal("x-b", "2" * 50, first=0x40) + b"\xbe\xbf"
CONVERSATIONS = [
    [call(1), call(3, METADATA, NOTHING), call(5, "/no/Method")],
    [headers(1, block(request(REFLECT))), data(1, LIST_SERVICES * 3), data(1, end=True)],
    [headers(1, block(request(INFER))), data(1, infer(100)[:50]),
     data(1, infer(100)[50:], end=True)],
    [headers(1, block(request())[:20], whole=False), continuation(1, block(request())[20:]),
     data(1, NOTHING, end=True)],
    [call(1, WATCH), ping(), rst_stream(1), call(3)],
    [headers(1, block(request()) + TABLE), data(1, NOTHING, end=True),
     headers(3, block(request()) + b"\xbe\xbf"), data(3, NOTHING, end=True)],
    [settings((Setting.INITIAL_WINDOW_SIZE, 5), (Setting.HEADER_TABLE_SIZE, 0)),
     call(1, INFER, infer(50)), window_update(1, 100), window_update(0, 1000),
     settings((Setting.INITIAL_WINDOW_SIZE, 100_000))],
    [headers(1, b"\x05" + b"\0\0\0\0\x10" + block(request()) + bytes(5), flags=PADDED | PRIORITY),
     frame(Type.DATA, PADDED, 1, b"\3" + NOTHING + bytes(3)), data(1, end=True)],
    [headers(1, block(request(CHECK, ("grpc-encoding", "gzip"), ("grpc-timeout", "1S")))),
     data(1, b"\1\0\0\0\x14" + bytes(20), end=True)],
    [frame(Type.GOAWAY, 0, 0, bytes(8)), call(1)],
]  # fmt: skip
NUMBERS = [0, 1, 2, 3, 5, 7, 100, 127, 128, 255, 16_383, 16_384, 65_535, 2**24 - 1, 2**31 - 1]


def frames_of(conversation):
    """Cut the bytes of a conversation into its frames."""
    whole, frames = b"".join(conversation), []
    while whole:
        size = 9 + int.from_bytes(whole[:3])
        frames.append(whole[:size])
        whole = whole[size:]
    return frames


def random_frame(chance):
    kind = chance.choice([*Type, *Type, 0x10, 0x42, 255])
    flags = chance.choice([0, 1, 4, 5, 8, 9, 0x0D, 0x20, 0x2D, chance.randrange(256)])
    stream = chance.choice([0, 1, 1, 1, 3, 3, 5, 2, chance.choice(NUMBERS)])
    size = chance.choice([0, 1, 4, 5, 6, 8, chance.randrange(40), chance.randrange(20_000)])
    return frame(kind, flags, stream, chance.randbytes(size))


def flip(chance, payload):
    changed = bytearray(payload)
    for _ in range(chance.choice([1, 1, 2, 5])):
        if changed:
            changed[chance.randrange(len(changed))] = chance.choice(
                [chance.randrange(256), 0, 0x7F, 0x80, 0xFF]
            )
    return bytes(changed)


def damaged(chance, one):
    """Return one frame after an accident."""
    accident = chance.randrange(5)
    if accident == 0:  # the payload
        return one[:9] + flip(chance, one[9:])
    if accident == 1:  # the head
        return flip(chance, one[:9]) + one[9:]
    if accident == 2:  # another stream
        return one[:5] + chance.choice(NUMBERS).to_bytes(4) + one[9:]
    if accident == 3:  # a field block that means something else
        return headers(1, chance.randbytes(chance.randrange(60)), end=chance.random() < 0.5)
    return one[:-1] if chance.random() < 0.5 else one + b"\0"  # another length than it says


def mutated(chance, frames):
    """Return the frames of a conversation after a few accidents."""
    frames = list(frames)
    for _ in range(chance.choice([0, 1, 1, 2, 3, 6])):
        at = chance.randrange(len(frames))
        accident = chance.randrange(9)
        if accident == 0:
            frames.insert(at, random_frame(chance))
        elif accident == 1:
            frames.insert(at, chance.choice(frames))
        elif accident == 2:
            chance.shuffle(frames)
        elif accident == 3 and len(frames) > 1:
            del frames[at]
        else:
            frames[at] = damaged(chance, frames[at])
    return frames


def converse(port, seed):
    """Send one conversation and read what comes; the server's own frames must be right."""
    chance = random.Random(seed)
    frames = mutated(chance, frames_of(chance.choice(CONVERSATIONS)))
    if chance.random() < 0.2:
        frames += mutated(chance, frames_of(chance.choice(CONVERSATIONS)))
    sent = (PREFACE if chance.random() < 0.98 else flip(chance, PREFACE)) + settings()
    sent += b"".join(frames)
    peer = Peer(port, start=False, polite=chance.random() < 0.9)
    try:
        while sent:
            size = chance.choice([len(sent), len(sent), 1 + chance.randrange(30)])
            peer.send(sent[:size])
            sent = sent[size:]
            read(peer)
        check_answers(peer)
    finally:
        peer.close()


def read(peer):
    try:
        while peer.read(timeout_s=READ_S):
            continue
    except (TimeoutError, BlockingIOError):
        pass


def check_answers(peer):
    """Check what every server must keep to, whatever it was sent."""
    ended = set()
    for number, found in enumerate(peer.seen):
        assert found.kind in (*Type,) and found.kind not in (Type.PUSH_PROMISE, Type.PRIORITY)
        assert len(found.payload) <= 16_384 or found.kind == Type.DATA
        if number == 0:
            assert found.kind in (Type.SETTINGS, Type.GOAWAY)
        if found.kind in (Type.DATA, Type.HEADERS, Type.RST_STREAM):
            assert found.stream % 2 == 1
            assert found.stream not in ended or found.kind == Type.RST_STREAM, str(found)
        if found.kind == Type.HEADERS and found.flags & END_HEADERS:
            assert found.fields
        if found.ends_stream or found.kind == Type.RST_STREAM:
            ended.add(found.stream)
        if found.kind == Type.GOAWAY:
            assert found.code in (*Error,), str(found)
            assert found.code != Error.INTERNAL_ERROR, str(found)


def test_the_server_stays_sound_whatever_comes(start):
    with start() as server:
        user = Peer(server.port)
        sockets, before = server.socket_count, None
        deadline, seed = time.monotonic() + SECONDS, SEED
        while True:
            try:
                converse(server.port, seed)
            except BaseException as error:
                error.add_note(f"in the connection of FUZZ_SEED={seed}")
                raise
            if (seed - SEED) % 100 == 0:
                stream = 2 * (seed - SEED) // 100 + 1
                user.send(call(stream))
                user.expect_ok(stream)
                user.seen.clear()
            seed += 1
            if seed - SEED == 500:
                before = server.resident_bytes
            if time.monotonic() >= deadline:
                break
        assert server.wait_for(lambda: server.socket_count == sockets), "sockets are left"
        assert before is None or server.resident_bytes - before < MOST_MEMORY
        cpu_s = server.cpu_s
        assert not server.wait_for(lambda: server.cpu_s > cpu_s + 1), "it is busy with nothing"
        user.close()
