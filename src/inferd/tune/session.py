"""Session: a model is tuned: its configuration read, candidates measured, the best one written."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from inferd.client import Client
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import decode_pbtxt, parse_json, parse_pbtxt, to_json, to_pbtxt
from inferd.errors import InferdError, InvalidConfig, ModelNotFound
from inferd.tensor.tensor import Tensor
from inferd.tune.expected import Circumstances
from inferd.tune.front import TunePoint, front, page
from inferd.tune.goal import Cost, Goal
from inferd.tune.measuring import TuneLoad, measured, served
from inferd.tune.search import Candidate, Search
from inferd.tune.settings import BATCH, Space, configured, knobs, start


class TimeBudget:
    """Some seconds from now on, or any number of them.

    A measurement is expected to take as long as the longest before it. The first one always fits:
    without it there would be no result.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds
        self._longest: float | None = None

    @property
    def fits(self) -> bool:
        """Tell whether there is time for one more measurement."""
        if self._end is None or self._longest is None:
            return True
        return self._clock() + self._longest <= self._end

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Note how long a measurement takes."""
        begin = self._clock()
        yield
        self._longest = max(self._longest or 0.0, self._clock() - begin)


CONFIG_FILE = "config.pbtxt"


class TuneTask(NamedTuple):
    """What is tuned, for what: the model in its repository, the goal, the load, the machine.

    A model that is alone is its own `repository`: a folder or a file.
    """

    repository: Path
    model: str
    goal: Goal
    load: TuneLoad
    cores: int
    providers: Sequence[str] = ()
    most_trials: int | None = None
    most_s: float | None = None
    is_alone: bool = False

    @property
    def place(self) -> Path:
        """The model's folder, or the file that is all there is of it."""
        return self.repository if self.is_alone else self.repository / self.model


class Session:
    """Tunes a model. `inputs` gives those of a request, by asking a server that has the model."""

    def __init__(
        self,
        task: TuneTask,
        inputs: Callable[[Client], Sequence[Tensor]],
        show: Callable[[float, str], None] = lambda _share, _text: None,
    ) -> None:
        self.task = task
        self._inputs = inputs
        self._show = show
        self.inputs: Sequence[Tensor] = ()
        self._file = self._read_file()
        self._config = self._file
        self.space = Space([])
        self.points: list[TunePoint] = []
        self.failures: list[str] = []

    @property
    def quantile(self) -> str:
        """The quantile that the goal limits first; p99 if it limits none."""
        limited = [one.what for one in self.task.goal.limits if one.what != "memory"]
        return limited[0] if limited else "p99"

    @property
    def best(self) -> TunePoint | None:
        """The best point; None if none was measured."""
        return min(self.points, key=lambda one: self.task.goal.rank(one.cost), default=None)

    @property
    def has_batches(self) -> bool:
        """Whether batches were among what was tried."""
        return any(knob.name == BATCH for knob in self.space.knobs)

    @property
    def front(self) -> list[TunePoint]:
        """The points that none other beats."""
        return front(self.points, self.quantile)

    def run(self) -> bool:
        """Measure candidates until the budget is spent; return whether Ctrl-C ended that.

        Raises InferdError if the model cannot be tuned.
        """
        try:
            self._run()
        # What was measured until then is still worth showing, and writing.
        except KeyboardInterrupt:
            return True
        return False

    def prepare(self) -> Candidate:
        """Ask a server for the configuration in force; return the candidate nearest to it.

        The `space` is known then. Raises InferdError if the model cannot be tuned.
        """
        task = self.task
        self._show(0.0, f"loading {task.model}")
        with served(task.repository, task.model, None, task.load) as client:
            text = json.dumps(client.config(task.model))
            self._config = parse_json(text, "the configuration in force")
            self.inputs = self._inputs(client)
            # A model that loads may still refuse these inputs: better known before the search.
            client.infer(task.model, {one.name: one for one in self.inputs})
        found = knobs(self._config, self._file, task.cores, task.providers)
        self.space = Space(found)
        return start(found, self._config)

    def _run(self) -> None:
        task = self.task
        budget = TimeBudget(task.most_s)
        first = self.prepare()
        circumstances = Circumstances(task.load.concurrency, task.cores)
        search = Search(self.space, task.goal, first, circumstances)
        if task.most_trials is not None:
            search.budget = min(task.most_trials, len(self.space.candidates))
        while budget.fits and (candidate := search.propose()) is not None:
            with budget.measuring():
                cost = self._cost(search, candidate)
            search.tell(candidate, cost)

    def page(self) -> str:
        """Return an HTML page with all that was measured."""
        return page(self.task.model, self.points, self.best, self.task.goal, self.quantile)

    def configuration(self, point: TunePoint) -> ModelConfig:
        """Return the model's configuration with the settings of a point, as its file has it."""
        found = configured(self._file, self._config, point.settings)
        return replace(found, name=self.task.model)

    def write(self) -> None:
        """Write the best into the model's file; what was there becomes config.pbtxt.old.

        Raises InvalidConfig if it cannot be written.
        """
        best = self.best
        assert best is not None
        file = self.task.place / CONFIG_FILE
        latency = f"{self.quantile} {best.cost.latency_ms[self.quantile]:.3g} ms"
        goal = f"; goal {self.task.goal.text}" if self.task.goal.text else ""
        head = (
            f"# Found by inferd tune: {best.text}:\n# {best.cost.per_s:.0f} requests/s, {latency} "
            f"with {self.task.load.concurrency} requests at a time{goal}.\n"
        )
        new = file.with_name(f"{CONFIG_FILE}.new")
        try:
            new.write_text(head + to_pbtxt(self.configuration(best)))
            if file.exists():
                # Renamed, so there is a whole file at each moment, and the old one is not lost.
                file.replace(file.with_name(f"{CONFIG_FILE}.old"))
            new.replace(file)
        except OSError as error:
            raise InvalidConfig(f"cannot write {file}: {error.strerror}") from error

    def _cost(self, search: Search, candidate: Candidate) -> Cost | None:
        task, settings = self.task, self.space.named(candidate)
        point = TunePoint(settings, Cost(0.0, {}))
        number = len(search.trials) + len(search.failed)

        def show(share: float) -> None:
            self._show((number + share) / search.budget, f"{number + 1}: {point.text}")

        show(0.0)
        config = json.dumps(to_json(self.configuration(point)))
        model = task.model
        try:
            with served(task.repository, model, config, task.load) as client:
                cost = measured(client, model, self.inputs, task.load, show)
        except InferdError as error:
            self.failures.append(f"{point.text}: {error.message}")
            return None
        self.points.append(point._replace(cost=cost))
        return cost

    def _read_file(self) -> ModelConfig:
        """Return what the model's file says, a configuration without anything if there is none."""
        file = self.task.place / CONFIG_FILE
        if not self.task.place.exists():
            raise ModelNotFound(f"there is no model '{self.task.model}' in {self.task.repository}")
        if not file.is_file():
            return ModelConfig(name=self.task.model)
        text = decode_pbtxt(file.read_bytes(), CONFIG_FILE)
        return parse_pbtxt(text, CONFIG_FILE)
