"""The HTTP/2 server that carries gRPC: its methods, its TLS files and its end."""

import asyncio
import functools
import logging
import time
from collections.abc import Callable

from inferd.compiled import override
from inferd.engine.engine import Engine
from inferd.http.coding import Coder
from inferd.http.failure import FailureLog
from inferd.http.grpc.endpoint import GrpcEndpoint
from inferd.http.grpc.handler import Method
from inferd.http.http2_connection import Http2Connection
from inferd.http.turns import Turns
from inferd.transport.grpc_options import GrpcOptions, grpc_ssl_context, port_methods
from inferd.transport.http_server import HttpServer
from inferd.transport.listener import SWEEP_S, Listener
from inferd.transport.tls import LiveTls

# For a last GOAWAY to be sent to clients that read.
_LAST_WAIT_S = 0.5


class AsyncioHttp2Connection(Http2Connection, asyncio.BufferedProtocol):
    """A connection on asyncio's own event loop, which recognizes a BufferedProtocol by class."""


class Http2Server(Listener):
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
        super().__init__(
            reuse_port=options.reuse_port,
            handshake_timeout_s=options.handshake_timeout_s,
            drain_window_s=options.drain_window_s,
            clock=clock,
            sweep_s=_sweep_interval(options),
        )
        self.options = options
        self._stopping = asyncio.Event()
        methods = port_methods(engine, options, self._stopping, more_methods or {})
        self.endpoint: GrpcEndpoint = GrpcEndpoint(
            options,
            {path.encode(): method for path, method in methods.items()},
            # Whatever the compression level of answers, clients may send compressed messages.
            Coder(min(options.max_inflated_bytes, options.max_message_bytes), engine.offload),
            FailureLog(logging.getLogger("inferd.grpc")),
            http.endpoint if http else None,
            engine.capacity,
            Turns(engine.regions.round_number),
            clock,
        )
        self._tls: LiveTls | None = None

    @override
    async def start(self, address: str, port: int) -> int:
        self._read_context()
        try:
            return await super().start(address, port)
        except OSError as error:
            host = f"[{address}]" if ":" in address else address
            msg = f"cannot listen for gRPC on {host}:{port}: {error.strerror}"
            error.strerror = msg
            raise

    @override
    def open(self) -> None:
        self._read_context()
        super().open()

    def _read_context(self) -> None:
        """Read the TLS files for the first time. Raises InvalidConfig if they cannot be used."""
        if self.options.has_tls:
            build = functools.partial(grpc_ssl_context, self.options)
            self._tls = LiveTls(
                build, self.options.root_cert if self.options.use_ssl_mutual else None
            )
            self.context = self._tls.context

    @override
    def connect(self) -> Http2Connection:
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
        is_done = await self.drain(grace_s) if grace_s > 0 else not self.endpoint.connections
        self.close_sockets()
        # GOAWAY and the end of what runs, then abort whoever does not read it.
        for end in (self.endpoint.cut, self.endpoint.abort):
            end()
            await self.endpoint.wait_until_empty(_LAST_WAIT_S)
        self.stop_sweeping()
        return is_done


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
