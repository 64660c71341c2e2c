"""Commands: programs that create environments, run with a deadline and logged output."""

import logging
import os
import re
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from inferd.errors import BackendFailed, InvalidConfig

log = logging.getLogger("inferd.backends")

MAX_LINES = 12
"""How many of the last lines are reported when a program fails."""

MAX_LOGGED = 2000
"""The most lines that go to the log."""

MAX_LINE = 500

_READ_BYTES = 64 << 10
_LOOK_S = 0.2

# uv's errors begin with "error:" or with the signs of its
# diagnostics, a cross or the corner of a box.
_ERROR = re.compile(r"\W*error\b|\s*[\u00d7\u2570]", re.IGNORECASE)
_WARNING = re.compile(r"\W*warning\b", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^\s/@]+@")
_QUERY = re.compile(r"(://[^\s?#]+)[?#][^\s'\"`)]*")
_PATH = re.compile(r"(?:file://|(?<![\w.:/]))(?:/[^\s/'\"`:,;()]+)+/(?=[^\s/])")


def run_command(
    command: Sequence[str],
    place: str,
    *,
    folder: Path,
    timeout_s: float,
    variables: Mapping[str, str],
) -> str:
    """Run `command` in `folder` and return the last line it printed.

    Each line is logged after `place`, at the level it suggests. Raises InvalidConfig with the last
    lines if the command fails, BackendFailed if it takes too long: it is then killed together with
    its process group.
    """
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # One stream, as only then lines are in the order in which they were written.
            stderr=subprocess.STDOUT,
            # A group of its own: build backends start compilers, which have to go with it.
            start_new_session=True,
        )
    except OSError as error:
        msg = f"{place}: {Path(command[0]).name} cannot be started: {error.strerror}"
        raise InvalidConfig(msg) from error
    printed = _Printed(place)
    try:
        is_done = _follow(process, printed, time.monotonic() + timeout_s)
    finally:
        _end(process)
    if not is_done:
        msg = f"{place} took longer than {timeout_s:g} s; the last that was said: {printed}"
        raise BackendFailed(msg)
    if process.returncode:
        raise InvalidConfig(f"{place} failed: {printed}")
    return printed.last[-1] if printed.last else ""


def printable(line: str) -> str:
    """Return a line as clients may see it: without credentials and queries of URLs, or paths."""
    line = _QUERY.sub(r"\1", _USER.sub("", line))
    # Clients get the text of a failed load, and are not told what the server's
    # disk looks like; the log keeps the paths.
    return _PATH.sub("", line)[:MAX_LINE]


class _Printed:
    """The output of a program: it goes to the log, and its last lines are kept."""

    def __init__(self, place: str) -> None:
        self.last: deque[str] = deque(maxlen=MAX_LINES)
        self._place = place
        self._rest = b""
        self._count = 0
        self._has_failed = False

    def __str__(self) -> str:
        return "; ".join(map(printable, self.last)) or "nothing"

    def add(self, data: bytes) -> None:
        """Take output; an incomplete last line waits for more."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._tell(line)
        # A line without end is not kept as a whole.
        self._rest = self._rest[-_READ_BYTES:]

    def end(self) -> None:
        """Take an incomplete last line."""
        self._tell(self._rest)
        self._rest = b""

    def _tell(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()
        if not text:
            return
        self.last.append(text)
        self._count += 1
        if self._count <= MAX_LOGGED:
            shown = _QUERY.sub(r"\1", _USER.sub("", text))[:MAX_LINE]
            log.log(self._level(text), "%s: %s", self._place, shown)

    def _level(self, text: str) -> int:
        """Return the log level of a line; all lines after an error are errors, too."""
        self._has_failed = self._has_failed or _ERROR.match(text) is not None
        if self._has_failed:
            return logging.ERROR
        return logging.WARNING if _WARNING.match(text) else logging.INFO


def _follow(process: "subprocess.Popen[bytes]", printed: _Printed, deadline_s: float) -> bool:
    """Read until the program has ended; return False if that takes too long."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    has_ended = False
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while (left_s := deadline_s - time.monotonic()) > 0:
            # Awake now and then: a child that has the pipe open could keep it from ending for ever.
            if selector.select(0 if has_ended else min(left_s, _LOOK_S)):
                if data := os.read(fd, _READ_BYTES):
                    printed.add(data)
                    continue
                break
            if has_ended:  # and all was read: a child keeps the pipe open
                break
            has_ended = process.poll() is not None
    printed.end()
    try:
        process.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
