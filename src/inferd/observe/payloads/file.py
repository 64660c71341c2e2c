"""EventFile: events as lines of JSON, in files of a limited size and number."""

import os
from itertools import pairwise
from pathlib import Path

from inferd.observe.payloads.event import PayloadEvent, as_line


class EventFile:
    """Appends to the file `path`; full, it becomes PATH.1, that one PATH.2, up to `count` files."""

    def __init__(self, path: Path, file_bytes: int, count: int) -> None:
        self._path = path
        self._file_bytes = file_bytes
        self._count = count
        self._descriptor = -1
        self._size = 0

    def open(self) -> None:
        """See PayloadSink."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        # Payloads are what clients sent in confidence.
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, event: PayloadEvent, attributes: dict[str, str]) -> None:
        """See PayloadSink."""
        line = as_line(event, attributes)
        size = sum(map(len, line))
        if self._descriptor < 0:
            self.open()
        if self._size and self._size + size > self._file_bytes:
            self._rotate()
        start = self._size
        try:
            self._size += os.writev(self._descriptor, line)  # as one, and without joining them
            if missing := start + size - self._size:
                view = memoryview(b"".join(line))[-missing:]
                while view:
                    count = os.write(self._descriptor, view)
                    self._size += count
                    view = view[count:]
        except OSError:
            os.ftruncate(self._descriptor, start)  # no half lines
            self._size = start
            raise

    def _rotate(self) -> None:
        self.close()
        shift(self._path, self._count)
        self.open()

    def close(self) -> None:
        """See PayloadSink."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def shift(path: Path, count: int) -> None:
    """Make room for a new file `path`: it becomes PATH.1, that one PATH.2, up to `count` files."""
    files = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, count))]
    files[-1].unlink(missing_ok=True)
    # From the oldest on, or each would overwrite the next.
    for newer, older in reversed(list(pairwise(files))):
        if newer.exists():
            newer.replace(older)
