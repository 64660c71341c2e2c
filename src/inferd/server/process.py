"""One server as a process of its own: start-up output, memory, signals, exit codes."""

import asyncio
import ctypes
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import NoReturn

from inferd.aio.event_loop import new_event_loop
from inferd.aio.signals import catch_signal
from inferd.config.server import ServerConfig
from inferd.core.metadata import IndexEntry, ModelState
from inferd.errors import InferdError, InvalidConfig
from inferd.observe.log import Log, printable
from inferd.repository.fetch.url import shown
from inferd.server.address import default_address
from inferd.server.crashes import Crashes
from inferd.server.log import opened_log
from inferd.server.places import dashboard_url, say_live
from inferd.server.server import Server
from inferd.server.systemd.notify import READY, STOPPING, Notifier

LOGGER = logging.getLogger("inferd")

# For closing models, after the last request.
_MARGIN_S = 1.0
_AGAIN_S = 0.05
_LEAST_GRACE_S = 0.1
"""Connections that wait for nothing end within this time, so those left were cut."""
_OTHER_FILES = 4000
"""Open files beside connections: metrics, model files, libraries, two per shared memory region."""

# M_MMAP_THRESHOLD and M_TRIM_THRESHOLD.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # glibc's malloc.h
_MMAP_BYTES = 32 << 20
_RETAINED_BYTES = 64 << 20

_HEADER = ("Model", "Version", "State", "Reason")
_NONE_REQUESTED = "no models asked for: clients load them, or --load-model at the start"


