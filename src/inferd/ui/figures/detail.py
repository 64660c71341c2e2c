"""What the dashboard shows of one model version beside its row, in all processes of the server."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferd.observe.stats import BUCKETS, FAILURE_REASONS, fine_bound
from inferd.ui.figures.notable import NotableRequest, newest
from inferd.ui.figures.part import DetailPart, StepPart
from inferd.ui.figures.percentiles import ERROR, added

MOST_NOTABLE = 20

QUEUE_ERROR = 0.5
"""How far a duration in the queue may be from the middle of its bucket, as a part of it."""


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
    return newest((one for one in notable if one.status == status), MOST_NOTABLE)


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
