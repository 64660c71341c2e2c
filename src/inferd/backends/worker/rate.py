"""Rate: how many of a worker's lines are logged each second; the others are counted."""

import time
from collections.abc import Callable


class Rate:
    """Allows `most_per_s` lines a second, by `clock_s`."""

    def __init__(self, most_per_s: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._most_per_s = most_per_s
        self._clock_s = clock_s
        self._second = 0
        self._count = 0

    def allows(self) -> bool:
        """Count a line, and return whether it may be logged."""
        self._count += 1
        return self._count <= self._most_per_s

    def missed(self, *, at_end: bool = False) -> int:
        """Return how many lines were not allowed, once their second is over or it is the end."""
        # Whole seconds in place of a sliding window: one counter, and
        # no time is kept for each line.
        second = int(self._clock_s())
        if second == self._second and not at_end:
            return 0
        missed_count = max(0, self._count - self._most_per_s)
        self._second, self._count = second, 0
        return missed_count
