"""FolderCache: folders that take long to create, created once and shared by all processes.

Each user of a folder holds a shared lock on the mark file in it, which is released however its
process ends. So every process can tell which folders are unused; the oldest of these are deleted.
"""

import contextlib
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from inferd import system
from inferd.errors import InvalidConfig, Unavailable

log = logging.getLogger("inferd.backends")

DONE = ".inferd-done"
"""The file that marks its folder as complete; its mtime is when the folder was last used."""

DEFAULT_COUNT = 32
"""How many folders are kept, besides older ones in use."""

_LOOK_S = 0.05
_GONE = ".gone-"  # the prefix of folders being deleted


class Use:
    """A folder that is not deleted as long as this object lives."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def __del__(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


class FolderCache:
    """A folder of folders, each created once. Everything here may block: run it in a thread.

    When another is created, the oldest unused ones beyond `count` are deleted.
    """

    def __init__(self, root: Path, count: int = DEFAULT_COUNT) -> None:
        self._root = root
        self._count = count

    def use(self, key: str, make: Callable[[Path], None], timeout_s: float, place: str) -> Use:
        """Return the folder called `key`, which `make` creates if it is missing.

        Later callers wait for it, at most `timeout_s`; a folder that `make` left unfinished is
        created anew. Raises Unavailable on a timeout, InvalidConfig if nothing can be written, and
        whatever `make` raises.
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
        """Delete the folders beyond the count, and those that somebody began to delete."""
        ages = []
        for folder in self._root.iterdir():
            if folder.name.startswith(_GONE):
                shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # it is incomplete, or already gone
                ages.append(((folder / DONE).stat().st_mtime_ns, folder))
        for _, folder in sorted(ages)[: -self._count]:
            with (
                contextlib.suppress(OSError, Unavailable),
                _locked(self._lock(folder.name), 0, ""),
            ):
                self._delete_unused(folder)

    def _delete_unused(self, folder: Path) -> None:
        """Delete a folder whose lock we hold. Raises BlockingIOError if it is in use."""
        descriptor = os.open(folder / DONE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            system.lock_file(descriptor)
            # Renamed first, as deleting takes long: whoever looks meanwhile
            # finds no half of an environment.
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
    """Return a Use of a complete folder that is not being deleted, or None."""
    mark = folder / DONE
    try:
        descriptor = os.open(mark, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    use = Use(folder, descriptor)
    try:
        system.lock_file(descriptor, is_shared=True)
        # Between opening and locking, the folder may have been deleted and made anew: the lock
        # would be on a file that nobody sees.
        if os.fstat(descriptor).st_ino != mark.stat().st_ino:
            return None
    except (BlockingIOError, FileNotFoundError):  # it is being deleted
        return None
    with contextlib.suppress(OSError):  # another user's, which we may only read
        os.utime(mark)
    return use


@contextlib.contextmanager
def _locked(path: Path, timeout_s: float, place: str) -> Iterator[None]:
    """Hold the lock file `path`, which exists only while somebody holds or wants it."""
    deadline_s = time.monotonic() + timeout_s
    while (descriptor := _take(path)) is None:
        if time.monotonic() > deadline_s:
            msg = f"{place}: another load has been making its environment for {timeout_s:g} s"
            raise Unavailable(msg)
        # Polled, as flock cannot wait with a deadline.
        threading.Event().wait(_LOOK_S)
    try:
        yield
    finally:
        # Before the lock is released: whoever gets it afterwards sees that
        # the file is gone, and makes a new one.
        path.unlink(missing_ok=True)
        os.close(descriptor)  # releases the lock


def _take(path: Path) -> int | None:
    """Return the open lock file if nobody else holds the lock and the file is still there."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        system.lock_file(descriptor)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:  # otherwise its holder has removed it
            return descriptor
    os.close(descriptor)
    return None
