"""LineFile: lines that a thread of its own appends to a file, which others may append to as well.

Adding a line costs the event loop nothing but a place in a list: lines that come together are
written together, and a disk or a reader that hangs holds nobody up. Each write has whole lines, so
that those of several processes do not mix.
"""

import logging
import os
import select
import stat
import threading
from pathlib import Path
from typing import Final

from inferd.observe.complaints import Complaints

LOGGER = logging.getLogger("inferd")

MOST_LINES: Final = 50_000
"""So many lines may wait to be written; further ones are lost."""

PAUSE_S = 0.05
"""For so long, the thread waits for more lines."""

_MOST_AT_ONCE = 1000
_PIPE_BYTES = 4096  # what a pipe takes as a whole from each of its writers (PIPE_BUF)
_WAIT_S = 0.5
_STDERR = 2


class LineFile:
    """Appends lines to the file `path`, None for standard error; `name` is for messages."""

    def __init__(self, path: Path | None, name: str) -> None:
        self._path = path
        self._name = name
        self._lines: list[str] = []
        self._is_awake = False
        self._is_reopening = False
        self._wake = threading.Event()
        self._end = threading.Event()
        self._writer: threading.Thread | None = None
        self._descriptor = -1
        self._is_torn = False  # the last write ended within a line
        self._lost = Complaints(LOGGER, f"lines of {name} were lost")

    def open(self) -> None:
        """Open the file. Raises OSError."""
        self._descriptor = self._opened()

    def add(self, line: str) -> None:
        """Have `line`, which ends in a line break, written soon. Called on the event loop."""
        lines = self._lines
        if len(lines) >= MOST_LINES:
            self._lost.add(1, ", because they come faster than they can be written")
            return
        lines.append(line)
        if not self._is_awake:
            self._is_awake = True
            self._wake_up()

    def reopen(self) -> None:
        """Have the file opened again by name, as log rotation may have renamed it."""
        self._is_reopening = True
        self._wake_up()

    def close(self, timeout_s: float) -> None:
        """Write what is left, and close the file; give up after `timeout_s` seconds."""
        self._end.set()
        if self._writer is not None:
            self._wake.set()
            self._writer.join(timeout_s)
            if self._writer.is_alive():
                return  # it hangs in a write
            self._writer = None
        if self._descriptor > _STDERR:
            os.close(self._descriptor)
        self._descriptor = -1

    def _wake_up(self) -> None:
        if self._writer is None:
            # A daemon: a disk that hangs must not keep the process from ending.
            self._writer = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._writer.start()
        self._wake.set()

    # --- in the thread ---

    def _work(self) -> None:
        is_last = False
        late: list[str] = []
        while not is_last:
            self._wake.wait()
            self._wake.clear()
            is_last = self._end.wait(PAUSE_S)
            self._is_awake = False
            if self._is_reopening:
                self._is_reopening = False
                self._open_again()
            lines, self._lines = self._lines, []
            # Whoever was about to add a line may have added it to the list that was taken before.
            for start in range(0, len(late), _MOST_AT_ONCE):
                self._try_to_write(late[start : start + _MOST_AT_ONCE])
            count = len(lines)
            for start in range(0, count, _MOST_AT_ONCE):
                self._try_to_write(lines[start : min(start + _MOST_AT_ONCE, count)])
            del lines[:count]
            late = lines
        self._try_to_write(late)

    def _try_to_write(self, lines: list[str]) -> None:
        if not lines:
            return
        try:
            self._write(lines)
        except OSError as error:
            self._lost.add(len(lines), f": {error.strerror}")

    def _open_again(self) -> None:
        try:
            fresh = self._opened()
        except OSError as error:
            LOGGER.error("%s cannot be opened again: %s", self._name, error.strerror)  # noqa: TRY400
            return
        old, self._descriptor = self._descriptor, fresh
        if old > _STDERR:
            os.close(old)
        LOGGER.info("%s was opened again", self._name)

    def _opened(self) -> int:
        if self._path is None:
            return _STDERR
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        return os.open(self._path, flags, 0o666)

    def _write(self, lines: list[str]) -> None:
        """Write `lines` in as few writes as there may be. Raises OSError."""
        if stat.S_ISFIFO(os.fstat(self._descriptor).st_mode):
            piece = ""
            for line in lines:
                if piece and len(piece) + len(line) > _PIPE_BYTES:
                    self._write_all(piece)
                    piece = ""
                piece += line
            self._write_all(piece)
        else:
            self._write_all("".join(lines))

    def _write_all(self, text: str) -> None:
        data = memoryview(text.encode("ascii", "backslashreplace"))
        if self._is_torn:
            data = memoryview(b"\n" + data)
        self._is_torn = False
        while data:
            try:
                count = os.write(self._descriptor, data)
            except BlockingIOError:  # somebody else has made standard error so
                select.select([], [self._descriptor], [], _WAIT_S)
                if self._end.is_set():
                    raise
                continue
            self._is_torn = count < len(data)
            data = data[count:]
