"""Overruns: decides whether the model or the system made a run on the event loop take long.

On a busy machine the system may preempt a run of microseconds, and the wall clock shows
milliseconds. Sending the model to the threads for that would make each of its requests more
expensive, just when there is nothing to spare. The system counts its preemptions; a short overrun
is forgiven when that count has risen since the last look, within a budget that bounds how long a
model that really is slow can make the other connections wait.

When the budget is used up the next runs are watched: the thread's usage is read before and after
each. That is exact, but takes four system calls per run, so it ends soon.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

OVERRUN_NS = 1_000_000
"""A run on the loop that takes longer than this sends its size class back to the threads."""

MOST_FORGIVEN_NS = 20_000_000
"""A longer run makes the next runs be watched: few schedulers let a thread wait so long."""

BUDGET_NS = 200_000_000
"""How much time in total may be forgiven on suspicion within WINDOW_NS; a longer run never is."""

WINDOW_NS = 10_000_000_000

WATCHED_RUNS = 64
"""How many runs are watched when suspicion is not enough."""


class Usage(NamedTuple):
    """What the system has counted for a thread so far."""

    cpu_ns: int
    waits: int
    """Voluntary context switches: how often the thread waited for something."""
    preemptions: int
    """Involuntary context switches: how often the system took the processor from it."""


def _usage() -> Usage:
    """Return the usage of this thread, all zeros where the system does not count it."""
    try:
        from resource import RUSAGE_THREAD, getrusage
    except ImportError:  # only Linux counts for each thread
        return Usage(0, 0, 0)
    usage = getrusage(RUSAGE_THREAD)  # its CPU time is only as recent as the last tick
    return Usage(time.thread_time_ns(), usage.ru_nvcsw, usage.ru_nivcsw)


class Gauges(NamedTuple):
    """Readings of the calling thread: its CPU time in ns, and its whole Usage."""

    cpu_ns: Callable[[], int] = time.thread_time_ns
    usage: Callable[[], Usage] = _usage


class Overruns:
    """Judges the overruns of one model on the event loop; `clock` is in ns.

    While there are `runs_to_watch`, `watch` is called before each run.
    """

    def __init__(self, clock: Callable[[], int], usage: Callable[[], Usage]) -> None:
        self._clock = clock
        self._usage = usage
        self._seen = Usage(0, 0, 0)
        self._is_watched = False
        self._forgiven_ns = 0
        self._since_ns = 0
        self.runs_to_watch = 0

    def look(self) -> None:
        """Note the thread's usage so far; called when a size class moves onto the loop."""
        self._seen = self._usage()
        self._is_watched, self.runs_to_watch = False, 0

    def watch(self) -> None:
        """Note the thread's usage before the coming run; the last of these calls ends watching."""
        self.runs_to_watch -= 1
        self._seen, self._is_watched = self._usage(), self.runs_to_watch > 0

    def is_forgiven(self, took_ns: int) -> bool:
        """Return whether the system caused, or may have caused, a run to take `took_ns`."""
        before, now_ns = self._seen, self._clock()
        self._seen = now = self._usage()
        was_preempted = now.preemptions != before.preemptions
        if self._is_watched:
            is_short = now.cpu_ns - before.cpu_ns <= OVERRUN_NS
            # A run that waited (a lock, a file) was slow by itself, whatever the system did.
            return was_preempted and is_short and now.waits == before.waits
        if now_ns - self._since_ns > WINDOW_NS:
            self._since_ns, self._forgiven_ns = now_ns, 0
        # Counted also where it is not forgiven: so many long runs in a row use the budget up in any
        # case.
        self._forgiven_ns += took_ns
        if not was_preempted or took_ns > BUDGET_NS:
            return False
        if took_ns > MOST_FORGIVEN_NS or self._forgiven_ns > BUDGET_NS:
            self.runs_to_watch, self._forgiven_ns = WATCHED_RUNS, 0
        return True
