"""One process of a server of several: python -m inferd.server.member, started by the supervisor."""

import asyncio
import ctypes
import faulthandler
import json
import logging
import os
import shutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from inferd.config.server import ServerConfig
from inferd.core.metadata import ServerState
from inferd.core.processes import Failed, Processes
from inferd.errors import InferdError, InvalidConfig
from inferd.fleet.channel import Channel
from inferd.fleet.messages import (
    Answered,
    Beat,
    Begin,
    CannotStart,
    Change,
    ConnectionLoad,
    Decide,
    Drain,
    Follow,
    FromProcess,
    Leave,
    ModelsLoaded,
    NoMessage,
    Question,
    ReadySockets,
    Reopen,
    Replied,
    Retire,
    Start,
    Stopping,
    Tally,
    Withdraw,
    framed,
    to_process,
)
from inferd.observe.log import Log
from inferd.server.crashes import Crashes
from inferd.server.fellows import Fellows
from inferd.server.log import server_log
from inferd.server.process import (
    drain,
    end_now,
    ends_by_failures,
    keep_freed_memory,
    loaded_report,
    run_recorded,
    spare_loaded_objects,
)
from inferd.server.server import Membership, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from inferd.forward.exchange import Exchange

LOGGER = logging.getLogger("inferd")

BEAT_S = 1.0
PUSH_S = 0.25
# Connections are spread by these counts: a supervisor that hears late chooses badly.
LOOK_S = 0.05
_HEAD_BYTES = 4
_NAME_BYTES = 100
_PR_SET_PDEATHSIG = 1
_CLOSING_S = 0.5
"""What of the time for an end is kept for closing models."""


def main() -> int:
    """Be the process that the first message asks for, and return the exit code."""
    # The descriptors of its sockets, and who has started it.
    control, takes, parent = (int(text) for text in sys.argv[1:4])
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal's are for the supervisor
        signal.signal(number, signal.SIG_IGN)
    _end_with_parent(parent)
    channel, handover = socket.socket(fileno=control), socket.socket(fileno=takes)
    for one in (channel, handover):
        # Workers of models must not hold the supervisor's sockets open.
        one.set_inheritable(False)
    start = _first(channel)
    if start is None:
        return 1
    config = msgspec.convert(json.loads(start.config), type=ServerConfig)
    log = server_log(config)
    log.open()

    def serve(crashes: Crashes) -> "Coroutine[object, None, int]":
        return _Member(start, config, log, crashes).serve(channel, handover)

    return run_recorded(config, serve)


def _first(control: socket.socket) -> Start | None:
    """Return the first message, None if the supervisor has gone."""
    # Before there is an event loop: the configuration decides about that.
    head = control.recv(_HEAD_BYTES, socket.MSG_WAITALL)
    body = control.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL) if head else b""
    try:
        message = to_process(body)
    except NoMessage:
        return None
    return message if isinstance(message, Start) else None


