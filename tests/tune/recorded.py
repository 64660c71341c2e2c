"""Costs of real models at every candidate, as bench/surfaces.py has recorded them."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from inferd.tune.expected import Circumstances
from inferd.tune.goal import QUANTILES, Cost
from inferd.tune.search import Candidate, Search, Trial
from inferd.tune.settings import Knob, Space

FOLDER = Path(__file__).with_name("surfaces")
NAMES = sorted(file.stem for file in FOLDER.glob("*.json"))


class Surface(NamedTuple):
    """The candidates of a model, the one in force, the load, and what each candidate costs.

    Each of the `passes` measured all candidates; those that failed are left out.
    """

    space: Space
    start: Candidate
    load: Circumstances
    passes: list[dict[Candidate, Cost]]

    @property
    def costs(self) -> dict[Candidate, Cost]:
        """The means of all measurements."""
        return _means(self.passes)

    @property
    def halves(self) -> list[dict[Candidate, Cost]]:
        """The means of every second measurement and of the others; none if there is only one."""
        return [_means(self.passes[turn::2]) for turn in (0, 1)] if len(self.passes) > 1 else []


def run(search: Search, measure: Callable[[Candidate], Cost | None]) -> Trial | None:
    """Measure what the search proposes until it has nothing more; return the best."""
    while (candidate := search.propose()) is not None:
        search.tell(candidate, measure(candidate))
    return search.best


def surface_of(name: str) -> Surface:
    """Return a recorded surface."""
    told = json.loads((FOLDER / f"{name}.json").read_text())
    space = Space([Knob(name, tuple(values)) for name, values in told["knobs"].items()])
    rows = [
        (one, costs)
        for one, costs in zip(space.candidates, told["candidates"], strict=True)
        if costs
    ]
    count = len(rows[0][1])
    passes = [{one: _cost(*costs[number]) for one, costs in rows} for number in range(count)]
    start = space.canonical(tuple(told["start"]))
    return Surface(space, start, Circumstances(told["concurrency"], told["cores"]), passes)


def _cost(per_s: float, *more: float) -> Cost:
    *latencies, memory_mb = more
    return Cost(per_s, dict(zip(QUANTILES, latencies, strict=True)), memory_mb * 1e6)


def _means(passes: list[dict[Candidate, Cost]]) -> dict[Candidate, Cost]:
    return {one: _mean([costs[one] for costs in passes]) for one in passes[0]}


def _mean(costs: list[Cost]) -> Cost:
    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(costs)

    latency_ms = {name: mean(one.latency_ms[name] for one in costs) for name in QUANTILES}
    memory_bytes = mean(one.memory_bytes for one in costs)
    return Cost(mean(one.per_s for one in costs), latency_ms, memory_bytes)
