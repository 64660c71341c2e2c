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

# Some ten megabytes of lines.
MOST_LINES: Final = 50_000
"""So many lines may wait to be written; further ones are lost."""

PAUSE_S = 0.05
"""For so long, the thread waits for more lines."""

# Joined as one text, which takes the interpreter away from the event loop meanwhile.
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
            # Lost rather than waited for: a full disk must not stop answers.
            self._lost.add(1, ", because they come faster than they can be written")
            return
        lines.append(line)
        # Event.set takes a lock, so only the first line of a burst pays for it.
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
                # The descriptor stays open: the thread is in a call with its number, which another
                # file might get.
                return  # it hangs in a write
            self._writer = None
        # Standard error is not ours to close.
        if self._descriptor > _STDERR:
            os.close(self._descriptor)
        self._descriptor = -1

    def _wake_up(self) -> None:
        if self._writer is None:
            # A daemon: a disk that hangs must not keep the process from ending.
            self._writer = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._writer.start()
        self._wake.set()

    def _work(self) -> None:
        is_last = False
        late: list[str] = []
        while not is_last:
            self._wake.wait()
            self._wake.clear()
            # Ends early when the file is closed.
            is_last = self._end.wait(PAUSE_S)
            # Before the lines are taken: one that is added in between wakes the thread once more,
            # for nothing, but is not left lying.
            self._is_awake = False
            if self._is_reopening:
                # Before opening: a second signal that comes meanwhile counts again.
                self._is_reopening = False
                self._open_again()
            # Without a lock: the exchange is one step of the interpreter, and `add` holds the list
            # it has fetched, hence `late`.
            lines, self._lines = self._lines, []
            # Whoever was about to add a line may have added it to the list that was taken before.
            for start in range(0, len(late), _MOST_AT_ONCE):
                self._try_to_write(late[start : start + _MOST_AT_ONCE])
            count = len(lines)
            for start in range(0, count, _MOST_AT_ONCE):
                # Only what was counted: `add` may still append to this list.
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
        # Each write goes to the end, wherever other processes have moved that.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        return os.open(self._path, flags, 0o666)

    def _write(self, lines: list[str]) -> None:
        """Write `lines` in as few writes as there may be. Raises OSError."""
        # A file takes each write as a whole; of a pipe only PIPE_BUF bytes are sure to stay
        # together.
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
        # The lines are ASCII already, escaped by json; anything else must not raise here.
        data = memoryview(text.encode("ascii", "backslashreplace"))
        if self._is_torn:
            # What follows a torn line begins a line of its own.
            data = memoryview(b"\n" + data)
        self._is_torn = False
        while data:
            try:
                count = os.write(self._descriptor, data)
            except BlockingIOError:  # somebody else has made standard error so
                # With a limit, so that the end of the server is noticed while a reader of the pipe
                # hangs.
                select.select([], [self._descriptor], [], _WAIT_S)
                if self._end.is_set():
                    raise
                continue
            self._is_torn = count < len(data)
            data = data[count:]