class _Member:
    """The life of this process."""

    def __init__(self, start: Start, config: ServerConfig, log: Log, crashes: Crashes) -> None:
        self._start = start
        self._config = config
        self._log = log
        self._crashes = crashes
        # Members are numbered from 1 on; those of the start have one each.
        generation = max(0, start.number - start.count)
        self._processes = Processes(start.slot, start.count, start.socket, generation)
        self._server = Server(
            config,
            start.default_address,
            log,
            crashes=crashes,
            membership=Membership(self._processes, start.ports, Path(start.folder)),
        )
        self._channel = Channel(self._hear, self._orphaned)
        self._fellows = Fellows(self._server.engine, Path(start.folder), self.send)
        self._fellows.replies["ui"] = self._server.part_of_board
        engine = self._server.engine
        engine.changes.everywhere = engine.whole.others = engine.readiness.others = self._fellows
        self._draining = asyncio.Event()
        self._handover: socket.socket | None = None
        self._received_count = 0
        self._last_load = ConnectionLoad(0, 0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._withdrawal: asyncio.Task[None] | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            Change: self._fellows.make,
            Decide: self._fellows.decide,
            Answered: self._fellows.answered,
            Question: self._fellows.question,
            Replied: self._fellows.answer,
            Withdraw: self._start_withdrawal,
            Begin: lambda _message: engine.readiness.finish_loading(),
            ReadySockets: lambda message: self._processes.update(
                message.sockets, message.restart_count
            ),
            Follow: lambda _message: engine.control.poll(),
            Reopen: lambda _message: self._server.reopen_logs(),
            Leave: lambda _message: engine.drain(),
            Drain: lambda message: self._drain(is_replaced=message.is_replaced),
        }

    def send(self, message: FromProcess) -> None:
        """Tell the supervisor."""
        self._channel.write(framed(message))

    async def serve(self, control: socket.socket, handover: socket.socket) -> int:
        """Run from start to end, and return the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._retire)
        control.setblocking(False)
        handover.setblocking(False)
        self._crashes.start(loop)
        await loop.connect_accepted_socket(lambda: self._channel, control)
        try:
            await self._open()
        except InvalidConfig as error:
            LOGGER.error("%s", error.message)  # noqa: TRY400 - its own words, no traceback
            # The supervisor then ends the server: another attempt would fail the same way.
            self.send(CannotStart())
            return await self._end(1)
        self._handover = handover
        # Only now: connections wait in the socket until the ports are open.
        loop.add_reader(handover, self._take)
        jobs = self._beat(), self._push(), self._look(), self._watch_history()
        telling = [loop.create_task(one) for one in jobs]
        loading = loop.create_task(self._load())
        draining = loop.create_task(self._draining.wait())
        # A process may be told to end while its models load.
        await asyncio.wait((loading, draining), return_when=asyncio.FIRST_COMPLETED)
        is_loaded = loading.done()
        code = loading.result() if is_loaded else 0
        if code:
            self.send(CannotStart(code))
        await draining
        code = max(code, await self._finish())
        for task in (loading, *telling):
            task.cancel()
        code = await self._end(code)
        if code or not is_loaded:
            # Before the abrupt end, or the next start would take this for a crash.
            self._crashes.close()
            # Threads that load models cannot be stopped.
            end_now(code)
        return code

    async def _open(self) -> None:
        await self._server.open()
        if (exchange := self._server.engine.exchange) is not None:
            await exchange.open(self._start.socket)

    async def _finish(self) -> int:
        """Finish what is in flight, here and for other processes; return the exit code."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._config.exit_timeout_secs
        is_done = await drain(self._server, self._config)
        engine = self._server.engine
        if (exchange := engine.exchange) is not None:
            end_s -= _CLOSING_S
            await self._keep_sequences(exchange, end_s)
            left_s = max(LOOK_S, end_s - loop.time())
            await exchange.finish(left_s, is_replaced=engine.readiness.is_replaced)
        self._fellows.close()
        # What has been counted since the last one, before this process is gone.
        self.send(Tally(engine.whole.numbers()))
        await self._server.stop()
        return 0 if is_done else 1

    async def _keep_sequences(self, exchange: "Exchange", end_s: float) -> None:
        """Wait until the last sequence has ended here, if another process has taken over.

        That one passes their requests on.
        """
        loop = asyncio.get_running_loop()
        while True:
            has_some = self._server.engine.readiness.is_replaced and exchange.owned.sequence_count
            if not has_some or loop.time() >= end_s:
                return
            await asyncio.sleep(LOOK_S)

    async def _load(self) -> int:
        """Load the models, and return the exit code if that ends the server."""
        config, engine = self._config, self._server.engine
        try:
            await self._server.load()
        except InferdError as error:
            LOGGER.error("%s", error.message)  # noqa: TRY400 - its own words, no traceback
            if config.exit_on_error is not False:
                return 1
            engine.readiness.fail()
        keep_freed_memory()
        spare_loaded_objects()
        if ends_by_failures(self._server, config):
            return 1
        self._say_loaded()
        return 0

    def _say_loaded(self) -> None:
        engine = self._server.engine
        report, warning = loaded_report(self._server, self._config)
        serves, failed = engine.control.prints(), engine.catalog.failed()
        self.send(ModelsLoaded(tuple(report), warning, serves, failed))

    def _start_withdrawal(self, message: Withdraw) -> None:
        work = self._withdraw(message.failed)
        self._withdrawal = asyncio.get_running_loop().create_task(work)

    async def _withdraw(self, failed: Failed) -> None:
        """Stop serving what another process could not load, and say again what is loaded."""
        await self._server.engine.control.withdraw(failed)
        self._say_loaded()

    async def _end(self, code: int) -> int:
        """Say good-bye; what was said before reaches the supervisor first."""
        self.send(Stopping(code))
        self._channel.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._channel.ended.wait()
        return code

    def _hear(self, body: bytes) -> None:
        message = to_process(body)
        if (handler := self._handlers.get(type(message))) is not None:
            handler(message)

    def _orphaned(self) -> None:
        """The supervisor has gone: nobody will bring connections, or ask for an end."""
        if not self._draining.is_set():
            LOGGER.error("the supervisor has ended: finishing what is in flight")
            shutil.rmtree(self._start.folder, ignore_errors=True)  # nobody else will do it
            self._drain()

    def _retire(self) -> None:
        """Somebody else wants this process to end."""
        LOGGER.info("SIGTERM from somebody else: this process is to be replaced")
        self.send(Retire())

    def _drain(self, *, is_replaced: bool = False) -> None:
        self._server.engine.readiness.is_replaced = is_replaced
        # A C thread that needs no GIL: it ends the process even if a model blocks the loop.
        faulthandler.dump_traceback_later(self._config.exit_timeout_secs + 1.0, exit=True)
        self._crashes.note_stopping()
        # What the supervisor has passed on before it knew of the end is still served.
        self._take()
        self._server.engine.drain()
        self._draining.set()

    def _take(self) -> None:
        """Take the connections that the supervisor has passed on."""
        loop = asyncio.get_running_loop()
        if self._handover is None:  # the ports are not open yet
            return
        try:
            while (found := _taken(self._handover)) is not None:
                self._received_count += 1
                name, descriptor = found
                connection = socket.socket(fileno=descriptor)
                connection.setblocking(False)
                task = loop.create_task(self._serve_one(name, connection))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (EOFError, OSError):
            loop.remove_reader(self._handover)

    async def _serve_one(self, name: str, connection: socket.socket) -> None:
        try:
            await self._server.take(name, connection)
        except (OSError, KeyError):  # the client has gone, or the handshake failed
            connection.close()

    async def _beat(self) -> None:
        while True:
            self.send(Beat())
            await asyncio.sleep(BEAT_S)

    async def _watch_history(self) -> None:
        """Ask to be replaced when a version that serves here has ended other processes too often.

        The process that takes the place of this one runs it in a worker.
        """
        engine = self._server.engine
        while True:
            await asyncio.sleep(BEAT_S)
            if engine.readiness.state() is not ServerState.READY:
                continue
            isolated = self._crashes.newly_isolated()
            rows = engine.catalog.index(ready=True) if isolated else ()
            if found := sorted(isolated & {(row.name, row.version) for row in rows}):
                text = "model '%s' version %s has ended processes: this one is to be replaced, too"
                LOGGER.warning(text, *found[0])
                self.send(Retire())

    async def _look(self) -> None:
        while True:
            now = ConnectionLoad(
                self._server.connection_count + len(self._tasks), self._received_count
            )
            if now != self._last_load:
                self._last_load = now
                self.send(now)
            await asyncio.sleep(LOOK_S)

    async def _push(self) -> None:
        whole = self._server.engine.whole
        before = None
        while True:
            await asyncio.sleep(PUSH_S)
            if (progress := whole.progress()) != before:
                before = progress
                self.send(Tally(await whole.in_turns()))


def _end_with_parent(parent: int) -> None:
    """Have this process get SIGTERM when `parent`, which started it, ends."""
    # Also if it is killed: nobody would bring connections any more, nor ask for an end.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGTERM)


def _taken(takes: socket.socket) -> tuple[str, int] | None:
    """Return the name of a port and a connection that came over `takes`, None if there is none.

    Raises EOFError when no more will come.
    """
    try:
        name, descriptors, _, _ = socket.recv_fds(takes, _NAME_BYTES, 1)
    except BlockingIOError:
        return None
    if not name:
        raise EOFError
    # The system may have dropped the descriptor, if this process has no room for it.
    return (name.decode(), descriptors[0]) if descriptors else _taken(takes)


if __name__ == "__main__":
    sys.exit(main())
