"""Percentiles of latencies, with the interval in which they lie with 95 % confidence.

Requests that are near in time are alike: a pause of the server makes all of them slow. An interval
that takes each for an independent one is too narrow. So the measurement is cut into slices of
time, and whole slices are drawn again and again (a block bootstrap): what varies from slice to
slice shows as a wide interval.
"""

from typing import Any

import msgspec
import numpy as np

from inferd.tensor.array import Array

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
# Enough for quantiles of a bootstrap, each still with requests of many kinds.
SLICES = 20
DRAWS = 200
RESOLUTION = 0.002
"""How far apart two latencies may be that count as one in the intervals, as a share of them."""
LEAST_BEYOND = 2
"""The fewest requests beyond a percentile for which it is said at all."""
LEAST = 20
"""The fewest requests of a half for which a drift is said."""

# The same measurement has the same interval each time.
_SEED = 20
_BINS_PER_E = 1 / np.log1p(RESOLUTION)

Samples = np.ndarray[Any, np.dtype[np.int64]]


class Estimate(msgspec.Struct, frozen=True):
    """A value and the interval that has it with 95 % confidence."""

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """How far off it may be, as a share of the value."""
        half = max(self.high - self.value, self.value - self.low)
        return half / self.value if self.value else 0.0


class Distribution(msgspec.Struct, frozen=True):
    """How long requests took, in microseconds: the percentiles that enough requests tell of."""

    count: int
    mean_us: float
    least_us: float
    most_us: float
    percentiles: dict[str, Estimate]
    curve: list[tuple[float, float]]
    """Pairs of a percentile and its value, for plots."""

    def at(self, percentile: float) -> Estimate | None:
        """Return the estimate of a percentile; None where there were too few requests."""
        return self.percentiles.get(f"p{percentile:g}")


def distribution(latencies_ns: Samples, sent_ns: Samples) -> Distribution | None:
    """Return the distribution of latencies, given when each was sent; None if there are none."""
    count = len(latencies_ns)
    if not count:
        return None
    told = [
        one
        for one in PERCENTILES
        # Rounded, since 100 - 99.9 is not exactly 0.1.
        if one == 50 or round(count * (100 - one) / 100, 6) >= LEAST_BEYOND
    ]
    ordered = np.sort(latencies_ns)
    values = np.quantile(ordered, [one / 100 for one in told]) / 1e3
    lows, highs = _intervals(latencies_ns, sent_ns, told)
    percentiles = {
        # The interval comes from bins and the value does not: it must lie within.
        f"p{one:g}": Estimate(float(value), float(min(low, value)), float(max(high, value)))
        for one, value, low, high in zip(told, values, lows, highs, strict=True)
    }
    return Distribution(
        count,
        float(latencies_ns.mean() / 1e3),
        float(ordered[0] / 1e3),
        float(ordered[-1] / 1e3),
        percentiles,
        _curve(ordered),
    )


def _curve(ordered: Samples) -> list[tuple[float, float]]:
    """Return points of the distribution, denser towards 100 %, as far as requests tell of it."""
    count = len(ordered)
    # As many points from 99 to 99.9 % as from 90 to 99 %.
    shares = 1 - np.logspace(0, -np.log10(max(count, 2)), 60)
    places = np.minimum((shares * count).astype(int), count - 1)
    return [
        (round(float(share * 100), 5), round(float(ordered[place]) / 1e3, 3))
        for share, place in zip(shares, places, strict=True)
    ]


def _intervals(latencies: Samples, sent: Samples, told: list[float]) -> tuple[Array, Array]:
    """Return the ends of the intervals of the percentiles, in microseconds."""
    first, last = int(sent.min()), int(sent.max())
    length = max(1, last - first + 1)
    slices = np.minimum((sent - first) * SLICES // length, SLICES - 1)
    # In bins of a logarithmic scale, so an interval costs the same for any number of requests.
    bins = np.round(np.log(np.maximum(latencies, 1)) * _BINS_PER_E).astype(np.int64)
    lowest = int(bins.min())
    width = int(bins.max()) - lowest + 1
    counts = np.bincount(slices * width + (bins - lowest), minlength=SLICES * width)
    table = counts.reshape(SLICES, width).astype(np.float64)  # which BLAS multiplies
    # A slice without requests cannot be drawn.
    table = table[table.sum(axis=1) > 0]
    random = np.random.default_rng(_SEED)
    # How often each slice was drawn, for all draws in one call.
    weights = random.multinomial(len(table), [1 / len(table)] * len(table), DRAWS)
    below = np.cumsum(weights @ table, axis=1)
    totals = below[:, -1:]
    found = []
    for one in told:
        rank = np.maximum(1, np.ceil(totals * (one / 100)))
        places = (below < rank).sum(axis=1)
        found.append(np.quantile(np.exp((places + lowest) / _BINS_PER_E), [0.025, 0.975]) / 1e3)
    ends = np.array(found)
    return ends[:, 0], ends[:, 1]


def drift(latencies_ns: Samples, sent_ns: Samples) -> float:
    """Return by which share the median of the second half differs from that of the first."""
    middle = (int(sent_ns.min()) + int(sent_ns.max())) // 2
    before, after = latencies_ns[sent_ns <= middle], latencies_ns[sent_ns > middle]
    if len(before) < LEAST or len(after) < LEAST:
        return 0.0
    return float(np.median(after) / np.median(before) - 1)
