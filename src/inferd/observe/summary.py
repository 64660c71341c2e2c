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
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import nan
from operator import sub

from inferd.observe.stats import Counts, Timed

WINDOW_S = 60.0
"""How far quantiles look back, as in Triton; more by up to the time between two copies."""

# Five copies for a minute, each of a thousand numbers, and quantiles of at most 72 s.
STEP_S = 12.0
"""The least time between two copies of the counts."""

_BITS = 4
SUMMARY_BUCKETS = (65 - _BITS) << _BITS
_UNSIGNED_64 = "Q"
# One for all: most models have not been asked yet, and comparing with it is one call of C.
_NOTHING = array(_UNSIGNED_64, bytes(8 * SUMMARY_BUCKETS))
_PART = 4 << _BITS


class Summary:
    """Counts durations; `clock` is in seconds, and read only when quantiles are asked for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts = array(_UNSIGNED_64, _NOTHING)
        self._copies = deque([(clock(), _NOTHING)])

    def add(self, ns: int) -> None:
        """Count a duration."""
        # As fine_bucket, with a bit more.
        shift = max(0, ns.bit_length() - _BITS - 1)
        self._counts[(shift << _BITS) + (ns >> shift)] += 1

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        """Return the quantiles at these levels, in ns; NaN when there were no durations."""
        # Counts only grow, so differences are what came in between.
        return _quantiles(_difference(self._counts, self._before(self._clock())), levels)

    def samples(self) -> dict[int, dict[int, int]]:
        """Return how many of these durations are in each bucket, by the step of their last copy.

        A step is a number of STEP_S on the clock; on one machine all processes have the same.
        """
        now_s = self._clock()
        self._before(now_s)
        found: dict[int, Counter[int]] = {}
        for (_, before), (at_s, after) in pairwise([*self._copies, (now_s, self._counts)]):
            if more := _difference(after, before):
                found.setdefault(_step(at_s), Counter()).update(more)
        return {step: dict(counts) for step, counts in found.items()}

    def _before(self, now_s: float) -> "array[int]":
        """Return the counts of a minute ago, or the oldest kept."""
        copies = self._copies
        if now_s - copies[-1][0] >= STEP_S:
            last = copies[-1][1]
            # An idle model keeps one copy several times.
            copies.append((now_s, last if last == self._counts else self._counts[:]))
        # The second, so that one copy of at least a minute ago stays.
        while len(copies) > 1 and now_s - copies[1][0] >= WINDOW_S:
            copies.popleft()
        return copies[0][1]


class Sampled:
    """The quantiles of `samples` that were taken in several processes."""

    def __init__(
        self,
        samples: Mapping[int, Mapping[int, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._samples = samples
        self._clock = clock

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        """See Summary.quantiles."""
        now_s = self._clock()
        counts: Counter[int] = Counter()
        for step, found in self._samples.items():
            if is_recent(step, now_s):
                counts.update(found)
        return _quantiles(counts, levels)


class SummaryCounts(Counts):
    """Counts that also keep `summaries` of all durations, in the order of Counts.histograms.

    `cache_summaries` are those of hits and misses. This costs a few µs per request.
    """

    summaries: list[Summary]
    cache_summaries: list[Summary]

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


def is_recent(step: int, now_s: float) -> bool:
    """Tell whether what was copied in `step` may be of the last minute."""
    # As many steps as a minute has, and the one that is not full.
    return _step(now_s) - step <= WINDOW_S // STEP_S


def _step(at_s: float) -> int:
    return int(at_s // STEP_S)


def _difference(after: "array[int]", before: "array[int]") -> dict[int, int]:
    """Return what has been counted in between; most parts are alike, and compared in C."""
    found: dict[int, int] = {}
    if after == before:
        return found
    # A minute's durations lie in a few powers of two: comparing slices in C skips the others.
    for start in range(0, SUMMARY_BUCKETS, _PART):
        new, old = after[start : start + _PART], before[start : start + _PART]
        if new != old:
            found |= {at: more for at, more in enumerate(map(sub, new, old), start) if more}
    return found


def _quantiles(counts: Mapping[int, int], levels: Sequence[float]) -> list[float]:
    """Return the quantiles, in ns, of so many durations by bucket; NaN if there are none."""
    if not counts:
        return [nan] * len(levels)
    buckets = sorted(counts)
    seen = list(accumulate(counts[bucket] for bucket in buckets))
    return [_middle(buckets[bisect_left(seen, level * seen[-1])]) for level in levels]


def _middle(bucket: int) -> float:
    """Return the duration, in ns, in the middle of a bucket."""
    shift = max(0, (bucket >> _BITS) - 1)
    # The middle halves the error, and is exact below 32 ns.
    return float((bucket - (shift << _BITS)) << shift) + ((1 << shift) - 1) / 2
