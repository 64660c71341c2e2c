"""Whole: what the server has counted, in this process and in the others that are it, too."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from inferd.aio.inline import groups
from inferd.aio.offload import Offload, Work
from inferd.cache.store import Store
from inferd.engine.loading.catalog import UNKNOWN, Catalog
from inferd.engine.serving.served import Served
from inferd.errors import InvalidRequest, ModelNotFound, Unavailable
from inferd.memory.capacity import Capacity
from inferd.observe.counted import (
    custom_numbers,
    custom_of,
    family_numbers,
    family_of,
    numbers_of,
    observed_in,
)
from inferd.observe.devices import process_families
from inferd.observe.family import CustomFamily, CustomMetrics, Family
from inferd.observe.numbers import (
    EncodedNumbers,
    ProcessNumbers,
    added,
    added_calls,
    added_customs,
    added_families,
    decode,
    encode,
)
from inferd.observe.prometheus import Observed
from inferd.observe.statistics import Duration, ModelStatistics
from inferd.observe.summary import STEP_S

if TYPE_CHECKING:
    from inferd.core.processes import Others, Processes

NO_ENTRIES: Mapping[tuple[str, str], Sequence[EncodedNumbers]] = MappingProxyType({})


class _Row(NamedTuple):
    """The numbers of a version, and what they were made from; they are made anew when that changes.

    With durations of the last minute in them they are of this `step`, otherwise of any.
    """

    observed: Observed
    born: int
    progress: int
    step: int | None
    numbers: EncodedNumbers


class Whole:
    """Adds the numbers of this process to those of the `others`; None if it is the only one.

    `sources` are where the numbers come from that are no model's, and quick to read. `calls` are
    those of an API that counts them.
    """

    def __init__(
        self,
        catalog: Catalog,
        capacity: Capacity,
        store: Store | None,
        customs: CustomMetrics,
        offload: Offload,
    ) -> None:
        self.others: Others | None = None
        self.sources: list[Callable[[], Sequence[Family]]] = [partial(capacity_families, capacity)]
        if store is not None:
            self.sources.append(store.families)
        self.calls: dict[str, Duration] = {}
        self.catalog = catalog
        self.customs = customs
        self._offload = offload
        self._of_process: list[Family] = []
        self._rows: dict[tuple[str, str], _Row] = {}
        self._last: bytes | None = None

    def progress(self) -> tuple[float, ...]:
        """Return numbers that are others once there is more that would be missed.

        That is, if this process ended: not what waits and is under way. For 100 models this takes
        0.1 ms, their `numbers` then 0.2 ms, and 20 µs more for each model with new ones; 120 µs
        where they keep summaries.
        """
        models = [
            number
            for served in self.catalog.served()
            for number in (served.counts.born, served.counts.progress())
        ]
        calls = sum([duration.count for duration in self.calls.values()])
        counted = sum(map(_counted, self._from_sources()))
        return (*models, calls, counted, self.customs.progress.count)

    def numbers(self) -> bytes:
        """Return the numbers of this process, encoded; those of its last moment once it has ended.

        Those of the operating system are the ones that were read last: to read them takes long.
        """
        if self._last is not None:
            return self._last
        self._rows = {(one.name, one.version): self._row(one) for one in self.catalog.served()}
        return encode(
            ProcessNumbers(
                [row.numbers for row in self._rows.values()],
                [family_numbers(family) for family in self.families()],
                [custom_numbers(family) for family in self.customs.families()],
                self.calls,
            )
        )

    def end(self) -> None:
        """Keep the numbers as they are: the models will be closed, and are not to be forgotten."""
        # One that is alone ends with its numbers.
        if self.others is not None:
            self._last = self.numbers()

    async def fresh(self) -> bytes:
        """Return `numbers`, with those of the operating system. Other work has its turns."""
        await self.read_process()
        return await self.in_turns()

    async def read_process(self) -> None:
        """Read what the operating system tells of this process."""
        self._of_process = await self._offload.run(Work.PROCESS_METRICS, process_families)

    async def in_turns(self) -> bytes:
        """Return `numbers`; other work has its turns between those of the models."""
        for group in groups(self.catalog.served()):
            for one in group:
                self._rows[one.name, one.version] = self._row(one)
            # A thousand models take some 20 ms, which connections would wait.
            await asyncio.sleep(0)
        return self.numbers()

    def bear(self, others: Iterable[bytes]) -> None:
        """Take over from the numbers of other processes by which changes versions were loaded.

        That is for a process that has loaded what the others serve already. Raises InferdError.
        """
        for entry in (entry for one in others for entry in decode(one).models):
            model = self.catalog.models.get(entry.name)
            served = model.ready.get(entry.version) if model is not None else None
            if served is not None:
                # Changes are numbered, so the larger number is the later load.
                served.counts.born = max(served.counts.born, entry.born)

    def _row(self, served: Served) -> _Row:
        observed, progress = served.observed(), served.counts.progress()
        born = observed.counts.born
        step = int(time.monotonic() // STEP_S)
        row = self._rows.get((served.name, served.version))
        # Encoding is the larger part, and most models have had no request since.
        if row and row[:3] == (observed, born, progress) and row.step in (step, None):
            return row
        numbers = numbers_of(observed)
        encoded = msgspec.Raw(encode(numbers))
        return _Row(
            observed,
            born,
            progress,
            # Only with summaries do numbers change while nothing happens: the last minute moves on.
            step if any(numbers.counted.samples) else None,
            EncodedNumbers(served.name, served.version, born, encoded),
        )

    def families(self) -> list[Family]:
        """Return what is no model's."""
        return [*self._of_process, *self._from_sources()]

    def _from_sources(self) -> list[Family]:
        return [family for source in self.sources for family in source()]

    def statistics(self, name: str = "", version: str = "") -> list[ModelStatistics]:
        """Return what this process has counted of each ready version of one model, or of all.

        Raises as `all_statistics` does.
        """
        return list(map(_statistics, self._ready(name, version)))

    async def all_statistics(self, name: str = "", version: str = "") -> Iterator[ModelStatistics]:
        """Return a row for each ready version of one model, or of all (Statistics extension).

        A row is made when it is taken: those of 1,000 models take some 20 ms. Raises
        InvalidRequest for a model or version that is not ready: clients expect that here, not
        ModelNotFound.
        """
        served = self._ready(name, version)
        return map(_statistics, (await self.sum()).rows(served))

    def _ready(self, name: str, version: str) -> list[Served]:
        try:
            return self.catalog.served(name, version)
        except (ModelNotFound, Unavailable) as error:
            # Triton's own words for it come in front here.
            why = error.message.removeprefix(UNKNOWN)
            raise InvalidRequest(f"requested model '{name}' is not available: {why}") from error

    async def sum(self) -> "Sum":
        """Ask all processes. Raises InferdError for numbers that cannot be read."""
        if self.others is None:
            return Sum(self)
        own = await self.in_turns()
        processes: list[ProcessNumbers] = []
        entries: dict[tuple[str, str], list[EncodedNumbers]] = {}
        for one in (own, *await self.others.numbers(own)):
            processes.append(process := decode(one))
            for entry in process.models:
                entries.setdefault((entry.name, entry.version), []).append(entry)
            await asyncio.sleep(0)
        return Sum(self, processes, entries)


