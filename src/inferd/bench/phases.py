"""ServerPhases: where the server says that the time of requests went, from its statistics."""

from collections.abc import Sequence

import msgspec

from inferd.observe.statistics import Duration, ModelStatistics

NAMES = ("queue", "compute_input", "compute_infer", "compute_output")


class ServerPhases(msgspec.Struct, frozen=True):
    """Microseconds for each request on average, between two looks at the statistics."""

    count: int
    failed: int
    total_us: float
    queue_us: float
    input_us: float
    infer_us: float
    output_us: float
    mean_batch: float
    cache_hits: int


def phases(
    before: Sequence[ModelStatistics], after: Sequence[ModelStatistics]
) -> ServerPhases | None:
    """Return the difference of all versions together; None if nothing was counted."""
    then = {(one.name, one.version): one for one in before}
    counts = dict.fromkeys(("success", "fail", "cache_hit", *NAMES), 0)
    spent = dict.fromkeys(counts, 0)
    inferences = executions = 0
    for row in after:
        was = then.get((row.name, row.version))
        inferences += row.inference_count - (was.inference_count if was else 0)
        executions += row.execution_count - (was.execution_count if was else 0)
        for name in counts:
            now: Duration = getattr(row.inference_stats, name)
            old: Duration = getattr(was.inference_stats, name) if was else Duration()
            counts[name] += now.count - old.count
            spent[name] += now.ns - old.ns
    # A server that was started anew counts from 0 again.
    if counts["success"] <= 0:
        return None

    def mean_us(name: str) -> float:
        return spent[name] / counts[name] / 1e3 if counts[name] > 0 else 0.0

    return ServerPhases(
        counts["success"],
        counts["fail"],
        mean_us("success"),
        mean_us("queue"),
        mean_us("compute_input"),
        mean_us("compute_infer"),
        mean_us("compute_output"),
        inferences / executions if executions > 0 else 0.0,
        counts["cache_hit"],
    )
