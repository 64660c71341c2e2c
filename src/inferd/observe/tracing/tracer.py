"""Tracer: decides which requests are traced, by settings that clients can change at run time.

There are global settings and, for models that were given any, their own. A field not set for a
model has the global value, and a global field not set has the value the server started with (Trace
extension).
"""

import asyncio
import logging
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import Any

from inferd.config.options.trace import (
    LEVELS,
    OFF,
    OPENTELEMETRY,
    TENSORS,
    TraceChange,
    TraceSettings,
)
from inferd.errors import InvalidRequest, Unsupported
from inferd.observe.allowed import AllowedFolder
from inferd.observe.tracing.backlog import Backlog
from inferd.observe.tracing.trace import Budget, Parent, Trace

log = logging.getLogger("inferd.trace")

GLOBAL = ""
"""Stands in place of a model's name for the global settings."""


class _Sampling:
    """The settings of one model, or the global ones, with the state of their rate and count."""

    def __init__(self, settings: TraceSettings) -> None:
        self.settings = settings
        self.seen_count = 0
        self.left_count = settings.count

    def under(self, settings: TraceSettings, changed: Set[str]) -> "_Sampling":
        """Return its successor under `settings`; rate and count start over if they are `changed`.

        A used-up count stays used up until a client sets it again.
        """
        after = _Sampling(settings)
        if "rate" not in changed:
            after.seen_count = self.seen_count
        if "count" not in changed:
            after.left_count = self.left_count
        return after

    @property
    def may_sample(self) -> bool:
        settings = self.settings
        if not settings.levels:
            return False
        # A client's own span is followed whatever rate and count are.
        if settings.mode == OPENTELEMETRY:
            return True
        return settings.file is not None and settings.rate > 0 and self.left_count != 0

    def takes(self) -> bool:
        """Count a request, and tell whether it is to be traced."""
        # -1 stands for no limit, and is true.
        if not self.settings.rate or not self.left_count:
            return False
        self.seen_count += 1
        # Every rate-th, not at random: as Triton.
        if self.seen_count % self.settings.rate:
            return False
        if self.left_count > 0:
            self.left_count -= 1
        return True


