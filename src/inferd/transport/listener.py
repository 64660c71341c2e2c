"""Listener: the listening sockets of one port, from the first connection to those left behind.

The backlog are the connections that clients have opened and the server has not accepted yet. The
system resets them when a listening socket closes. Their requests, which may have been sent already,
would be lost.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import cast

from inferd.http.endpoint import Endpoint
from inferd.transport.unix_socket import UnixSocket

SWEEP_S = 1.0
"""The longest interval between checks of timeouts, which is also their accuracy."""

# Short drains, as in tests, are watched more closely, but not all the time.
_LEAST_SWEEP_S = 0.02
# Connections that come at once while the loop is busy; the system cuts it to somaxconn.
_BACKLOG = 1024


class Listener:
    """Listens for the connections of `endpoint`, and has them check their timeouts by `clock`.

    With a TLS `context` a connection has `handshake_timeout_s` to speak it. With `reuse_port` other
    processes may listen on the same port. When it stops, clients have `drain_window_s`.
    """

    context: ssl.SSLContext | None = None
    endpoint: Endpoint

    def __init__(
        self,
        *,
        reuse_port: bool,
        handshake_timeout_s: float,
        drain_window_s: float,
        clock: Callable[[], float] = time.monotonic,
        sweep_s: float = SWEEP_S,
    ) -> None:
        self.sweep_s = sweep_s
        self._clock = clock
        self._reuse_port = reuse_port
        self._handshake_timeout_s = handshake_timeout_s
        self._drain_window_s = drain_window_s
        self._servers: list[asyncio.Server] = []
        self._unix_sockets: list[UnixSocket] = []
        self._sweeper: asyncio.TimerHandle | None = None

    def connect(self) -> object:
        """Return the protocol of a new connection."""
        raise NotImplementedError

    async def start(self, address: str, port: int) -> int:
        """Listen on TCP and return the port, which the system chooses if `port` is 0.

        Raises OSError if the address is in use or not one of this machine's.
        """
        server = await asyncio.get_running_loop().create_server(
            cast("Callable[[], asyncio.BaseProtocol]", self.connect),
            address,
            port,
            ssl=self.context,
            backlog=_BACKLOG,
            reuse_port=self._reuse_port,
            ssl_handshake_timeout=self._handshake_timeout_s if self.context else None,
        )
        self._started(server)
        return cast("int", server.sockets[0].getsockname()[1])

    async def start_unix(self, path: str) -> None:
        """Listen on a Unix socket as well. Raises OSError, as UnixSocket does."""
        self._unix_sockets.append(bound := UnixSocket(path))
        server = await asyncio.get_running_loop().create_unix_server(
            cast("Callable[[], asyncio.BaseProtocol]", self.connect),
            sock=bound.socket,
            ssl=self.context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=self._handshake_timeout_s if self.context else None,
        )
        self._started(server)

    def _started(self, server: asyncio.Server) -> None:
        self._servers.append(server)
        self.keep_sweeping()

    def open(self) -> None:
        """Get ready for connections, without listening for any: they come by `take`."""
        self.keep_sweeping()

    async def take(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted elsewhere. Raises OSError."""
        await self._take(connection, self._handshake_timeout_s)

    async def _take(self, connection: socket.socket, handshake_timeout_s: float) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            cast("Callable[[], asyncio.BaseProtocol]", self.connect),
            connection,
            ssl=self.context,
            # asyncio refuses a time limit without a context.
            ssl_handshake_timeout=handshake_timeout_s if self.context else None,
        )

    async def stop_accepting(self) -> None:
        """Close the listening sockets; connections in their backlogs become ours first.

        All end as soon as their clients can know, those without a request after the window for it.
        Those from a backlog have that window to speak TLS, with a `context`, or are closed.
        """
        self.sweep()  # the window begins now
        self.endpoint.drain()
        window_s = self._drain_window_s
        # So that the window ends on time, within a tenth.
        self.sweep_s = min(self.sweep_s, max(_LEAST_SWEEP_S, window_s / 10))
        self.keep_sweeping()
        servers, self._servers = self._servers, []
        await _accept_no_more(servers)
        taken = [one for server in servers for one in _taken(server)]
        # One connection that has broken already must not stop the others.
        opened = [self._take(one, window_s) for one in taken]
        await asyncio.gather(*opened, return_exceptions=True)

    async def drain(self, timeout_s: float) -> bool:
        """Stop accepting, and wait at most `timeout_s` until all connections have closed.

        Return whether they have.
        """
        await self.stop_accepting()
        return await self.endpoint.wait_until_empty(timeout_s)

    def close_sockets(self) -> None:
        """Listen no more; connections that have just been accepted are drained."""
        for server in self._servers:
            server.close()
        for one in self._unix_sockets:
            one.remove()
        self.endpoint.is_draining = True

    def sweep(self) -> None:
        """Have every connection check its timeouts."""
        self.endpoint.sweep(self._clock())

    def keep_sweeping(self) -> None:
        """Sweep now, and then at intervals."""
        self.sweep()
        self.stop_sweeping()
        loop = asyncio.get_running_loop()
        # One timer for all connections, instead of one for each that every request would move.
        self._sweeper = loop.call_later(self.sweep_s, self.keep_sweeping)

    def stop_sweeping(self) -> None:
        """Sweep no more."""
        if self._sweeper is not None:
            self._sweeper.cancel()


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
