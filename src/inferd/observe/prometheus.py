"""Metrics for Prometheus: the counts of every model version in text format 0.0.4.

Metrics whose names begin with `nv_` have Triton's names, labels and types, so that dashboards made
for it work; those without a counterpart there begin with `inferd_`. The text is made on request, in
pieces, so that the event loop can do other work between them.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from inferd.aio.inline import groups
from inferd.config.options.metrics import MetricsSettings
from inferd.observe.family import Family, escaped, head, histogram_lines, number
from inferd.observe.statistics import Duration, InferStatistics
from inferd.observe.stats import BUCKETS, Counts

CONTENT_TYPE = b"text/plain; charset=utf-8"

FIRST_RESPONSES = "nv_inference_first_response_histogram_ms"
FIRST_RESPONSE_BUCKETS_MS = (100.0, 500.0, 2000.0, 5000.0)

# Shorter and longer ones are counted in the first bound and in +Inf: what nobody runs needs no
# lines for each model.
_FIRST_BUCKET, _LAST_BUCKET = 12, 34
# Bounds are powers of two, so they are exact as floats and the same text at each scrape.
_BOUNDS = [f"{2**bits / 1e9!r}" for bits in range(_FIRST_BUCKET, _LAST_BUCKET + 1)]
"""The upper bounds of the buckets in seconds: 4 µs, 8 µs, ... 17 s."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})

_INT64: Final = "q"  # for array and memoryview

_NOT_IN_A_LABEL = re.compile("[^a-zA-Z0-9_]")

# Dashboards made for Triton show it, and would have an error in its place.
_POOL = [
    Family(f"nv_pinned_memory_pool_{word}_bytes", "gauge", f"Pinned host memory, {word}", [("", 0)])
    for word in ("total", "used")
]
"""Triton's pool of page-locked memory, always empty: inferd has none."""


class Observed(NamedTuple):
    """What metrics report of one model version; `tags` are the labels its configuration adds.

    `is_cached`: its answers are kept in the response cache. `is_joined`: whether its requests may
    be joined; None if its configuration leaves no choice. `is_isolated`: it runs in a worker,
    because it crashed the server.
    """

    name: str
    version: str
    counts: Counts
    pending_count: int
    load_s: float
    tags: Mapping[str, str]
    is_on_gpu: bool = False
    is_cached: bool = False
    is_joined: bool | None = None
    is_isolated: bool = False


class _Snapshot(msgspec.Struct, gc=False):
    """A snapshot of the numbers of one model version, with its labels as text.

    `histograms` has for each phase BUCKETS counts and the sum in ns, as bytes of 64-bit integers.
    No object is made for it that Python's garbage collector knows: those of 1,000 models would have
    it look for garbage, among much more than these, while the pieces are written.
    """

    observed: Observed
    gpu_uuid: str
    labels: str
    inferences: InferStatistics
    inference_count: int
    execution_count: int
    histograms: bytes

    def durations(self, phase: "_Phase") -> Duration:
        """Return how often this phase occurred, and its total time."""
        found: Duration = getattr(self.inferences, phase.field)
        return found

    def histogram(self, index: int) -> tuple[Sequence[int], int]:
        """Return the buckets of a phase, and the sum in ns."""
        start = index * (BUCKETS + 1)
        numbers = memoryview(self.histograms).cast(_INT64)
        return numbers[start : start + BUCKETS], numbers[start + BUCKETS]


def _snapshot(observed: Observed, gpu_uuid: str) -> _Snapshot:
    counts = observed.counts
    # Triton labels models on a GPU with its UUID; those on the CPU have no such label.
    gpu_uuid = gpu_uuid if observed.is_on_gpu else ""
    statistics = counts.statistics(observed.name, observed.version)
    histograms = array(_INT64)
    for buckets, sum_ns in counts.histograms():
        histograms.extend(buckets)
        histograms.append(sum_ns)
    return _Snapshot(
        observed,
        gpu_uuid,
        _labels(observed, gpu_uuid),
        statistics.inference_stats,
        statistics.inference_count,
        statistics.execution_count,
        histograms.tobytes(),
    )


