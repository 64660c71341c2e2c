"""Percentiles of durations that were counted in the buckets of Counts.request_histogram."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from inferd.observe.stats import FINE_BUCKETS, fine_bound

LEVELS = (0.5, 0.95, 0.99)

ERROR = 1 / 16
"""How far a percentile is off at most, as a part of it."""

_PART = 31
"""How many buckets are compared at once; most parts are alike."""

Durations = Mapping[int, int]
"""How many durations there were, by bucket, without buckets that have none."""


def percentiles(durations: Durations, levels: Sequence[float] = LEVELS) -> list[int | None]:
    """Return the durations at these levels, in ns; None where there were none."""
    if not durations:
        return [None] * len(levels)
    buckets = sorted(durations)
    seen = list(accumulate(durations[bucket] for bucket in buckets))
    return [middle(buckets[bisect_left(seen, level * seen[-1])]) for level in levels]


def middle(bucket: int) -> int:
    """Return the duration in the middle of a bucket, in ns."""
    return (fine_bound(bucket) + fine_bound(bucket + 1) - 1) // 2


def difference(after: Sequence[int], before: Sequence[int]) -> dict[int, int]:
    """Return what has been counted in between, by bucket; both have FINE_BUCKETS."""
    found: dict[int, int] = {}
    for start in range(0, FINE_BUCKETS, _PART):
        new, old = after[start : start + _PART], before[start : start + _PART]
        # Lists are compared in C.
        if new != old:
            for at, count in enumerate(new):
                if count != old[at]:
                    found[start + at] = count - old[at]
    return found


def added(several: Iterable[Durations]) -> dict[int, int]:
    """Return all of these durations."""
    found: dict[int, int] = {}
    for durations in several:
        add_to(found, durations)
    return found


def add_to(found: dict[int, int], durations: Durations) -> None:
    """Add durations to those `found`."""
    for bucket, count in durations.items():
        found[bucket] = found.get(bucket, 0) + count


def take_from(found: dict[int, int], durations: Durations) -> None:
    """Take durations, which are among those `found`, out again."""
    for bucket, count in durations.items():
        if (left := found[bucket] - count) > 0:
            found[bucket] = left
        else:
            del found[bucket]
