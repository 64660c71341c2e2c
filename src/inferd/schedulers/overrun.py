"""Overruns: whose fault it is when a run on the event loop takes long.

On a busy machine the system takes the processor away in the middle of a run of microseconds, and
the clock on the wall shows milliseconds. Sending the model to the threads for that would make each
of its requests dearer, just when there is nothing to spare. The system counts how often it did so;
a short overrun is forgiven when that count has risen since the last look, within a budget that
bounds how long a model that really is slow can make the other connections wait.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

MOST_FORGIVEN_NS = 20_000_000
"""A run longer than this is never forgiven: no scheduler makes a thread wait that long at once."""

BUDGET_NS = 200_000_000
"""What is forgiven within WINDOW_NS, together."""

WINDOW_NS = 10_000_000_000


def _preemptions() -> int:
    """Return how often the system took the processor from this thread; always 0 if it won't say."""
    try:
        from resource import RUSAGE_THREAD, getrusage
    except ImportError:  # only Linux counts for each thread
        return 0
    return getrusage(RUSAGE_THREAD).ru_nivcsw


class Gauges(NamedTuple):
    """What is read of the thread that asks: its CPU time in ns, and how often it was preempted."""

    cpu_ns: Callable[[], int] = time.thread_time_ns
    preemptions: Callable[[], int] = _preemptions


class Overruns:
    """Judges the overruns of one model on the event loop; `clock` is in ns."""

    def __init__(self, clock: Callable[[], int], preemptions: Callable[[], int]) -> None:
        self._clock = clock
        self._preemptions = preemptions
        self._seen = 0
        self._forgiven_ns = 0
        self._since_ns = 0

    def look(self) -> None:
        """Note how often the thread was preempted so far; called when a model comes to the loop."""
        self._seen = self._preemptions()

    def is_forgiven(self, took_ns: int) -> bool:
        """Tell whether a run that took `took_ns` too long may be the system's doing."""
        seen, now_ns = self._preemptions(), self._clock()
        was_preempted = seen != self._seen
        self._seen = seen
        if now_ns - self._since_ns > WINDOW_NS:
            self._since_ns, self._forgiven_ns = now_ns, 0
        self._forgiven_ns += took_ns
        return was_preempted and took_ns <= MOST_FORGIVEN_NS and self._forgiven_ns <= BUDGET_NS
