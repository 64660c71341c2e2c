"""Expected: what candidates cost, as it is expected before and after others were measured.

The logarithm of a cost is the sum of some effects of known shape and unknown size, and of what is
left: it is alike for candidates that differ in few knobs, or by few steps. All of it is normally
distributed beforehand, which makes it a Gaussian process (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, chapter 2).
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferd.tune.space import Space

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]

_LEVEL = 5.0
"""How little is known of the cost as a whole: its logarithm may be anything."""
_WORDS = 0.3
"""How alike two words of a knob are expected to be."""
_SCALE_TRIALS = 6.0
"""After so many measurements they tell as much of how large effects are as was known before."""


class Belief(NamedTuple):
    """What is expected of the logarithm of a cost."""

    effects: tuple[float, ...]
    """The size of each of the effects, as in effects.NAMES."""
    errors: tuple[float, ...]
    """How far that may be wrong."""
    alone: float
    """The size of other effects of each knob, of each two of them, and of all together."""
    pairs: float
    together: float
    steps: float
    """The steps along a knob over which its effects are much alike."""
    noise: float
    """How much of what is measured is chance."""


class Expected:
    """What a cost is expected to be, for all candidates of a space."""

    def __init__(self, space: Space, effects: Numbers, belief: Belief) -> None:
        self.mean = effects @ np.array(belief.effects)
        self.alike = _alikeness(space, effects, belief)
        self.noise = belief.noise

    def after(self, measured: Rows, values: Numbers, left: Rows) -> tuple[Numbers, Numbers]:
        """Return what candidates that are `left` are expected to cost, and how uncertain that is.

        `values` are the logarithms of what was measured.
        """
        level = float((values - self.mean[measured]).mean())
        rest = values - level - self.mean[measured]
        # Two measurements of the same candidate differ by chance: without the term, the matrix
        # would also be singular.
        known = self.alike[np.ix_(measured, measured)] + self.noise**2 * np.eye(len(measured))
        across = self.alike[np.ix_(left, measured)]
        # Solved once for both, and not inverted: faster and more exact.
        weights = np.linalg.solve(known, np.column_stack([rest, across.T]))
        surprise = float(rest @ weights[:, 0])
        # How far measurements were from what was expected says how far the others may be: a
        # Student's t process.
        scale = math.sqrt((_SCALE_TRIALS + surprise) / (_SCALE_TRIALS + len(measured)))
        explained = np.einsum("ij,ji->i", across, weights[:, 1:])
        # Rounding may leave less than 0 where nothing is uncertain.
        error = np.sqrt(np.maximum(np.diag(self.alike)[left] - explained, 1e-9))
        return level + self.mean[left] + across @ weights[:, 0], scale * error


def _alikeness(space: Space, effects: Numbers, belief: Belief) -> Numbers:
    """Return how alike the costs of each two candidates are expected to be."""
    positions = np.array([*space.positions()])
    each = []
    for at, knob in enumerate(space.knobs):
        steps = np.abs(positions[:, None, at] - positions[None, :, at])
        # A squared exponential in steps, not in values: knobs are chosen in powers of two.
        near = np.exp(-((steps / belief.steps) ** 2) / 2)
        each.append(near if knob.is_ordered else np.where(steps == 0, 1.0, _WORDS))
    pairs = [one * other for one, other in itertools.combinations(each, 2)]
    sizes = effects * np.array(belief.errors)
    found = _LEVEL**2 + sizes @ sizes.T + belief.alone**2 * sum(each)
    found += belief.pairs**2 * sum(pairs) + belief.together**2 * math.prod(each)
    return np.asarray(found)
