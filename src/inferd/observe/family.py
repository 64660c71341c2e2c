"""Family: one metric with its samples, written in Prometheus's text format 0.0.4.

CustomMetrics are those that models define and update, served along with the server's own. Within a
family, equal labels mean the same metric, whichever model or instance updates it. Metrics stay when
their model is unloaded: a counter must never fall.
"""

import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import isfinite, isnan
from typing import Literal, NamedTuple

from inferd.errors import InvalidRequest

Across = Literal["count", "level", "mean", "most", "least"]
"""What a server of several processes reports: the sum of all there have been or of those that live,
the mean of those, the most or the least there has been in any."""

SAMPLES_IN_ONE_PIECE = 200
"""So many take less than half a millisecond: other work gets its turn between the pieces."""


class Family(NamedTuple):
    """A metric. `kind` is counter or gauge; a sample is its labels, as text, and its value.

    Samples that come from an iterator are made piece by piece, and only once. `across` is for
    several processes; if not given, counters are counts, gauges levels.
    """

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[str, float]]
    across: Across | None = None

    def pieces(self) -> Iterator[str]:
        """Yield the lines of the metric, in texts of at most SAMPLES_IN_ONE_PIECE samples."""
        lines = [head(self.name, self.kind, self.help)]
        for labels, value in self.samples:
            # No braces without labels, as Prometheus's own libraries write it.
            where = f"{self.name}{{{labels}}}" if labels else self.name
            lines.append(f"{where} {number(value)}\n")
            if len(lines) >= SAMPLES_IN_ONE_PIECE:
                yield "".join(lines)
                # The head counts as one line; it is there for a metric without samples, too.
                lines = []
        yield "".join(lines)

    def text(self) -> str:
        """Return all lines of the metric."""
        return "".join(self.pieces())


def head(name: str, kind: str, help: str) -> str:
    """Return the two lines that come before the samples of a metric."""
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n"


def histogram_lines(
    name: str, labels: str, bounds: Iterable[str], below: Sequence[int], total: float
) -> Iterator[str]:
    """Yield the samples of a histogram of which `below` values were within the `bounds`, then all.

    `total` is the sum of the values.
    """
    before = f"{labels}," if labels else ""
    where = f"{{{labels}}}" if labels else ""
    for bound, count in zip((*bounds, "+Inf"), below, strict=True):
        yield f'{name}_bucket{{{before}le="{bound}"}} {count}\n'
    yield f"{name}_sum{where} {number(total)}\n"
    yield f"{name}_count{where} {below[-1]}\n"


def number(value: float) -> str:
    """Return `value` as text, with all its digits; NaN, +Inf and -Inf in Prometheus's spelling."""
    if isfinite(value):
        # The shortest text that reads back as the same float; "%g" would round counters.
        return repr(value)
    if isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def escaped(value: str) -> str:
    """Return `value` escaped for the quotes of a label."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


MAX_FAMILIES = 1000
MAX_METRICS = 1000
"""How many metrics a family may have: each is kept for as long as the server runs."""

RESERVED = ("nv_", "inferd_", "process_", "python_")
"""Prefixes of the names of the server's own metrics."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_KINDS = ("counter", "gauge", "histogram")


class Progress:
    """A `count` of the changes of all metrics."""

    def __init__(self) -> None:
        self.count = 0


class CustomMetric:
    """One number, or with `bounds` a histogram with these upper bounds.

    `set_ns` is when it was set last, in ns since 1970; 0 for never.
    """

    def __init__(self, bounds: Sequence[float] = (), progress: Progress | None = None) -> None:
        self.value = 0.0
        self.bounds = bounds
        # One more than bounds, for what is above all of them (+Inf).
        self.counts = [0] * (len(bounds) + 1)
        self.set_ns = 0
        self._progress = progress or Progress()

    def apply(self, verb: str, value: float) -> None:
        """Update the metric; `verb` is "increment", "set" or "observe"."""
        # First, so that whoever sees a new value has seen a new count, by which it is noticed.
        self._progress.count += 1
        if verb == "increment":
            self.value += value
        elif verb == "set":
            self.value = value
            self.set_ns = time.time_ns()
        else:
            # Bounds are inclusive: `le` means less or equal.
            self.counts[bisect_left(self.bounds, value)] += 1
            self.value += value


