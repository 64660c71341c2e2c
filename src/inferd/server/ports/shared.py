"""SharedPorts: the ports of a server of several processes, and the connections that come there."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from inferd.config.ports import cannot_listen, cannot_listen_at, listening, why_not
from inferd.config.server import ServerConfig
from inferd.fleet.listening import BACKLOG, EXHAUSTED, BoundPort, accepted, bound
from inferd.server.systemd.sockets import GRPC_UNIX, HTTP_UNIX, arranged, passed_sockets, placed
from inferd.transport.unix_socket import UnixSocket

log = logging.getLogger("inferd")

_PAUSE_S = 0.2
"""How long nothing is accepted when the system has no more open files."""


class SharedPorts:
    """Accepts connections for all processes; `give` hands one on, False if none takes it now."""

    def __init__(self, give: Callable[[str, socket.socket], bool]) -> None:
        self._give = give
        self._listeners: list[BoundPort] = []
        self._unix: list[UnixSocket] = []
        self._waiting: list[tuple[str, socket.socket]] = []  # connections that nobody took
        self._accepts = False
        self._is_suspended = False

    def bind(self, config: ServerConfig, address: str) -> ServerConfig:
        """Open all ports that systemd has not opened; return `config` with where they are.

        Raises InvalidConfig.
        """
        given = arranged(passed_sockets(os.environ, os.getpid()), config, address)
        self._listeners += given.values()
        for port in listening(config, address):
            if port.protocol in given:
                continue
            try:
                found = bound(port.protocol, port.address, port.number, reuse=port.is_reused)
            except OSError as error:
                raise cannot_listen(port, why_not(error)) from error
            self._listeners.append(found)
        for name, word, path in (
            (HTTP_UNIX, "http", config.http_unix_socket),
            (GRPC_UNIX, "grpc", config.grpc_unix_socket),
        ):
            if path and name not in given:
                self._bind_unix(name, word, path)
        return placed(config, address, given)

    def numbers(self) -> dict[str, int]:
        """Return the numbers of the ports by protocol, 0 for a Unix socket."""
        return {one.name: one.number for one in self._listeners}

    def paths(self) -> list[str]:
        """Return the paths of the Unix sockets."""
        return [path for one in self._listeners if not one.number for path in one.paths]

    def accept(self, *, is_open: bool) -> None:
        """Look for connections from now on, or leave them in the backlog."""
        self._accepts = is_open
        self._watch()

    def pass_on(self) -> None:
        """Try once more with connections that nobody took."""
        waiting, self._waiting = self._waiting, []
        self._offer(waiting)

    def close(self) -> None:
        """Take the connections that wait, and close the ports."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            for one in listener.sockets:
                loop.remove_reader(one)
                with suppress(OSError):
                    # What is in the backlog has been accepted by the system already: closing would
                    # reset it.
                    while self._take(listener.name, one):
                        pass
                one.close()
        self._listeners.clear()

    def remove_paths(self) -> None:
        """Remove the Unix sockets from their folders."""
        for one in self._unix:
            one.remove()

    def _bind_unix(self, name: str, word: str, path: str) -> None:
        try:
            self._unix.append(one := UnixSocket(path))
            one.socket.setblocking(False)
            one.socket.listen(BACKLOG)
        except OSError as error:
            raise cannot_listen_at(word, path, why_not(error)) from error
        self._listeners.append(BoundPort(name, 0, [one.socket]))

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            for one in listener.sockets:
                if self._accepts and not self._is_suspended:
                    loop.add_reader(one, self._take, listener.name, one)
                else:
                    # Connections wait in the backlog of the system meanwhile.
                    loop.remove_reader(one)

    def _take(self, name: str, listener: socket.socket) -> int:
        """Accept what waits at a socket, and pass it on; return how many there were."""
        try:
            connections = accepted(listener)
        except OSError as error:
            if error.errno in EXHAUSTED:
                log.warning("no connection can be accepted now: %s", error.strerror)
                self._is_suspended = True
                self._watch()
                asyncio.get_running_loop().call_later(_PAUSE_S, self._resume)
                return 0
            raise
        self._offer([(name, connection) for connection in connections])
        return len(connections)

    def _offer(self, connections: list[tuple[str, socket.socket]]) -> None:
        # Kept: they have been accepted, and the next tick may find somebody.
        self._waiting += [one for one in connections if not self._give(*one)]

    def _resume(self) -> None:
        self._is_suspended = False
        self._watch()
