"""The HTTP/1.1 server: listening sockets, and the sweep for timeouts."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import cast

from inferd.api.apis import V2_ALONE, Apis
from inferd.api.cors import CorsRoutes
from inferd.api.header_forward import header_forward
from inferd.api.routes import HttpRoutes
from inferd.engine.engine import Engine
from inferd.http.access import OPEN, Access
from inferd.http.h1.connection import HttpConnection
from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.limits import HttpLimits
from inferd.http.request_log import RequestLog
from inferd.http.routes import Routes
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity
from inferd.transport.backlog import stop_listening, take
from inferd.transport.unix_socket import UnixSocket
from inferd.wire.v2.rest.codec import JsonRules

SWEEP_S = 1.0
"""How often timeouts are checked, which is also their accuracy."""

# As for HTTP/2.
_LEAST_SWEEP_S = 0.02


class HttpOptions(HttpLimits, frozen=True, kw_only=True):
    """The server's options; sizes in bytes, times in seconds. Defaults are ServerConfig's.

    Headers whose names match `header_forward_pattern` become parameters of the inference. With
    `reuse_port` other processes may listen on the same port. Each request leaves a line in
    `request_log`, if there is one.
    """

    max_input_bytes: int
    half_floats_in_json: bool
    non_finite: str
    not_ready_status: int
    ssl_context: ssl.SSLContext | None
    header_forward_pattern: str | None = None
    access: Access = OPEN
    cors_origins: frozenset[str] = frozenset()
    apis: Apis = V2_ALONE
    reuse_port: bool = False
    request_log: RequestLog | None = None


class AsyncioConnection(HttpConnection, asyncio.BufferedProtocol):
    """A connection on asyncio's own event loop, which recognizes a BufferedProtocol by class."""


class HttpServer:
    """The listening sockets and the connections of one HTTP server.

    `routes` answer the requests; they default to V2's, and `capacity` to the engine's. `clock` is
    used for timeouts. Raises InvalidConfig if `header_forward_pattern` is not a valid pattern.
    """

    def __init__(
        self,
        engine: Engine,
        options: HttpOptions,
        *,
        routes: Routes | None = None,
        capacity: Capacity | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        routes = routes or _with_cors(v2_routes(engine, options), options.cors_origins)
        turns = Turns(engine.regions.round_number)
        self.endpoint = HttpEndpoint(
            options, routes, capacity or engine.capacity, turns, clock(), options.request_log
        )
        self._clock = clock
        # A handshake may take as long as a head, which it comes before.
        self._handshake_timeout_s = options.header_timeout_s if options.ssl_context else None
        self._servers: list[asyncio.Server] = []
        self._unix_sockets: list[UnixSocket] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_s = SWEEP_S

    def connect(self) -> HttpConnection:
        """Return the protocol of a new connection."""
        # uvloop looks for the methods, asyncio for the class.
        is_asyncios = isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)
        return (AsyncioConnection if is_asyncios else HttpConnection)(self.endpoint)

    async def start(self, address: str, port: int) -> int:
        """Listen on TCP and return the port, which the OS chooses if `port` is 0.

        Raises OSError if the address is in use or not one of this machine's.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            cast("Callable[[], asyncio.BaseProtocol]", self.connect),
            address,
            port,
            ssl=self.options.ssl_context,
            # As for HTTP/2.
            backlog=1024,
            reuse_port=self.options.reuse_port,
            ssl_handshake_timeout=self._handshake_timeout_s,
        )
        self._started(server)
        return cast("int", server.sockets[0].getsockname()[1])

    async def start_unix(self, path: str) -> None:
        """Listen on a Unix socket as well. Raises OSError, as UnixSocket does."""
        loop = asyncio.get_running_loop()
        self._unix_sockets.append(bound := UnixSocket(path))
        server = await loop.create_unix_server(
            cast("Callable[[], asyncio.BaseProtocol]", self.connect),
            sock=bound.socket,
            ssl=self.options.ssl_context,
            backlog=1024,
            ssl_handshake_timeout=self._handshake_timeout_s,
        )
        self._started(server)

    def _started(self, server: asyncio.Server) -> None:
        self._servers.append(server)
        self.open()

    def open(self) -> None:
        """Get ready for connections, without listening for any: they come by `take`."""
        if self._sweeper is None:
            self._keep_sweeping()

    async def take(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted elsewhere. Raises OSError."""
        context, timeout_s = self.options.ssl_context, self._handshake_timeout_s
        await take(connection, self.connect, context, timeout_s)

    async def stop_accepting(self) -> None:
        """Close the listening sockets; connections end with their next answer.

        Those without a request are closed after `drain_window_s`.
        """
        self.sweep()  # the window begins now
        self.endpoint.drain()
        window_s = self.options.drain_window_s
        # So that the window ends on time, within a tenth.
        self._sweep_s = min(self._sweep_s, max(_LEAST_SWEEP_S, window_s / 10))
        self._keep_sweeping()
        servers, self._servers = self._servers, []
        await stop_listening(servers, self.connect, self.options.ssl_context, window_s)

    async def drain(self, timeout_s: float) -> bool:
        """Stop accepting, and wait at most `timeout_s` until all connections have closed.

        Return whether they have.
        """
        await self.stop_accepting()
        return await self.endpoint.wait_until_empty(timeout_s)

    def close(self) -> None:
        """Stop listening and abort all connections."""
        for server in self._servers:
            server.close()
        self.endpoint.is_draining = True
        for one in self._unix_sockets:
            one.remove()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.endpoint.abort()

    def sweep(self) -> None:
        """Have every connection check its timeouts."""
        self.endpoint.sweep(self._clock())

    def _keep_sweeping(self) -> None:
        self.sweep()
        if self._sweeper is not None:
            self._sweeper.cancel()
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(self._sweep_s, self._keep_sweeping)


def v2_routes(engine: Engine, options: HttpOptions) -> HttpRoutes:
    """Return the routes of the APIs that are offered."""
    return HttpRoutes(
        engine,
        JsonRules(options.half_floats_in_json, options.non_finite, options.max_input_bytes),
        not_ready_status=options.not_ready_status,
        forward=header_forward(
            options.header_forward_pattern,
            "--http-header-forward-pattern",
            options.access.secret_names,
        ),
        access=options.access,
        apis=options.apis,
    )


def _with_cors(routes: HttpRoutes, origins: frozenset[str]) -> Routes:
    # Without origins there is nothing in front of the routes (docs/decisions/0013-access.md).
    return CorsRoutes(routes, origins) if origins else routes
