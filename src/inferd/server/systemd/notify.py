"""What the server tells systemd of itself: see sd_notify(3)."""

import asyncio
import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

READY = "READY=1"
RELOADING = "RELOADING=1"
STOPPING = "STOPPING=1"

# int() of a long text is slow.
_MOST_DIGITS = 20


class Notifier:
    """Tells whoever has set NOTIFY_SOCKET in `environ`, where no child will see it; or nobody.

    Nothing that goes wrong there is of any consequence here.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        # Taken out, or workers of models would talk to systemd in the server's name.
        self._address = environ.pop("NOTIFY_SOCKET", "")
        text, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_number = text.isdecimal() and len(text) < _MOST_DIGITS
        is_ours = is_number and pid in ("", str(os.getpid()))
        self.watchdog_s = int(text) / 1e6 if is_ours else 0.0
        """How often it must be told that the server is alive; 0: never."""
        self._state = ""
        self._status = ""

    def note(self, state: str, status: str = "") -> bool:
        """Tell the `state`, and the line for people, as far as they are others than before.

        False if that is to be tried again: the other side has not read what it was told before.
        """
        lines = []
        if state != self._state:
            lines.append(state)
            if state == RELOADING:
                # Required with RELOADING=1, to tell one reload from another (sd_notify(3)).
                lines.append(f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        if status != self._status:
            lines.append(f"STATUS={status}")
        if lines and not self._send("\n".join(lines)):
            return False
        self._state, self._status = state, status
        return True

    def keep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell from now on that the server is alive, twice as often as is asked for."""
        if self.watchdog_s:
            self._send("WATCHDOG=1")
            # As sd_watchdog_enabled(3) recommends.
            loop.call_later(self.watchdog_s / 2, self.keep, loop)

    def _send(self, text: str) -> bool:
        """Send a message, if there is somebody; False if it cannot be taken now."""
        if not self._address.startswith(("/", "@")):
            return True
        # "@" stands for a socket in the abstract namespace, whose address begins with NUL.
        where = self._address.replace("@", "\0", 1) if self._address[0] == "@" else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            # A systemd that hangs must not hang the server.
            one.setblocking(False)
            try:
                one.sendto(text.encode(), where)
            except BlockingIOError:
                return False
        return True
