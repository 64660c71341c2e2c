"""Server: an engine with its ports; built, opened, loaded, drained, closed."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from inferd.config.options.metrics import read_metrics_config
from inferd.config.ports import (
    Listening,
    are_metrics_on_http,
    cannot_listen,
    cannot_listen_at,
    is_one_port,
    listening,
    open_ports,
    why_not,
)
from inferd.config.server import ServerConfig
from inferd.core.interfaces import GivenModel
from inferd.core.processes import ALONE, Processes
from inferd.engine.engine import Engine
from inferd.errors import InvalidConfig
from inferd.memory.capacity import Capacity
from inferd.observe.devices import Cpu, Devices, Gpus
from inferd.observe.log import Log
from inferd.server.address import is_loopback
from inferd.server.dashboard import dashboard, read_certificate
from inferd.server.log import server_log
from inferd.server.options import (
    access_log_file,
    grpc_options,
    http_options,
    load_options,
    metrics_options,
    payload_log,
    tracer,
)
from inferd.server.places import dashboard_url, has_dashboard, places, say_link, ui_tokens
from inferd.server.ports.cloud import cloud_ports, health_port
from inferd.server.tls import ssl_context, tls_files
from inferd.server.watch import FileWatcher
from inferd.transport.tls import LiveTls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable

    from inferd.api.access import KeyRing
    from inferd.api.metrics import MetricsRoutes
    from inferd.api.v2.calls import Apis
    from inferd.http.request_log import RequestLog
    from inferd.http.router import Route
    from inferd.server.crashes import Crashes
    from inferd.transport.grpc_server import GrpcServer
    from inferd.transport.http2_server import Http2Server
    from inferd.transport.http_server import HttpServer
    from inferd.ui.dashboard import Dashboard
    from inferd.ui.figures.board import FigureBoard
    from inferd.ui.tokens import Tokens

_NAME = "inferd"
_LAST_WAIT_S = 0.5  # for requests that are cut to notice that
_LAST_TRACES_S = 2.0  # for traces that are still to be written
_LAST_LINES_S = 1.0  # the same for lines about requests
_LAST_PAYLOADS_S = 2.0  # and for payloads


class Membership(NamedTuple):
    """That a server is one of several `processes`, which bind no ports.

    `ports` are the numbers of those bound for all of them, by protocol; `Server.take` gets the
    connections. `folder` is private to the processes. A server that is alone has neither.
    """

    processes: Processes = ALONE
    ports: Mapping[str, int] | None = None
    folder: Path | None = None


class Server:
    """One server; a process may have several.

    Use it as `async with Server(config) as server`, or call start and stop. It logs to the logger
    "inferd", and handles no signals: that is what `inferd.server.process` is for.
    `default_address` is bound by the ports whose address the configuration leaves open. `log` is
    the log that the process has opened, if that is the server's own. `models` are served beside
    those of the configuration's repositories. `crashes` has the record of what runs, if the process
    keeps one.
    `membership`: it is one of several processes.
    `http_port`, `grpc_port` and `metrics_port` are the ports bound, 0 while there is none;
    `cloud_ports` has those of cloud platforms, by protocol name, and of "Health" checks.
    """

    def __init__(
        self,
        config: ServerConfig,
        default_address: str = "127.0.0.1",
        log: Log | None = None,
        models: Sequence[GivenModel] = (),
        crashes: "Crashes | None" = None,
        membership: Membership | None = None,
    ) -> None:
        self.config = config
        self._models = models
        self._crashes = crashes
        self._processes, self._adopted, self._folder = membership or Membership()
        self._default_address = default_address
        processes = self._processes
        self.engine = Engine(
            name=config.id or _NAME,
            strict_readiness=config.strict_readiness,
            load_options=load_options(config, crashes, processes.count, self._folder),
            log=log or server_log(config),
            tracer=tracer(config, processes),
            allow_client_shm=_allows_client_shm(config, default_address),
            processes=processes,
        )
        self.engine.capacity.max_requests = config.max_inflight_requests
        self.engine.capacity.max_bytes = config.max_inflight_bytes
        self.http_port = self.grpc_port = self.metrics_port = 0
        self._is_one_port = is_one_port(config)
        self._ports = {one.protocol: one for one in listening(config, default_address)}
        self.cloud_ports: dict[str, int] = {}
        self._http: HttpServer | None = None
        self._cloud: list[HttpServer] = []
        self._grpc: GrpcServer | Http2Server | None = None
        self._metrics: HttpServer | None = None
        self._ring: KeyRing | None = None
        self._lines = access_log_file(config)
        self._request_log: RequestLog | None = None
        self.engine.notes_requests = self._lines is not None
        self._payloads = payload_log(config, processes)
        if self._payloads is not None:
            self.engine.payloads = self._payloads
            self.engine.whole.sources.append(self._payloads.families)
        self._apis: Apis | None = None
        self._tokens: Tokens | None = None
        self._dashboard: Dashboard | None = None
        self._board: FigureBoard | None = None
        self._watcher = FileWatcher()
        self._takers: dict[str, HttpServer | Http2Server] = {}

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Drain for as long as --exit-timeout-secs allows, and stop."""
        await self.drain(self.config.exit_timeout_secs)
        await self.stop()

    async def start(self) -> None:
        """Open the ports and load the models. Raises as `open` and `load` do."""
        await self.open()
        try:
            await self.load()
        except BaseException:
            # BaseException: a cancelled start must not leave ports open.
            await self.stop()
            raise

    async def open(self) -> None:
        """Open the ports: from now on the server is live, but not ready.

        Raises InvalidConfig when a port, socket, certificate or file of API keys cannot be used.
        """
        self._read_keys()
        self._open_logs()
        self._open_dashboard()
        shared: tuple[Route, ...] = ()
        if are_metrics_on_http(self.config):
            shared = _metrics_routes(self.engine, self.config, self._crashes).lines
        # After the dashboard, which is one of them.
        self._apis = _mounted(self.engine, self.config, self._dashboard, shared)
        self.engine.tracer.open()
        try:
            if self.config.allow_http:
                await self._open_http()
            if self.config.allow_grpc and not self._is_one_port:
                await self._open_grpc()
            await self._open_cloud()
            if self.config.allow_metrics and not are_metrics_on_http(self.config):
                await self._open_metrics()
        except BaseException:
            await self.stop()
            raise
        # Last: files are watched for ports that are open.
        self._watcher.start()

    async def load(self) -> None:
        """Load the models; the index shows those that fail. Raises InvalidConfig."""
        await self.engine.load_all(self.config.model_repository, self._models)

    async def drain(self, timeout_s: float, delay_s: float = 0.0) -> bool:
        """Stop being ready, accept connections for `delay_s` more, and finish what is in flight.

        Clients that keep connections are told to go elsewhere: see `Connection.drain`. Returns
        whether everything finished within `timeout_s`, which includes the delay.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        # Readiness first: load balancers look at it during the delay.
        self.engine.drain()
        await asyncio.sleep(min(delay_s, timeout_s))
        over_http = [self._http] if self._http else []
        over_http += self._cloud
        left_s = max(0.0, deadline - loop.time())
        ends: list[Awaitable[bool]] = [http.drain(left_s) for http in over_http]
        if self._grpc:
            ends.append(self._grpc.stop(left_s))
        if self._dashboard:
            ends.append(self._dashboard.drain())
        # At once: all share the same time.
        return all(await asyncio.gather(*ends))

    async def stop(self) -> None:
        """Close connections, ports and models, finished or not."""
        self._watcher.stop()
        if self._dashboard:
            self._dashboard.close()
        if self._board:
            self._board.stop()
        if self._http:
            self._http.close()
            self._http = None
        while self._cloud:
            self._cloud.pop().close()
        self.cloud_ports = {}
        if self._grpc:
            await self._grpc.stop(0.0)
            self._grpc = None
        if self._metrics:
            self._metrics.close()
            self._metrics = None
        self.http_port = self.grpc_port = self.metrics_port = 0
        # After the ports: nothing new reaches a model that is closed.
        await self.engine.close(_LAST_WAIT_S)
        loop = asyncio.get_running_loop()
        if self._lines is not None:
            # The file's thread may wait for a disk.
            await loop.run_in_executor(None, self._lines.close, _LAST_LINES_S)
        if self._payloads is not None:
            await loop.run_in_executor(None, self._payloads.close, _LAST_PAYLOADS_S)
        # After the engine: the last requests are still traced.
        await self.engine.tracer.close(min(_LAST_TRACES_S, self.config.exit_timeout_secs / 4))

    def reopen_logs(self) -> None:
        """Open the server's log and the access log again by name, as they may have been renamed."""
        self.engine.log.reopen()
        if self._lines is not None:
            self._lines.reopen()
        if self._payloads is not None:
            self._payloads.reopen()

    async def take(self, protocol: str, connection: socket.socket) -> None:
        """Serve a connection that was accepted elsewhere, on the port of `protocol`.

        Raises OSError if the client has gone, KeyError if there is no such port.
        """
        await self._takers[protocol].take(connection)

    @property
    def connection_count(self) -> int:
        """How many connections that were accepted elsewhere there are."""
        # A server may take the connections of two ports.
        return sum(len(one.endpoint.connections) for one in set(self._takers.values()))

    @property
    def open_connection_count(self) -> int:
        """How many connections there are on all ports; those of grpcio's server are not known."""
        servers = [self._http, self._grpc, self._metrics, *self._cloud]
        endpoints = [
            # grpcio's has no endpoint.
            one.endpoint
            for one in servers
            if one is not None and hasattr(one, "endpoint")
        ]
        return sum([len(endpoint.connections) for endpoint in endpoints])

    async def part_of_board(self, text: str) -> bytes:
        """Return what the dashboard of another process wants to know; see FigureBoard.reply."""
        return await self._board.reply(text) if self._board is not None else b""

    def places(self) -> list[tuple[str, str]]:
        """Return (protocol, where to reach it) for every open port and socket."""
        config = self.config
        ports = {
            "HTTP": self.http_port,
            "gRPC": self.grpc_port,
            **self.cloud_ports,
            "Metrics": self.metrics_port,
        }
        return places(config, self._default_address, ports)

    def say_link(self) -> None:
        """Print the link with which the dashboard may change things, if it may."""
        say_link(dashboard_url(self.config, self.places()), self._tokens)

    def _open_dashboard(self) -> None:
        """Make the dashboard, if there is to be one. Raises InvalidConfig."""
        if has_dashboard(self.config):
            self._tokens = ui_tokens(self.config, self._folder)
            self._dashboard, self._board = dashboard(
                self.config,
                self.engine,
                self._processes,
                lambda: self.open_connection_count,
                self._tokens,
                self.say_link,
            )
            self._board.start()

    def _read_keys(self) -> None:
        if path := self.config.api_key_file:
            from inferd.api.access import KeyRing
            from inferd.server.access import fill_ring

            self._ring = KeyRing({})
            read = functools.partial(fill_ring, self._ring, path)
            self._watcher.read("the API keys", read, path)

    def _open_logs(self) -> None:
        """Open the logs of requests and of payloads, if there are to be. Raises InvalidConfig."""
        config = self.config
        if self._lines is not None:
            from inferd.api.access_log import AccessLog

            with _opening_log("--access-log", config.access_log):
                self._lines.open()
            self._request_log = AccessLog(self._lines, config.access_log_format, self._ring)
        if self._payloads is not None:
            with _opening_log("--payload-log", config.payload_log):
                self._payloads.open()

    async def _open_http(self) -> None:
        from inferd.transport.http_server import HttpServer

        tls = self._http_tls()
        options = http_options(self.config, self._ring, tls, self._apis, self._request_log)
        self._http = HttpServer(self.engine, options)
        if self._is_one_port:
            from inferd.transport.http2_server import Http2Server
            from inferd.transport.one_port import share_port

            own = grpc_options(self.config, self._ring, self._apis, self._request_log)
            self._grpc = Http2Server(self.engine, own, http=self._http)
            share_port(self._http, self._grpc)
        self.http_port = await self._listen("HTTP", self._http)
        await self._listen_at("Unix", "http", self._http)
        if self._is_one_port:
            self.grpc_port = self.http_port
            await self._listen_at("gRPC Unix", "grpc", self._http)
        if are_metrics_on_http(self.config):
            self.metrics_port = self.http_port

    async def _listen(self, protocol: str, server: "HttpServer | Http2Server") -> int:
        """Have `server` listen at a port, or get the connections of an adopted one.

        Returns its number. Raises InvalidConfig, which names its options.
        """
        if self._adopted is None:
            port = self._ports[protocol]
            with _opening(port):
                return await server.start(port.address, port.number)
        server.open()
        self._takers[protocol] = server
        return self._adopted[protocol]

    async def _listen_at(self, name: str, word: str, server: "HttpServer | Http2Server") -> None:
        """Do the same for the Unix socket of the options of `word`, if there is to be one."""
        if self._adopted is not None:
            self._takers[name] = server
        elif path := getattr(self.config, f"{word}_unix_socket"):
            try:
                await server.start_unix(path)
            except OSError as error:
                is_shared = getattr(self.config, f"reuse_{word}_port")
                shared = f"--reuse-{word}-port" if is_shared else ""
                raise cannot_listen_at(word, path, why_not(error), shared) from error

    def _http_tls(self) -> "ssl.SSLContext | None":
        if not (files := tls_files(self.config, "http")):
            return None
        # The context stays, and its files are exchanged behind it: see LiveTls.
        build = functools.partial(ssl_context, self.config, with_http2=self._is_one_port)
        mutual = self.config.http_use_ssl_mutual
        tls = LiveTls(build, self.config.http_root_cert if mutual else None)
        self._watcher.read("the TLS files of HTTP", tls.read, *files)
        if self._dashboard is not None and (path := self.config.http_server_cert):
            # A renewed certificate may have other names.
            read = functools.partial(read_certificate, self._dashboard, path)
            self._watcher.read("the names of the dashboard", read, path)
        return tls.context

    async def _open_grpc(self) -> None:
        from inferd.transport.http2_server import Http2Server

        options = grpc_options(self.config, self._ring, self._apis, self._request_log)
        port = self._ports["gRPC"]
        with _opening(port):
            if self.config.grpc_transport == "own":
                self._grpc = Http2Server(self.engine, options)
            else:
                from inferd.transport.grpc_server import GrpcServer

                self._grpc = GrpcServer(self.engine, options)
                await _probe(port.address, self.config)
            if files := tls_files(self.config, "grpc"):
                self._watcher.read("the TLS files of gRPC", self._grpc.read_tls, *files)
            # grpcio's server takes addresses of TCP only, and no connections of others.
            if not isinstance(self._grpc, Http2Server):
                self.grpc_port = await self._grpc.start(port.address, port.number)
                return
        self.grpc_port = await self._listen("gRPC", self._grpc)
        await self._listen_at("gRPC Unix", "grpc", self._grpc)

    async def _open_cloud(self) -> None:
        config, engine, ring, log = self.config, self.engine, self._ring, self._request_log
        ports = [
            *health_port(config, engine, ring, self._apis, log),
            *cloud_ports(config, engine, ring, log),
        ]
        for protocol, server in ports:
            self._cloud.append(server)
            self.cloud_ports[protocol] = await self._listen(protocol, server)

    async def _open_metrics(self) -> None:
        from inferd.transport.http_server import HttpServer

        routes = _metrics_routes(self.engine, self.config, self._crashes)
        # A capacity of its own: an overloaded server still answers with its metrics.
        self._metrics = HttpServer(
            self.engine, metrics_options(self.config), routes=routes, capacity=Capacity()
        )
        self.metrics_port = await self._listen("Metrics", self._metrics)


