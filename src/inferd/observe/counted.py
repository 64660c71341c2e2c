"""Counted: the numbers of what is counted in this process, and counts of the numbers of several."""

from collections.abc import Iterable
from typing import Any

from inferd.observe.family import CustomFamily, CustomMetric, Family
from inferd.observe.numbers import (
    Amount,
    Buckets,
    Counted,
    CustomNumbers,
    FamilyNumbers,
    ModelNumbers,
    Phased,
    shown,
)
from inferd.observe.prometheus import Observed
from inferd.observe.stats import BUCKETS, FINE_BUCKETS, Counts, Histogram, Phases
from inferd.observe.summary import Sampled, Summary

_ROWS = ("alone", "shared", "shared_requests", "failed")
_AS_THEY_ARE = (
    "other_inference_count",
    "failures",
    "fail_counts",
    "refused_count",
    "rerun_count",
    "comparison_count",
    "disagreement_count",
    "cache_hits",
    "cache_miss",
    "responses",
)
_OF_NOW = ("pending_count", "load_s", "is_on_gpu", "is_cached", "is_joined", "is_isolated")
_HISTOGRAMS = ("queue", "input", "infer", "output")
_PHASES = Phased.__struct_fields__


def numbers_of(observed: Observed) -> ModelNumbers:
    """Return the numbers of a model version, to be encoded at once: some are those that change."""
    counts = observed.counts
    fields: dict[str, Any] = {name: _rows(getattr(counts, name)) for name in _ROWS}
    fields |= {name: getattr(counts, name) for name in _AS_THEY_ARE}
    buckets = [getattr(counts, f"{name}_histogram") for name in _HISTOGRAMS]
    summaries = [*counts.summaries, *counts.cache_summaries]
    return ModelNumbers(
        Counted(
            **fields,
            requests=_without_zeros(counts.request_histogram),
            histograms=[_without_zeros(each) for each in buckets],
            # Counts that were put together of several processes have Sampled summaries, which are
            # sums already.
            samples=[each.samples() for each in summaries if isinstance(each, Summary)],
        ),
        counts.last_ns,
        _amount_of(counts.first_responses),
        **{name: getattr(observed, name) for name in _OF_NOW},
    )


def observed_in(numbers: ModelNumbers, own: Observed) -> Observed:
    """Return what is observed of the version that is `own` here and has these numbers in all."""
    of_now = {name: getattr(numbers, name) for name in _OF_NOW}
    return own._replace(counts=counts_of(numbers), **of_now)


def counts_of(numbers: ModelNumbers) -> Counts:
    """Return counts that report `numbers`; they are not for counting on."""
    # The rows are copied for lack of one type: what is counted on has mutable classes without
    # msgspec, since a request adds to them.
    counts, counted = Counts(), numbers.counted
    for name in _ROWS:
        rows = getattr(counted, name)
        setattr(counts, name, {size: _phases(phased) for size, phased in rows.items()})
    for name in _AS_THEY_ARE:
        setattr(counts, name, getattr(counted, name))
    requests = counted.requests
    counts.request_histogram = [requests.get(bucket, 0) for bucket in range(FINE_BUCKETS)]
    counts.success_count = sum(requests.values())
    for name, buckets in zip(_HISTOGRAMS, counted.histograms, strict=True):
        setattr(counts, f"{name}_histogram", [buckets.get(bits, 0) for bits in range(BUCKETS)])
    if first := numbers.first_responses:
        counts.first_responses = Histogram(first.bounds)
        counts.first_responses.counts = first.counts
        counts.first_responses.sum = float(shown(first.total))
    summaries = [Sampled(samples) for samples in counted.samples]
    # In the order in which `numbers_of` has put them together.
    counts.summaries, counts.cache_summaries = summaries[:5], summaries[5:]
    counts.ran_at(numbers.last_ns)
    return counts


def family_numbers(family: Family) -> FamilyNumbers:
    """Return the numbers of a family."""
    # Triton's types say enough: what only grows is added up, what goes up and down holds for now.
    across = family.across or ("count" if family.kind == "counter" else "level")
    samples = {labels: [value] for labels, value in family.samples}
    return FamilyNumbers(family.name, family.kind, family.help, across, samples)


def family_of(numbers: FamilyNumbers) -> Family:
    """Return the family that has these numbers."""
    samples = [(labels, shown(total)) for labels, total in numbers.samples.items()]
    return Family(numbers.name, numbers.kind, numbers.help, samples)


def custom_numbers(family: CustomFamily) -> CustomNumbers:
    """Return the numbers of a family of models."""
    metrics = {
        labels: Amount([metric.value], metric.set_ns, list(metric.bounds), metric.counts)
        for labels, metric in family.metrics.items()
    }
    return CustomNumbers(family.name, family.kind, family.help, metrics)


def custom_of(numbers: CustomNumbers) -> CustomFamily:
    """Return the family that has these numbers."""
    family = CustomFamily(numbers.name, numbers.kind, numbers.help)
    for labels, amount in numbers.metrics.items():
        metric = family.metrics[labels] = CustomMetric(amount.bounds)
        metric.value, metric.counts = shown(amount.total), amount.counts
    return family


def _rows(rows: dict[int, Phases]) -> dict[int, Phased]:
    return {size: Phased(*(getattr(each, name) for name in _PHASES)) for size, each in rows.items()}


def _phases(phased: Phased) -> Phases:
    phases = Phases()
    for name in _PHASES:
        setattr(phases, name, getattr(phased, name))
    return phases


def _without_zeros(buckets: Iterable[int]) -> Buckets:
    return {bits: count for bits, count in enumerate(buckets) if count}


def _amount_of(histogram: Histogram | None) -> Amount | None:
    if histogram is None:
        return None
    return Amount([histogram.sum], 0, list(histogram.bounds), histogram.counts)
