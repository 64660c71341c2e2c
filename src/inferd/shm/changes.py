"""Changes: the system tells when a shared memory object was truncated or removed (inotify).

To ask it for each request, with fstat, costs a fifth of what a request through shared memory
costs: system calls make the Python code between them slow (inferd.transport.turns). So an object
is looked at once, and again when its size or its links may have changed. The notice is there before
the client's call returns, and the event loop reads all notices before it answers what it has read.
"""

import asyncio
import ctypes
import os
from typing import Protocol
from weakref import WeakSet

_ATTRIB, _MODIFY = 0x4, 0x2  # links, among others; size, and what is written by write()
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_MOST_BYTES = 1 << 16  # of notices that are read at a time; each has 16


class Watched(Protocol):
    """What looks at its object while `is_unsure`."""

    is_unsure: bool


class Changes:
    """Sets `is_unsure` of what it watches. For one event loop, and while that runs.

    What cannot be watched stays unsure for ever: there is no event loop, or the system has no
    inotify, or no more of it to give. Use `watch` and `close` in the event loop's thread.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._fd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched: dict[int, WeakSet[Watched]] = {}  # by the system's number of the object

    def watch(self, fd: int, watched: Watched) -> bool:
        """Watch the object that is open as `fd` for `watched`; tell whether that can be done."""
        if self._fd < 0 and not self._open():
            return False
        path = b"/proc/self/fd/%d" % fd
        number = self._libc.inotify_add_watch(self._fd, path, _ATTRIB | _MODIFY)
        if number < 0:
            return False
        self._watched.setdefault(number, WeakSet()).add(watched)
        return True

    def tidy(self) -> None:
        """Stop watching the objects that nobody uses any more."""
        for number in [number for number, users in self._watched.items() if not users]:
            del self._watched[number]
            self._libc.inotify_rm_watch(self._fd, number)

    def close(self) -> None:
        """Watch nothing any more."""
        self._doubt_all()
        self._watched.clear()
        if self._fd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        try:
            self._loop = asyncio.get_running_loop()
            self._fd = self._libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        except (RuntimeError, AttributeError):  # no event loop; no Linux
            return False
        if self._fd < 0:
            return False
        self._loop.add_reader(self._fd, self._read)
        return True

    def _read(self) -> None:
        """Doubt whatever there is a notice of."""
        try:
            notices = memoryview(os.read(self._fd, _MOST_BYTES))
        except BlockingIOError:
            return
        # Each is struct inotify_event: number, mask, cookie, length of a name; ours have no names.
        for number in set(notices.cast("i")[::4]):
            if number < 0:  # the system had no room for some
                self._doubt_all()
            for watched in self._watched.get(number, ()):
                watched.is_unsure = True

    def _doubt_all(self) -> None:
        for users in self._watched.values():
            for watched in users:
                watched.is_unsure = True
