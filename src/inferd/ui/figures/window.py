"""MinuteWindow: the requests to one model version in the last minute."""

from collections import deque
from typing import NamedTuple

from inferd.observe.stats import Counts
from inferd.ui.figures.percentiles import Durations, add_to, take_from

WINDOW_S = 60
STEP_S = 5
RATE_S = 10


class Sums(NamedTuple):
    """Requests, and what their phases took in all, in ns; hits of the cache have no phases."""

    success: int = 0
    runs: int = 0
    queue: int = 0
    input: int = 0
    infer: int = 0
    output: int = 0
    handover: int = 0


NOTHING = Sums()


def sums_of(counts: Counts) -> Sums:
    """Return the sums since the version was loaded."""
    rows = [*counts.alone.values(), *counts.shared_requests.values()]
    return Sums(
        counts.success_count,
        sum([row.count for row in rows]),
        sum([row.queue_ns for row in rows]),
        sum([row.input_ns for row in rows]),
        sum([row.infer_ns for row in rows]),
        sum([row.output_ns for row in rows]),
        sum([row.handover_ns for row in rows]),
    )


class _Step(NamedTuple):
    """What had been counted when a step began, and the durations counted in it."""

    began: int
    before: Sums
    durations: dict[int, int]


class MinuteWindow:
    """Looks back a minute, by steps of five seconds, from `now`, a second since 1970."""

    def __init__(self, now: int, before: Sums = NOTHING) -> None:
        self.sums = before
        self.durations: dict[int, int] = {}
        """Those of the last minute, by fine bucket."""
        self._steps = deque([_Step(now, before, {})])

    def add(self, now: int, sums: Sums, durations: Durations) -> None:
        """Note what has been counted until now; `durations` are those since the last time."""
        self.move(now)
        self.sums = sums
        add_to(self._steps[-1].durations, durations)
        add_to(self.durations, durations)

    def move(self, now: int) -> bool:
        """Forget what is older than a minute; return whether anything is seen otherwise now."""
        last = self._steps[-1]
        if now - last.began < STEP_S:
            return False
        if now < last.began + 2 * WINDOW_S:
            self._steps.append(_Step(now, self.sums, {}))
        # Nothing that was counted before is of the last minute.
        else:
            self._steps.clear()
            self.durations.clear()
            self._steps.append(_Step(now, self.sums, {}))
        # A step is left out once the next one began a minute ago: so the window has at least a
        # minute.
        while len(self._steps) > 1 and self._steps[1].began <= now - WINDOW_S:
            take_from(self.durations, self._steps.popleft().durations)
        return True

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been counted in the last minute."""
        return self.sums == self._steps[0].before

    def last_minute(self) -> Sums:
        """Return the sums of the last minute."""
        pairs = zip(self.sums, self._steps[0].before, strict=True)
        return Sums(*(after - before for after, before in pairs))

    def rate(self, now: int) -> float:
        """Return the successful requests in a second, of the last ten to fifteen seconds."""
        began = next(
            # The youngest step that is old enough.
            (step for step in reversed(self._steps) if step.began <= now - RATE_S),
            self._steps[0],
        )
        return (self.sums.success - began.before.success) / max(1, now - began.began)