class Sum:
    """The numbers of all `processes`, of which `entries` are those of models by name and version.

    Without others it has the `own` ones of this process, as they are when they are taken.
    """

    def __init__(
        self,
        own: Whole,
        processes: Sequence[ProcessNumbers] = (),
        entries: Mapping[tuple[str, str], Sequence[EncodedNumbers]] = NO_ENTRIES,
    ) -> None:
        self._own = own
        self._processes = processes
        self._entries = entries

    def observed(self, name: str = "", version: str = "") -> Iterator[Observed]:
        """Return a row for each version of one model that serves, or of all, by name and number.

        A row is made when it is taken. Raises as Catalog.find does.
        """
        return self.rows(self._own.catalog.served(name, version))

    def rows(self, served: Iterable[Served]) -> Iterator[Observed]:
        """Return a row for each of these versions; it is made when it is taken."""
        return map(self._row, served)

    def families(self) -> list[Family]:
        """Return what is no model's."""
        if not self._processes:
            return self._own.families()
        return list(map(family_of, added_families(self._processes)))

    def customs(self) -> list[CustomFamily]:
        """Return what models count themselves."""
        if not self._processes:
            return self._own.customs.families()
        return list(map(custom_of, added_customs(self._processes)))

    def calls(self) -> dict[str, Duration]:
        """Return the calls of an API that counts them."""
        return added_calls(self._processes) if self._processes else self._own.calls.copy()

    def _row(self, served: Served) -> Observed:
        observed = served.observed()
        entries = self._entries.get((served.name, served.version))
        return observed_in(added(entries), observed) if entries else observed


def _statistics(counted: Served | Observed) -> ModelStatistics:
    return counted.counts.statistics(counted.name, counted.version)


def _counted(family: Family) -> float:
    # Gauges go up and down, and say nothing of what would be missed.
    is_count = family_numbers(family).across == "count"
    return sum(value for _, value in family.samples) if is_count else 0


def capacity_families(capacity: Capacity) -> list[Family]:
    """Return the metrics of what is under way and what was refused."""
    refused = [
        ('reason="requests"', capacity.refused_for_requests),
        ('reason="bytes"', capacity.refused_for_bytes),
    ]
    return [
        Family(
            "inferd_inflight_requests",
            "gauge",
            "Inferences under way",
            [("", capacity.request_count)],
        ),
        Family(
            "inferd_inflight_bytes",
            "gauge",
            "Request data in memory",
            [("", capacity.buffered_bytes)],
        ),
        Family(
            "inferd_overload_refused_total",
            "counter",
            "Requests turned away by a limit of the whole server",
            refused,
        ),
    ]


def processes_families(processes: "Processes") -> list[Family]:
    """Return the metrics of the processes that are the server, as each of them knows them.

    That is what all of them were told last, at the same time. No process has more restarts to tell
    than there were, so the most is right, and it never falls.
    """
    return [
        Family(
            "inferd_server_processes",
            "gauge",
            "Processes of the server that are ready",
            [("", len(processes.sockets))],
            "mean",
        ),
        Family(
            "inferd_server_process_restarts_total",
            "counter",
            "Processes of the server that were started again after they had ended",
            [("", processes.restart_count)],
            "most",
        ),
    ]
