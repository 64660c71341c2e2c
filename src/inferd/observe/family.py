"""Family: one metric with its samples, and how Prometheus's text format 0.0.4 writes it."""

from collections.abc import Sequence
from math import isfinite, isnan
from typing import NamedTuple


class Family(NamedTuple):
    """A metric. `kind` is counter or gauge; a sample is its labels, as text, and its value."""

    name: str
    kind: str
    help: str
    samples: Sequence[tuple[str, float]]

    def text(self) -> str:
        """Return its lines."""
        lines = [head(self.name, self.kind, self.help)]
        for labels, value in self.samples:
            where = f"{self.name}{{{labels}}}" if labels else self.name
            lines.append(f"{where} {number(value)}\n")
        return "".join(lines)


def head(name: str, kind: str, help: str) -> str:
    """Return the two lines that come before the samples of a metric."""
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n"


def number(value: float) -> str:
    """Return a value as text: all its digits, NaN for what there is not, +Inf for no limit."""
    if isfinite(value):
        return repr(value)
    if isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def escaped(value: str) -> str:
    """Return `value` as it stands between the quotes of a label."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
