"""The supervisor of a server of several processes: accepts connections and passes them on.

It runs no models and reads no repositories, so that little can go wrong in it: what it decides is
in inferd.fleet.fleet, this is how it happens.
"""

import asyncio
import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

import inferd
from inferd import system
from inferd.config.options.log import LogSettings
from inferd.config.options.trace import read_trace_config
from inferd.config.server import ServerConfig
from inferd.config.workers import check_workers, share_of
from inferd.errors import InferdError, InvalidConfig
from inferd.fleet.bodies import discard
from inferd.fleet.child import Child
from inferd.fleet.fleet import Fleet, Rules
from inferd.fleet.inquiries import MODELS
from inferd.fleet.messages import (
    LogChanged,
    ModelsLoaded,
    NoMessage,
    Start,
    ToProcess,
    framed,
    from_process,
)
from inferd.fleet.status import (
    ControlAnswer,
    ControlRequest,
    ProcessStatus,
    ReplacementState,
    ServerStatus,
)
from inferd.observe.log import Log, printable
from inferd.observe.log_lines import LogLines, encode_lines
from inferd.observe.numbers import merged
from inferd.server.address import default_address
from inferd.server.control import ControlSocket
from inferd.server.folder import name_of, private_folder
from inferd.server.log import opened_log
from inferd.server.places import dashboard_url, has_dashboard, places, say_link, say_live, ui_tokens
from inferd.server.ports.shared import SharedPorts
from inferd.server.systemd.notify import READY, RELOADING, STOPPING, Notifier

LOGGER = logging.getLogger("inferd")

TICK_S = 0.2
_MARGIN_S = 2.0
"""The time that a process has for its end beyond --exit-timeout-secs."""


