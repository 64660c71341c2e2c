"""Models as the dashboard shows them, in rows and one by one, made of the parts of processes."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferd.core.metadata import ModelState
from inferd.observe.numbers import EncodedNumbers
from inferd.observe.stats import BUCKETS, FAILURE_REASONS, fine_bound
from inferd.ui.figures.notable import NotableRequest
from inferd.ui.figures.part import DetailPart, ModelPart, StepPart
from inferd.ui.figures.percentiles import ERROR, added, percentiles
from inferd.ui.figures.window import Sums

MOST_SIZES = 100
"""The most batch sizes that are shown of a version: the smallest ones."""

MOST_NOTABLE = 20

QUEUE_ERROR = 0.5
"""How far a duration in the queue may be from the middle of its bucket, as a part of it."""


def ended_part(entry: EncodedNumbers) -> ModelPart:
    """Return what processes that have ended counted of a version. Raises InferdError."""
    numbers = entry.numbers()
    counted = numbers.counted
    hits = sum(one.count for one in counted.cache_hits.values())
    runs = [*counted.alone.values(), *counted.shared_requests.values()]
    sizes = added(
        {size: row.count for size, row in rows.items()}
        for rows in (counted.alone, counted.shared, counted.failed)
    )
    return ModelPart(
        entry.name,
        entry.version,
        ModelState.UNKNOWN.value,
        born=entry.born,
        success=sum(row.count for row in runs) + hits,
        failure=sum(one.count for one in counted.failures.values()),
        refused=counted.refused_count,
        cache_hit=hits,
        cache_miss=counted.cache_miss.count,
        batch_sizes=sizes,
        last=numbers.last_ns // 1_000_000,
    )


def model_row(parts: Sequence[ModelPart], ended: Sequence[ModelPart] = ()) -> dict[str, Any]:
    """Return the row of a version of which processes have `parts`, as JSON has it.

    The newest load alone counts. Times are in ns, `last` in ms since 1970, `rate` is per second.
    What is counted is since it was loaded; the phases are means of the last minute, and the
    percentiles are of the last minute, None if nothing was answered in it.
    """
    born = max(part.born for part in parts)
    parts = [part for part in parts if part.born == born]
    # The process that is worst off is shown: one that cannot load the model is what people look
    # for.
    shown = next((part for part in parts if part.state != ModelState.READY.value), parts[0])
    # As for the state: one process that does not join is worth showing.
    joined = next((part for part in parts if part.joined != "joined"), parts[0])
    # Place by place; processes in which it was not asked lately have no sums.
    sums = Sums(*map(sum, zip(*(part.sums for part in parts if part.sums), strict=True)))
    counted = [*parts, *(part for part in ended if part.born == born)]
    sizes = added(part.batch_sizes for part in counted)
    memories = [part.memory for part in parts if part.memory is not None]
    queue, input, infer, output = (total // sums.runs if sums.runs else None for total in sums[2:6])
    p50, p95, p99 = percentiles(added(part.durations for part in parts))
    return {
        "name": shown.name,
        "version": shown.version,
        "state": shown.state,
        "reason": shown.reason,
        "platform": shown.platform,
        "backend": shown.backend,
        "instances": max(part.instances for part in parts),
        "max_batch_size": shown.max_batch_size,
        "joined": joined.joined,
        "joined_reason": joined.joined_reason,
        "success": sum(part.success for part in counted),
        "failure": sum(part.failure for part in counted),
        "refused": sum(part.refused for part in counted),
        "rate": round(sum(part.rate for part in parts), 2),
        "queue": queue,
        "input": input,
        "infer": infer,
        "output": output,
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "cache_hit": sum(part.cache_hit for part in counted),
        "cache_miss": sum(part.cache_miss for part in counted),
        "batch_sizes": sorted(sizes.items())[:MOST_SIZES],
        "memory": sum(memories) if memories else None,
        "last": max(part.last for part in counted),
    }


def detail(parts: Sequence[DetailPart]) -> dict[str, Any]:
    """Return more of a version of which processes have `parts`, as JSON has it."""
    notable = [one for part in parts for one in part.notable]
    sequences = [part.sequences for part in parts if part.sequences is not None]
    return {
        "latency": _histogram(added(part.requests for part in parts), fine_bound, ERROR),
        "queue_latency": _histogram(added(part.queue for part in parts), _bound, QUEUE_ERROR),
        "failures": {
            reason: sum(part.failures.get(reason, 0) for part in parts)
            for reason in FAILURE_REASONS
        },
        "errors": list(map(_error, _newest(notable, "failed"))),
        "slow": _newest(notable, "ok"),
        "sequences": sum(sequences) if sequences else None,
        "queued": sum(part.queued for part in parts),
        "steps": _steps([part.steps for part in parts]),
        "written": sorted({name for part in parts for name in part.written}),
    }


def _newest(notable: Sequence[NotableRequest], status: str) -> list[NotableRequest]:
    found = [one for one in notable if one.status == status]
    # Of those that ended in one millisecond, too, the last comes first.
    return sorted(found, key=lambda one: one.time)[::-1][:MOST_NOTABLE]


def _error(one: NotableRequest) -> dict[str, object]:
    return {
        "time": one.time,
        "id": one.id,
        "text": one.error,
        "reason": one.reason,
        "took": one.took,
    }


def _histogram(counts: Mapping[int, int], bound: Any, error: float) -> dict[str, Any]:
    """Return the buckets from the first to the last that has any; with one more bound."""
    if not counts:
        return {"bounds": [], "counts": [], "error": error}
    first, last = min(counts), max(counts)
    return {
        # Bounds are ends of buckets, so there is one more than counts.
        "bounds": [bound(bucket) for bucket in range(first, last + 2)],
        "counts": [counts.get(bucket, 0) for bucket in range(first, last + 1)],
        "error": error,
    }


def _bound(bits: int) -> int:
    """Return the shortest duration of so many bits."""
    return 1 << (min(bits, BUCKETS) - 1) if bits else 0


def _steps(several: Sequence[Sequence[StepPart]]) -> list[dict[str, object]]:
    """Return the steps of an ensemble, which are the same in all processes."""
    sums: dict[tuple[str, str], list[int]] = {}
    for steps in several:
        # A step may occur twice in an ensemble, with the counts of the same model.
        for step in {(step.model, step.version): step for step in steps}.values():
            found = sums.setdefault((step.model, step.version), [0, 0])
            found[0] += step.count
            found[1] += step.ns
    return [
        {
            "model": model,
            "version": version,
            "mean": ns // count if count else None,
            "count": count,
        }
        for (model, version), (count, ns) in sums.items()
    ]
