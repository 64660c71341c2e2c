"""Files that are read again when they change: checked periodically, never per request."""

import asyncio
import logging
import os
from collections.abc import Callable

from inferd.errors import InvalidConfig

LOGGER = logging.getLogger("inferd")

LOOK_S = 1.0
"""The seconds between two looks at the files."""

_State = tuple[tuple[int, int, int] | None, ...]


class FileWatcher:
    """Reads files again when they have changed, and have then stayed the same for one more look.

    At the first look a file may be half written. Links are followed: Kubernetes replaces a secret's
    files by pointing a link elsewhere.
    """

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._watched: list[_Watched] = []
        self._timer: asyncio.TimerHandle | None = None

    def read(self, what: str, read: Callable[[], None], *paths: str) -> None:
        """Call `read`, now and whenever one of `paths` has changed.

        Raises what `read` raises now. Later, `read` may raise InvalidConfig if the files cannot be
        used: that is logged, with the files called `what`.
        """
        watched = _Watched(what, read, paths)
        read()
        # Only what could be read is watched.
        self._watched.append(watched)

    def start(self) -> None:
        """Begin looking, if there are files to look at."""
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(self._look_s, self._look_again)

    def stop(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Look once at every file."""
        for each in self._watched:
            each.look()

    def _look_again(self) -> None:
        # First, so that an error in a look does not end looking.
        self.start()
        self.look()


class _Watched:
    """A group of files that are used, and read again, together."""

    def __init__(self, what: str, read: Callable[[], None], paths: tuple[str, ...]) -> None:
        self._what = what
        self._read = read
        self._paths = paths
        self._known = self._seen = self._state()

    def look(self) -> None:
        state = self._state()
        # The same at two looks, and another than the one in use.
        if state == self._seen and state != self._known:
            # Before reading: a file that cannot be used is complained of once.
            self._known = state
            try:
                self._read()
            except InvalidConfig as error:
                LOGGER.error("%s stay as they were: %s", self._what, error.message)  # noqa: TRY400
            else:
                LOGGER.info("%s have changed, and count from now on", self._what)
        self._seen = state

    def _state(self) -> _State:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a path with a NUL in it
        return None
    # A file that was replaced has another inode, even with the same size and time.
    return found.st_ino, found.st_size, found.st_mtime_ns
