"""The HTTP/1.1 server: listening sockets, the set of connections, the sweep for timeouts."""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec

from inferd.api.apis import V2_ALONE, Apis
from inferd.api.cors import CorsRoutes
from inferd.api.header_forward import header_forward
from inferd.api.routes import HttpRoutes
from inferd.engine.engine import Engine
from inferd.http.access import OPEN, Access
from inferd.http.h1.connection import HttpConnection
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity
from inferd.transport.unix_socket import UnixSocket
from inferd.wire.v2.rest.codec import JsonRules

if TYPE_CHECKING:
    from inferd.http.router import Routes

SWEEP_S = 1.0
"""How often timeouts are checked, which is also their accuracy."""


class HttpOptions(msgspec.Struct, frozen=True):
    """The server's options; sizes in bytes, times in seconds. Defaults are ServerConfig's.

    Headers whose names match `header_forward_pattern` become parameters of the inference. With
    `reuse_port` other processes may listen on the same port.
    """

    max_header_bytes: int
    max_body_bytes: int
    max_input_bytes: int
    max_connections: int
    idle_timeout_s: float
    header_timeout_s: float
    body_timeout_s: float
    write_timeout_s: float
    half_floats_in_json: bool
    non_finite: str
    not_ready_status: int
    ssl_context: ssl.SSLContext | None
    header_forward_pattern: str | None = None
    access: Access = OPEN
    cors_origins: frozenset[str] = frozenset()
    apis: Apis = V2_ALONE
    reuse_port: bool = False


class AsyncioConnection(HttpConnection, asyncio.BufferedProtocol):
    """A connection on asyncio's own event loop, which recognizes a BufferedProtocol by class."""


class HttpServer:
    """The listening sockets and the connections of one HTTP server.

    `routes` answer the requests; they default to V2's, and `capacity` to the engine's. `clock` is
    used for timeouts. `connect` makes the protocol of a new connection. Raises InvalidConfig if
    `header_forward_pattern` is not a valid pattern.
    """

    def __init__(
        self,
        engine: Engine,
        options: HttpOptions,
        *,
        routes: "Routes | None" = None,
        capacity: Capacity | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.capacity = capacity or engine.capacity
        self.routes: Routes = routes or _with_cors(v2_routes(engine, options), options.cors_origins)
        self.connect: Callable[[], HttpConnection] = self._connect
        self.connections: set[HttpConnection] = set()
        self.turned_away_count = 0
        self.turns = Turns(engine.regions.round_number)
        self.is_draining = False
        self.now = clock()
        self._clock = clock
        self._handshake_timeout_s = options.header_timeout_s if options.ssl_context else None
        self._servers: list[asyncio.Server] = []
        self._unix_socket: UnixSocket | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()

    def _connect(self) -> HttpConnection:
        is_asyncios = isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)
        return AsyncioConnection(self) if is_asyncios else HttpConnection(self)

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
            backlog=1024,
            reuse_port=self.options.reuse_port or None,
            ssl_handshake_timeout=self._handshake_timeout_s,
        )
        self._started(server)
        return cast("int", server.sockets[0].getsockname()[1])

    async def start_unix(self, path: str) -> None:
        """Listen on a Unix socket as well. Raises OSError, as UnixSocket does."""
        loop = asyncio.get_running_loop()
        self._unix_socket = UnixSocket(path)
        server = await loop.create_unix_server(
            cast("Callable[[], asyncio.BaseProtocol]", self.connect),
            sock=self._unix_socket.socket,
            ssl=self.options.ssl_context,
            backlog=1024,
            ssl_handshake_timeout=self._handshake_timeout_s,
        )
        self._started(server)

    def _started(self, server: asyncio.Server) -> None:
        self._servers.append(server)
        if self._sweeper is None:
            self._keep_sweeping()

    def stop_accepting(self) -> None:
        """Close the listening sockets and idle connections; busy ones close after answering."""
        self.is_draining = True
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.close_if_idle()

    async def drain(self, timeout_s: float) -> bool:
        """Wait for all connections to close; return False if `timeout_s` passes first."""
        if not self.connections:
            return True
        self._all_gone.clear()
        try:
            await asyncio.wait_for(self._all_gone.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Stop listening and abort all connections."""
        self.stop_accepting()
        if self._unix_socket is not None:
            self._unix_socket.remove()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.abort()

    def forget(self, connection: HttpConnection) -> None:
        """Remove a closed connection from `connections`."""
        self.connections.discard(connection)
        if not self.connections:
            self._all_gone.set()

    def sweep(self) -> None:
        """Have every connection check its timeouts; let go of memory that is not used."""
        self.now = self._clock()
        for connection in list(self.connections):
            connection.check_time(self.now)
        self.capacity.batch_memory.sweep(self.now)

    def _keep_sweeping(self) -> None:
        self.sweep()
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(SWEEP_S, self._keep_sweeping)


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


def _with_cors(routes: HttpRoutes, origins: frozenset[str]) -> "Routes":
    return CorsRoutes(routes, origins) if origins else routes
