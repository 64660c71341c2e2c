"""Rows of models as the dashboard shows them, made of the parts that processes have of them."""

from collections.abc import Sequence

import msgspec

from inferd.core.metadata import ModelState
from inferd.observe.numbers import EncodedNumbers
from inferd.ui.figures.part import ModelPart
from inferd.ui.figures.percentiles import add_to, percentiles
from inferd.ui.figures.window import Sums

MOST_SIZES = 100
"""The most batch sizes that are shown of a version: the smallest ones."""


class ShownModel(msgspec.Struct):
    """A model version in all processes; times in ns, `last` in ms since 1970, `rate` per second.

    What is counted is since it was loaded; the phases are means of the last minute, and the
    percentiles are of the last minute, None if nothing was answered in it.
    """

    name: str
    version: str
    state: str
    reason: str
    platform: str
    backend: str
    instances: int
    max_batch_size: int
    joined: str
    joined_reason: str
    success: int
    failure: int
    refused: int
    rate: float
    queue: int | None
    input: int | None
    infer: int | None
    output: int | None
    p50: int | None
    p95: int | None
    p99: int | None
    cache_hit: int
    cache_miss: int
    batch_sizes: list[tuple[int, int]]
    memory: int | None
    last: int


def ended_part(entry: EncodedNumbers) -> ModelPart:
    """Return what processes that have ended counted of a version. Raises InferdError."""
    numbers = entry.numbers()
    counted = numbers.counted
    hits = sum(one.count for one in counted.cache_hits.values())
    runs = [*counted.alone.values(), *counted.shared_requests.values()]
    sizes: dict[int, int] = {}
    for rows in (counted.alone, counted.shared, counted.failed):
        add_to(sizes, {size: row.count for size, row in rows.items()})
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


def model_row(parts: Sequence[ModelPart], ended: Sequence[ModelPart] = ()) -> ShownModel:
    """Return the row of a version of which processes have `parts`; the newest load alone counts."""
    born = max(part.born for part in parts)
    parts = [part for part in parts if part.born == born]
    # The process that is worst off is shown: one that cannot load the model is what people look
    # for.
    shown = next((part for part in parts if part.state != ModelState.READY.value), parts[0])
    # As for the state: one process that does not join is worth showing.
    joined = next((part for part in parts if part.joined != "joined"), parts[0])
    durations: dict[int, int] = {}
    for part in parts:
        add_to(durations, part.durations)
    # Place by place; processes in which it was not asked lately have no sums.
    sums = Sums(*map(sum, zip(*(part.sums for part in parts if part.sums), strict=True)))
    counted = [*parts, *(part for part in ended if part.born == born)]
    sizes: dict[int, int] = {}
    for part in counted:
        add_to(sizes, part.batch_sizes)
    memories = [part.memory for part in parts if part.memory is not None]
    queue, input, infer, output = (total // sums.runs if sums.runs else None for total in sums[2:6])
    p50, p95, p99 = percentiles(durations)
    return ShownModel(
        name=shown.name,
        version=shown.version,
        state=shown.state,
        reason=shown.reason,
        platform=shown.platform,
        backend=shown.backend,
        instances=max(part.instances for part in parts),
        max_batch_size=shown.max_batch_size,
        joined=joined.joined,
        joined_reason=joined.joined_reason,
        success=sum(part.success for part in counted),
        failure=sum(part.failure for part in counted),
        refused=sum(part.refused for part in counted),
        rate=round(sum(part.rate for part in parts), 2),
        queue=queue,
        input=input,
        infer=infer,
        output=output,
        p50=p50,
        p95=p95,
        p99=p99,
        cache_hit=sum(part.cache_hit for part in counted),
        cache_miss=sum(part.cache_miss for part in counted),
        batch_sizes=sorted(sizes.items())[:MOST_SIZES],
        memory=sum(memories) if memories else None,
        last=max(part.last for part in counted),
    )
