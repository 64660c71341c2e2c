"""The servers of inferd route itself: one for HAProxy, with REST and gRPC, and one for metrics."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import cast

from msgspec.structs import replace

from inferd.aio.offload import Offload
from inferd.config.server import ServerConfig
from inferd.http.coding import Coder
from inferd.http.failure import FailureLog
from inferd.http.grpc.endpoint import GrpcEndpoint
from inferd.http.grpc.handler import Method
from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.routes import Routes
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity
from inferd.server.options import grpc_options, metrics_options
from inferd.transport.http2_server import AsyncioHttp2Connection
from inferd.transport.http_server import AsyncioConnection
from inferd.transport.one_port import hand_over
from inferd.transport.unix_socket import UnixSocket

SWEEP_S = 1.0

_MOST_BYTES = 1 << 31
"""The longest body or message: a load may carry whole model files."""


class OwnServer:
    """Answers by `routes`, and calls over gRPC by `methods`; `max_bytes` are those of a body."""

    def __init__(
        self, routes: Routes, methods: dict[str, Method], max_bytes: int = _MOST_BYTES - 1
    ) -> None:
        config = ServerConfig()
        # Of its own: HAProxy's questions must not compete with anybody's requests.
        capacity, turns = Capacity(), Turns()
        http_limits = replace(metrics_options(config), max_body_bytes=max_bytes)
        self._http = HttpEndpoint(http_limits, routes, capacity, turns, time.monotonic())
        # A server's own defaults, for what only HAProxy and we use.
        self._grpc = GrpcEndpoint(
            replace(grpc_options(config), max_message_bytes=max_bytes),
            {path.encode(): method for path, method in methods.items()},
            Coder(max_bytes, Offload()),
            FailureLog(logging.getLogger("inferd")),
            None,
            capacity,
            turns,
            time.monotonic,
        )
        # One socket for both protocols, as HAProxy has one address for it.
        hand_over(self._http, lambda: AsyncioHttp2Connection(self._grpc))
        self._servers: list[asyncio.Server] = []
        self._unix: list[UnixSocket] = []
        self._sweeper: asyncio.TimerHandle | None = None

    async def open_unix(self, path: str) -> None:
        """Listen at a Unix socket. Raises OSError."""
        self._unix.append(bound := UnixSocket(path))
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(self._protocol(), sock=bound.socket))
        self._keep_sweeping()

    async def open(self, address: str, port: int) -> int:
        """Listen at an address, and return the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._protocol(), address, port)
        self._servers.append(server)
        self._keep_sweeping()
        return cast("int", server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more, and end all connections."""
        for server in self._servers:
            server.close()
        for one in self._unix:
            one.remove()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._http.abort()
        self._grpc.abort()

    def _protocol(self) -> Callable[[], asyncio.BaseProtocol]:
        return lambda: cast("asyncio.BaseProtocol", AsyncioConnection(self._http))

    def _keep_sweeping(self) -> None:
        self._http.sweep(time.monotonic())
        self._grpc.sweep(time.monotonic())
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._keep_sweeping)
