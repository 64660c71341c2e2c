"""FigureBoard: what the dashboard shows, of all processes of the server; all readers share it."""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import msgspec

import inferd
from inferd.core.metadata import ServerState
from inferd.core.processes import ALONE, Processes
from inferd.engine.engine import Engine
from inferd.engine.loading.catalog import NO_VERSION
from inferd.errors import ModelNotFound
from inferd.observe import stats
from inferd.observe.log_lines import MOST_LINES, LogLine, decode_lines
from inferd.observe.numbers import decode
from inferd.ui.figures.history import DayHistory
from inferd.ui.figures.merged_history import MergedHistory
from inferd.ui.figures.model_rows import detail, ended_part, model_row
from inferd.ui.figures.notable import NotableRequest
from inferd.ui.figures.part import (
    DetailPart,
    FigureQuestion,
    ModelPart,
    ProcessPart,
    Seen,
    decode_part,
    decode_question,
    encode_part,
    encode_question,
)
from inferd.ui.figures.sampler import Sampler

MOST_REQUESTS = 500
MOST_GONE = 10_000
MOST_DETAILS = 100

FORGOTTEN_S = 30.0
"""After so long without a look at the history of all processes it is put together anew."""

OVERLOADED_S = 5
"""How long a server counts as overloaded after it has refused a request."""

_MOST_NAMED = 3

SUBJECT = "ui"
"""The first word of the questions to other processes."""

Key = tuple[str, str]
json_encoder = msgspec.json.Encoder()


class _Process:
    """What is known of a process: its last figures, and its rows of models."""

    def __init__(self, part: ProcessPart) -> None:
        self.part = part
        self.rows: dict[Key, ModelPart] = {}

    def take(self, part: ProcessPart) -> set[Key]:
        """Take what is new; return the versions whose rows have changed."""
        self.part = part
        changed = set(part.gone)
        for key in part.gone:
            self.rows.pop(key, None)
        for row in part.models:
            key = (row.name, row.version)
            self.rows[key] = row
            changed.add(key)
        return changed


class Recent:
    """The last lines or requests, for readers who have seen a number of them."""

    def __init__(self, most: int) -> None:
        self.count = 0
        self._most = most
        self._items: deque[Any] = deque(maxlen=most)

    def add(self, items: Sequence[LogLine | NotableRequest], lost: int = 0) -> None:
        """Add `items`, the oldest first, after `lost` others."""
        self._items.extend(items)
        self.count += lost + len(items)

    def since(self, count: int) -> tuple[list[Any], int]:
        """Return the items after the first `count`, and how many of them are gone."""
        wanted = max(0, self.count - count)
        items = list(self._items)[-wanted:] if wanted else []
        return items, wanted - len(items)


