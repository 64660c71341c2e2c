"""Kept: folders that take long to make, made once, whoever asks first, in any process.

Who uses one holds a shared lock on the mark in it, until it ends, however that comes. So it is
known in every process which of them nobody uses; of these the oldest are deleted.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from inferd.errors import InvalidConfig, Unavailable

log = logging.getLogger("inferd.backends")

DONE = ".inferd-done"
"""The file that says that the folder around it is whole; its time, when it was last used."""

DEFAULT_COUNT = 32
"""So many folders are kept, and those in use."""

_LOOK_S = 0.05
_GONE = ".gone-"  # what begins so is being deleted


class Use:
    """A folder that stays as long as this object."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def __del__(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)


class Kept:
    """A folder of folders, each of which is made once. All here waits: it is for a thread.

    When another is made the oldest beyond `count` are deleted that nobody uses.
    """

    def __init__(self, root: Path, count: int = DEFAULT_COUNT) -> None:
        self._root = root
        self._count = count

    def use(self, key: str, make: Callable[[Path], None], timeout_s: float, place: str) -> Use:
        """Return the folder called `key`, which `make` makes if it is not there.

        Who comes second waits for it, `timeout_s` at most; what `make` left unfinished is made
        anew. Raises Unavailable, InvalidConfig where nothing can be written, what `make` raises.
        """
        folder = self._root / key
        use = _use(folder)
        if use is not None:
            return use
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(self._lock(key), timeout_s, place):
                use = _use(folder)
                if use is None:
                    shutil.rmtree(folder, ignore_errors=True)
                    self._make(folder, make)
                    use = _use(folder)
                    assert use is not None  # nobody deletes it while we have its lock
            self._delete_oldest()
        except OSError as error:
            msg = f"{place}: its environment cannot be kept: {error.strerror}"
            raise InvalidConfig(msg) from error
        return use

    def _lock(self, key: str) -> Path:
        return self._root / f"{key}.lock"

    def _delete_oldest(self) -> None:
        """Delete what is beyond the count, and what somebody else began to delete."""
        ages = []
        for folder in self._root.iterdir():
            if folder.name.startswith(_GONE):
                shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # it is not whole, or gone meanwhile
                ages.append(((folder / DONE).stat().st_mtime_ns, folder))
        for _, folder in sorted(ages)[: -self._count]:
            with (
                contextlib.suppress(OSError, Unavailable),
                _locked(self._lock(folder.name), 0, ""),
            ):
                self._delete_unused(folder)

    def _delete_unused(self, folder: Path) -> None:
        """Delete a folder whose lock we have, unless somebody uses it: raise BlockingIOError."""
        descriptor = os.open(folder / DONE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = folder.rename(self._root / f"{_GONE}{uuid.uuid4().hex}")
        finally:
            os.close(descriptor)
        shutil.rmtree(gone, ignore_errors=True)
        log.info("an environment that nobody uses was deleted: %s", folder.name)

    def _make(self, folder: Path, make: Callable[[Path], None]) -> None:
        try:
            make(folder)
            (folder / DONE).touch()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _use(folder: Path) -> Use | None:
    """Use a folder that is whole and stays; None where there is none."""
    mark = folder / DONE
    try:
        descriptor = os.open(mark, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    use = Use(folder, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino != mark.stat().st_ino:
            return None
    except (BlockingIOError, FileNotFoundError):  # it is being deleted
        return None
    with contextlib.suppress(OSError):  # it is somebody else's, and may be read
        os.utime(mark)
    return use


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
