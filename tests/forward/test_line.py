"""Frames on real sockets."""

import asyncio
import socket

import pytest

from inferd.aio.event_loop import new_event_loop
from inferd.forward.frame_line import FrameLine
from inferd.forward.line import (
    ENDED,
    FORMAT,
    GARBLED,
    HEADER,
    JOINED_BYTES,
    MAX_DATA_BYTES,
    MAX_HEAD_BYTES,
    FrameKind,
)
from inferd.forward.message import ALIGN

LARGE = bytes(range(256)) * 4096


class End:
    """A line, what it received, and why it ended."""

    def __init__(self, **options):
        self.frames = []
        self.ends = []
        self.line = FrameLine(self.note, self.ends.append, **options)

    def note(self, kind, number, head, data):
        if number == 666:
            msg = "no such request"
            raise ValueError(msg)
        self.frames.append((kind, number, bytes(head), bytes(data)))


_open = []


async def connected(end, sock):
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: end.line, sock=sock)
    _open.append(end.line)
    return end


def run(test):
    async def closing():
        try:
            return await test
        finally:
            for line in _open:
                line.break_off("the test is over")
            _open.clear()
            await asyncio.sleep(0.001)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:  # as the server has it
        return runner.run(closing())


async def pair(**options):
    here, there = socket.socketpair()
    return await connected(End(), here), await connected(End(**options), there)


def frame(kind=1, number=1, head=b"", data=b"", form=FORMAT):
    packed = HEADER.pack(number, len(data), len(head), kind, form)
    return packed + head + (bytes(-len(head) % ALIGN) + data if data else b"")


FRAMES = [
    (FrameKind.REQUEST, 1, b"head", b"0123456789abcdef"),
    (FrameKind.CANCEL, 2**64 - 1, b"", b""),
    (FrameKind.CREDIT, 3, b"\1", b""),
    (FrameKind.ANSWER, 4, b"h" * 16, LARGE),
    (FrameKind.END, 5, b"h" * 100_001, b""),
    (FrameKind.REQUEST, 6, b"", LARGE[:16]),
]


def test_frames_arrive_in_order_whatever_their_size(until):
    async def go():
        one, other = await pair()
        for kind, number, head, data in FRAMES:
            one.line.send(kind, number, head, [memoryview(data)] if data else [])
        await until(lambda: len(other.frames) == len(FRAMES))
        return other.frames

    assert run(go()) == FRAMES


@pytest.mark.parametrize("size", [1, 7, 23, 4096])
def test_frames_may_come_in_pieces_of_any_size(size):
    frames = [one for one in FRAMES if len(one[3]) < 1000]
    text = b"".join(frame(*one) for one in frames)
    end = End()
    end.line.is_open = True
    for at in range(0, len(text), size):
        piece = text[at : at + size]
        while piece:
            buffer = end.line.get_buffer(-1)
            taken = piece[: len(buffer)]
            buffer[: len(taken)] = taken
            end.line.buffer_updated(len(taken))
            piece = piece[len(taken) :]
    assert end.frames == frames


class Written(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.writes = []

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def write(self, data):
        self.writes.append([data])

    def writelines(self, list_of_data):
        self.writes.append(list_of_data)


def test_what_is_sent_in_one_turn_leaves_in_one_write_and_large_data_uncopied():
    async def go():
        end, transport = End(), Written()
        end.line.connection_made(transport)
        for number in range(3):
            end.line.send(FrameKind.CANCEL, number, b"")
        await asyncio.sleep(0)
        large = bytes(JOINED_BYTES)
        end.line.send(FrameKind.ANSWER, 1, b"head", [large])
        await asyncio.sleep(0)
        return transport.writes, large

    [small, parts], large = run(go())
    assert small == [b"".join(frame(FrameKind.CANCEL, number) for number in range(3))]
    assert any(part is large for part in parts)
    assert b"".join(parts) == frame(FrameKind.ANSWER, 1, b"head", large)


@pytest.mark.parametrize(
    "wrong",
    [
        frame(form=FORMAT + 1),
        HEADER.pack(1, MAX_DATA_BYTES + 1, 0, 1, FORMAT),
        HEADER.pack(1, 0, MAX_HEAD_BYTES + 1, 1, FORMAT),
        HEADER.pack(1, 2**64 - 1, 2**32 - 1, 1, FORMAT),
        frame(number=666),
        frame(number=666, data=LARGE),
    ],
    ids=["format", "data", "head", "all ones", "refused", "refused and large"],
)
def test_a_frame_that_makes_no_sense_ends_the_line_and_what_follows_is_not_read(wrong, until):
    async def go():
        here, there = socket.socketpair()
        end = await connected(End(), here)
        there.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(there, frame() + wrong + frame(number=3))
        await until(lambda: end.ends)
        there.close()
        return [number for _, number, _, _ in end.frames], end.ends, end.line.is_open

    assert run(go()) == ([1], [GARBLED], False)


@pytest.mark.parametrize("cut", [1, HEADER.size, HEADER.size + 3, len(LARGE)])
def test_a_frame_that_is_cut_short_is_not_taken(cut, until):
    async def go():
        here, there = socket.socketpair()
        end = await connected(End(), here)
        there.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(there, frame(head=b"head", data=LARGE)[:cut])
        there.close()
        await until(lambda: end.ends)
        return end.frames, end.ends

    assert run(go()) == ([], [ENDED])


def test_one_that_closes_sends_first_what_is_to_be_sent_and_is_not_told(until):
    async def go():
        one, other = await pair()
        one.line.send(FrameKind.END, 1, b"last")
        one.line.close()
        one.line.send(FrameKind.END, 2, b"in vain")
        await until(lambda: other.ends)
        return other.frames, other.ends, one.ends

    assert run(go()) == ([(FrameKind.END, 1, b"last", b"")], [ENDED], [])


def test_nothing_more_is_read_while_the_other_end_does_not_read(until):
    async def go():
        here, there = socket.socketpair()
        end = await connected(End(waits_for_reader=True), here)
        there.setblocking(False)
        loop = asyncio.get_running_loop()
        for _ in range(8):
            end.line.send(FrameKind.ANSWER, 1, b"", [LARGE])
        await until(lambda: not end.line._transport.is_reading())
        await loop.sock_sendall(there, frame())
        while not end.frames:
            await loop.sock_recv(there, 1 << 20)
        there.close()
        return end.frames

    assert run(go()) == [(1, 1, b"", b"")]
