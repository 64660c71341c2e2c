"""Summary: quantiles of the durations of the last minute, from plain integers.

Each power of two has 16 buckets, so a quantile is off by at most 3 %. Asking for quantiles keeps a
copy of the counts from time to time, and returns those of the durations since the copy that is a
minute old. Without requests for quantiles nothing is copied.

The counts are in arrays. As lists, those of 1,000 models would be seven million references, through
all of which Python's garbage collector goes at a time.
"""

import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import nan
from operator import sub

from inferd.observe.stats import Counts, Timed

WINDOW_S = 60.0
"""How far quantiles look back, as in Triton; more by up to the time between two copies."""

STEP_S = 12.0
"""The least time between two copies of the counts."""

_BITS = 4
_BUCKETS = (65 - _BITS) << _BITS
_UNSIGNED_64 = "Q"
_NOTHING = array(_UNSIGNED_64, bytes(8 * _BUCKETS))


class Summary:
    """Counts durations; `clock` is in seconds, and read only when quantiles are asked for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts = array(_UNSIGNED_64, _NOTHING)
        self._copies = deque([(clock(), _NOTHING)])

    def add(self, ns: int) -> None:
        """Count a duration."""
        shift = max(0, ns.bit_length() - _BITS - 1)
        self._counts[(shift << _BITS) + (ns >> shift)] += 1

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        """Return the quantiles at these levels, in ns; NaN when there were no durations."""
        before = self._before(self._clock())
        if self._counts == before:
            return [nan] * len(levels)
        seen = list(accumulate(map(sub, self._counts, before)))
        total = seen[-1]
        return [_middle(bisect_left(seen, level * total)) for level in levels]

    def _before(self, now_s: float) -> "array[int]":
        """Return the counts of a minute ago, or the oldest kept."""
        copies = self._copies
        if now_s - copies[-1][0] >= STEP_S:
            last = copies[-1][1]
            copies.append((now_s, last if last == self._counts else self._counts[:]))
        while len(copies) > 1 and now_s - copies[1][0] >= WINDOW_S:
            copies.popleft()
        return copies[0][1]


class SummaryCounts(Counts):
    """Counts that also keep `summaries` of all durations, in the order of Counts.histograms.

    `cache_summaries` are those of hits and misses. This costs a few µs per request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.summaries = [Summary() for _ in range(5)]
        self.cache_summaries = [Summary() for _ in range(2)]

    def add_success(self, request: Timed) -> None:
        """See Counts.add_success."""
        super().add_success(request)
        if not request.started_ns:
            return  # from the cache
        queued_ns = request.queued_ns or request.started_ns
        computing_ns = request.computing_ns or request.started_ns
        computed_ns = request.computed_ns or request.ended_ns
        whole, queue, compute_input, compute_infer, compute_output = self.summaries
        whole.add((request.answered_ns or request.ended_ns) - queued_ns)
        queue.add(request.started_ns - queued_ns)
        compute_input.add(computing_ns - request.started_ns)
        compute_infer.add(computed_ns - computing_ns)
        compute_output.add(request.ended_ns - computed_ns)

    def _add_cache_hit(self, request: Timed) -> None:
        super()._add_cache_hit(request)
        took_ns = request.ended_ns - request.queued_ns
        self.summaries[0].add(took_ns)
        self.summaries[1].add(0)
        self.cache_summaries[0].add(took_ns)

    def add_cache_miss(self, took_ns: int) -> None:
        """See Counts.add_cache_miss."""
        super().add_cache_miss(took_ns)
        self.cache_summaries[1].add(took_ns)


def _middle(bucket: int) -> float:
    """Return the duration, in ns, in the middle of a bucket."""
    shift = max(0, (bucket >> _BITS) - 1)
    return float((bucket - (shift << _BITS)) << shift) + ((1 << shift) - 1) / 2
