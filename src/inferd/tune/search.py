"""Search: which candidates are worth measuring, given what others have cost.

Measuring takes seconds, and there are hundreds of candidates. So what was measured teaches what to
expect of the others: of their requests a second, and of how much of each of the goal's limits they
use. The next candidate is the one that promises most: the expected gain over the best so far, times
the probability that the limits hold (Gardner et al., Bayesian Optimization with Inequality
Constraints, 2014).
"""

import math
from typing import NamedTuple

import numpy as np

from inferd.tune.expected import (
    LATENCY,
    MEMORY,
    RATE,
    Circumstances,
    Expected,
    Numbers,
    Rows,
    effects_of,
)
from inferd.tune.goal import Cost, Goal
from inferd.tune.settings import Space, Value

Candidate = tuple[Value, ...]

LEAST_TRIALS = 8
SHARE = 0.1
"""How much of a space is measured, unless somebody says how long it may take."""
_USUAL = Circumstances()
_LIKELY = 0.1
"""The probability from which on a candidate is tried because the limits may hold."""


class Trial(NamedTuple):
    """A candidate, and what it has cost."""

    candidate: Candidate
    cost: Cost


class Search:
    """Proposes candidates of a space, one after the other, and is told what they cost."""

    def __init__(
        self,
        space: Space,
        goal: Goal,
        start: Candidate,
        circumstances: Circumstances = _USUAL,
    ) -> None:
        self._space = space
        self._goal = goal
        self._rows = {one: row for row, one in enumerate(space.candidates)}
        effects = effects_of(space, circumstances)
        self._rate = Expected(space, effects, RATE)
        self._limits = [
            (limit, Expected(space, effects, MEMORY if limit.what == "memory" else LATENCY))
            for limit in goal.limits
        ]
        self._start = space.canonical(start)
        self.trials: list[Trial] = []
        self.failed: set[Candidate] = set()
        self.budget = min(len(self._rows), max(LEAST_TRIALS, int(len(self._rows) * SHARE)))
        """How many candidates are measured at most."""

    @property
    def best(self) -> Trial | None:
        """The best trial so far; None before the first."""
        return min(self.trials, key=lambda one: self._goal.rank(one.cost), default=None)

    def propose(self) -> Candidate | None:
        """Return the candidate to measure next; None when the budget is spent."""
        tried = {one.candidate for one in self.trials} | self.failed
        if len(tried) >= self.budget:
            return None
        # The settings as they are come first: everything is compared with them, and they are known
        # to load.
        if self._start not in tried:
            return self._start
        left = [row for one, row in self._rows.items() if one not in tried]
        # The start could not be measured, and nothing has taught anything yet.
        if not self.trials:
            return self._space.candidates[left[0]] if left else None
        return self._space.candidates[left[int(np.argmax(self._promise(np.array(left))))]]

    def tell(self, candidate: Candidate, cost: Cost | None) -> None:
        """Note what a candidate has cost; None: it could not be measured."""
        if cost is None:
            self.failed.add(candidate)
        else:
            self.trials.append(Trial(candidate, cost))

    def _promise(self, left: Rows) -> Numbers:
        """Return how much each candidate that is left promises, in any unit."""
        measured = np.array([self._rows[one.candidate] for one in self.trials])
        # Effects multiply: twice the instances, twice the requests.
        rates = _logarithms([one.cost.per_s for one in self.trials])
        rate, rate_error = self._rate.after(measured, rates, left)
        holds, worst, worst_error = np.ones(len(left)), np.full(len(left), -np.inf), rate_error
        for limit, expected in self._limits:
            shares = _logarithms([limit.share(one.cost) for one in self.trials])
            share, error = expected.after(measured, shares, left)
            holds *= [_below(-one) for one in share / error]
            # The tightest limit decides where none holds yet.
            worst_error = np.where(share > worst, error, worst_error)
            worst = np.maximum(share, worst)
        used = _logarithms([self._goal.worst(one.cost) for one in self.trials])
        # 1 is all of the limit, and its logarithm 0; without limits, `worst` is 0.
        if used.min() <= 0:
            # What was measured best had luck, too: what is expected of it now has less.
            again, _ = self._rate.after(measured, rates, measured)
            return holds * _gains(rate, rate_error, float(again[used <= 0].max()))
        # Something may hold: then the fastest of what is likely to.
        if holds.max() > _LIKELY:
            return np.asarray(holds * np.exp(rate - rate.max()))
        # Nothing is likely to hold: look for what comes nearest.
        return _gains(-worst, worst_error, -used.min())


def _logarithms(values: list[float]) -> Numbers:
    # A cost of 0 has no logarithm.
    return np.log(np.maximum(values, 1e-9))


def _gains(mean: Numbers, error: Numbers, best: float) -> Numbers:
    """Return the expected improvement over `best`, of values that are normally distributed."""
    distance = (mean - best) / error
    density = np.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([_below(one) for one in distance])
    return np.asarray((mean - best) * below + error * density)


def _below(distance: float) -> float:
    # The normal distribution; SciPy is no dependency.
    return 0.5 * math.erfc(-distance / math.sqrt(2))