@contextlib.contextmanager
def _opening(port: Listening) -> Iterator[None]:
    """Raise InvalidConfig, which names the options of `port`, where it cannot be opened."""
    try:
        yield
    except OSError as error:
        raise cannot_listen(port, why_not(error)) from error


async def _probe(address: str, config: ServerConfig) -> None:
    """Raise OSError where the gRPC port cannot be bound.

    When grpcio cannot bind, it prints a line of its own and does not give us the reason.
    """
    if config.grpc_port == 0 or config.reuse_grpc_port:
        return
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address, config.grpc_port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, place in found:
        with socket.socket(family, kind, protocol) as probing:
            # As grpcio sets it: a port in TIME_WAIT is free.
            probing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probing.bind(place)


def _allows_client_shm(config: ServerConfig, default_address: str) -> bool:
    """Return --allow-client-shm, or if unset, whether only local clients can connect."""
    if config.allow_client_shm is not None:
        return config.allow_client_shm
    ports = [each.address or default_address for each in open_ports(config)]
    # Shared memory of clients is of use on this machine alone, and names objects of
    # everybody's.
    return all(map(is_loopback, ports))


def _mounted(
    engine: Engine, config: ServerConfig, dashboard: "Dashboard | None", shared: "tuple[Route, ...]"
) -> "Apis":
    """Return V2, the APIs beside it that are not turned off, and the routes that are `shared`."""
    from inferd.api.mount import load_mount, mount_names
    from inferd.api.v2.calls import Apis

    mounts = [
        load_mount(name)(engine, config.id)
        for name in mount_names()
        # APIs of other packages have no option.
        if getattr(config, f"allow_{name}", True)
    ]
    if dashboard is not None:
        mounts.append(dashboard)
    return Apis(mounts=tuple(mounts), routes=shared)


def _metrics_routes(
    engine: Engine, config: ServerConfig, crashes: "Crashes | None"
) -> "MetricsRoutes":
    from inferd.api.metrics import MetricsRoutes

    devices = Devices(
        Cpu() if config.allow_cpu_metrics else None,
        Gpus() if config.allow_gpu_metrics else None,
        config.metrics_interval_ms / 1000,
    )
    history = crashes.history if crashes is not None else None
    settings = read_metrics_config(config.metrics_config)
    return MetricsRoutes(engine, settings, devices, history=history)


@contextlib.contextmanager
def _opening_log(option: str, path: str | None) -> Iterator[None]:
    """Raise InvalidConfig, which names the `option`, where a log cannot be opened."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidConfig(f"{option}: cannot open {path}: {reason}") from error
