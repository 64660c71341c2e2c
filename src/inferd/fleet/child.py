"""Child: a process of the server, its channel, and the socket over which it gets connections."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress

from inferd import system
from inferd.fleet.channel import Channel

MODULE = "inferd.server.member"


class Child:
    """A process that has been started; `hear` gets the bodies of its messages.

    Raises OSError if the system cannot start another.
    """

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        # Descriptors may run out in the middle: whatever was opened until then is closed. Theirs
        # are closed in any case, as the child has its own.
        with ExitStack() as ours, ExitStack() as theirs:
            pairs = []
            # Messages are a stream, as they may be long. Connections come as packets: each with its
            # name whole, and descriptors are never split from their bytes.
            for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                mine, other = socket.socketpair(socket.AF_UNIX, kind)
                ours.enter_context(mine).setblocking(False)
                pairs.append((mine, theirs.enter_context(other).fileno()))
            (self.control, control), (self._handover, takes) = pairs
            # -P: what lies in the folder where the server was started is not imported.
            command = [sys.executable, "-P", "-m", MODULE]
            self._process = subprocess.Popen(
                # The parent's number, so that a child can tell whether it was
                # orphaned before it asked for PDEATHSIG.
                [*command, *map(str, (control, takes, os.getpid()))],
                pass_fds=(control, takes),
                stdin=subprocess.DEVNULL,
            )
            ours.pop_all()
        self.channel = Channel(hear, lambda: None)
        """To be connected with `control`."""
        self.pid = self._process.pid

    @property
    def rss_bytes(self) -> int:
        """The memory that the process has now, 0 if it has ended."""
        try:
            # statm is one line of numbers; status has the same in text that has to be searched.
            with open(f"/proc/{self.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    def hand(self, name: str, connection: socket.socket) -> bool:
        """Give a connection of the port `name` to the process; False if it takes none now."""
        try:
            socket.send_fds(self._handover, [name.encode()], [connection.fileno()])
        # The socket is full or closed: the process hangs, or has ended. The connection is given to
        # another one; waiting would stop all of them.
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def ended(self) -> str | None:
        """Return how the process has ended, None while it lives."""
        # poll also reaps the process, so that no zombie stays.
        code = self._process.poll()
        if code is None:
            return None
        self._handover.close()
        return system.how_ended(code)
