"""Child: a process of the server, its channel, and the socket over which it gets connections."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from inferd.fleet.channel import Channel

_PR_SET_PDEATHSIG = 1
_NAME_BYTES = 100
MODULE = "inferd.server.member"


def passes_sockets() -> bool:
    """Tell whether this system can pass sockets from one process to another, and end orphans."""
    return sys.platform == "linux"


class Child:
    """A process that has been started; `hear` gets the bodies of its messages."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._control, theirs = socket.socketpair()
        self._handover, takes = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        self._handover.setblocking(False)
        pid = os.getpid()
        with theirs, takes:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    MODULE,
                    *map(str, (theirs.fileno(), takes.fileno(), pid)),
                ],
                pass_fds=(theirs.fileno(), takes.fileno()),
                stdin=subprocess.DEVNULL,
            )
        self.channel = Channel(hear, lambda: None)
        self.pid = self._process.pid

    @property
    def control(self) -> socket.socket:
        """The socket that the channel is to use."""
        return self._control

    @property
    def rss_bytes(self) -> int:
        """The memory that the process has now, 0 if it has ended."""
        try:
            with open(f"/proc/{self.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    def hand(self, name: str, connection: socket.socket) -> bool:
        """Give a connection of the port `name` to the process; False if it takes none now."""
        try:
            socket.send_fds(self._handover, [name.encode()], [connection.fileno()])
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def ended(self) -> str | None:
        """Return how the process has ended, None while it lives."""
        code = self._process.poll()
        if code is None:
            return None
        self._handover.close()
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"


def taken(takes: socket.socket) -> tuple[str, int] | None:
    """Return the name of a port and a connection that came over `takes`, None if there is none.

    Raises EOFError when no more will come.
    """
    try:
        name, descriptors, _, _ = socket.recv_fds(takes, _NAME_BYTES, 1)
    except BlockingIOError:
        return None
    if not name:
        raise EOFError
    return (name.decode(), descriptors[0]) if descriptors else taken(takes)


def end_with_parent(parent: int) -> None:
    """Have this process get SIGTERM when `parent`, which started it, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGTERM)
