"""Large tensors on a Link: they arrive, in order, and leave the event loop its turns."""

import asyncio
import os
import socket

import numpy as np
import pytest

from inferd.backends.worker.link import PIECE_BYTES, Link
from inferd_worker import packet
from inferd_worker.arena import Arena, Received
from inferd_worker.packet import Payload

SIZE = 4 * PIECE_BYTES


class Ends:
    """Two links that talk to each other; `came` is what the second got: kind, bytes, numbers."""

    def __init__(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sockets = ours, theirs
        self._fds = [os.memfd_create(f"inferd-test-{os.getpid()}") for _ in "12"]
        for fd in self._fds:
            os.ftruncate(fd, SIZE)
        there, back = self._fds
        self.came = []
        self.lost = []
        self._changed = asyncio.Event()
        self.sender = self._end(ours, there, back, lambda *_: None)
        self.reader = self._end(theirs, back, there, self._note)

    def _end(self, sock, outgoing, incoming, receive):
        received = Received(incoming, SIZE, 0, writable=False)
        return Link(sock, Arena(outgoing, SIZE, 0), received, receive, self.lost.append)

    def _note(self, kind, _document, data, numbers):
        self.came.append((kind, bytes(data), numbers))
        self._changed.set()

    async def got(self, count):
        """Wait for so many packets."""
        while len(self.came) < count:
            self._changed.clear()
            await self._changed.wait()

    def close(self):
        for link in (self.sender, self.reader):
            link.close()
        for sock in self._sockets:
            sock.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def ends():
    made = Ends()
    yield made
    made.close()


def payload_of(*arrays):
    payload = Payload()
    for array in arrays:
        payload.add(memoryview(array).cast("B"))
    return payload


def test_a_packet_arrives_with_its_numbers(ends):
    ends.sender.send(packet.EXECUTE, [["x"]], payload_of(b"1234"), (7, 8, 9))
    assert ends.reader.wait(10)
    [(kind, data, numbers)] = ends.came
    assert (kind, data[:4], numbers) == (packet.EXECUTE, b"1234", (7, 8, 9))


def test_large_tensors_are_copied_while_others_have_their_turn(ends):
    large = np.arange(3 * PIECE_BYTES // 8 + 5)
    turns = []

    async def test():
        loop = asyncio.get_running_loop()
        ends.sender.attach(loop)

        async def others():
            while True:
                turns.append(len(ends.came))
                await asyncio.sleep(0)

        other = loop.create_task(others())
        await asyncio.sleep(0)
        ends.sender.send(packet.EXECUTE, [], payload_of(large[:9], large), (1, 0, 0))
        ends.sender.send(packet.CANCEL, [[1]])
        ends.sender.send(packet.EXECUTE, [], payload_of(b"small"), (2, 0, 0), holds=True)
        ends.reader.attach(loop)
        await asyncio.wait_for(ends.got(3), 30)
        other.cancel()

    asyncio.run(test())
    first, second, third = ends.came
    start = 2 * packet.ALIGN
    assert first[0] == packet.EXECUTE
    assert first[1][start : start + large.nbytes] == large.tobytes()
    assert second[0] == packet.CANCEL
    assert third[2] == (2, 0, 0)
    assert turns.count(0) >= 3


def test_a_link_that_closes_while_tensors_are_copied_sends_nothing_more(ends):
    large = np.zeros(2 * PIECE_BYTES, np.uint8)

    async def test():
        ends.sender.attach(asyncio.get_running_loop())
        ends.sender.send(packet.EXECUTE, [], payload_of(large))
        ends.sender.close()
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(test())
    assert not ends.reader.wait(0)
    assert ends.came == []