def exposition(
    observed: Iterable[Observed],
    settings: MetricsSettings,
    others: Sequence[Family] = (),
    gpu_uuid: str = "",
) -> Iterator[str]:
    """Yield the text of these model versions, then that of `others`, in pieces.

    The first pieces are empty: the versions are looked at, in groups.

    `gpu_uuid` labels the models on a GPU; it is "" unless the machine has exactly one.
    """
    readings = []
    # A thousand models take tens of milliseconds, so the event loop runs between groups.
    for group in groups(observed):
        readings += [_snapshot(one, gpu_uuid) for one in group]
        yield ""
    if readings:
        yield from _counts(readings)
        yield from _joining(readings)
        yield from _isolation(readings)
        if settings.counter_latencies:
            yield from _latencies(readings, _PHASES)
        if settings.histogram_latencies:
            yield from _first_responses(readings)
        if settings.summary_latencies:
            yield from _summaries(readings, _PHASES, settings.summary_quantiles)
        if settings.phase_histograms:
            yield from _phase_histograms(readings)
    if cached := [reading for reading in readings if reading.observed.is_cached]:
        # Triton has these for models with a cache alone.
        yield from _cache_lookups(cached)
        if settings.summary_latencies:
            yield from _summaries(cached, _LOOKUPS, settings.summary_quantiles)
    for family in (*_POOL, *others):
        yield from family.pieces()


def _counts(readings: Sequence[_Snapshot]) -> Iterator[str]:
    counter, gauge = partial(_simple, readings, "counter"), partial(_simple, readings, "gauge")
    yield from counter(
        "nv_inference_request_success",
        "Requests that were answered",
        (one.inferences.success.count for one in readings),
    )
    yield from Family(
        "nv_inference_request_failure",
        "counter",
        "Requests that failed after they had been accepted, by reason",
        (
            (_labels(reading.observed, reading.gpu_uuid, {"reason": reason}), count)
            for reading in readings
            # All four reasons even if 0, as in Triton: a rate needs a series that begins at 0.
            for reason, count in reading.observed.counts.fail_counts.items()
        ),
    ).pieces()
    yield from counter(
        "nv_inference_count",
        "Inferences: the batch sizes of all answered requests added up",
        (one.inference_count for one in readings),
    )
    yield from counter(
        "nv_inference_exec_count",
        "Executions of the model",
        (one.execution_count for one in readings),
    )
    yield from gauge(
        "nv_inference_pending_request_count",
        "Requests that wait for their execution to begin",
        (reading.observed.pending_count for reading in readings),
    )
    yield from gauge(
        "nv_model_load_duration_secs",
        "How long the model took to load, in seconds",
        (reading.observed.load_s for reading in readings),
    )
    yield from counter(
        "inferd_request_refused_total",
        "Requests turned away because too many were waiting",
        (reading.observed.counts.refused_count for reading in readings),
    )


def _simple(
    readings: Sequence[_Snapshot], kind: str, name: str, help: str, values: Iterable[float]
) -> Iterator[str]:
    labels = (reading.labels for reading in readings)
    return Family(name, kind, help, zip(labels, values, strict=True)).pieces()


def _joining(readings: Sequence[_Snapshot]) -> Iterator[str]:
    """Yield what is known of joining, for models whose configuration leaves a choice."""
    readings = [reading for reading in readings if reading.observed.is_joined is not None]
    if not readings:
        return
    counter, gauge = partial(_simple, readings, "counter"), partial(_simple, readings, "gauge")
    yield from gauge(
        "inferd_model_joined",
        "Whether requests may be joined into one execution (1) or run alone (0)",
        (int(reading.observed.is_joined is True) for reading in readings),
    )
    yield from counter(
        "inferd_join_comparison_total",
        "Joined answers that were compared with the same requests run alone",
        (reading.observed.counts.comparison_count for reading in readings),
    )
    yield from counter(
        "inferd_join_disagreement_total",
        "Joined answers that differed from those of the same requests run alone",
        (reading.observed.counts.disagreement_count for reading in readings),
    )
    yield from counter(
        "inferd_request_rerun_total",
        "Requests run again by themselves after their joined execution had failed",
        (reading.observed.counts.rerun_count for reading in readings),
    )


def _isolation(readings: Sequence[_Snapshot]) -> Iterator[str]:
    """Yield which models run in workers because they crashed the server."""
    found = [(one.labels, 1) for one in readings if one.observed.is_isolated]
    if found:
        help = "Models that run in a worker, because the server crashed while they ran"
        yield Family("inferd_model_isolated", "gauge", help, found).text()


class _Phase(NamedTuple):
    """A part of a request's time: its word in names of metrics, its field in the statistics.

    `pattern` makes the names of Triton's metrics from the word and what they are about.
    """

    word: str
    field: str
    help: str
    pattern: str = "nv_inference_{}_{}_us"


_PHASES = (
    _Phase("request", "success", "Time from the queue to the answer"),
    _Phase("queue", "queue", "Time in the queue"),
    _Phase("compute_input", "compute_input", "Time to prepare inputs"),
    _Phase("compute_infer", "compute_infer", "Time in the framework"),
    _Phase("compute_output", "compute_output", "Time to take outputs"),
)
"""In the order of Counts.histograms and Counts.summaries."""

