"""MetricFamily and Metric: a model's own numbers among the server's metrics."""

from __future__ import annotations

import enum
import itertools
import math
from typing import TYPE_CHECKING

from .. import packet
from .calls import current_calls
from .error import TritonModelException
from .given import text_given

if TYPE_CHECKING:
    from collections.abc import Sequence

_numbers = itertools.count(1)

_known: dict[tuple[object, ...], int] = {}
"""The numbers of the metrics that the server knows, by family, labels and buckets.

A model may ask for its metric anew with each request, and the server keeps every number.
"""


class _Kind(enum.IntEnum):
    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


class MetricFamily:
    """Metrics of the same name, kind and description that differ in their labels."""

    COUNTER = _Kind.COUNTER
    GAUGE = _Kind.GAUGE
    HISTOGRAM = _Kind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: int) -> None:
        self._name = text_given(name, "the name of a MetricFamily")
        text = text_given(description, f"the description of MetricFamily '{self._name}'")
        self._kind = _Kind(kind)
        current_calls().command("metric_family", self._name, text, self._kind.name.lower())

    # The method's name is Triton's, hence the noqa.
    def Metric(  # noqa: N802
        self, labels: dict[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> Metric:
        """Return the metric with `labels`; a histogram needs its `buckets`.

        The last bucket may be infinity, which exists in any case.
        """
        bounds = [float(bound) for bound in buckets] if buckets is not None else []
        if self._kind is not _Kind.HISTOGRAM:
            if bounds:
                raise TritonModelException(f"only a histogram has buckets, '{self._name}' is none")
            return Metric(self._name, self._kind, labels or {}, None)
        if not bounds:
            raise TritonModelException(f"a histogram needs buckets: '{self._name}'")
        # Prometheus adds the bucket of infinity to each histogram.
        finite = bounds[:-1] if bounds[-1] == math.inf else bounds
        if not all(map(math.isfinite, finite)):
            raise TritonModelException(
                f"histogram '{self._name}' has the buckets {bounds}, expected finite numbers; only "
                f"the last one may be infinity"
            )
        return Metric(self._name, self._kind, labels or {}, finite)


class Metric:
    """One metric; made by MetricFamily.Metric."""

    def __init__(
        self, family: str, kind: int, labels: dict[str, str], bounds: list[float] | None
    ) -> None:
        self._kind = kind
        # Labels are texts in Prometheus; models write numbers.
        texts = {str(key): str(value) for key, value in labels.items()}
        key = (family, frozenset(texts.items()), tuple(bounds or ()))
        number = _known.get(key)
        if number is None:
            number = next(_numbers)
            current_calls().command("metric", number, family, texts, bounds)
            _known[key] = number
        self._number = number

    def increment(self, value: float) -> None:
        """Add `value`, which must not be negative for a counter."""
        if self._kind == _Kind.HISTOGRAM:
            raise TritonModelException("a histogram observes, it is not incremented")
        if self._kind == _Kind.COUNTER and value < 0:
            raise TritonModelException(f"a counter only grows, {value} is negative")
        self._send("increment", value)

    def set(self, value: float) -> None:
        """Set a gauge."""
        if self._kind != _Kind.GAUGE:
            raise TritonModelException("only a gauge can be set")
        self._send("set", value)

    def observe(self, value: float) -> None:
        """Add a value to a histogram."""
        if self._kind != _Kind.HISTOGRAM:
            raise TritonModelException("only a histogram observes")
        self._send("observe", value)

    def value(self) -> float:
        """Return the value across all instances of the model."""
        if self._kind == _Kind.HISTOGRAM:
            raise TritonModelException("a histogram has no single value")
        # Infinity, which a gauge may reach, comes as a text.
        return float(current_calls().command("metric_value", self._number))

    def _send(self, verb: str, value: float) -> None:
        if not math.isfinite(value):
            raise TritonModelException(f"a metric cannot {verb} {value}, which is no finite number")
        # Sent without waiting for an answer, so that counting costs a request next to nothing.
        current_calls().line.send(packet.METRIC, [self._number, verb, float(value)])
