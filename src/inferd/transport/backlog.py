"""The backlog: connections that clients have opened and the server has not accepted yet.

The system resets them when a listening socket closes. Their requests, which may have been sent
already, would be lost.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import cast


async def stop_listening(
    servers: Iterable[asyncio.Server],
    connect: Callable[[], object],
    context: ssl.SSLContext | None,
    handshake_timeout_s: float,
) -> None:
    """Close the listening sockets of `servers`; connections in their backlogs become ours first.

    `connect` makes their protocols. With a TLS `context` they have `handshake_timeout_s` to speak
    it; those that do not are closed.
    """
    servers = list(servers)
    await _accept_no_more(servers)
    opened = [
        take(one, connect, context, handshake_timeout_s)
        for server in servers
        for one in _taken(server)
    ]
    # One connection that has broken already must not stop the others.
    await asyncio.gather(*opened, return_exceptions=True)


async def take(
    connection: socket.socket,
    connect: Callable[[], object],
    context: ssl.SSLContext | None,
    handshake_timeout_s: float | None,
) -> None:
    """Serve a `connection` that was accepted, by the protocol that `connect` makes.

    With a TLS `context` it has `handshake_timeout_s` to speak it. Raises OSError.
    """
    await asyncio.get_running_loop().connect_accepted_socket(
        cast("Callable[[], asyncio.BaseProtocol]", connect),
        connection,
        ssl=context,
        # asyncio refuses a time limit without a context.
        ssl_handshake_timeout=handshake_timeout_s if context else None,
    )


async def _accept_no_more(servers: Iterable[asyncio.Server]) -> None:
    """Let asyncio's own event loop finish what it accepts: of a closed server it would be lost.

    It gives each connection to its server in the first step of a task. Others do so at once.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        for server in servers:
            for one in server.sockets:
                loop.remove_reader(one.fileno())
        await asyncio.sleep(0)


def _taken(server: asyncio.Server) -> list[socket.socket]:
    """Close the listening sockets of `server`; return the connections from their backlogs.

    The sockets stay open under a second descriptor until nothing is left, so that the event loop
    accepts nothing meanwhile.
    """
    # A duplicate: closing the server's sockets would reset what is in their backlogs.
    seconds = [socket.fromfd(one.fileno(), one.family, one.type) for one in server.sockets]
    server.close()
    taken = []
    for second in seconds:
        with second, suppress(OSError):  # BlockingIOError: the backlog is empty
            # Non-blocking: accept() ends with BlockingIOError when nothing is left.
            second.setblocking(False)
            while True:
                taken.append(second.accept()[0])
    return taken