def run(config: ServerConfig, warnings: Sequence[str] = ()) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code.

    0: ended as asked, all requests finished. 1: could not start, models failed and
    --exit-on-error is set, or requests were cut because --exit-timeout-secs had passed. A second
    signal ends the process at once with 128 plus its number. SIGHUP reopens the log files.
    Raises InvalidConfig when the log file cannot be opened.
    """
    log = opened_log(config)
    for warning in warnings:
        LOGGER.warning("%s", warning)
    return run_recorded(config, lambda crashes: _ServerProcess(config, log, crashes).serve())


def run_recorded(
    config: ServerConfig, serve: Callable[[Crashes], Coroutine[object, None, int]]
) -> int:
    """Run what `serve` returns, with the record of crashes, and return the exit code."""
    allow_connections(config)
    crashes = Crashes()
    crashes.open(config)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(serve(crashes))
    finally:
        crashes.close()


def allow_connections(config: ServerConfig) -> None:
    """Raise the limit on open files to what connections and all else may need.

    The soft limit is often 1024, for the sake of programs that call select(): as many idle clients
    would then keep everyone else out.
    """
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    http_count = config.allow_http + config.allow_sagemaker + config.allow_vertex_ai
    http = config.http_max_connections * http_count
    grpc = config.grpc_max_connections if config.allow_grpc else 0
    needed = http + grpc + _OTHER_FILES
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = needed if most == resource.RLIM_INFINITY else min(needed, most)
    if now != resource.RLIM_INFINITY and now < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    # Few servers use all their HTTP and all their gRPC connections at the same time.
    http = min(http, config.http_max_connections)
    if allowed < max(http, grpc) + _OTHER_FILES:
        LOGGER.warning(
            "the system allows %d open files, too few for --http-max-connections %d and "
            "--grpc-max-connections %d",
            allowed,
            http,
            grpc,
        )


class _ServerProcess:
    """The life cycle of this process's one server."""

    def __init__(self, config: ServerConfig, log: Log, crashes: Crashes) -> None:
        self._config = config
        self._log = log
        self._is_on_terminal = sys.stderr.isatty()
        self._default = default_address(os.environ, os.path.exists)
        self._crashes = crashes
        self._server = Server(config, self._default.address, log, crashes=crashes)
        self._stop = asyncio.Event()
        self._notifier = Notifier(os.environ)

    async def serve(self) -> int:
        """Run the server from start to end, and return the exit code."""
        self._catch_signals()
        self._crashes.start(asyncio.get_running_loop())
        self._notifier.keep(asyncio.get_running_loop())
        try:
            await self._server.open()
        except InvalidConfig as error:
            LOGGER.error("%s", error.message)  # noqa: TRY400 - its own words, no traceback
            return 1
        say_live(self._config, self._server.places(), self._default)
        self._server.say_link()
        loading = asyncio.create_task(self._server.load())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        is_loaded = loading.done()
        code = self._loaded(loading) if is_loaded else 0
        if code == 0:
            self._tell_ready()
            await stopping
            code = 0 if await drain(self._server, self._config) else 1
        loading.cancel()
        await self._server.stop()
        LOGGER.info("ended" if is_loaded else "ended while models were loading")
        if code or not is_loaded:
            self._crashes.close()
            # Threads that load or run a model cannot be stopped, and Python would wait for them.
            end_now(code)
        return code

    def _tell_ready(self) -> None:
        if not (self._stop.is_set() or self._notifier.note(READY)):
            # systemd's socket may be full for a moment: READY must not be lost.
            asyncio.get_running_loop().call_later(_AGAIN_S, self._tell_ready)

    def _loaded(self, loading: asyncio.Task[None]) -> int:
        try:
            loading.result()
        except InferdError as error:
            LOGGER.error("%s", error.message)  # noqa: TRY400 - its own words, no traceback
            return self._ended_by_repositories()
        keep_freed_memory()
        spare_loaded_objects()
        self._say_loaded()
        return int(ends_by_failures(self._server, self._config))

    def _ended_by_repositories(self) -> int:
        """Return the exit code after a repository could not be opened, 0 to stay up nevertheless.

        Who writes --exit-on-error=false, as for Triton, has probes that tell of it.
        """
        if self._config.exit_on_error is not False:
            return 1
        self._server.engine.readiness.fail()
        LOGGER.error(
            "staying up without models, neither live nor ready, because of --exit-on-error=false; "
            "when the model repository is there, start the server again"
        )
        return 0

    def _say_loaded(self) -> None:
        report, warning = loaded_report(self._server, self._config)
        if report:
            sys.stdout.write("\n".join(report) + "\n")
            sys.stdout.flush()
        if self._server.engine.readiness.is_ready():
            LOGGER.info("ready")
        elif not self._stop.is_set():
            LOGGER.warning("%s", warning)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for name in ("SIGTERM", "SIGINT", "SIGBREAK"):  # the last is Windows' Ctrl-Break
            catch_signal(loop, name, self._end, name)
        catch_signal(loop, "SIGHUP", self._hang_up, "SIGHUP")

    def _hang_up(self, name: str) -> None:
        """Reopen the log files; a server that logs to a terminal ends with the terminal."""
        # As any program that is started there; a service has no terminal to lose.
        if self._is_on_terminal and self._log.settings.file is None:
            self._end(name)
        else:
            self._server.reopen_logs()

    def _end(self, name: str) -> None:
        if self._stop.is_set():
            LOGGER.warning("%s again: ending at once", name)
            end_now(128 + signal.Signals[name])
        # A C thread that needs no GIL: it ends the process even when a model blocks the event
        # loop, and shows where.
        whole_s = max(self._config.exit_timeout_secs, _MARGIN_S)
        faulthandler.dump_traceback_later(whole_s, exit=True)
        self._crashes.note_stopping()
        LOGGER.info("%s: finishing what is in flight", name)
        self._notifier.note(STOPPING)
        self._server.engine.drain()
        self._stop.set()


async def drain(server: Server, config: ServerConfig) -> bool:
    """Finish what is in flight, and tell whether that was done in time."""
    # The rest of the time is for closing, after the last request.
    whole_s = config.exit_timeout_secs
    grace_s = max(whole_s - min(_MARGIN_S, whole_s / 4), _LEAST_GRACE_S)
    if await server.drain(grace_s, config.drain_delay):
        return True
    LOGGER.warning("requests were cut: --exit-timeout-secs had passed before they finished")
    return False


def end_now(code: int) -> NoReturn:
    """End the process without waiting for threads, after flushing the output."""
    # os._exit flushes nothing.
    sys.stdout.flush()
    logging.shutdown()
    os._exit(code)


