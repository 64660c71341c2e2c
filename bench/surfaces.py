"""Records what `inferd tune` would measure at every candidate of real models, for its tests.

    python bench/surfaces.py MODEL [--out tests/tune/surfaces] [--points N]

A model of `surface_models.py` is served with each of its candidates, one after the other, under the
load that tune sends, and what each cost is written to OUT/MODEL.json: several times, with
connections of its own each time, as requests may keep meeting in batches in one way or another. A
server is started for each number of instances and each kind of process; the rest is loaded anew
there. Nothing else should run on the machine. Without MODEL, the names of all are printed. With
`--points`, only so many candidates are measured and nothing is written: to see that it works.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from surface_models import MODELS, SurfaceModel

from inferd.bench.processes import Generators
from inferd.cli.remote.requests import is_batched_model
from inferd.client import Client
from inferd.config.pbtxt import to_json
from inferd.errors import InferdError
from inferd.tensor.tensor import Tensor
from inferd.tune.front import TunePoint
from inferd.tune.goal import QUANTILES, Cost, read_goal
from inferd.tune.measuring import TuneLoad, load_plan, measured_by, served
from inferd.tune.search import Candidate
from inferd.tune.session import Session, TuneTask
from inferd.tune.settings import INSTANCES, PROCESS, Knob, Space
from inferd.values.drawn import drawn

LEAD_S, WARMUP_S, TIMES = 0.03, 0.05, 4
MEASURED = (
    f"{TIMES} times, one after the other; a server for each number of instances, kind of process"
)


class Recorder:
    """Measures the candidates of one model."""

    def __init__(self, repository: Path, name: str) -> None:
        self.made: SurfaceModel = MODELS[name]
        folder = repository / name
        (folder / "1").mkdir(parents=True)
        self.made.write(folder)
        self._name = name
        self._repository = repository
        self._load = TuneLoad(self.made.concurrency, self.made.seconds, WARMUP_S)
        cores = os.cpu_count() or 1
        task = TuneTask(repository, name, read_goal(""), self._load, cores)
        self._session = Session(task, self._inputs)
        self.start = self._session.prepare()
        named = self._session.space.named(self.start)
        tried = [self._tried(knob) for knob in self._session.space.knobs]
        self.space = Space([knob for knob in tried if len(knob.values) > 1])
        self.more = {knob.name: knob.values[0] for knob in tried if len(knob.values) == 1}
        self.start = tuple(named[knob.name] for knob in self.space.knobs)

    def _tried(self, knob: Knob) -> Knob:
        return knob._replace(values=self.made.only.get(knob.name, knob.values))

    def _inputs(self, client: Client) -> list[Tensor]:
        declared = client.metadata(self._name).inputs
        is_batched = is_batched_model(client, self._name, "")
        return drawn(declared, np.random.default_rng(0), {}, is_batched=is_batched)

    def costs(self, most: int | None) -> Iterator[tuple[Candidate, list[Cost] | str]]:
        """Yield what each candidate cost, each time, or why it has no cost."""
        with ExitStack() as stack:
            now: object = None
            for candidate in sorted(self.space.candidates, key=self._server_of)[:most]:
                if self._server_of(candidate) != now:
                    stack.close()
                    now = self._server_of(candidate)
                    config = self._config(candidate)
                    client = stack.enter_context(
                        served(self._repository, self._name, config, self._load)
                    )
                    plan = load_plan(client, self._name, self._session.inputs)
                    generators = stack.enter_context(Generators(plan, 1, LEAD_S))
                try:
                    client.load(self._name, config=self._config(candidate))
                    yield (
                        candidate,
                        [
                            measured_by(generators, plan, self._load, lambda _share: None)
                            for _ in range(TIMES)
                        ],
                    )
                except InferdError as error:
                    yield candidate, error.message

    def _server_of(self, candidate: Candidate) -> tuple[object, object]:
        named = self.space.named(candidate)
        return str(named.get(PROCESS, "")), named[INSTANCES]

    def _config(self, candidate: Candidate) -> str:
        point = TunePoint(self.more | self.space.named(candidate), Cost(0.0, {}))
        return json.dumps(to_json(self._session.configuration(point)))


def machine() -> str:
    """Return what the processor calls itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def written(recorder: Recorder, found: dict[Candidate, list[Cost]]) -> str:
    """Return the surface as JSON, a line for each candidate, in their order."""
    head = {
        "machine": machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "concurrency": recorder.made.concurrency,
        "seconds": recorder.made.seconds,
        "measured": MEASURED,
        "always": recorder.more,
        "knobs": {knob.name: knob.values for knob in recorder.space.knobs},
        "start": recorder.start,
        "costs": ["requests/s", *(f"{one} ms" for one in QUANTILES), "memory MB"],
    }
    lines = [
        json.dumps([_row(cost) for cost in found.get(one, [])]) for one in recorder.space.candidates
    ]
    text = json.dumps(head, indent=1)
    return f'{text[:-2]},\n "candidates": [\n' + ",\n".join(lines) + "\n]}\n"


def _row(cost: Cost) -> list[float]:
    times = [float(f"{cost.latency_ms[one]:.4g}") for one in QUANTILES]
    return [float(f"{cost.per_s:.5g}"), *times, round(cost.memory_bytes / 1e6, 1)]


def main() -> int:
    """Record a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?", choices=sorted(MODELS))
    parser.add_argument("--out", type=Path, default=Path("tests/tune/surfaces"))
    parser.add_argument("--points", type=int)
    given = parser.parse_args()
    if given.model is None:
        sys.stdout.write("".join(f"{name}\n" for name in MODELS))
        return 0
    begin, found = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder), given.model)
        for candidate, costs in recorder.costs(given.points):
            if not isinstance(costs, str):
                found[candidate] = costs
            if given.points or isinstance(costs, str):
                sys.stdout.write(f"{candidate} {costs}\n")
    if given.points is None:
        (given.out / f"{given.model}.json").write_text(written(recorder, found))
    count, seconds = len(recorder.space.candidates), time.monotonic() - begin
    sys.stdout.write(f"{given.model}: {len(found)} of {count} in {seconds:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
