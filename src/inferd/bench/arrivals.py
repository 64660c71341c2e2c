"""When requests are to be sent: evenly, as a Poisson process, or as they were recorded."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Times = np.ndarray[Any, np.dtype[np.int64]]
"""Nanoseconds since the beginning, ascending."""

KINDS = ("constant", "poisson")


def arrivals(kind: str, rate: float, seconds: float, seed: int) -> Times:
    """Return when requests are to be sent at `rate` a second, for so many seconds.

    Those of "poisson" are independent of each other, as those of many users are. The same seed
    gives the same times, so that several processes can each take their part of one schedule.
    """
    if kind == "constant":
        count = int(rate * seconds)
        # Rounded from multiples, so errors of the gap do not add up.
        return np.round(np.arange(count) * (1e9 / rate)).astype(np.int64)
    random = np.random.default_rng(seed)
    # Some more than expected, so the loop below hardly ever runs.
    gaps = random.exponential(1e9 / rate, int(rate * seconds * 1.2) + 100)
    times = np.cumsum(gaps)
    while times[-1] < seconds * 1e9:  # unlikely: few gaps, all short
        more = np.cumsum(random.exponential(1e9 / rate, len(gaps))) + times[-1]
        times = np.concatenate([times, more])
    return times[times < seconds * 1e9].astype(np.int64)


def recorded(offsets_s: Sequence[float], speed: float) -> Times:
    """Return when recorded requests are to be sent, `speed` times as fast as they were."""
    times = np.asarray(offsets_s, np.float64)
    found: Times = np.round((times - times[0]) * (1e9 / speed)).astype(np.int64)
    return found


def part_of(times: Times, part: int, count: int) -> Times:
    """Return the times of one of `count` processes: each `count`-th; together they are all."""
    # Every count-th: each process has the same load at each moment.
    return times[part::count]
