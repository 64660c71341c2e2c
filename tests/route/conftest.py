"""HAProxy, and what tests of the route have in common."""

import asyncio

import pytest

from inferd.route.haproxy import find_program


@pytest.fixture(scope="session")
def program():
    """HAProxy's program."""
    return find_program(None)


class Site:
    """An HTTP/1.1 server whose answers are `answers` by path: a status and a body.

    `requests` are the heads and bodies that it has received. If it has `release`, it tells by
    `arrived` of a request, and waits for that before it answers.
    """

    arrived = release = None

    def __init__(self, answers):
        self.answers = answers
        self.requests = []
        self.port = 0
        self._server = None

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
        body = await reader.readexactly(int(length or 0))
        self.requests.append((head, body))
        if self.release is not None:
            self.arrived.set()
            await self.release.wait()
        found = self.answers.get(head.split()[1], (404, b'{"error":"nothing there"}'))
        if isinstance(found, bytes):  # whatever a test wants to be sent
            writer.write(found)
        else:
            status, answer = found
            writer.write(b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (status, len(answer)))
            writer.write(answer)
        await writer.drain()
        writer.close()


@pytest.fixture
def site():
    """Make a Site."""
    return Site
