"""PreciseTimer: a call on the event loop at a time.perf_counter_ns, accurate to some microseconds.

The event loop's own timers are too coarse for a queue delay: uvloop counts whole milliseconds,
and asyncio's selector rounds up to them. Linux has timers that are file descriptors, which the loop
watches as it does sockets; elsewhere the loop's own timers must do.
"""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from typing import Protocol

_CLOCK_MONOTONIC = 1  # on Linux that is the clock of time.perf_counter_ns
_TFD_NONBLOCK = os.O_NONBLOCK if hasattr(os, "O_NONBLOCK") else 0
_TFD_CLOEXEC = os.O_CLOEXEC if hasattr(os, "O_CLOEXEC") else 0
_TFD_TIMER_ABSTIME = 1
_MAX_NS = 2**62
"""A later time never comes; this one fits every system's seconds field."""


class Timer(Protocol):
    """A clock, and what wakes a scheduler; see PreciseTimer."""

    clock: Callable[[], int]

    def set(self, due_ns: int) -> None:
        """Wake at `due_ns` of `clock`, or earlier."""
        ...

    def set_soon(self) -> None:
        """Wake after one turn of the event loop."""
        ...

    def close(self) -> None:
        """Never wake again."""
        ...


class PreciseTimer:
    """Calls `wake` on the event loop at the time that was set last, or earlier.

    `wake` must look at the clock: one set for an earlier time still goes off then, since
    taking it back would cost as much as being woken. Used on the event loop only.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._due_ns = 0  # 0: it is not set
        self._timer: _FileTimer | _LoopTimer | None = None
        self._is_soon = False
        self.clock = time.perf_counter_ns

    def set(self, due_ns: int) -> None:
        """Go off at `due_ns` of `clock`."""
        # It goes off earlier anyway, and is set again then: no system call for most requests.
        if 0 < self._due_ns <= due_ns:
            return
        self._due_ns = due_ns
        # Made when it is first needed: it takes a file descriptor, and most schedulers never wait.
        if self._timer is None:
            self._timer = _timer(self._go_off)
        self._timer.set(min(due_ns, _MAX_NS))

    def set_soon(self) -> None:
        """Go off after one turn of the event loop."""
        if not self._is_soon:
            self._is_soon = True
            # Behind what is on the loop already, so that whoever was read in this turn is seen.
            asyncio.get_running_loop().call_soon(self._go_off_soon)

    def close(self) -> None:
        """Never go off again, except for a pending `set_soon`."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        self._due_ns = 0

    def _go_off_soon(self) -> None:
        self._is_soon = False
        self._wake()

    def _go_off(self) -> None:
        self._due_ns = 0
        self._wake()


class _FileTimer:
    """A Linux timer (timerfd_create(2))."""

    def __init__(self, library: ctypes.CDLL, wake: Callable[[], None]) -> None:
        self._settime = library.timerfd_settime
        self._wake = wake
        self._file = library.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._file, self._read)

    def set(self, due_ns: int) -> None:
        # A due time of 0 would turn the timer off (timerfd_settime(2)).
        seconds, nanoseconds = divmod(max(due_ns, 1), 1_000_000_000)
        spec = (ctypes.c_long * 4)(0, 0, seconds, nanoseconds)  # no interval, then the due time
        self._settime(self._file, _TFD_TIMER_ABSTIME, spec, None)

    def close(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)

    def _read(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return  # it was set anew after going off
        self._wake()


class _LoopTimer:
    """The event loop's own timer."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_ns: int) -> None:
        self.close()
        wait_s = max(0, due_ns - time.perf_counter_ns()) / 1e9
        self._handle = asyncio.get_running_loop().call_later(wait_s, self._wake)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _timer(wake: Callable[[], None]) -> _FileTimer | _LoopTimer:
    try:
        # The C library that the process has loaded.
        return _FileTimer(ctypes.CDLL(None, use_errno=True), wake)
    except (AttributeError, OSError, TypeError):  # no such call, no descriptor left, no C library
        return _LoopTimer(wake)
