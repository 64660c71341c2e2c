"""Budget: how long a search may take, and whether one more measurement fits into it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TimeBudget:
    """Some seconds from now on, or any number of them.

    A measurement is expected to take as long as the longest before it. The first one always fits:
    without it there would be no result.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds
        self._longest: float | None = None

    @property
    def fits(self) -> bool:
        """Tell whether there is time for one more measurement."""
        if self._end is None or self._longest is None:
            return True
        return self._clock() + self._longest <= self._end

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Note how long a measurement takes."""
        begin = self._clock()
        yield
        self._longest = max(self._longest or 0.0, self._clock() - begin)