def run(config: ServerConfig, count: int, warnings: Sequence[str] = ()) -> int:
    """Serve with `count` processes until SIGTERM or SIGINT, and return the exit code.

    The code is as that of inferd.server.process.run, of the process that had the worst. SIGUSR2
    replaces the processes one after the other, SIGHUP reopens the log files. Raises InvalidConfig.
    """
    if not system.SEVERAL:
        msg = f"--workers={config.workers} needs Linux, which can pass connections to processes"
        raise InvalidConfig(msg)
    check_workers(config)
    log = opened_log(config)
    for warning in warnings:
        LOGGER.warning("%s", warning)
    folder = Path(tempfile.mkdtemp(prefix="inferd-"))
    try:
        # asyncio's own loop: no request passes here, and uvloop is one thing less that can go
        # wrong.
        with asyncio.Runner() as runner:
            return runner.run(_Supervisor(config, count, log, folder).serve())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Supervisor:
    """The one supervisor: the Shell of a Fleet."""

    def __init__(self, config: ServerConfig, count: int, log: Log, folder: Path) -> None:
        self._config = config
        self._count = count
        self._log = log
        self._folder = folder
        self._default = default_address(os.environ, os.path.exists)
        self._children: dict[int, Child] = {}
        self._ports = SharedPorts(self._give)
        self._notifier = Notifier(os.environ)
        self._ended: asyncio.Future[int] | None = None
        self._control = ControlSocket(self._reply)
        self._since_s = time.time()
        self._lines = LogLines()
        if has_dashboard(config):
            log.listen(self._lines)
        self._fleet = Fleet(
            Rules(
                count,
                float(config.workers_hang_secs),
                config.exit_timeout_secs + _MARGIN_S,
                config.drain_delay,
            ),
            self,
            time.monotonic,
            merge=sum_of_ended,
            socket_of=partial(_socket_of, folder),
            discard=discard,
        )

    async def serve(self) -> int:
        """Run from start to end, and return the exit code."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        try:
            tokens = ui_tokens(self._config, self._folder)
            self._config = self._ports.bind(self._config, self._default.address)
        except InvalidConfig as error:
            LOGGER.error("%s", error.message)  # noqa: TRY400 - its own words, no traceback
            return 1
        # After binding, so that a second server that fails to start empties nobody's file.
        _empty_trace_file(self._config)
        where = places(self._config, self._default.address, self._ports.numbers())
        say_live(self._config, where, self._default)
        say_link(dashboard_url(self._config, where), tokens)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        loop.add_signal_handler(signal.SIGUSR2, self._roll)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        await self._open_control()
        self._fleet.start()
        self._notifier.keep(loop)
        ticking = asyncio.create_task(self._tick())
        try:
            return await self._ended
        finally:
            ticking.cancel()
            self._control.close()
            self._kill_all()
            self._ports.remove_paths()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                # Again, as signals of several children may be delivered as one.
                self._reap()
                self._fleet.check_time()
                self._ports.pass_on()
                self._notify()
            except Exception:  # the next tick may go better, and nobody else watches the processes
                LOGGER.exception("the supervisor failed to look after its processes")

    def _roll(self) -> str:
        why = self._fleet.replacements.roll()
        self._notify()
        return why

    def _notify(self) -> None:
        """Tell systemd what it does not know yet."""
        fleet = self._fleet
        last = fleet.replacements.last
        status = f"{len(fleet.members.ready())} of {self._count} processes are ready"
        if fleet.is_stopping:
            self._notifier.note(STOPPING)
        elif last is not None and last.state is ReplacementState.RUNNING:
            self._notifier.note(RELOADING, status)
        elif fleet.has_begun:
            self._notifier.note(READY, status)

    def _stop(self, number: signal.Signals) -> None:
        if self._fleet.is_stopping:
            LOGGER.warning("%s again: ending at once", number.name)
            self._kill_all()
            # The `finally` of `run` does not come with os._exit.
            shutil.rmtree(self._folder, ignore_errors=True)
            _end_now(128 + number)
        LOGGER.info("%s: finishing what is in flight", number.name)
        self._fleet.stop()
        self._notify()

    def _hang_up(self) -> None:
        """Reopen the log files; a server that logs to a terminal ends with the terminal."""
        if sys.stderr.isatty() and self._log.settings.file is None:
            self._stop(signal.SIGHUP)
            return
        self._log.reopen()
        self._fleet.reopen_logs()

    async def _open_control(self) -> None:
        try:
            await self._control.open(private_folder(os.environ), name_of(self._config))
        # A server works without being found by `inferd status`.
        except OSError as error:
            text = "inferd status and inferd reload do not find this server: %s"
            LOGGER.warning(text, printable(str(error)))

    async def _reply(self, request: ControlRequest) -> ControlAnswer:
        """Do what is requested at the control socket."""
        error = ""
        if request.do == "reload":
            error = self._roll() if self._fleet.has_begun else "models are still loading"
        return ControlAnswer(error, self._status(await self._models(request)))

    async def _models(self, request: ControlRequest) -> dict[str, int] | None:
        if not request.with_models:
            return None
        replied: asyncio.Future[Sequence[bytes]] = asyncio.get_running_loop().create_future()

        def take(bodies: Sequence[bytes]) -> None:
            if not replied.done():
                replied.set_result(bodies)

        self._fleet.inquiries.ask(MODELS, take)
        try:
            for body in await replied:
                # The first reply is enough: all processes serve the same models.
                return msgspec.json.decode(body, type=dict[str, int])
        except msgspec.DecodeError:
            LOGGER.warning("a process does not tell its models")
        return None  # nobody is ready, or it does not reply

    def _status(self, models: dict[str, int] | None) -> ServerStatus:
        now, restarts = time.monotonic(), self._fleet.restarts
        processes = [
            ProcessStatus(
                member.slot,
                child.pid,
                member.state.value,
                max(0, member.load),
                restarts.counts[member.slot],
                now - member.began_s,
                child.rss_bytes,
            )
            for member in self._fleet.members
            if (child := self._children.get(member.number)) is not None
        ]
        return ServerStatus(
            inferd.__version__,
            os.getpid(),
            self._since_s,
            {name: number for name, number in self._ports.numbers().items() if number},
            self._ports.paths(),
            self._count,
            sorted(processes, key=lambda one: (one.slot, -one.uptime_s)),
            self._fleet.is_stopping,
            restarts.count,
            models,
            self._fleet.replacements.last,
        )

    def spawn(self, number: int, slot: int) -> None:
        """See Shell."""
        try:
            child = Child(lambda body: self._hear(number, body))
        except OSError as error:
            why = f"it could not be started: {error.strerror}"
            # Not at once: the fleet is in the middle of starting it.
            asyncio.get_running_loop().call_soon(self._fleet.lost, number, why)
            return
        self._children[number] = child
        LOGGER.info("process %d of %d has started, pid %d", slot, self._count, child.pid)
        start = Start(
            number,
            slot,
            self._count,
            json.dumps(msgspec.to_builtins(share_of(self._config, self._count))).encode(),
            self._default.address,
            str(self._folder),
            _socket_of(self._folder, number),
            self._ports.numbers(),
        )
        child.channel.write(framed(start))
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._connect(child))
        # Taken, or asyncio would complain; that the process ends is noticed elsewhere.
        task.add_done_callback(lambda task: task.exception())

    async def _connect(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: child.channel, child.control)

    def _hear(self, number: int, body: bytes) -> None:
        try:
            message = from_process(body)
        except NoMessage as error:
            LOGGER.error("process %d sends nonsense, ending it: %s", number, error)  # noqa: TRY400
            # It cannot be relied on any more.
            self.kill(number)
            return
        self._fleet.hear(number, message)

    def send(self, number: int, message: ToProcess) -> None:
        """See Shell."""
        if (child := self._children.get(number)) is not None:
            child.channel.write(framed(message))

    def kill(self, number: int) -> None:
        """See Shell."""
        if (child := self._children.get(number)) is not None:
            child.kill()

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.kill()

    def accept(self, *, is_open: bool) -> None:
        """See Shell."""
        self._ports.accept(is_open=is_open)

    def close(self) -> None:
        """See Shell."""
        self._ports.close()

    def show(self, loaded: ModelsLoaded) -> None:
        """See Shell."""
        if loaded.report:
            sys.stdout.write("\n".join(loaded.report) + "\n")
            sys.stdout.flush()
        if loaded.warning:
            LOGGER.warning("%s", loaded.warning)
        else:
            LOGGER.info("ready")
        self._notify()

    def change_log(self, change: LogChanged) -> None:
        """See Shell."""
        file = Path(change.file) if change.file else None
        self._log.follow(LogSettings(**msgspec.structs.asdict(change) | {"file": file}))

    def lines(self, count: int) -> bytes:
        """See Shell."""
        return encode_lines(*self._lines.since(count))

    def end(self, code: int) -> None:
        """See Shell."""
        LOGGER.info("ended")
        self._notify()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(code)

    def _give(self, name: str, connection: socket.socket) -> bool:
        """Give a connection to a process; False if none takes it now."""
        tried: set[int] = set()
        # The one with the fewest connections, then the next one, if it takes no more.
        while (member := self._fleet.choose(tried)) is not None:
            if self._children[member.number].hand(name, connection):
                member.given_count += 1
                # The process has a descriptor of its own.
                connection.close()
                return True
            tried.add(member.number)
        return False

    def _reap(self) -> None:
        """Notice the processes that have ended."""
        for number, child in list(self._children.items()):
            why = child.ended()
            # Both: what it said last may still be on its way when it has ended.
            if why is not None and child.channel.ended.is_set():
                del self._children[number]
                self._fleet.lost(number, f"{why}, pid {child.pid}")


def _socket_of(folder: Path, number: int) -> str:
    """Return where the process of that number takes what belongs to it."""
    return str(folder / f"{number}.sock")


def sum_of_ended(numbers: Iterable[bytes]) -> bytes:
    """Return the sum of the numbers of processes that have ended, those of earlier ones first.

    Without the last ones if they cannot be read: what one process counted is no reason to end.
    """
    ended = list(numbers)
    try:
        return merged(ended)
    except InferdError as error:
        LOGGER.error("what a process has counted is lost: %s", error.message)  # noqa: TRY400
        return ended[0] if len(ended) > 1 else b""


def _empty_trace_file(config: ServerConfig) -> None:
    """Empty the trace file that the operator named, as one process would; all append to it."""
    settings, _ = read_trace_config(config.trace_config)
    if settings.file is not None and settings.file.is_file():
        with suppress(OSError):  # who cannot write will say so
            os.truncate(settings.file, 0)


def _end_now(code: int) -> NoReturn:
    sys.stdout.flush()
    logging.shutdown()
    os._exit(code)