class Tracer:
    """Chooses the requests to trace, and passes their traces to `sink`.

    While nothing is traced, a request pays only for the check of `is_on`. `follows_clients`: the
    trace context that clients send is used. `folder` is where clients may put trace files.
    `numbers` are those of traces.
    """

    def __init__(
        self,
        settings: TraceSettings,
        sink: Backlog,
        folder: AllowedFolder | None = None,
        numbers: Iterator[int] | None = None,
    ) -> None:
        # The one attribute that a request reads.
        self.is_on = False
        self.follows_clients = settings.mode == OPENTELEMETRY
        self._sink = sink
        self._folder = folder or AllowedFolder(None, "--trace-directory")
        self._start = settings
        self._given: dict[str, dict[str, Any]] = {}  # the fields clients have set, by model
        self._samplings = {GLOBAL: _Sampling(settings)}
        self._numbers = numbers or count(1)
        self._look()
        self._warn_of_no_file(settings)

    def begin(self, model: str, parent: Parent | None = None) -> Trace | None:
        """Return a new trace for a request to `model`, None if it is not to be traced.

        If the client records its own span (`parent.is_sampled`, mode opentelemetry), the request is
        traced whatever rate and count are.
        """
        sampling = self._samplings.get(model) or self._samplings[GLOBAL]
        settings = sampling.settings
        if not settings.levels or (settings.file is None and settings.mode != OPENTELEMETRY):
            return None
        if not (parent and parent.is_sampled) and not sampling.takes():
            return None
        if not sampling.left_count:
            # The last trace of a count turns tracing off.
            self._look()
        return Trace(next(self._numbers), model, settings, parent, Budget(self._numbers))

    def finish(self, trace: Trace) -> None:
        """Pass a complete trace to the sink."""
        self._sink.take(trace)

    def settings(self, model: str = GLOBAL) -> TraceSettings:
        """Return the settings for `model`; `count` is the number of traces left to make."""
        sampling = self._samplings.get(model) or self._samplings[GLOBAL]
        return replace(sampling.settings, count=sampling.left_count)

    @contextmanager
    def changing(
        self, change: TraceChange, model: str = GLOBAL, *, is_replay: bool = False
    ) -> Iterator[None]:
        """Change settings of `model`, or global ones, at the end of the context.

        All that `change` names are changed, or none if the context is left by an exception. Raises,
        when it begins, InvalidRequest for invalid values, Unsupported for settings that clients may
        not change. `is_replay`: it was made before, so that the file it names is there.
        """
        new = {
            field.name: value
            for field in fields(TraceChange)
            if field.name != "cleared" and (value := getattr(change, field.name)) is not None
        }
        self._check_mode(new.pop("mode", self._start.mode))
        if "levels" in new and (levels := _levels_named(new.pop("levels"))) is not None:
            new["levels"] = levels
        if "file" in new:
            new["file"] = self._file_named(new["file"], model, must_be_new=not is_replay)
        given = self._given.get(model, {}) | new
        given = {name: value for name, value in given.items() if name not in change.cleared}
        changed = new.keys() | change.cleared
        # For its errors: nothing may be raised once other processes have agreed.
        self._after({**self._given, model: given}, model, changed)
        yield
        # Computed again: meanwhile requests were counted.
        all_given = {**self._given, model: given}
        self._samplings = self._after(all_given, model, changed)
        self._given = {name: own for name, own in all_given.items() if own}
        self._look()
        self._warn_of_no_file(self.settings(model))

    def _warn_of_no_file(self, now: TraceSettings) -> None:
        if now.levels and now.file is None and now.mode != OPENTELEMETRY:
            log.warning(
                "trace_level is %s, but there is no trace file: nothing is traced until one is "
                "named, by --trace-config triton,file=FILE or, with --trace-directory, by clients",
                now.levels[0],
            )

    def _check_mode(self, mode: str) -> None:
        if mode != self._start.mode:
            raise Unsupported(
                f"trace_mode cannot be changed while the server runs, it is {self._start.mode}; "
                f"the server's option --trace-config mode=... does"
            )

    def _file_named(self, name: str, model: str, *, must_be_new: bool) -> Path | None:
        """Return the file that `name` means: one that the settings have shown, or a new one."""
        for settings in (self.settings(model), self.settings(), self._start):
            if name == (settings.file.name if settings.file else ""):
                return settings.file
        return self._folder.place("trace_file", name, must_be_new=must_be_new)

    def _after(
        self, given: dict[str, dict[str, Any]], model: str, changed: Set[str]
    ) -> dict[str, _Sampling]:
        """Return what follows from the settings `given`; of `model`, `changed` fields are new.

        Raises InvalidRequest.
        """
        base = replace(self._start, **given.get(GLOBAL, {}))
        before = self._samplings
        everywhere = before[GLOBAL].under(base, changed if model == GLOBAL else frozenset())
        after = {GLOBAL: everywhere}
        for name, own in given.items():
            if name == GLOBAL or not own:
                continue
            about = changed if name == model else frozenset()
            if model == GLOBAL:
                # A model's own setting is not changed by a global one.
                about = changed - own.keys()
            # What is left of a global count, not what it was: else each change would begin it
            # again.
            settings = replace(base, **{"count": everywhere.left_count, **own})
            after[name] = (before.get(name) or before[GLOBAL]).under(settings, about)
        for sampling in after.values():
            _check(sampling.settings)
        return after

    def _look(self) -> None:
        self.is_on = any(sampling.may_sample for sampling in self._samplings.values())

    def open(self) -> None:
        """Get ready to write traces. Raises InvalidConfig when that is impossible."""
        self._sink.open()

    async def close(self, timeout_s: float) -> None:
        """Stop tracing and write what is left, but give up after `timeout_s` seconds."""
        # Requests under way may still finish traces; new ones begin none.
        self._samplings = {GLOBAL: _Sampling(replace(self._start, levels=()))}
        self._look()
        # The sink waits for its thread, and the event loop still has answers to send.
        await asyncio.get_running_loop().run_in_executor(None, self._sink.close, timeout_s)


def _check(settings: TraceSettings) -> None:
    """Raise InvalidRequest when `settings` contradict each other."""
    if settings.mode == OPENTELEMETRY and TENSORS in settings.levels:
        raise InvalidRequest(f"trace_level {TENSORS} is not for trace_mode {OPENTELEMETRY}")


def _levels_named(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the levels called `names`, None for no change.

    Unknown names are ignored, as in Triton. Raises InvalidRequest for OFF along with others.
    """
    if OFF in names and len(names) > 1:
        more = len(names) - 1
        msg = f"Expect only one trace level '{OFF}' is specified: trace_level has {more} more"
        raise InvalidRequest(msg)
    # In a fixed order, and each once.
    known = tuple(level for level in LEVELS if level in names)
    return known if known or OFF in names else None