_LOOKUPS = (
    _Phase("hit", "cache_hit", "Time of cache hits", "nv_cache_{}_{}_per_model"),
    _Phase("miss", "cache_miss", "Time of cache misses", "nv_cache_{}_{}_per_model"),
)
"""In the order of Counts.cache_summaries."""


def _latencies(readings: Sequence[_Snapshot], phases: Sequence[_Phase]) -> Iterator[str]:
    for phase in phases:
        # Triton's counters are in whole microseconds.
        samples = ((one.labels, one.durations(phase).ns // 1000) for one in readings)
        help = f"{phase.help}, added up, in microseconds"
        name = phase.pattern.format(phase.word, "duration")
        yield from Family(name, "counter", help, samples).pieces()


def _first_responses(readings: Sequence[_Snapshot]) -> Iterator[str]:
    name = FIRST_RESPONSES
    # Once for all models: a second HELP for a name is an error of the format.
    yield head(name, "histogram", "Time to the first answer, in milliseconds")
    for group in groups(readings):
        lines: list[str] = []
        for reading in group:
            if histogram := reading.observed.counts.first_responses:
                bounds = [repr(one).removesuffix(".0") for one in histogram.bounds]  # 100, no 100.0
                below = list(accumulate(histogram.counts))
                lines += histogram_lines(name, reading.labels, bounds, below, histogram.sum)
        yield "".join(lines)


def _cache_lookups(readings: Sequence[_Snapshot]) -> Iterator[str]:
    for phase, words in zip(_LOOKUPS, ("hits", "misses"), strict=True):
        counts = ((one.labels, one.durations(phase).count) for one in readings)
        name = f"nv_cache_num_{words}_per_model"
        yield from Family(name, "counter", f"Cache {words}", counts).pieces()
        yield from _latencies(readings, [phase])


def _summaries(
    readings: Sequence[_Snapshot], phases: Sequence[_Phase], levels: Sequence[float]
) -> Iterator[str]:
    for index, phase in enumerate(phases):
        name = phase.pattern.format(phase.word, "summary")
        yield head(name, "summary", f"{phase.help}, of the last minute, in microseconds")
        for reading in readings:
            counts = reading.observed.counts
            if phase is _PHASES[0] and reading.observed.is_cached:
                continue  # hits and misses in one would say nothing; Triton has neither
            summaries = counts.cache_summaries if phases is _LOOKUPS else counts.summaries
            if summaries:
                found = zip(levels, summaries[index].quantiles(levels), strict=True)
                yield _summary(name, reading.labels, found, reading.durations(phase))


def _summary(
    name: str, labels: str, quantiles: Iterable[tuple[float, float]], total: Duration
) -> str:
    lines = [
        f'{name}{{{labels},quantile="{level!r}"}} {number(ns / 1000)}\n' for level, ns in quantiles
    ]
    lines.append(f"{name}_sum{{{labels}}} {total.ns // 1000}\n")
    lines.append(f"{name}_count{{{labels}}} {total.count}\n")
    return "".join(lines)


def _phase_histograms(readings: Sequence[_Snapshot]) -> Iterator[str]:
    for index, phase in enumerate(_PHASES):
        name = f"inferd_{phase.word}_duration_seconds"
        yield head(name, "histogram", f"{phase.help}, in seconds")
        for group in groups(readings):
            lines: list[str] = []
            for reading in group:
                buckets, sum_ns = reading.histogram(index)
                below = list(accumulate(buckets))
                # Counts are cumulative, so leaving out buckets only makes the resolution coarser.
                inside = [*below[_FIRST_BUCKET : _LAST_BUCKET + 1], below[-1]]
                lines += histogram_lines(name, reading.labels, _BOUNDS, inside, sum_ns / 1e9)
            yield "".join(lines)


def _labels(observed: Observed, gpu_uuid: str, more: Mapping[str, str] = NO_LABELS) -> str:
    """Return the labels of a model version in alphabetical order, with `more` among them.

    Names of tags get an underscore in front.
    """
    labels = {"model": observed.name, "version": observed.version, **more}
    if gpu_uuid:
        labels["gpu_uuid"] = gpu_uuid
    for name, value in observed.tags.items():
        # As in Triton: a tag cannot take the place of a label of the server.
        labels["_" + _NOT_IN_A_LABEL.sub("_", name)] = value
    return ",".join(f'{name}="{escaped(value)}"' for name, value in sorted(labels.items()))