class FigureBoard:
    """See inferd.ui.topics.Topics: the figures of `sampler` and of other processes like it.

    `server_id` is the server's own name, None without one. `clock` is in seconds since 1970.
    """

    def __init__(
        self,
        engine: Engine,
        sampler: Sampler,
        server_id: str | None = None,
        processes: Processes = ALONE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.lines = Recent(MOST_LINES)
        self.requests = Recent(MOST_REQUESTS)
        self.rows: dict[Key, tuple[int, msgspec.Raw]] = {}
        """The rows of models as JSON, each with the number of the change that made it."""
        self.gone: dict[Key, int] = {}
        self.number = 0
        """That of the last change of a row."""
        self.tick = b""
        self.tick_second = 0
        """The second whose row the tick has."""
        self.details: dict[Key, bytes] = {}
        self._engine = engine
        self._sampler = sampler
        self._server_id = server_id
        self._processes = processes
        self._clock = clock
        self._known: dict[str, _Process] = {}
        self._seen: dict[str, Seen] = {}
        self._ended: dict[Key, list[ModelPart]] = {}
        self._starter_count = 0
        self._has_lost = False
        self._looked = 0.0
        self._merged: MergedHistory | None = None
        self._merged_at = 0.0
        self._columns: tuple[int, bytes] = (0, b"")

    def start(self) -> None:
        """Begin to sample this process."""
        self._sampler.start()

    def stop(self) -> None:
        """Sample no more."""
        self._sampler.stop()

    async def reply(self, text: str) -> bytes:
        """Return the part of this process, for another that asks. Raises InferdError."""
        return encode_part(await self._sampler.part(decode_question(text)))

    async def look(self, topics: Set[str], versions: Set[Key]) -> None:
        """Learn what is new about `topics`, and everything about `versions` of models."""
        others = self._engine.whole.others
        question = FigureQuestion(
            self._seen,
            # A process that is alone shows its own history, which it has.
            history=others is not None and "overview" in topics,
            models=bool(topics & {"models", "model"}),
            lines="log" in topics,
            requests="requests" in topics,
            details=sorted(versions),
        )
        now = self._clock()
        # Others keep their seconds for an hour, but the gap would have to be asked for piece by
        # piece.
        if question.history and now - self._merged_at > FORGOTTEN_S:
            self._merged = None
            question.seen = {
                key: msgspec.structs.replace(seen, second=0) for key, seen in self._seen.items()
            }
        parts = [await self._sampler.part(question)]
        if others is not None:
            # One question for all processes, passed on by the supervisor.
            bodies = await others.ask(f"{SUBJECT} {encode_question(question)}")
            # A process that is starting or ending replies with nothing.
            parts += [decode_part(body) for body in bodies if body]
        changed = await self._take(parts)
        self._looked = now
        if question.models:
            self._make_rows(changed)
        if question.lines:
            await self._add_lines(parts)
        if question.requests:
            found = [one for part in parts for one in part.requests]
            # Processes reply in any order; readers want time.
            self.requests.add(sorted(found, key=lambda one: one.time))
        if "overview" in topics:
            if question.history:
                self._merged_at = now
                self._merged = self._merged or MergedHistory()
                await self._merged.add(parts)
            self.tick, self.tick_second = self._make_tick(), self.history.last
        self._make_details(parts, versions)

    async def _take(self, parts: Sequence[ProcessPart]) -> set[Key]:
        """Take what is new in the processes; return the versions whose rows may have changed."""
        changed: set[Key] = set()
        for part in parts:
            known = self._known.setdefault(part.key, _Process(part))
            changed |= known.take(part)
            self._seen[part.key] = part.seen
        there = {part.key for part in parts}
        # One that only did not reply this time keeps its rows.
        lost = [key for key, one in self._known.items() if key not in there and _has_ended(one)]
        for key in lost:
            changed |= self._known.pop(key).rows.keys()
            del self._seen[key]
        others = self._engine.whole.others
        is_late = self._clock() - self._looked > FORGOTTEN_S
        # The numbers of those that ended are asked for when one has, or when nobody looked for a
        # while.
        if others is not None and (lost or is_late):
            # What an ended process had sampled is gone; the page says so.
            self._has_lost = self._has_lost or bool(lost)
            self._ended = {}
            for entry in (entry for body in await others.ended() for entry in decode(body).models):
                one = ended_part(entry)
                self._ended.setdefault((one.name, one.version), []).append(one)
            changed |= self._ended.keys()
        return changed

    def _make_rows(self, changed: Set[Key]) -> None:
        for key in changed:
            parts = self._parts_of(key)
            if parts:
                self.number += 1
                row = model_row(parts, self._ended.get(key, ()))
                self.rows[key] = (self.number, msgspec.Raw(json_encoder.encode(row)))
                self.gone.pop(key, None)
            elif self.rows.pop(key, None) is not None:
                self.number += 1
                self.gone[key] = self.number
                # A server that loads ever new names must not grow for ever.
                while len(self.gone) > MOST_GONE:
                    del self.gone[next(iter(self.gone))]

    def _parts_of(self, key: Key) -> list[ModelPart]:
        return [one.rows[key] for one in self._known.values() if key in one.rows]

    def _make_details(self, parts: Sequence[ProcessPart], versions: Set[Key]) -> None:
        found: dict[Key, list[DetailPart]] = {key: [] for key in versions}
        for part in parts:
            for one in part.details:
                found.setdefault((one.name, one.version), []).append(one)
        for key, details in found.items():
            rows = self._parts_of(key)
            if rows:
                row = model_row(rows, self._ended.get(key, ()))
                whole = row | detail(details)
                self.details.pop(key, None)  # it becomes the newest
                self.details[key] = json_encoder.encode(whole)
            else:
                self.details.pop(key, None)
        while len(self.details) > MOST_DETAILS:
            del self.details[next(iter(self.details))]

    async def _add_lines(self, parts: Sequence[ProcessPart]) -> None:
        lines = [one for part in parts for one in part.lines]
        dropped = sum(part.dropped for part in parts)
        if (others := self._engine.whole.others) is not None:
            # What the supervisor logs is the server's, too.
            for body in await others.starter_lines(self._starter_count):
                more, gone = decode_lines(body)
                self._starter_count += gone + len(more)
                lines += more
                dropped += gone
        self.lines.add(sorted(lines, key=lambda one: one.time), dropped)

    @property
    def history(self) -> DayHistory:
        """The history of all processes that there are."""
        return self._merged.history if self._merged is not None else self._sampler.history

    def columns(self) -> bytes:
        """Return the history as JSON."""
        history = self.history
        # Put together once for all readers who come within a second.
        if self._columns[0] != history.last or not self._columns[1]:
            self._columns = history.last, json_encoder.encode(history.columns())
        return self._columns[1]

    def _make_tick(self) -> bytes:
        history, models = self.history, self._sampler.models
        refused = sum(int(one or 0) for one in history.seconds.newest("refused", OVERLOADED_S))
        state, why = state_of(self._engine, models.failed(), refused)
        states = models.states()
        processes = [one.part for one in self._known.values()]
        tick = {
            "time": self.now_ms(),
            "row": history.latest(),
            "server": {
                "name": "inferd",
                "version": inferd.__version__,
                # A compiled module has the file of an extension.
                "compiled": not stats.__file__.endswith(".py"),
                "started": min(part.started for part in processes),
                "state": state,
                "why": why,
                "id": self._server_id,
            },
            "models": {one: states[one] for one in ("ready", "loading", "failed", "unloaded")},
            "processes": [_shown_process(part) for part in processes],
            "lost_history": self._has_lost
            or self._processes.restart_count > 0
            or self._processes.generation > 0,
            # All processes see the same GPUs; one may not have read them yet.
            "gpus": max((part.gpus for part in processes), key=len),
        }
        return json_encoder.encode(tick)

    def now_ms(self) -> int:
        """Return the time in ms since 1970."""
        return int(self._clock() * 1000)

    def version_of(self, model: str, version: str) -> str:
        """Return the version that is meant. Raises ModelNotFound."""
        known = self._engine.whole.catalog.models.get(model)
        if known is None or (version and not self._knows(model, version)):
            what = f"version {version} of model" if known is not None else "model"
            raise ModelNotFound(f"{what} '{model}' is not found on this server")
        if version:
            return version
        if known.default is not None:
            return known.default.version
        return "" if (newest := max(known.versions)) == NO_VERSION else str(newest)

    def _knows(self, model: str, version: str) -> bool:
        versions = self._engine.whole.catalog.versions_of(model)
        # int() of a long text would be slow, and a version has 64 bits.
        return version.isdecimal() and len(version) < 20 and int(version) in versions


def _has_ended(process: _Process) -> bool:
    """Tell whether a process is no more; one that only does not reply is still there."""
    try:
        # Signal 0 sends nothing, and tells whether the process exists (kill(2)).
        os.kill(process.part.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _shown_process(part: ProcessPart) -> Mapping[str, object]:
    return {
        "pid": part.pid,
        "started": part.started,
        "cpu": round(part.cpu, 3),
        "memory": part.memory,
        "connections": part.connections,
        "pending": part.pending,
        "keeps_history": True,
    }


def state_of(engine: Engine, failed: list[tuple[str, str, str]], refused: int) -> tuple[str, str]:
    """Return the state and the reason, "" where there is nothing to say.

    `failed` are the name, version and reason of versions that are not ready, `refused` is how many
    requests were turned away in the last OVERLOADED_S.
    """
    state = engine.readiness.state()
    if state is ServerState.EXITING:
        count = engine.capacity.request_count
        return "draining", f"it shuts down; {count} inferences are under way"
    if state is ServerState.FAILED_TO_INITIALIZE:
        return "not ready", "a model repository could not be opened; the log says why"
    if state is ServerState.INITIALIZING:
        return "starting", "models are loading"
    if not engine.readiness.is_ready():
        if engine.readiness.lacks_models():
            return "not ready", "there is no model"
        return "not ready", _why(failed)
    if refused:
        plural = "request was" if refused == 1 else "requests were"
        return "overloaded", f"{refused} {plural} refused in the last {OVERLOADED_S} s"
    return "ready", ""


def _why(failed: list[tuple[str, str, str]]) -> str:
    named = [f"'{name}' {version}".rstrip() for name, version, _ in failed[:_MOST_NAMED]]
    if not named:
        return "a model cannot run at the moment"
    more = f" and {len(failed) - len(named)} more" if len(failed) > len(named) else ""
    verb = "is" if len(failed) == 1 else "are"
    return f"{', '.join(named)}{more} {verb} not ready"
