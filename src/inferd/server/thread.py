"""A server in a thread of its own, for callers without asyncio, or with a loop of their own."""

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  its exit hook must run after the server's
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Self

from inferd.aio.event_loop import new_event_loop
from inferd.config.server import ServerConfig
from inferd.config.sources import read_options
from inferd.core.interfaces import GivenModel
from inferd.core.metadata import IndexEntry, ModelState
from inferd.engine.loading.lookup import given_model
from inferd.errors import LoadFailed
from inferd.server.server import Server


class ServerThread:
    """A server of Python functions, in this process: `with inferd.Server(function) as server:`.

    `models` are inferd.Models, or functions to make them of. `options` are those of `inferd serve`,
    by name: `model_repository="models"`, `http_port=8000`. The system chooses ports that are not
    given, and `exit_on_error` is True unless given. `start` and `stop` do what entering and leaving
    the context does, for notebooks. The server also ends with the process.
    """

    def __init__(self, *models: Callable[..., object], **options: object) -> None:
        """Raises InvalidConfig for an invalid model or option."""
        defaults = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "exit_on_error": True}
        self._config = read_options(defaults | options)
        self._models = [given_model(model) for model in models]
        self._running: list[RunningServer] = []  # none, or one
        _end_with_process(self._running)

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *error: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> Self:
        """Start the server, and return it when the models serve.

        Raises LoadFailed when one does not load, unless `exit_on_error` is False, and InvalidConfig
        when the server cannot start.
        """
        # Starting twice is no error, as in a notebook's cell that is run again.
        if not self._running:
            self._running.append(RunningServer(self._config, self._models))
        return self

    def stop(self) -> None:
        """Finish what is in flight, and end; do nothing if the server has ended already."""
        while self._running:
            self._running.pop().end()

    @property
    def http_port(self) -> int:
        """The HTTP port, 0 while there is none."""
        return self._server.http_port if self._server else 0

    @property
    def grpc_port(self) -> int:
        """The gRPC port, 0 while there is none."""
        return self._server.grpc_port if self._server else 0

    @property
    def metrics_port(self) -> int:
        """The metrics port, 0 while there is none."""
        return self._server.metrics_port if self._server else 0

    @property
    def http_url(self) -> str:
        """The HTTP URL, such as "http://127.0.0.1:38475"; "" while there is none."""
        return self._url("HTTP")

    @property
    def grpc_url(self) -> str:
        """The gRPC target, as clients write it: "127.0.0.1:38476"; "" while there is none."""
        return self._url("gRPC")

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics for Prometheus; "" while there is none."""
        return self._url("Metrics")

    def __repr__(self) -> str:
        """Show the server's URL, for notebooks."""
        return f"<inferd.Server {self.http_url or self.grpc_url or 'stopped'}>"

    def _url(self, protocol: str) -> str:
        return self._running[0].urls.get(protocol, "") if self._running else ""

    @property
    def _server(self) -> Server | None:
        return self._running[0].server if self._running else None


class RunningServer:
    """A running server, and its thread; only the ports of the server may be read elsewhere."""

    def __init__(self, config: ServerConfig, models: Sequence[GivenModel]) -> None:
        """Raises what starting the server raises."""
        started: _Started = Future()
        work = (config, models, started)
        self._thread = Thread(target=_run, args=work, name="inferd-server", daemon=True)
        self._thread.start()
        try:
            self.server, self._loop, self._end = started.result()
        except KeyboardInterrupt:
            started.cancel()  # the server ends when its models have loaded
            raise
        except BaseException:
            # The thread ends after its error, and its ports are closed then.
            self._thread.join()
            raise
        # Of two places of one protocol, the port comes before the Unix socket.
        self.urls = dict(reversed([_url(*place) for place in self.server.places()]))

    def end(self) -> None:
        """Drain and stop the server, and wait until it has ended."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


def _end_with_process(running: list[RunningServer]) -> None:
    """End the server in `running` when the interpreter exits, while threads can still be started.

    From Python 3.12 on, functions registered with atexit are called too late for that.
    """

    def end() -> None:
        while running:
            running.pop().end()

    register: Callable[[Callable[[], None]], object]
    register = getattr(threading, "_register_atexit", atexit.register)
    register(end)


_Started = Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]]


def _run(config: ServerConfig, models: Sequence[GivenModel], started: _Started) -> None:
    async def serve() -> None:
        end = asyncio.Event()
        async with Server(config, models=models) as server:
            if config.exit_on_error:
                _check_loaded(server)
            server.say_link()
            # False if nobody waits any more: then the server is closed again at once.
            if started.set_running_or_notify_cancel():
                started.set_result((server, asyncio.get_running_loop(), end))
                await end.wait()

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve())
    except BaseException as error:
        if not started.done():
            started.set_exception(error)
        elif not _is_last(error):
            raise


def _is_last(error: BaseException) -> bool:
    """Tell whether the interpreter is exiting; only 3.12.0 and 3.12.1 start no threads then."""
    return isinstance(error, RuntimeError) and "interpreter shutdown" in str(error)


def _check_loaded(server: Server) -> None:
    """Raise LoadFailed, with the reasons, unless all models to load at the start are ready."""
    failed = [one for one in server.engine.catalog.index() if one.state is not ModelState.READY]
    if failed:
        raise LoadFailed("\n".join(_reason(entry) for entry in failed))


def _reason(entry: IndexEntry) -> str:
    return (
        entry.reason
        if f"'{entry.name}'" in entry.reason
        else f"model '{entry.name}' is not loaded: {entry.reason}"
    )


def _url(protocol: str, where: str) -> tuple[str, str]:
    """Return the protocol, and the place as a client on this machine reaches it."""
    where = where.removesuffix(" (TLS)").replace("//0.0.0.0:", "//127.0.0.1:")
    return protocol, where.replace("[::]", "[::1]")
