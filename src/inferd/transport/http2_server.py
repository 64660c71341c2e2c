"""The HTTP/2 server that carries gRPC: listening sockets, connections, the sweep, the drain."""

import asyncio
import functools
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import cast

from inferd.engine.engine import Engine
from inferd.http.coder import Coder
from inferd.http.failure import FailureLog
from inferd.http.grpc.endpoint import GrpcEndpoint
from inferd.http.grpc.handler import Method
from inferd.http.http2_connection import Http2Connection
from inferd.http.turns import Turns
from inferd.transport.backlog import stop_listening, take
from inferd.transport.grpc_options import GrpcOptions, grpc_ssl_context, port_methods
from inferd.transport.http_server import HttpServer
from inferd.transport.tls import LiveTls
from inferd.transport.unix_socket import UnixSocket

SWEEP_S = 1.0
"""The longest interval between checks of timeouts, which is also their accuracy."""


# Short drains, as in tests, are watched more closely, but not all the time.
_LEAST_SWEEP_S = 0.02
# For a last GOAWAY to be sent to clients that read.
_LAST_WAIT_S = 0.5


class AsyncioHttp2Connection(Http2Connection, asyncio.BufferedProtocol):
    """A connection on asyncio's own event loop, which recognizes a BufferedProtocol by class."""


class Http2Server:
    """Answers gRPC calls on one port, and REST as well, as `http` does, if that is given.

    `more_methods`, by path, are offered besides our own. `clock` is used for timeouts.
    """

    def __init__(
        self,
        engine: Engine,
        options: GrpcOptions,
        more_methods: dict[str, Method] | None = None,
        *,
        http: HttpServer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self._stopping = asyncio.Event()
        methods = port_methods(engine, options, self._stopping, more_methods or {})
        self.endpoint = GrpcEndpoint(
            options,
            {path.encode(): method for path, method in methods.items()},
            # Whatever the compression level of answers, clients may send compressed messages.
            Coder(min(options.max_inflated_bytes, options.max_message_bytes), engine.offload),
            FailureLog(logging.getLogger("inferd.grpc")),
            http.endpoint if http else None,
            engine.capacity,
            Turns(engine.regions.round_number),
            clock,
            _sweep_interval(options),
        )
        self._tls: LiveTls | None = None
        self._servers: list[asyncio.Server] = []
        self._unix_socket: UnixSocket | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, address: str, port: int) -> int:
        """Listen on `address` and return the port, which the system chooses if `port` is 0.

        Raises OSError naming the address if it cannot be bound, InvalidConfig if the TLS files
        cannot be used.
        """
        context = self._read_context()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                cast("Callable[[], asyncio.BaseProtocol]", self.connect),
                address,
                port,
                ssl=context,
                # Connections that come at once while the loop is busy; the system cuts it to
                # somaxconn.
                backlog=1024,
                reuse_port=self.options.reuse_port,
                ssl_handshake_timeout=self.options.handshake_timeout_s if context else None,
            )
        except OSError as error:
            host = f"[{address}]" if ":" in address else address
            msg = f"cannot listen for gRPC on {host}:{port}: {error.strerror}"
            error.strerror = msg
            raise
        self._servers.append(server)
        self.keep_sweeping()
        return cast("int", server.sockets[0].getsockname()[1])

    async def start_unix(self, path: str) -> None:
        """Listen on a Unix socket as well, after `start`. Raises OSError, as UnixSocket does."""
        self._unix_socket = UnixSocket(path)
        context = self._tls.context if self._tls else None
        server = await asyncio.get_running_loop().create_unix_server(
            cast("Callable[[], asyncio.BaseProtocol]", self.connect),
            sock=self._unix_socket.socket,
            ssl=context,
            backlog=1024,
            ssl_handshake_timeout=self.options.handshake_timeout_s if context else None,
        )
        self._servers.append(server)

    def open(self) -> None:
        """Get ready for connections, without listening for any: they come by `take`.

        Raises InvalidConfig if the TLS files cannot be used.
        """
        self._read_context()
        self.keep_sweeping()

    async def take(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted elsewhere. Raises OSError."""
        context = self._tls.context if self._tls else None
        await take(connection, self.connect, context, self.options.handshake_timeout_s)

    def _read_context(self) -> ssl.SSLContext | None:
        if self.options.has_tls:
            self._tls = LiveTls(functools.partial(grpc_ssl_context, self.options))
        return self._tls.context if self._tls else None

    def connect(self) -> Http2Connection:
        """Return the protocol of a new connection."""
        # uvloop looks for the methods, asyncio for the class.
        is_asyncios = isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)
        kind = AsyncioHttp2Connection if is_asyncios else Http2Connection
        return kind(self.endpoint, self.options.request_log)

    def read_tls(self) -> None:
        """Reload the TLS files, for new connections.

        Raises InvalidConfig if they cannot be used; the previous ones then stay in use.
        """
        if self._tls is not None:
            self._tls.read()

    async def stop(self, grace_s: float) -> bool:
        """Stop taking calls, give those in flight `grace_s` seconds, then cancel them.

        Return whether none had to be.
        """
        self._stopping.set()
        is_done = await self._drain(grace_s) if grace_s > 0 else not self.endpoint.connections
        for server in self._servers:
            server.close()
        if self._unix_socket is not None:
            self._unix_socket.remove()
        # Also for connections that have just been accepted.
        self.endpoint.is_draining = True
        # GOAWAY and the end of what runs, then abort whoever does not read it.
        for end in (self.endpoint.cut, self.endpoint.abort):
            end()
            await self.endpoint.wait_until_empty(_LAST_WAIT_S)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        return is_done

    async def _drain(self, grace_s: float) -> bool:
        """Have the clients go elsewhere, and wait at most `grace_s` until they have gone."""
        window_s = self.options.drain_window_s
        self.sweep()  # the window begins now
        self.endpoint.drain()
        self.endpoint.sweep_s = min(self.endpoint.sweep_s, max(_LEAST_SWEEP_S, window_s / 10))
        self.keep_sweeping()
        servers, self._servers = self._servers, []
        context = self._tls.context if self._tls else None
        await stop_listening(servers, self.connect, context, window_s)
        return await self.endpoint.wait_until_empty(grace_s)

    def sweep(self) -> None:
        """Have every connection check its timeouts."""
        self.endpoint.sweep(self.endpoint.clock())

    def keep_sweeping(self) -> None:
        """Sweep now, and then at intervals."""
        self.sweep()
        if self._sweeper is not None:
            self._sweeper.cancel()
        loop = asyncio.get_running_loop()
        # One timer for all connections, instead of one for each that every request would move.
        self._sweeper = loop.call_later(self.endpoint.sweep_s, self.keep_sweeping)


def _sweep_interval(options: GrpcOptions) -> float:
    """Return the interval between sweeps, short enough for the shortest timeout that is set."""
    times_ms = (
        options.keepalive_time_ms,
        options.keepalive_timeout_ms,
        options.max_connection_age_ms,
        options.max_connection_age_grace_ms,
        options.max_connection_idle_ms,
    )
    shortest_s = min(time_ms for time_ms in times_ms if time_ms is not None) / 1000
    # Four looks in the shortest time that is set, so that it is kept within a quarter.
    return max(0.02, min(SWEEP_S, shortest_s / 4, options.write_timeout_s / 4))
