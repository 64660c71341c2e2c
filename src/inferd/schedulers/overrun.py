"""Overruns: whose fault it is when a run on the event loop takes long.

On a busy machine the system takes the processor away in the middle of a run of microseconds, and
the clock on the wall shows milliseconds. Sending the model to the threads for that would make each
of its requests dearer, just when there is nothing to spare. The system counts how often it did so;
a short overrun is forgiven when that count has risen since the last look, within a budget that
bounds how long a model that really is slow can make the other connections wait.

When the budget is used up the next runs are watched: of each the system is asked before and after
what it did to the thread meanwhile. That is exact, and four system calls a run, so it ends soon.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

OVERRUN_NS = 1_000_000
"""A run on the loop that takes longer than this sends its size class back to the threads."""

MOST_FORGIVEN_NS = 20_000_000
"""A run longer than this is not forgiven on suspicion: hardly a scheduler lets a thread wait so."""

BUDGET_NS = 200_000_000
"""What is forgiven on suspicion within WINDOW_NS, together; a run this long never is."""

WINDOW_NS = 10_000_000_000

WATCHED_RUNS = 64
"""So many runs are watched when suspicion is not enough."""


class Usage(NamedTuple):
    """What the system did with a thread so far."""

    cpu_ns: int
    waits: int
    """How often the thread itself had nothing to do: it waited for something."""
    preemptions: int
    """How often the system took the processor from it."""


def _usage() -> Usage:
    """Return what the system counts of this thread; nothing but zeros if it does not."""
    try:
        from resource import RUSAGE_THREAD, getrusage
    except ImportError:  # only Linux counts for each thread
        return Usage(0, 0, 0)
    told = getrusage(RUSAGE_THREAD)  # whose own CPU time is as old as the last tick
    return Usage(time.thread_time_ns(), told.ru_nvcsw, told.ru_nivcsw)


class Gauges(NamedTuple):
    """What is read of the thread that asks: its CPU time in ns, and all of its Usage."""

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
        """Note what was done to the thread so far; called when a model comes to the loop."""
        self._seen = self._usage()
        self._is_watched, self.runs_to_watch = False, 0

    def watch(self) -> None:
        """Note what was done to the thread before the run that comes; the last call ends it."""
        self.runs_to_watch -= 1
        self._seen, self._is_watched = self._usage(), self.runs_to_watch > 0

    def is_forgiven(self, took_ns: int) -> bool:
        """Tell whether it was, or may have been, the system why a run took `took_ns`."""
        before, now_ns = self._seen, self._clock()
        self._seen = now = self._usage()
        was_preempted = now.preemptions != before.preemptions
        if self._is_watched:
            is_short = now.cpu_ns - before.cpu_ns <= OVERRUN_NS
            return was_preempted and is_short and now.waits == before.waits
        if now_ns - self._since_ns > WINDOW_NS:
            self._since_ns, self._forgiven_ns = now_ns, 0
        self._forgiven_ns += took_ns
        if not was_preempted or took_ns > BUDGET_NS:
            return False
        if took_ns > MOST_FORGIVEN_NS or self._forgiven_ns > BUDGET_NS:
            self.runs_to_watch, self._forgiven_ns = WATCHED_RUNS, 0
        return True
