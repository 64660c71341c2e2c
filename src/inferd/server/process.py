"""One server as a process of its own: start-up output, signals, exit codes."""

import asyncio
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from inferd.aio.event_loop import new_event_loop
from inferd.aio.signals import catch_signal
from inferd.config.server import ServerConfig
from inferd.errors import InferdError, InvalidConfig
from inferd.observe.log import Log
from inferd.server.address import default_address
from inferd.server.crashes import Crashes
from inferd.server.memory import keep_freed_memory, spare_loaded_objects
from inferd.server.options import log_folder, log_settings
from inferd.server.places import say_live
from inferd.server.report import failures, loaded_report
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


def run(config: ServerConfig, warnings: Sequence[str] = ()) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code.

    0: ended as asked, all requests finished. 1: could not start, models failed and
    --exit-on-error is set, or requests were cut because --exit-timeout-secs had passed. A second
    signal ends the process at once with 128 plus its number. SIGHUP reopens the log files.
    Raises InvalidConfig when the log file cannot be opened.
    """
    log = Log(log_settings(config), log_folder(config))
    try:
        log.open()
    except OSError as error:
        msg = f"--log-file: cannot open {config.log_file}: {error.strerror}"
        raise InvalidConfig(msg) from error
    for warning in warnings:
        LOGGER.warning("%s", warning)
    allow_connections(config)
    crashes = Crashes()
    crashes.open(config)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_ServerProcess(config, log, crashes).serve())
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
            code = await self._drain()
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
        failed = failures(self._server.engine.catalog.index())
        if failed and self._config.exit_on_error:
            names = ", ".join(failed)
            LOGGER.error("ending, because --exit-on-error is set and these failed: %s", names)
            return 1
        return 0

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

    async def _drain(self) -> int:
        return 0 if await drain(self._server, self._config) else 1

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
