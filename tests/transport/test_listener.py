"""Connections that were opened but not accepted when a server stops."""

import asyncio
import socket
import ssl

import pytest
import uvloop

from inferd.http.endpoint import Endpoint
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity
from inferd.transport.listener import Listener

LIVE = b"GET /v2/health/live HTTP/1.1\r\n\r\n"
CLIENTS = 30


def opened(port):
    """Return a connection that nobody can have accepted: the loop does not run meanwhile."""
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(LIVE)
    client.setblocking(False)
    return client


async def received(client):
    data = b""
    while more := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
        data += more
    client.close()
    return data


async def test_who_waits_in_the_backlog_is_answered(serving):
    async with serving() as site:
        clients = [opened(site.port) for _ in range(CLIENTS)]
        await site.server.stop_accepting()
        for client in clients:
            data = await received(client)
            assert data.startswith(b"HTTP/1.1 200") and b"Connection: close" in data


async def test_who_waits_in_the_backlog_of_a_unix_socket_is_answered(serving, tmp_path):
    path = str(tmp_path / "socket")
    async with serving() as site:
        await site.server.start_unix(path)
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        client.sendall(LIVE)
        client.setblocking(False)
        await site.server.stop_accepting()
        assert (await received(client)).startswith(b"HTTP/1.1 200")


async def test_who_waits_in_the_backlog_may_speak_tls(serving, tls_context):
    async with serving(ssl_context=tls_context) as site:
        client = socket.create_connection(("127.0.0.1", site.port))
        client.setblocking(False)
        stopping = asyncio.create_task(site.server.stop_accepting())
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(
            sock=client, ssl=trusting, server_hostname="server"
        )
        writer.write(LIVE)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        await stopping


async def test_who_speaks_no_tls_in_the_backlog_is_closed_in_time(serving, tls_context):
    async with serving(ssl_context=tls_context, drain_window_s=0.05) as site:
        client = socket.create_connection(("127.0.0.1", site.port))
        client.setblocking(False)
        await site.server.stop_accepting()
        assert await received(client) == b""


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_asyncios_own_loop_takes_the_backlog_too(turns):
    """The loop may have taken turns since, and some connections as far as a task of its own."""

    class Echo(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data)
            self.transport.close()

    class EchoListener(Listener):
        def connect(self):
            return Echo()

    async def play():
        listener = EchoListener(reuse_port=False, handshake_timeout_s=1.0, drain_window_s=1.0)
        listener.endpoint = Endpoint(Capacity(), Turns(), 0.0)
        port = await listener.start("127.0.0.1", 0)
        clients = [opened(port) for _ in range(CLIENTS)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.stop_accepting()
        return [await received(client) for client in clients]

    assert asyncio.run(play()) == uvloop.run(play()) == [LIVE] * CLIENTS
