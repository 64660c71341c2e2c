"""Changes: make a model serve what is found of it, and ensembles follow their steps.

The steps of an ensemble are loaded before it, and it is taken down before one of them goes.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Sequence
from contextlib import suppress

from inferd.core.change import UNSHARED, Agreement
from inferd.engine.control.load_queue import LoadQueue
from inferd.engine.loading.catalog import UNLOADED, Catalog
from inferd.engine.loading.ensemble import Dependents, check_chain, find_steps
from inferd.engine.loading.model_versions import ModelVersions, was_read
from inferd.engine.loading.source import ModelSource, ModelSources, not_loaded
from inferd.errors import InferdError, InvalidConfig, LoadFailed, NotLoadable, NotUnique

log = logging.getLogger("inferd.engine")

# Most ensembles are put together in milliseconds; a client must not wait for one that hangs.
CALLERS_WAIT_S = 5.0
"""How long the answer to a load waits for the ensembles that come back with the model."""

# Chains of ensembles would repeat each other's reasons in full.
MAX_REASON = 300
"""The most characters of a step's failure that are repeated in its ensemble's."""

Read = Callable[[], ModelSource | None]
"""Reads, in a thread, what a model is to be made from; returns None when it is not there."""


class ModelChanges:
    """Changes models in their turn in `queue`, and what calls them; `mode` is the control mode.

    `sent` holds what clients have sent, by name, to bring back ensembles taken down; `following`
    the models that follow their repositories at the moment, and `catching_up` the ensembles that
    adapt to their steps.
    """

    def __init__(
        self,
        sources: ModelSources,
        queue: LoadQueue,
        ready: "ModelReadiness",
        dependents: Dependents,
        mode: str,
    ) -> None:
        self._sources = sources
        self.queue = queue
        self._ready = ready
        self._dependents = dependents
        self._mode = mode
        self.sent: dict[str, ModelSource] = {}
        self.following: set[str] = set()
        self.catching_up: dict[str, asyncio.Task[None]] = {}
        self.complaints: dict[str, list[str]] = {}
        self.is_started = False

    async def change(
        self,
        name: str,
        read: Read,
        agreement: Agreement,
        *,
        is_requested: bool = False,
        chain: tuple[str, ...] = (),
        looked: set[str] | None = None,
    ) -> list[str]:
        """Make the model serve what `read` finds; return what went wrong.

        An ensemble's steps are loaded before it; `chain` are the ensembles this one is loaded for.
        The ensembles that call a model that is gone end before it. When a client `is_requested` for
        it, whatever goes wrong is raised, and steps that serve are looked at as well; those that
        were are in `looked`.
        """
        check_chain(chain, name)
        complaints: list[str] = []
        # Before anything is awaited: a model that two steps share is looked at once.
        if looked is not None:
            looked.add(name)
        # Twice: steps are loaded, and callers taken down, outside of the model's turn, since no
        # task may hold two locks. What was found is read again then, because it may have changed
        # meanwhile.
        for is_last in (False, True):
            async with self.queue.turn(name) as model_versions:
                source = await self.queue.read(read)
                missing = self._ready.missing(source)
                goes = source is None or self._is_hidden(source)
                is_called = goes and self._ready.is_called(name)
                # Only a client's load looks at steps that serve; polling sees each model for
                # itself.
                serving = [] if looked is None else self._ready.serving_steps(source, looked)
                # In the second turn it is applied whatever is missing by now, or two loads could
                # wait for each other for ever.
                if not (missing or serving or is_called) or is_last:
                    complaints = await self._apply(
                        model_versions, source, agreement, is_requested=is_requested
                    )
                    break
            if is_called:
                await self.take_down_callers(name)
            for step in missing:
                try:
                    await self.change(
                        step, self.reader(step), agreement, chain=(*chain, name), looked=looked
                    )
                # The client asked for the ensemble, so the answer begins with its name and not the
                # step's.
                except LoadFailed as error:
                    if is_requested:
                        raise self._not_begun(name, error, source) from error
                    raise
            for step in serving:
                await self._look_at_step(step, agreement, (*chain, name), looked)
        await self.settle(name)
        return complaints

    async def _look_at_step(
        self, step: str, agreement: Agreement, chain: tuple[str, ...], looked: set[str] | None
    ) -> None:
        """Have a step that serves follow what has changed of it, for the ensembles in `chain`.

        What goes wrong is logged: it goes on as it is, and whether it fits is seen later.
        """
        model_versions = self.queue.versions_of.get(step)
        served = model_versions.source if model_versions is not None else None
        # Loaded by a client with a configuration of its own: the repository's would replace it
        # behind the client's back.
        if served is None or served.is_override:  # as a client sent it: so it stays
            return
        try:
            # A step that has gone from the repository goes on for as long as something calls it.
            # Read when its turn has come: by then it may have changed once more.
            read = lambda: self._sources.find(step) or served  # noqa: E731
            complaints = await self.change(step, read, agreement, chain=chain, looked=looked)
        except InferdError as error:
            complaints = [error.message]
        for complaint in complaints:
            log.error("%s", complaint)

    async def _apply(
        self,
        model_versions: ModelVersions,
        source: ModelSource | None,
        agreement: Agreement,
        *,
        is_requested: bool,
    ) -> list[str]:
        name = model_versions.name
        if source is None:
            # What it calls is no longer wanted for its sake.
            self._dependents.leave(name)
            self.withdraw(model_versions, is_gone=True)
            return []
        needs = source.needs
        error = source.model.error or self._ready.misfit(name, needs, self._ready.missing(source))
        # A client that asks hears that the ensemble would not run; at a start it may come up before
        # its steps' workers do.
        error = error or (self._ready.stuck(source) if is_requested else None)
        if error is not None:
            if is_requested:
                raise self._not_begun(name, error, source) from error
            if source.is_override:
                raise error
            # Of two models of one name, nobody can say which one requests mean.
            if model_versions.serving and self._is_hidden(source):
                self.withdraw(model_versions, error.message)
            else:
                model_versions.fail(error, source.model)
            return [error.message]
        self._dependents.want(name, needs)  # now, so that the next change is checked against it
        before = model_versions.serving
        # Read at the moment of the load, and compared later: an ensemble is checked against these
        # versions.
        source = source._replace(callees=self._ready.callees(needs))
        try:
            failures = await model_versions.change(
                # At the start, or when a model appears, the versions that load are better than
                # none. Of one that serves already, either all or nothing changes.
                source,
                agreement,
                is_partial=not (is_requested or before),
            )
        finally:
            if before and model_versions.source is not None:
                # What goes on serving calls what it did.
                self._dependents.want(name, model_versions.source.needs)
        if model_versions.serving != before:
            self._tell(model_versions)
        if failures and is_requested:
            error = _failed(name, failures, model_versions.serving)
            log.error("%s", error.message)
            raise error
        return list(failures.values())

    def _not_begun(self, name: str, error: InferdError, source: ModelSource | None) -> InferdError:
        """Return the answer to a load of which nothing was begun; the index tells of it, too.

        A model that was read failed as one that does not come up; one that cannot be read could not
        be loaded, and is still one that never was unless it serves. A configuration that was sent
        is refused and leaves no trace.
        """
        if source is not None and source.is_override:
            return _refused(name, error)
        is_read = was_read(error)
        if is_read or self._ready.serves(name):
            self.queue.versions(name).fail(error, source.model if source is not None else None)
            self.queue.drop_if_idle(name)
        if not is_read:
            return NotLoadable(not_loaded(name, error.message))
        log.error("%s", error.message)
        return LoadFailed(f"load failed for model '{name}': {error.message}")

    def _is_hidden(self, source: ModelSource) -> bool:
        """Tell whether a model is to serve no more, for another has appeared with its name.

        Where clients ask for models it goes on, as one that cannot be read: only its load fails.
        """
        return self._mode == "poll" and isinstance(source.model.error, NotUnique)

    def withdraw(
        self,
        model_versions: ModelVersions,
        reason: str = UNLOADED,
        *,
        is_gone: bool = False,
    ) -> None:
        """Serve no version of a model from now on, for `reason`."""
        before = model_versions.serving
        model_versions.withdraw(reason, is_gone=is_gone)
        if before:
            self._tell(model_versions)

    def _tell(self, model_versions: ModelVersions) -> None:
        """Log which versions now serve, except during the start, which ends with a table."""
        if self.is_started:
            versions = ", ".join(map(str, model_versions.serving))
            what = f"version {versions}" if versions else "no version"
            log.info("model '%s' now serves %s", model_versions.name, what)

    async def settle(self, name: str) -> None:
        """Take down the ensembles that call the model, or bring them back if it now serves.

        An ensemble one of whose steps went while it was loaded is taken down itself.
        """
        # While its own lock is free again, a step may have been unloaded.
        if self._ready.serves(name) and (
            gone := self._ready.missing(self.queue.versions(name).source)
        ):
            await self._take_down(name, f"model '{gone[0]}', which it calls, is {UNLOADED}")
        if not self._ready.serves(name):
            await self.take_down_callers(name)
            return
        for ensemble in self._dependents.of(name):
            if not self._ready.serves(ensemble):
                self._catch_up(ensemble, self.follow(ensemble, self.reader(ensemble)))
                continue
            source = self.queue.versions(ensemble).source
            # Anything else may serve the step now, with other shapes.
            if source is not None and source.callees != self._ready.callees(source.needs):
                self._catch_up(ensemble, self._renew(ensemble))

    def _catch_up(self, ensemble: str, job: Coroutine[object, object, None]) -> None:
        """Start `job`, which adapts the ensemble to what now serves its steps."""
        task = self.catching_up[ensemble] = self.queue.spawn(job)
        task.add_done_callback(lambda task: self._caught_up(ensemble, task))

    def _caught_up(self, ensemble: str, task: asyncio.Task[None]) -> None:
        # A later job may have taken its place.
        if self.catching_up.get(ensemble) is task:
            del self.catching_up[ensemble]

    async def callers_caught_up(self, name: str) -> None:
        """Wait, at most CALLERS_WAIT_S, until all direct and indirect callers have adapted to it.

        A client that has loaded a step is likely to call its ensembles next.
        """
        callers = [name]
        with suppress(TimeoutError):
            async with asyncio.timeout(CALLERS_WAIT_S):
                # The list grows while it is walked: callers of callers.
                for one in callers:
                    for ensemble in self._dependents.of(one):
                        if ensemble in self.catching_up:
                            await asyncio.wait([self.catching_up[ensemble]])
                        if ensemble not in callers:
                            callers.append(ensemble)

    async def take_down_callers(self, name: str) -> None:
        """Stop serving the ensembles that call the model, and wait for their last requests."""
        for ensemble in self._dependents.of(name):
            if self._ready.serves(ensemble):
                await self._take_down(ensemble, f"model '{name}', which it calls, is {UNLOADED}")
        # Versions come and go while this waits.
        for model_versions in list(self.queue.versions_of.values()):
            # Some may have been unloaded before.
            if model_versions.source is not None and name in model_versions.source.needs:
                await model_versions.drained()

    async def _take_down(self, ensemble: str, reason: str) -> None:
        # As in `change`: callers are taken down outside of the lock, and one may be back by then.
        for is_last in (False, True):
            await self.take_down_callers(ensemble)
            async with self.queue.turn(ensemble) as model_versions:
                if is_last or not self._ready.is_called(
                    ensemble
                ):  # some may have come back meanwhile
                    source = model_versions.source
                    # A configuration that a client sent is nowhere else, so it is kept for when the
                    # step is back; files that were sent are discarded with their version.
                    if source is not None and source.is_override and source.upload is None:
                        self.sent[ensemble] = source
                    self.withdraw(model_versions, reason)
                    break
        await model_versions.drained()

    async def _renew(self, ensemble: str) -> None:
        """Put an ensemble that serves together anew, for other versions serve its steps now.

        It is taken down when it does not fit them.
        """
        complaints: list[str] = []
        try:
            async with self.queue.turn(ensemble) as model_versions:
                source = model_versions.source  # what it is made from by now
                if source is not None and model_versions.serving:
                    complaints = await self._apply(
                        model_versions, source, UNSHARED, is_requested=False
                    )
            await self.settle(ensemble)
        except InferdError as error:
            complaints = [error.message]
        if complaints and self._ready.serves(ensemble):
            log.error("%s", complaints[0])
            await self._take_down(ensemble, complaints[0])

    async def follow(self, name: str, read: Read, agreement: Agreement = UNSHARED) -> None:
        """Make a change that no client waits for; log failures, and let a later look retry."""
        try:
            complaints = await self.change(name, read, agreement)
        except InferdError as error:
            complaints = [error.message]
            self.queue.versions(name).fail(error)
        finally:
            self.following.discard(name)
            self.queue.drop_if_idle(name)
        if complaints:
            # The watch has noted the files as seen; without this a load that failed would not be
            # tried again before they change.
            self._sources.watch.forget(name)
            self.complain(name, complaints)
        else:
            self.complaints.pop(name, None)

    def complain(self, name: str, complaints: list[str]) -> None:
        """Log `complaints` about the model, unless they are the same as last time."""
        # Polling would fill the log with the same words every few seconds.
        if complaints != self.complaints.get(name):
            for complaint in complaints:
                log.error("%s", complaint)
        self.complaints[name] = complaints

    def reader(self, name: str) -> Read:
        """Return what reads a model as a client has sent it, or from its repository."""
        sent = self.sent.get(name)
        return lambda: sent or self._sources.find(name)


class ModelReadiness:
    """Answers questions about the models in `catalog`, and the ensembles among its `dependents`."""

    def __init__(self, catalog: Catalog, dependents: Dependents) -> None:
        self._catalog = catalog
        self._dependents = dependents

    def serves(self, name: str) -> bool:
        """Tell whether a version of the model does."""
        model = self._catalog.models.get(name)
        return model is not None and model.default is not None

    def missing(self, source: ModelSource | None) -> list[str]:
        """Return the steps of an ensemble that do not serve."""
        needs = source.needs if source else ()
        return [name for name in needs if not self.serves(name)]

    def serving_steps(self, source: ModelSource | None, looked: set[str]) -> list[str]:
        """Return the steps of an ensemble that serve and were not yet `looked` at."""
        needs = source.needs if source else ()
        return [name for name in needs if self.serves(name) and name not in looked]

    def is_called(self, name: str) -> bool:
        """Tell whether an ensemble that calls the model serves."""
        return any(map(self.serves, self._dependents.of(name)))

    def misfit(self, name: str, needs: tuple[str, ...], missing: list[str]) -> LoadFailed | None:
        """Return why a model cannot call the models in `needs`, those `missing` among them."""
        if missing:
            needed = ", ".join(map(self.with_reason, missing))
            return LoadFailed(f"model '{name}' needs {needed}, which is not loaded")
        try:
            self._dependents.check(name, needs)
        except LoadFailed as error:
            return error
        return None

    def stuck(self, source: ModelSource) -> LoadFailed | None:
        """Return why an ensemble that a client loads would not run: its steps serve but cannot."""
        config = source.model.config
        with suppress(LoadFailed):  # a version that is not there is told of by the load itself
            for step in find_steps(config, self._catalog.find) if config is not None else ():
                if unavailable_reason := step.unavailable_reason:
                    why = unavailable_reason[:MAX_REASON]
                    msg = f"model '{source.model.name}' needs {step.name}, which cannot run: {why}"
                    return LoadFailed(msg)
        return None

    def callees(self, needs: Sequence[str]) -> tuple[object, ...]:
        """Return what serves the models in `needs`; the tuple differs when anything else does."""
        models = (self._catalog.models.get(name) for name in needs)
        return tuple(tuple(model.ready.values()) if model else () for model in models)

    def with_reason(self, name: str) -> str:
        """Return the name of a model that does not serve, with the reason."""
        reasons = [row.reason for row in self._catalog.versions_of(name).values() if row.reason]
        return f"{name} ({reasons[-1][:MAX_REASON]})" if reasons else name


def _refused(name: str, error: InferdError) -> InferdError:
    """Return the answer to a load that brought a configuration which is wrong or does not fit."""
    if isinstance(error, LoadFailed):
        return LoadFailed(f"load failed for model '{name}': {error.message}")
    kind = InvalidConfig if isinstance(error, InvalidConfig) else type(error)
    return kind(not_loaded(name, error.message))


def _failed(name: str, failures: dict[int, str], serving: Container[int]) -> LoadFailed:
    reasons = []
    for number, why in failures.items():
        state = "" if number in serving else " is at UNAVAILABLE state"
        reasons.append(f"version {number}{state}: {why}")
    return LoadFailed(f"load failed for model '{name}': {'; '.join(reasons)}")
