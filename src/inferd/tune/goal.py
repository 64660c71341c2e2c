"""Goal: what a model has to hold while it serves as much as it can, as people write it."""

import re
from typing import NamedTuple

import msgspec

from inferd.errors import InvalidConfig

QUANTILES = ("p50", "p90", "p95", "p99")

_TIMES_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_SIZES = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]+)")
_EXPECTED = "expected as in p99=20ms, p50=5ms or memory=2GB"


class Cost(msgspec.Struct, frozen=True):
    """What settings were measured to give: requests a second, latencies by quantile, memory."""

    per_s: float
    latency_ms: dict[str, float]
    memory_bytes: float = 0.0


class Limit(NamedTuple):
    """One thing that has to hold: `what` is a quantile or "memory", `most` is in ms or bytes."""

    what: str
    most: float

    def share(self, cost: Cost) -> float:
        """Return how much of the limit is used; more than 1 breaks it."""
        used = cost.memory_bytes if self.what == "memory" else cost.latency_ms[self.what]
        return used / self.most


class Goal(NamedTuple):
    """All limits; without any, the most requests a second are the goal."""

    limits: tuple[Limit, ...] = ()
    text: str = ""

    def worst(self, cost: Cost) -> float:
        """Return how much of the tightest limit is used; 0 without limits."""
        return max((one.share(cost) for one in self.limits), default=0.0)

    def rank(self, cost: Cost) -> tuple[bool, float, float]:
        """Return what orders costs from best to worst: first by whether the limits hold."""
        worst, slowest = self.worst(cost), max(cost.latency_ms.values())
        # Among settings that break the limits, the least broken is best.
        return (True, worst, slowest) if worst > 1 else (False, -cost.per_s, slowest)


def read_goal(text: str) -> Goal:
    """Return what a text such as "p99=20ms,memory=2GB" says. Raises InvalidConfig."""
    limits: list[Limit] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        what, _, amount = (word.strip() for word in part.partition("="))
        units = _SIZES if what == "memory" else _TIMES_MS
        found = _NUMBER.fullmatch(amount)
        known = what in (*QUANTILES, "memory") and found is not None and found[2] in units
        if not known or found is None or float(found[1]) == 0:
            raise InvalidConfig(f"the goal '{part[:50]}' is none: {_EXPECTED}")
        if any(one.what == what for one in limits):
            raise InvalidConfig(f"the goal has {what} twice")
        limits.append(Limit(what, float(found[1]) * units[found[2]]))
    return Goal(tuple(limits), text)
