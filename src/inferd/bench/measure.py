"""A point as it was measured becomes a result: figures, verdict, and the server's own account."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from inferd.bench.cpu import cpu_seconds
from inferd.bench.figures import Samples, distribution, drift
from inferd.bench.phases import ServerPhases, phases
from inferd.bench.plan import LoadProgress, LoadSample, Plan, Point, samples
from inferd.bench.processes import Generators, Hooks, Measured
from inferd.bench.result import PointResult
from inferd.bench.saturation import Trust, TrustVerdict, verdict
from inferd.errors import InferdError
from inferd.observe.statistics import ModelStatistics

Show = Callable[[Point, float, Sequence[LoadProgress]], None]
DRIFT = 0.2
WAITING = 0.01


class ServerAccount:
    """What the server says of a point, and what it used: `read` gives the model's statistics."""

    def __init__(self, read: Callable[[], list[ModelStatistics]] | None, pids: list[int]) -> None:
        self._read = read
        self._pids = pids
        self._before: list[ModelStatistics] = []
        self._after: list[ModelStatistics] = []
        self._cpu_s = self._seconds = 0.0

    def begin(self) -> None:
        """Look when the measurement begins."""
        self._after = []
        self._before = self._look()
        # Last, so that asking for statistics is not counted.
        self._cpu_s, self._seconds = cpu_seconds(self._pids), time.monotonic()

    def end(self) -> None:
        """Look when it ends."""
        # First, for the same reason.
        self._cpu_s = cpu_seconds(self._pids) - self._cpu_s
        self._seconds = time.monotonic() - self._seconds
        self._after = self._look()

    def phases(self) -> ServerPhases | None:
        """Return where the server says the time went."""
        return phases(self._before, self._after) if self._after else None

    def cpu_us(self, per_s: float) -> float | None:
        """Return the CPU time for a request, of which so many a second were answered."""
        if not self._pids or not per_s or not 0 < self._seconds < 1e6:
            return None
        return self._cpu_s / (per_s * self._seconds) * 1e6

    def _look(self) -> list[ModelStatistics]:
        if self._read is None:
            return []
        try:
            return self._read()
        except InferdError:  # a server without statistics
            self._read = None
            return []


def measure(
    generators: Generators, plan: Plan, point: Point, account: ServerAccount, show: Show
) -> PointResult:
    """Load the server as `point` says. Raises InferdError if it never answered."""

    def progress(share: float, now: Sequence[LoadProgress]) -> None:
        show(point, share, now)

    measured = generators.run(point, Hooks(account.begin, account.end, progress))
    return result_of(plan, point, measured, account)


def result_of(plan: Plan, point: Point, measured: Measured, account: ServerAccount) -> PointResult:
    """Return the result of what the processes measured together."""
    found = measured.samples
    latencies = np.concatenate([samples(one.latencies) for one in found])
    sent = np.concatenate([samples(one.sent) for one in found])
    firsts = np.concatenate([samples(one.firsts) for one in found])
    seconds = max((one.ended_ns - one.began_ns) / 1e9 for one in found)
    answered = sum(one.answered for one in found)
    per_s = answered / seconds if seconds > 0 else 0.0
    errors: Counter[str] = Counter()
    for one in found:
        errors.update(one.errors)
    judged = _verdict(found, latencies)
    # A wrong figure is worse than none (docs/decisions/0042-commands-against-servers.md).
    is_trusted = judged.trust is not Trust.NONE
    return PointResult(
        point.name,
        point.concurrency,
        point.rate,
        round(seconds, 3),
        answered,
        per_s,
        dict(errors.most_common()),
        judged,
        distribution(latencies, sent) if is_trusted else None,
        distribution(firsts, sent) if is_trusted and len(firsts) == len(sent) else None,
        sum(one.part_count for one in found) / len(firsts) if len(firsts) else 0.0,
        # What was interrupted has no second look at the statistics.
        account.phases() if measured.is_whole else None,
        account.cpu_us(per_s) if measured.is_whole else None,
        _notes(plan, point, found, latencies, sent),
        measured.is_whole,
    )


def _verdict(found: Sequence[LoadSample], latencies: Samples) -> TrustVerdict:
    """Return what the measurement is worth: as much as that of the busiest process."""
    median_us = float(np.median(latencies)) / 1e3 if len(latencies) else 0.0
    verdicts = [verdict(one.use, median_us, len(found)) for one in found]
    order = [Trust.NONE, Trust.NOTABLE, Trust.FULL]
    # The least trusted, and of those the one with the most of its own.
    return min(verdicts, key=lambda one: (order.index(one.trust), -one.own_us))


def _notes(
    plan: Plan,
    point: Point,
    found: Sequence[LoadSample],
    latencies: Samples,
    sent: Samples,
) -> list[str]:
    notes = []
    if len(latencies) and abs(change := drift(latencies, sent)) > DRIFT:
        word = "slower" if change > 0 else "faster"
        how = f"{change:+.0%}"
        notes.append(
            f"the second half was {word} ({how}): a longer --warmup, or a longer --seconds"
        )
    waiting = max((one.waiting_share for one in found), default=0.0)
    if point.rate and waiting > WAITING:
        notes.append(
            f"{waiting:.0%} of the requests waited for one of {point.connections} connections, "
            "which counts: the server did not keep up with this rate, or --connections is too low"
        )
    return notes
