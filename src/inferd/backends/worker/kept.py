"""Kept: folders that take long to make, made once, whoever asks first, in any process."""

import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from inferd.errors import InvalidConfig, Unavailable

DONE = ".inferd-done"
"""The file that says that the folder around it is whole."""

_LOOK_S = 0.05


class Kept:
    """A folder of folders, each of which is made once. All here waits: it is for a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, key: str, make: Callable[[Path], None], timeout_s: float, place: str) -> Path:
        """Return the folder called `key`, which `make` makes if it is not there.

        Who comes second waits for it, `timeout_s` at most; what `make` left unfinished is made
        anew. Raises Unavailable, InvalidConfig where nothing can be written, what `make` raises.
        """
        folder = self._root / key
        if (folder / DONE).exists():
            return folder
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(self._root / f"{key}.lock", timeout_s, place):
                if not (folder / DONE).exists():
                    shutil.rmtree(folder, ignore_errors=True)
                    self._make(folder, make)
        except OSError as error:
            msg = f"{place}: its environment cannot be kept: {error.strerror}"
            raise InvalidConfig(msg) from error
        return folder

    def _make(self, folder: Path, make: Callable[[Path], None]) -> None:
        try:
            make(folder)
            (folder / DONE).touch()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


@contextlib.contextmanager
def _locked(path: Path, timeout_s: float, place: str) -> Iterator[None]:
    """Hold the lock file `path`, which is there only while somebody holds or wants it."""
    deadline_s = time.monotonic() + timeout_s
    while (descriptor := _take(path)) is None:
        if time.monotonic() > deadline_s:
            msg = f"{place}: another load has been making its environment for {timeout_s:g} s"
            raise Unavailable(msg)
        threading.Event().wait(_LOOK_S)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)  # and so the lock is given back


def _take(path: Path) -> int | None:
    """Return the open lock file if nobody else has the lock, and it is still there."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:  # else its holder took it away
            return descriptor
    os.close(descriptor)
    return None
