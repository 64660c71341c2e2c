"""Sampler: looks once a second at what this process does, and keeps what it has seen."""

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from inferd import system
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.observe.devices import Gpus
from inferd.observe.log_lines import LogLines
from inferd.ui.figures.history import DayHistory
from inferd.ui.figures.models import ModelFigures, pids_of
from inferd.ui.figures.notable import NotableRequests
from inferd.ui.figures.part import FigureQuestion, GpuPart, ProcessPart, Seen

log = logging.getLogger("inferd.ui")


_UTIME, _STIME, _RSS = 11, 12, 21
"""Fields of /proc/PID/stat (proc(5)), counted from the one after the program's name."""


class Meters(NamedTuple):
    """Where numbers come from that the engine does not have: connections, and GPUs if any."""

    connections: Callable[[], int]
    gpus: Gpus | None = None


class _Use(NamedTuple):
    """CPU time in seconds, and memory in bytes."""

    cpu_s: float = 0.0
    memory: int = 0


class ProcessMeter:
    """Reads /proc, which takes some 20 µs for each process; elsewhere only CPU time is known."""

    def __init__(
        self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._ticks_per_s, self._page_bytes = system.CLOCK_TICKS_PER_S, system.PAGE_BYTES
        self._at = clock()
        self._before: dict[int, float] = {}
        self.cpu = 0.0
        """The cores that were in use since the last look."""
        self.memory = 0
        # So that the first second has something to differ from.
        self.look()

    def look(self, workers: Iterable[int] = ()) -> None:
        """Measure, now, this process and the `workers`, by their numbers."""
        now = self._clock()
        # Keyed apart from any pid: this process's CPU time comes from the system call, not /proc.
        uses = {0: _Use(time.process_time(), self._read("self").memory)}
        uses |= {pid: self._read(str(pid)) for pid in workers if pid}
        before = self._before
        # A worker that is new counts from 0.
        used_s = sum(use.cpu_s - before.get(pid, 0.0) for pid, use in uses.items())
        passed_s = now - self._at
        self.cpu = used_s / passed_s if passed_s > 0 and before else 0.0
        self.memory = sum(use.memory for use in uses.values())
        self._at, self._before = now, {pid: use.cpu_s for pid, use in uses.items()}

    def memory_of(self, pid: int) -> int:
        """Return the memory of a process, 0 if there is none."""
        return self._read(str(pid)).memory

    def _read(self, name: str) -> _Use:
        try:
            # The program's name is in parentheses and may contain anything, even parentheses.
            text = (self._proc / name / "stat").read_text(errors="replace")
            stat = text.rpartition(")")[2].split()
            ticks = int(stat[_UTIME]) + int(stat[_STIME])
            return _Use(ticks / self._ticks_per_s, int(stat[_RSS]) * self._page_bytes)
        except (OSError, ValueError, LookupError):
            return _Use()


class Sampler:
    """Samples one `engine`; `clock` is in seconds since 1970, and `sleep` waits for the next one.

    `history` is of this process alone; it can be added to that of others if there are any.
    """

    def __init__(
        self,
        engine: Engine,
        meters: Meters,
        *,
        has_others: bool = False,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.history = DayHistory(has_durations=has_others)
        self.lines = LogLines()
        self.requests = NotableRequests(clock)
        # Not the pid, which another process may get.
        self.key = uuid.uuid4().hex
        self.started = int(clock() * 1000)
        self.meter = ProcessMeter()
        self.models = ModelFigures(engine.whole.catalog, self.requests.listen, self._memory_of)
        self.gpus: list[GpuPart] = []
        self._engine = engine
        self._meters = meters
        self._clock = clock
        self._sleep = sleep
        self._refused = 0
        self._has_gpus = meters.gpus is not None
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look; models that are loaded from now on are noticed at once."""
        # So that requests of its first second are noticed as well.
        self._engine.whole.catalog.on_add.append(self.models.notice)
        self._engine.log.listen(self.lines)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._engine.log.ignore(self.lines)
            self._engine.whole.catalog.on_add.remove(self.models.notice)

    async def _run(self) -> None:
        while True:
            second = int(self._clock()) + 1
            await self._sleep(second - self._clock())
            try:
                # A loop that was busy for a while has skipped seconds.
                await self.sample(max(second, int(self._clock())))
            except Exception:  # the next second may go better
                # Once, not every second.
                if not self._has_failed:
                    log.exception("the dashboard lacks a second, and perhaps more")
                self._has_failed = True

    async def sample(self, second: int) -> None:
        """Look, once this `second` since 1970 begins."""
        capacity = self._engine.capacity
        refused = capacity.refused_for_requests + capacity.refused_for_bytes
        more, self._refused = refused - self._refused, refused
        pending = capacity.request_count
        connections = self._meters.connections()
        row = await self.models.sample(second)
        if self._has_gpus:
            await self._read_gpus()
        self.meter.look(self.models.worker_pids())
        utilizations = [one.utilization for one in self.gpus if one.utilization is not None]
        memories = [one.memory for one in self.gpus if one.memory is not None]
        row.refused += more
        row.cpu, row.memory = self.meter.cpu, self.meter.memory
        row.pending, row.connections = pending, connections
        row.gpu = sum(utilizations) / len(utilizations) if utilizations else None
        row.gpu_memory = sum(memories) if memories else None
        self.history.add(row)

    async def _read_gpus(self) -> None:
        assert self._meters.gpus is not None
        loop = asyncio.get_running_loop()
        # NVML may take milliseconds.
        readings = await loop.run_in_executor(None, self._meters.gpus.readings)
        self.gpus = [
            GpuPart(one.name, one.utilization, one.used_bytes, one.total_bytes) for one in readings
        ]
        self._has_gpus = bool(readings)  # they never come later

    def _memory_of(self, served: Served) -> int | None:
        pids = pids_of(served)
        return sum(map(self.meter.memory_of, pids)) if pids else None

    async def part(self, question: FigureQuestion) -> ProcessPart:
        """Return what is wanted, and new to whoever wants it."""
        now = int(self._clock())
        seen = question.seen.get(self.key, Seen())
        second, models, lines, requests = msgspec.structs.astuple(seen)
        part = ProcessPart(
            self.key,
            os.getpid(),
            self.started,
            self.history.last,
            self.meter.cpu,
            self.meter.memory,
            self._meters.connections(),
            self._engine.capacity.request_count,
            gpus=self.gpus,
        )
        if question.history:
            part.seconds = self.history.seconds.rows(seen.second)
            part.minutes = [] if seen.second else self.history.minutes.rows()
            second = self.history.last
        if question.models:
            part.models, part.gone = await self.models.changed(seen.models, now)
            models = self.models.number
        if question.lines:
            part.lines, part.dropped = self.lines.since(seen.lines)
            lines += part.dropped + len(part.lines)
        if question.requests:
            part.requests = self.requests.since(seen.requests)
            requests = self.requests.count
        for name, version in question.details:
            if (detail := self.models.detail(name, version)) is not None:
                detail.notable = self.requests.since(0, name, version)
                part.details.append(detail)
        part.seen = Seen(second, models, lines, requests)
        return part
