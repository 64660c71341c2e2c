"""Effects: what is known of settings before anything is measured, as numbers for each candidate.

With so many requests at a time as the load has, a batch of that many is filled at once and empties
the queue, and a larger one is never filled, so that every request waits for the whole delay. What
runs side by side shares the cores.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferd.tune.space import BATCH, DELAY, INSTANCES, PROCESS, THREADS, Space

NAMES = ("fills", "part", "vain", "joined", "rows", "instances", "threads", "busy", "worker")


class Circumstances(NamedTuple):
    """Under which candidates are measured: the requests at a time, and the cores of the machine."""

    concurrency: int = 16
    cores: int = 2


def effects_of(space: Space, circumstances: Circumstances) -> NDArray[np.float64]:
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