def loaded_report(server: Server, config: ServerConfig) -> tuple[list[str], str]:
    """Return the lines for the terminal, and why the server is not ready, or will not be.

    With a log of JSON the lines go there instead: the table is for people.
    """
    engine = server.engine
    index = engine.catalog.index()
    report: list[str] = []
    if config.log_format == "json":
        for entry in index:
            LOGGER.info("model %s", entry.name, extra={"fields": model_fields(entry)})
    else:
        is_on_demand = config.model_control_mode == "explicit" and not config.load_model
        report = model_table(index, is_on_demand=is_on_demand)
        report += [f"{protocol}  {where}" for protocol, where in server.places()]
        if url := dashboard_url(config, server.places()):
            report.append(f"Dashboard  {url}")
    if engine.readiness.would_be_ready():
        return report, ""
    if engine.readiness.needs_models():
        return report, why_empty(config, index)
    return report, "not ready: models failed; --strict-readiness=false accepts that"


def ends_by_failures(server: Server, config: ServerConfig) -> bool:
    """Return whether models failed, and that ends the server; the log then says so."""
    failed = failures(server.engine.catalog.index())
    if not failed or not config.exit_on_error:
        return False
    names = ", ".join(failed)
    LOGGER.error("ending, because --exit-on-error is set and these failed: %s", names)
    return True


def failures(index: Sequence[IndexEntry]) -> list[str]:
    """Return the model versions that are not ready, each as "name version"."""
    return [
        f"{entry.name} {entry.version}".rstrip()
        for entry in index
        if entry.state is not ModelState.READY
    ]


def model_table(index: Sequence[IndexEntry], *, is_on_demand: bool = False) -> list[str]:
    """Return the lines of a table of all model versions; a reason may take several lines.

    `is_on_demand`: none are loaded until clients ask for them.
    """
    if not index:
        return [_NONE_REQUESTED if is_on_demand else "no models found"]
    rows = [_HEADER, *(row for entry in index for row in _rows(entry))]
    # The last column ends the line and needs no width.
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]
        ).rstrip()
        for row in rows
    ]


def why_empty(config: ServerConfig, index: Sequence[IndexEntry]) -> str:
    """Return why a server without models is not ready, and what can be done.

    What is in the `index` could not be read.
    """
    places = (
        ", ".join(printable(shown(path)) for path in config.model_repository) or "no repository"
    )
    is_polling = config.model_control_mode == "poll" and config.repository_poll_secs > 0
    until = " until a model appears" if is_polling else ""
    what = "could be read" if index else "was found"
    return f"not ready{until}: no model {what} in {places}; --allow-empty accepts that"


def model_fields(entry: IndexEntry) -> dict[str, str]:
    """Return the fields of a JSON log line about one model version."""
    return {
        "model": entry.name,
        "version": entry.version,
        "state": _state(entry),
        "reason": entry.reason,
    }


def _rows(entry: IndexEntry) -> Iterator[tuple[str, str, str, str]]:
    first, *rest = entry.reason.splitlines() or [""]
    yield printable(entry.name), entry.version or "-", _state(entry), printable(first)
    for line in rest:
        yield "", "", "", printable(line)


def _state(entry: IndexEntry) -> str:
    return entry.state.value if entry.state else "NOT LOADED"


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> None:
    """Have the C library keep the memory that large requests freed for the next ones.

    Otherwise it returns such memory to the system, and the next request to use it faults on every
    page: hundreds of faults per request, where requests of some megabytes are under way together.
    The limits set here are those that glibc adopts by itself when the first block of 32 MB is
    freed. With another C library or allocator, or where `environ` configures malloc, this does
    nothing. Call it once the models are loaded: memory that loading freed is not worth keeping.
    """
    # Somebody has made up their mind.
    if "GLIBC_TUNABLES" in environ or any(name.startswith("MALLOC_") for name in environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # TypeError is Windows'
        return
    mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_TRIM_THRESHOLD, _RETAINED_BYTES)


def spare_loaded_objects() -> None:
    """Have Python's garbage collector pass over every object that there is now.

    With 1,000 models a collection of all objects holds the event loop for 200 ms. Call it once the
    models are loaded: most of what there is then stays, and is freed all the same when its last
    reference goes, but not if it is part of a cycle.
    """
    # First: what is garbage now would never be looked at again.
    gc.collect()
    gc.freeze()
