"""The HTTP/1.1 server: its options, and what answers on its port."""

import asyncio
import ssl
import time
from collections.abc import Callable

from inferd.api.cors import CorsRoutes
from inferd.api.header_forward import header_forward
from inferd.api.routes import HttpRoutes
from inferd.api.v2.calls import V2_ALONE, Apis
from inferd.compiled import override
from inferd.engine.engine import Engine
from inferd.http.access import OPEN, Access
from inferd.http.h1.connection import HttpConnection
from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.limits import HttpLimits
from inferd.http.request_log import RequestLog
from inferd.http.routes import Routes
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity
from inferd.transport.listener import Listener
from inferd.wire.v2.rest.codec import JsonRules


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


class HttpServer(Listener):
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
        super().__init__(
            reuse_port=options.reuse_port,
            # A handshake may take as long as a head, which it comes before.
            handshake_timeout_s=options.header_timeout_s,
            drain_window_s=options.drain_window_s,
            clock=clock,
        )
        self.context = options.ssl_context
        routes = routes or _with_cors(v2_routes(engine, options), options.cors_origins)
        turns = Turns(engine.regions.round_number)
        self.endpoint: HttpEndpoint = HttpEndpoint(
            options, routes, capacity or engine.capacity, turns, clock(), options.request_log
        )

    @override
    def connect(self) -> HttpConnection:
        # uvloop looks for the methods, asyncio for the class.
        is_asyncios = isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)
        return (AsyncioConnection if is_asyncios else HttpConnection)(self.endpoint)

    def close(self) -> None:
        """Stop listening and abort all connections."""
        self.close_sockets()
        self.stop_sweeping()
        self.endpoint.abort()


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
