"""The worker's end of a line, played by a test: what it says is as wrong as the test wants."""

import json
import os
import select
import socket
import threading

from inferd_worker import packet
from inferd_worker.arena import Arena, Received
from inferd_worker.line import Line

SIZE = 1 << 20
MOST = 4 * SIZE
PATIENCE_S = 60


def packed(
    kind,
    document,
    data=b"",
    *,
    offset=packet.INLINE,
    sizes=(None, None),
    numbers=packet.NO_NUMBERS,
):
    """Return the bytes of a packet; with an `offset` its payload is said to lie elsewhere.

    `sizes` are what it says of the sizes of document and payload.
    """
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    payload = text
    if data:
        payload += bytes(-len(text) % packet.ALIGN) + data
    header = packet.HEADER.pack(
        kind,
        len(text) if sizes[0] is None else sizes[0],
        offset,
        len(payload) if sizes[1] is None else sizes[1],
        *numbers,
    )
    return header + (payload if offset == packet.INLINE else b"")


def result(batch, answers, data=b"", *, began_ns=1, ended_ns=2):
    """Return the packet that says that an execution is over; answers have their own numbers."""
    if isinstance(answers, list):
        answers = [[batch - number, *answer] for number, *answer in answers]
    numbers = (batch, began_ns, ended_ns)
    return packed(packet.RESULT, [[], answers], data, numbers=numbers)


def taken_count(arena):
    """Return how many blocks of `arena` are allocated or lent."""
    arena.give(-1)  # notes the ends of loans
    return len(arena._taken) + len(arena._regions)


class Peer:
    """Both ends of a line: `socket`, `arena` and `received` are the server's."""

    def __init__(self):
        self.socket, self.other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._fds = [os.memfd_create(f"inferd-test-{os.getpid()}") for _ in range(2)]
        for fd in self._fds:
            os.ftruncate(fd, SIZE)
        self.arena = Arena(self._fds[0], SIZE, MOST)
        self.received = Received(self._fds[1], SIZE, MOST, writable=False)
        self.said = []  # by the server: kind, document without its first element, data
        self.workers_arena = Arena(self._fds[1], SIZE, MOST)
        self.line = Line(
            self.other,
            self.workers_arena,
            Received(self._fds[0], SIZE, MOST, writable=True),
            lambda kind, document, data, *_: self.said.append((kind, document[1:], data)),
        )

    def say(self, whole):
        """Send bytes as they are."""
        self.other.send(whole)

    def hear(self):
        """Return the next that the server says."""
        self.line.wait(lambda: self.said, PATIENCE_S)
        return self.said.pop(0)

    def is_told(self):
        """Tell whether there is something to hear."""
        poll = select.poll()
        poll.register(self.other, select.POLLIN)
        return bool(poll.poll(0))

    def close(self):
        self.socket.close()
        self.other.close()
        for fd in self._fds:
            os.close(fd)


class PeerProcess:
    """A Process that does what the test says; `reason` is why it was killed."""

    def __init__(self, peer):
        self._peer = peer
        self.socket, self.arena, self.received = peer.socket, peer.arena, peer.received
        self.reason = ""
        self.has_ended = threading.Event()
        self.ended = lambda _: None
        self.is_started = self.is_closed = False

    def start(self):
        self.is_started = True

    def kill(self, reason):
        self.end(reason)

    def end(self, reason="ended with code 0"):
        if not self.has_ended.is_set():
            self.reason = reason
            self.has_ended.set()
            self.ended(self.reason)

    def close(self):
        self.is_closed = True