class CustomFamily:
    """A metric family of models, with its metrics by their labels."""

    def __init__(self, name: str, kind: str, help: str) -> None:
        self.name = name
        self.kind = kind
        self.help = help
        self.metrics: dict[str, CustomMetric] = {}

    def pieces(self) -> Iterator[str]:
        """Yield the lines of the family; see Family.pieces. Meanwhile metrics may come and go."""
        # A line break would begin a new line of the format (text format 0.0.4); quotes are allowed
        # here.
        help = self.help.replace("\\", r"\\").replace("\n", r"\n")
        if self.kind != "histogram":
            samples = [(labels, metric.value) for labels, metric in self.metrics.items()]
            yield from Family(self.name, self.kind, help, samples).pieces()
            return
        yield head(self.name, self.kind, help)
        # Read at once, since a thread may add metrics while the pieces are sent.
        for labels, metric in list(self.metrics.items()):
            below = list(accumulate(metric.counts))
            bounds = map(number, metric.bounds)
            yield "".join(histogram_lines(self.name, labels, bounds, below, metric.value))


class CustomMetrics:
    """The families of all models, by name; `progress` counts what changes in them."""

    def __init__(self) -> None:
        self.progress = Progress()
        self._families: dict[str, CustomFamily] = {}

    def families(self) -> list[CustomFamily]:
        """Return all families."""
        return list(self._families.values())

    def add_family(self, name: str, help: str, kind: str) -> None:
        """Add a family unless one of this name and kind exists.

        Raises InvalidRequest for a name that is invalid, reserved or used for another kind, and
        when there are too many families.
        """
        known = self._families.get(name)
        if known is not None:
            if known.kind != kind:
                msg = f"metric family '{name}' is a {known.kind} already, not a {kind}"
                raise InvalidRequest(msg)
            return
        if not _NAME.fullmatch(name) or kind not in _KINDS:
            msg = f"'{name[:100]}' is no name of a metric: letters, digits, _ and : make one"
            raise InvalidRequest(msg)
        # A model must not be able to falsify what dashboards and autoscalers read.
        if name.startswith(RESERVED):
            msg = f"metric family '{name}': names with {', '.join(RESERVED)} are the server's own"
            raise InvalidRequest(msg)
        if len(self._families) >= MAX_FAMILIES:
            raise InvalidRequest(f"there are {MAX_FAMILIES} metric families of models already")
        self._families[name] = CustomFamily(name, kind, help)
        self.progress.count += 1

    def metric(
        self, family: str, labels: Mapping[str, str], bounds: Sequence[float] = ()
    ) -> CustomMetric:
        """Return the metric with `labels`, created if need be. Raises InvalidRequest."""
        metrics = self._families[family].metrics
        for label in labels:
            # Prometheus reserves it for buckets.
            if not _LABEL.fullmatch(label) or label == "le":
                msg = f"metric family '{family}': '{label[:100]}' is no name of a label"
                raise InvalidRequest(msg)
        # Strictly rising: bisect and Prometheus both rely on that.
        if list(bounds) != sorted(set(bounds)) or not all(map(isfinite, bounds)):
            reason = f"the buckets {list(bounds)} are not finite numbers in order"
            raise InvalidRequest(f"metric family '{family}': {reason}")
        # Sorted, so the order in which a model names its labels makes no second metric.
        key = ",".join(f'{name}="{escaped(labels[name])}"' for name in sorted(labels))
        if key not in metrics:
            if len(metrics) >= MAX_METRICS:
                raise InvalidRequest(f"metric family '{family}' has {MAX_METRICS} metrics already")
            metrics[key] = CustomMetric(bounds, self.progress)
            self.progress.count += 1
        return metrics[key]
