"""Expected: what candidates cost, as it is expected before and after others were measured.

What is known of settings before anything is measured are numbers for each candidate, its effects.
With so many requests at a time as the load has, a batch of that many is filled at once and empties
the queue, and a larger one is never filled, so that every request waits for the whole delay. What
runs side by side shares the cores.

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

from inferd.tune.settings import BATCH, DELAY, INSTANCES, PROCESS, THREADS, Space

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]

NAMES = ("fills", "part", "vain", "joined", "rows", "instances", "threads", "busy", "worker")


class Circumstances(NamedTuple):
    """Under which candidates are measured: the requests at a time, and the cores of the machine."""

    concurrency: int = 16
    cores: int = 2


def effects_of(space: Space, circumstances: Circumstances) -> Numbers:
    """Return a row for each candidate of the space, with a column for each of the `NAMES`.

    Numbers are about 0 to 1, and 0 where a setting does not matter.
    """
    return np.array([_row(space, one, circumstances) for one in space.candidates])


def _row(space: Space, candidate: tuple[object, ...], given: Circumstances) -> list[float]:
    # A candidate is a tuple of any settings here; the space's type is narrower.
    named = space.named(candidate)  # type: ignore[arg-type]
    batch, delay_us = int(named.get(BATCH, 1)), int(named.get(DELAY, 0))
    instances, threads = int(named[INSTANCES]), int(named.get(THREADS, 1))
    # A delay counts by its logarithm: 0 for none, 1 for 2 ms.
    waits = math.log1p(delay_us / 500) / math.log(5)
    is_filled, fills = batch <= given.concurrency, given.concurrency < 2 * batch
    return [
        waits * (is_filled and fills),
        waits * (is_filled and not fills),
        waits * (not is_filled),
        float(batch > 1),
        math.log2(min(batch, max(1.0, given.concurrency / instances))) / 4,
        math.log2(instances) / 2,
        math.log2(threads),
        # 0 until there are more threads than cores.
        math.log2(max(1.0, instances * threads / given.cores)),
        float(named.get(PROCESS) == "worker"),
    ]


_LEVEL = 5.0
"""How little is known of the cost as a whole: its logarithm may be anything."""
_WORDS = 0.3
"""How alike two words of a knob are expected to be."""
_SCALE_TRIALS = 6.0
"""After so many measurements they tell as much of how large effects are as was known before."""


class Belief(NamedTuple):
    """What is expected of the logarithm of a cost."""

    effects: tuple[float, ...]
    """The size of each of the effects, as in NAMES."""
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


# What is expected of each kind of cost before anything is measured: the beliefs under which the
# recorded costs of real models (tests/tune/surfaces) are likeliest. The columns are those of NAMES.
# In logarithms: 0.14 is 15 % more requests. Found by tests/tune; see docs/decisions/0043-tuning.md.
RATE = Belief(
    effects=(0.14, 0.073, -0.49, -0.049, 0.41, 0.42, -0.039, -0.15, 0.071),
    errors=(0.12, 0.12, 0.31, 0.24, 0.39, 0.37, 0.12, 0.19, 0.12),
    alone=0.03,
    pairs=0.047,
    together=0.094,
    steps=1.15,
    noise=0.11,
)
LATENCY = Belief(
    effects=(-0.19, -0.037, 0.2, -0.058, -0.3, -0.22, 0.13, 0.18, -0.076),
    errors=(0.28, 0.12, 0.16, 0.34, 0.32, 0.51, 0.12, 0.27, 0.12),
    alone=0.055,
    pairs=0.062,
    together=0.13,
    steps=1.06,
    noise=0.26,
)
MEMORY = Belief(
    effects=(0, 0, 0, -0.0, 0, 0.17, 0.1, 0.033, 0),
    # Nearly 0 where memory cannot depend on an effect.
    errors=(0.01, 0.006, 0.017, 0.003, 0.003, 1.1, 0.41, 0.16, 0.003),
    alone=0.27,
    pairs=0.03,
    together=0.03,
    steps=3,
    noise=0.03,
)
