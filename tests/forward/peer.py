"""The other end of a link, as a test plays it: it sends frames and notes those it gets."""

import asyncio
import socket
from contextlib import asynccontextmanager

from inferd.core.request import InferRequest
from inferd.forward.frame_line import FrameLine
from inferd.forward.line import FrameKind
from inferd.forward.message import decode_answer

PATIENCE_S = 60


class Peer:
    """`frames` are what it got: kind, number, head, data."""

    def __init__(self):
        self.frames = []
        self.ends = []
        self.line = FrameLine(lambda *frame: self.frames.append(frame), self.ends.append)

    def send(self, kind, number, head=b"", data=()):
        self.line.send(kind, number, head, data)

    def ended(self):
        """Return the outcome of each request that has ended: its answer or its error."""
        found = {}
        for kind, number, head, data in self.frames:
            if kind == FrameKind.END:
                response, error = decode_answer(InferRequest("m"), head, data)
                found[number] = error or response
        return found


_open = []


async def joined(end):
    """Return a peer that is connected to `end`, which has a line, until `run` is over."""
    peer = Peer()
    here, there = socket.socketpair()
    for line, sock in ((end.line, here), (peer.line, there)):
        await asyncio.get_running_loop().create_connection(lambda line=line: line, sock=sock)
        _open.append(line)
    return peer


def run(test):
    """Return what the coroutine `test` does, having closed the lines that it joined."""

    async def closing():
        try:
            return await asyncio.wait_for(test, PATIENCE_S)
        finally:
            for line in _open:
                line.close()
            _open.clear()
            await asyncio.sleep(0.001)

    return asyncio.run(closing())


@asynccontextmanager
async def listening(path):
    """A socket at which the next to connect meets the Peer that this yields, once it has."""
    peers = []

    def meet():
        peers.append(Peer())
        return peers[-1].line

    server = await asyncio.get_running_loop().create_unix_server(meet, path)
    try:
        yield peers
    finally:
        server.close()
        for peer in peers:
            peer.line.close()
