"""Search: which candidates are worth measuring, given what others have cost.

Measuring takes seconds, and there are hundreds of candidates. So what was measured teaches two
models, one of the requests a second and one of how much of the goal's tightest limit is used, both
as logarithms. They are Gaussian processes: a value is expected to be like those of candidates that
differ in few knobs, or by few steps, and the less like any, the less certain. The next candidate is
the one that promises most: the expected gain over the best so far, times the probability that the
limits hold (Gardner et al., Bayesian Optimization with Inequality Constraints, 2014).
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferd.tune.goal import Cost, Goal
from inferd.tune.space import Space, Value

Candidate = tuple[Value, ...]
Numbers = NDArray[np.float64]

LEAST_TRIALS = 8
SHARE = 0.1
"""How much of a space is measured, unless somebody says how long it may take."""

_TREND, _ALONE, _PAIRS, _TOGETHER = 1.0, 1.0, 0.3, 0.05
"""How much of a cost is expected of each: that it rises or falls with a knob, other effects of each
knob, of each two of them, and of all together. Found on costs of 60 made-up models."""
_STEPS = 1.0
"""The steps along a knob over which its effects are much alike."""
_WORDS = 0.3
"""How alike two words of a knob are expected to be."""
_NOISE = 0.05


class Trial(NamedTuple):
    """A candidate, and what it has cost."""

    candidate: Candidate
    cost: Cost


class Search:
    """Proposes candidates of a space, one after the other, and is told what they cost."""

    def __init__(self, space: Space, goal: Goal, start: Candidate) -> None:
        self._space = space
        self._goal = goal
        self._rows = {one: row for row, one in enumerate(space.candidates)}
        self._alike = _alikeness(space)
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
        if self._start not in tried:
            return self._start
        left = [row for one, row in self._rows.items() if one not in tried]
        if not self.trials:
            return self._space.candidates[left[0]] if left else None
        return self._space.candidates[left[int(np.argmax(self._promise(np.array(left))))]]

    def tell(self, candidate: Candidate, cost: Cost | None) -> None:
        """Note what a candidate has cost; None: it could not be measured."""
        if cost is None:
            self.failed.add(candidate)
        else:
            self.trials.append(Trial(candidate, cost))

    def _promise(self, left: NDArray[np.int64]) -> Numbers:
        """Return the expected gain of each candidate that is left, as a share of the best."""
        measured = np.array([self._rows[one.candidate] for one in self.trials])
        rates = np.log([max(one.cost.per_s, 1e-9) for one in self.trials])
        shares = np.log([max(self._goal.worst(one.cost), 1e-9) for one in self.trials])
        share, share_error = self._expected(measured, shares, left)
        if shares.min() > 0:  # no limit holds yet: first one that does
            return _gains(-share, share_error, -shares.min())
        holds = np.array([_below(-one) for one in share / share_error])
        rate, rate_error = self._expected(measured, rates, left)
        return holds * _gains(rate, rate_error, rates[shares <= 0].max())

    def _expected(
        self, measured: NDArray[np.int64], values: Numbers, left: NDArray[np.int64]
    ) -> tuple[Numbers, Numbers]:
        """Return what is expected of candidates that are `left`, and how uncertain that is."""
        mean = values.mean()
        scale = max(float(values.std()), 0.1)
        known = self._alike[np.ix_(measured, measured)] + _NOISE**2 * np.eye(len(measured))
        across = self._alike[np.ix_(left, measured)]
        weights = np.linalg.solve(known, np.column_stack([(values - mean) / scale, across.T]))
        expected = across @ weights[:, 0]
        explained = np.einsum("ij,ji->i", across, weights[:, 1:])
        own = np.diag(self._alike)[left]
        error = np.sqrt(np.maximum(own - explained, 1e-9))
        return mean + scale * expected, scale * error


def run(search: Search, measure: Callable[[Candidate], Cost | None]) -> Trial | None:
    """Measure what the search proposes until it has nothing more; return the best."""
    while (candidate := search.propose()) is not None:
        search.tell(candidate, measure(candidate))
    return search.best


def _alikeness(space: Space) -> Numbers:
    """Return how alike the costs of each two candidates are expected to be."""
    positions = np.array([*space.positions()])
    trend = np.zeros((len(positions), len(positions)))
    each = []
    for at, knob in enumerate(space.knobs):
        steps = np.abs(positions[:, None, at] - positions[None, :, at])
        each.append(
            np.exp(-((steps / _STEPS) ** 2) / 2)
            if knob.is_ordered
            else np.where(steps == 0, 1.0, _WORDS)
        )
        if knob.is_ordered and len(knob.values) > 1:
            along = 2 * positions[:, at] / (len(knob.values) - 1) - 1
            trend += np.outer(along, along)
    pairs = [one * other for one, other in itertools.combinations(each, 2)]
    found = _ALONE * sum(each) / len(each) + _TREND * trend / len(each)
    found += _PAIRS * sum(pairs) / max(len(pairs), 1) + _TOGETHER * math.prod(each)
    return np.asarray(found)


def _gains(mean: Numbers, error: Numbers, best: float) -> Numbers:
    """Return the expected improvement over `best`, of values that are normally distributed."""
    distance = (mean - best) / error
    density = np.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([_below(one) for one in distance])
    return np.asarray((mean - best) * below + error * density)


def _below(distance: float) -> float:
    return 0.5 * math.erfc(-distance / math.sqrt(2))
