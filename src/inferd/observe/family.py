"""Family: one metric with its samples, written in Prometheus's text format 0.0.4."""

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, isnan
from typing import Literal, NamedTuple

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
