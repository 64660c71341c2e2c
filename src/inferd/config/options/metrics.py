"""MetricsSettings: which metrics are served besides the counts, as given by --metrics-config."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferd.config.options.option import BOOLEANS, finite_number
from inferd.errors import InvalidConfig

_FLAG = "--metrics-config"
_SWITCHES = ("counter_latencies", "histogram_latencies", "summary_latencies", "phase_histograms")
_QUANTILES = "summary_quantiles"


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What /metrics contains. Names and defaults are Triton's, except `phase_histograms`.

    `counter_latencies`: sums of durations. `histogram_latencies`: the time to the first
    answer. `summary_latencies`: quantiles over the last minute, at the levels in
    `summary_quantiles`. `phase_histograms`: the durations of requests and of their phases.
    """

    counter_latencies: bool = True
    histogram_latencies: bool = False
    summary_latencies: bool = False
    phase_histograms: bool = True
    # Triton's, with errors that an exact count over a window does not need.
    summary_quantiles: tuple[float, ...] = (0.5, 0.9, 0.95, 0.99, 0.999)


def read_metrics_config(texts: Sequence[str]) -> MetricsSettings:
    """Return the settings from the values of --metrics-config, each SETTING=VALUE.

    Raises InvalidConfig.
    """
    chosen: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name in _SWITCHES:
            chosen[name] = BOOLEANS.get(value.lower())
            if chosen[name] is None:
                raise InvalidConfig(f"{_FLAG}: {name} is '{value}', expected true or false")
        elif name == _QUANTILES:
            chosen[name] = _quantiles(value)
        else:
            known = ", ".join((*_SWITCHES, _QUANTILES))
            msg = f"{_FLAG}: '{text}' is no SETTING=VALUE with one of the settings {known}"
            raise InvalidConfig(msg)
    return replace(MetricsSettings(), **chosen)


def _quantiles(text: str) -> tuple[float, ...]:
    """Return the levels in QUANTILE:ERROR,...; the allowed errors are accepted but not used."""
    levels = []
    for pair in text.split(","):
        numbers = [finite_number(one) for one in pair.split(":")]
        # A third number is no error of a quantile; what it should be, nobody can say.
        if len(numbers) > 2 or any(number is None or not 0 < number < 1 for number in numbers):
            raise InvalidConfig(
                f"{_FLAG}: {_QUANTILES} is '{text}', expected QUANTILE:ERROR,... "
                f"with numbers between 0 and 1"
            )
        levels += [number for number in numbers[:1] if number is not None]
    # A level given twice would be two samples of the same name and labels, which Prometheus
    # refuses.
    return tuple(sorted(set(levels)))
