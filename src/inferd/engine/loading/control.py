"""RepositoryControl: loads, reloads and unloads models, in Triton's three modes.

none: the models in the repositories at the start. poll: those, and what changes there. explicit:
what clients ask for. Changes to one model are made one after the other, each under the lock of its
versions; no task holds two of these locks. A change goes on even if the client that asked for it
goes away.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from inferd.aio.thread import in_daemon_thread
from inferd.core.change import UNSHARED, Agreement
from inferd.core.interfaces import GivenModel
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry
from inferd.core.processes import Serves
from inferd.engine.loading.catalog import UNLOADED, Catalog
from inferd.engine.loading.dependents import Dependents, check_chain
from inferd.engine.loading.ensemble import find_steps
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.engine.loading.model_versions import ModelVersions, close_served, was_read
from inferd.engine.loading.source import ALL, ModelSource, ModelSources, not_loaded
from inferd.errors import (
    InferdError,
    InvalidConfig,
    InvalidRequest,
    LoadFailed,
    NotLoadable,
    NotUnique,
    Unavailable,
)
from inferd.repository.layout import check_model_name
from inferd.repository.repositories import Place

log = logging.getLogger("inferd.engine")

MAX_WAITING = 100
"""The most changes to one model that may wait; more are refused as Unavailable."""

MAX_REASON = 300
"""The most characters of a step's failure that are repeated in its ensemble's."""

CALLERS_WAIT_S = 5.0
"""How long the answer to a load waits for the ensembles that come back with the model."""

_READING_AT_ONCE = 4
_Result = TypeVar("_Result")

Read = Callable[[], ModelSource | None]
"""Reads, in a thread, what a model is to be made from; returns None when it is not there."""


class RepositoryControl:
    """Decides what is loaded, and records what serves in `catalog`."""

    def __init__(self, catalog: Catalog, options: LoadOptions, loader: Loader) -> None:
        self._catalog = catalog
        self._options = options
        self._mode = options.model_control_mode
        self._loader = loader
        self._sources = ModelSources(loader, options)
        self._dependents = Dependents()
        self._sent: dict[str, ModelSource] = {}  # to bring back ensembles taken down, by name
        self._versions_of: dict[str, ModelVersions] = {}
        self._complaints: dict[str, list[str]] = {}
        # Loads that clients asked for, by their end: of which model, and which others they touch.
        self._requests: dict[asyncio.Future[None], tuple[str, set[str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: set[str] = set()
        self._catching_up: dict[str, asyncio.Task[None]] = {}  # ensembles adapting to their steps
        self._reading = asyncio.Semaphore(_READING_AT_ONCE)
        self._is_started = False
        self._is_stopped = False
        self._is_polling = True
        self.announce: Callable[[str], Coroutine[object, object, None]] = self._follow_alone
        """Has a model follow what has changed of it, here and in other processes."""

    # --- start and end ---

    async def start(self, paths: Sequence[Place], given: Sequence[GivenModel] = ()) -> None:
        """Load the models below `paths` that the mode selects; failures are in the catalog.

        Models `given` by the program are loaded in every mode. Raises InvalidConfig for a path that
        holds no models, NotLoadable for a cloud that does not answer.
        """
        models = await in_daemon_thread(lambda: self._sources.open(paths, given))
        for model in models:
            self._model_versions(model.name).announce(model.versions, model.config)
            self._dependents.ask(model.name)
        await asyncio.gather(*(self._follow(m.name, partial(self._sources.of, m)) for m in models))
        while self._catching_up:
            await asyncio.wait(self._catching_up.values())
        self._is_started = True

    def stop_polling(self) -> None:
        """Look for no more changes in the repositories."""
        self._is_polling = False

    def stop(self) -> None:
        """Begin no more changes."""
        self.stop_polling()
        self._is_stopped = True

    async def close(self, timeout_s: float) -> None:
        """Give up changes under way, and close all versions.

        Waits at most `timeout_s` for requests that run in threads.
        """
        self.stop()
        self._loader.attempts.give_up()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        drains = [versions.end_drains(timeout_s) for versions in self._versions_of.values()]
        closes = [close_served(served, timeout_s) for served in self._catalog.clear()]
        await asyncio.gather(*drains, *closes)
        self._versions_of.clear()
        await in_daemon_thread(self._sources.close)

    # --- what clients ask for ---

    def check_is_explicit(self) -> None:
        """Raise Unavailable unless clients may load and unload models."""
        if self._mode != "explicit":
            msg = (
                f"explicit model load / unload is not allowed if polling is enabled or the server "
                f"itself loads its models (--model-control-mode={self._mode} here); it needs "
                f"--model-control-mode=explicit"
            )
            raise Unavailable(msg)
        if self._is_stopped:
            msg = "the server is shutting down"
            raise Unavailable(msg)

    def check_load(self, request: LoadRequest) -> None:
        """Raise as `load` does for what can be told at once."""
        self.check_is_explicit()
        check_model_name(request.model)
        if request.files and request.config is None:
            msg = "a load with files needs the parameter 'config' as well"
            raise InvalidRequest(not_loaded(request.model, msg))

    async def load(self, request: LoadRequest, agreement: Agreement = UNSHARED) -> None:
        """Load the model as it is in the repository, or as the request defines it.

        Raises Unavailable, InvalidRequest, InvalidConfig for the configuration sent, NotLoadable
        when there is no such model or it cannot be read, LoadFailed when a version fails to load,
        here or in another process of the `agreement`; what served before then goes on serving.
        """
        self.check_load(request)
        await asyncio.shield(self._spawn(self._load(request, agreement)))

    def loads_at_start(self, name: str) -> bool:
        """Tell whether a server that starts loads the model without being asked to."""
        wanted = self._options.load_model
        return self._mode != "explicit" or ALL in wanted or name in wanted

    def check_unload(self, request: UnloadRequest) -> None:
        """Raise as `unload` does."""
        self.check_is_explicit()
        check_model_name(request.model)

    async def unload(self, request: UnloadRequest) -> None:
        """Stop serving the model; requests in flight finish in the background.

        It is no error if the model is not loaded or not there. Raises Unavailable, InvalidRequest.
        """
        self.check_unload(request)
        job = self._unload(request.model, dependents=request.unload_dependents)
        await asyncio.shield(self._spawn(job))

    async def index(self) -> list[IndexEntry]:
        """Return a row per known version and, in explicit mode, one per model never loaded.

        Raises NotLoadable when a repository cannot be read.
        """
        if self._mode != "explicit":
            return list(self._catalog.rows())
        names = await self._read(self._sources.names)
        never = [IndexEntry(name) for name in names if name not in self._catalog.models]
        return sorted([*self._catalog.rows(), *never], key=lambda row: row.name)

    async def _load(self, request: LoadRequest, agreement: Agreement) -> None:
        name, sources = request.model, self._sources
        if not request.files:
            await self._request(name, lambda: sources.requested(request), agreement)
        else:
            upload = await self._read(lambda: sources.uploads.store(request.files))
            upload.hold()
            try:
                await self._request(name, lambda: sources.sent(request, upload), agreement)
            finally:
                if upload.release():
                    await in_daemon_thread(upload.discard)
        self._dependents.ask(name)
        self._sent.pop(name, None)
        await self._callers_caught_up(name)

    async def _request(self, name: str, read: Read, agreement: Agreement) -> None:
        """Make the model serve what `read` finds, for a client; its steps are kept meanwhile."""
        looked: set[str] = set()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests[done] = name, looked
        try:
            await self._change(name, read, agreement, is_requested=True, looked=looked)
        finally:
            del self._requests[done]
            done.set_result(None)

    async def _until_free(self, step: str) -> None:
        """Wait for the loads of ensembles that need `step`, as long as an unload may take."""
        loads = [
            done
            for done, (name, looked) in self._requests.items()
            if step in looked and name != step
        ]
        if loads:
            await asyncio.wait(loads, timeout=self._options.model_unload_timeout_secs)

    async def _unload(self, name: str, *, dependents: bool = False) -> None:
        await self._until_free(name)
        if name in self._versions_of or name in self._catalog.models:
            self._loader.attempts.give_up(name)
            for is_last in (False, True):
                await self._take_down_callers(name)
                async with self._turn(name) as model_versions:
                    is_gone = await self._is_gone(name)
                    if is_last or not self._is_called(name):  # some may have come back meanwhile
                        self._withdraw(model_versions, is_gone=is_gone)
                        break
        self._sent.pop(name, None)
        alone = self._dependents.leave(name)
        await self._settle(name)
        for step in alone if dependents else ():
            await self._unload(step, dependents=True)

    async def _is_gone(self, name: str) -> bool:
        """Tell whether no repository has the model; one that cannot be read may have it."""
        try:
            return name not in await self._read(self._sources.names)
        except NotLoadable:
            return False

    # --- following the repositories ---

    async def look(self) -> Sequence[asyncio.Task[None]]:
        """Check the repositories; return the tasks that follow what has changed there."""
        try:
            names = await in_daemon_thread(self._sources.watch.look)
        except NotLoadable as error:  # a share that is gone for a moment unloads nothing
            self._complain("", [f"{error.message}; what serves goes on"])
            return []
        self._complaints.pop("", None)
        for name in self._following.intersection(names):
            self._sources.watch.forget(name)  # it changed again: a later look will report it
        names = [name for name in names if name not in self._following]
        for name in names:
            self._dependents.ask(name)
        self._following.update(names)
        return [self._spawn(self._announced(name)) for name in names]

    async def follow(self, name: str, agreement: Agreement) -> None:
        """Have a model be as it is in the repositories; failures are in the catalog."""
        self._dependents.ask(name)
        self._following.add(name)
        await asyncio.shield(self._spawn(self._follow(name, self._reader(name), agreement)))

    async def _announced(self, name: str) -> None:
        try:
            await self.announce(name)
        except InferdError as error:  # a later look will report it again
            self._following.discard(name)
            self._sources.watch.forget(name)
            self._complain(name, [error.message])

    async def _follow_alone(self, name: str) -> None:
        await self._follow(name, self._reader(name))

    def poll(self) -> None:
        """Follow the repositories from now on, if the mode is to."""
        if self._mode == "poll" and self._options.repository_poll_secs > 0:
            self._spawn(self._poll())

    async def _poll(self) -> None:
        while self._is_polling:
            await asyncio.sleep(self._options.repository_poll_secs)
            try:
                await self.look()
            except Exception:  # the next look may succeed
                log.exception("looking at the model repositories failed")

    async def _follow(self, name: str, read: Read, agreement: Agreement = UNSHARED) -> None:
        """Make a change that no client waits for; log failures, and let a later look retry."""
        try:
            complaints = await self._change(name, read, agreement)
        except InferdError as error:
            complaints = [error.message]
            self._model_versions(name).fail(error)
        finally:
            self._following.discard(name)
            self._drop_if_idle(name)
        if complaints:
            self._sources.watch.forget(name)
            self._complain(name, complaints)
        else:
            self._complaints.pop(name, None)

    def _complain(self, name: str, complaints: list[str]) -> None:
        """Log `complaints` about the model, unless they are the same as last time."""
        if complaints != self._complaints.get(name):
            for complaint in complaints:
                log.error("%s", complaint)
        self._complaints[name] = complaints

    def _reader(self, name: str) -> Read:
        sent = self._sent.get(name)
        return lambda: sent or self._sources.find(name)

    # --- one change ---

    async def _change(
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
        if looked is not None:
            looked.add(name)
        for is_last in (False, True):
            async with self._turn(name) as model_versions:
                source = await self._read(read)
                missing = self._missing(source)
                goes = source is None or self._is_hidden(source)
                is_called = goes and self._is_called(name)
                serving = [] if looked is None else self._serving_steps(source, looked)
                if not (missing or serving or is_called) or is_last:
                    complaints = await self._apply(
                        model_versions, source, agreement, is_requested=is_requested
                    )
                    break
            if is_called:
                await self._take_down_callers(name)
            for step in missing:
                try:
                    await self._change(
                        step, self._reader(step), agreement, chain=(*chain, name), looked=looked
                    )
                except LoadFailed as error:
                    if is_requested:
                        raise self._not_begun(name, error, source) from error
                    raise
            for step in serving:
                await self._look_at_step(step, agreement, (*chain, name), looked)
        await self._settle(name)
        return complaints

    async def _look_at_step(
        self, step: str, agreement: Agreement, chain: tuple[str, ...], looked: set[str] | None
    ) -> None:
        """Have a step that serves follow what has changed of it, for the ensembles in `chain`.

        What goes wrong is logged: it goes on as it is, and whether it fits is seen later.
        """
        model_versions = self._versions_of.get(step)
        served = model_versions.source if model_versions is not None else None
        if served is None or served.is_override:  # as a client sent it: so it stays
            return
        try:
            read = lambda: self._sources.find(step) or served  # noqa: E731
            complaints = await self._change(step, read, agreement, chain=chain, looked=looked)
        except InferdError as error:
            complaints = [error.message]
        for complaint in complaints:
            log.error("%s", complaint)

    def _serving_steps(self, source: ModelSource | None, looked: set[str]) -> list[str]:
        """Return the steps of an ensemble that serve and were not yet `looked` at."""
        needs = source.needs if source else ()
        return [name for name in needs if self._serves(name) and name not in looked]

    def _missing(self, source: ModelSource | None) -> list[str]:
        needs = source.needs if source else ()
        return [name for name in needs if not self._serves(name)]

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
            self._dependents.leave(name)
            self._withdraw(model_versions, is_gone=True)
            return []
        needs = source.needs
        error = source.model.error or self._misfit(name, needs, self._missing(source))
        error = error or (self._stuck(source) if is_requested else None)
        if error is not None:
            if is_requested:
                raise self._not_begun(name, error, source) from error
            if source.is_override:
                raise error
            if model_versions.serving and self._is_hidden(source):
                self._withdraw(model_versions, error.message)
            else:
                model_versions.fail(error, source.model)
            return [error.message]
        self._dependents.want(name, needs)  # now, so that the next change is checked against it
        before = model_versions.serving
        source = source._replace(callees=self._callees(needs))
        try:
            failures = await model_versions.change(
                source, agreement, is_partial=not (is_requested or before)
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
        if is_read or self._serves(name):
            self._model_versions(name).fail(error, source.model if source is not None else None)
            self._drop_if_idle(name)
        if not is_read:
            return NotLoadable(not_loaded(name, error.message))
        log.error("%s", error.message)
        return LoadFailed(f"load failed for model '{name}': {error.message}")

    def _misfit(self, name: str, needs: tuple[str, ...], missing: list[str]) -> LoadFailed | None:
        """Return why a model cannot call the models in `needs`, those `missing` among them."""
        if missing:
            needed = ", ".join(map(self._with_reason, missing))
            return LoadFailed(f"model '{name}' needs {needed}, which is not loaded")
        try:
            self._dependents.check(name, needs)
        except LoadFailed as error:
            return error
        return None

    def _stuck(self, source: ModelSource) -> LoadFailed | None:
        """Return why an ensemble that a client loads would not run: its steps serve but cannot."""
        config = source.model.config
        with suppress(LoadFailed):  # a version that is not there is told of by the load itself
            for step in find_steps(config, self._catalog.find) if config is not None else ():
                if unavailable_reason := step.unavailable_reason:
                    why = unavailable_reason[:MAX_REASON]
                    msg = f"model '{source.model.name}' needs {step.name}, which cannot run: {why}"
                    return LoadFailed(msg)
        return None

    def _is_hidden(self, source: ModelSource) -> bool:
        """Tell whether a model is to serve no more, for another has appeared with its name.

        Where clients ask for models it goes on, as one that cannot be read: only its load fails.
        """
        return self._mode == "poll" and isinstance(source.model.error, NotUnique)

    def _withdraw(
        self,
        model_versions: ModelVersions,
        reason: str = UNLOADED,
        *,
        is_gone: bool = False,
    ) -> None:
        before = model_versions.serving
        model_versions.withdraw(reason, is_gone=is_gone)
        if before:
            self._tell(model_versions)

    def _tell(self, model_versions: ModelVersions) -> None:
        """Log which versions now serve, except during the start, which ends with a table."""
        if self._is_started:
            versions = ", ".join(map(str, model_versions.serving))
            what = f"version {versions}" if versions else "no version"
            log.info("model '%s' now serves %s", model_versions.name, what)

    async def _settle(self, name: str) -> None:
        """Take down the ensembles that call the model, or bring them back if it now serves.

        An ensemble one of whose steps went while it was loaded is taken down itself.
        """
        if self._serves(name) and (gone := self._missing(self._model_versions(name).source)):
            await self._take_down(name, f"model '{gone[0]}', which it calls, is {UNLOADED}")
        if not self._serves(name):
            await self._take_down_callers(name)
            return
        for ensemble in self._dependents.of(name):
            if not self._serves(ensemble):
                self._catch_up(ensemble, self._follow(ensemble, self._reader(ensemble)))
                continue
            source = self._model_versions(ensemble).source
            if source is not None and source.callees != self._callees(source.needs):
                self._catch_up(ensemble, self._renew(ensemble))

    def _catch_up(self, ensemble: str, job: Coroutine[object, object, None]) -> None:
        """Start `job`, which adapts the ensemble to what now serves its steps."""
        task = self._catching_up[ensemble] = self._spawn(job)
        task.add_done_callback(lambda task: self._caught_up(ensemble, task))

    def _caught_up(self, ensemble: str, task: asyncio.Task[None]) -> None:
        if self._catching_up.get(ensemble) is task:
            del self._catching_up[ensemble]

    async def _callers_caught_up(self, name: str) -> None:
        """Wait, at most CALLERS_WAIT_S, until all direct and indirect callers have adapted to it.

        A client that has loaded a step is likely to call its ensembles next.
        """
        callers = [name]
        with suppress(TimeoutError):
            async with asyncio.timeout(CALLERS_WAIT_S):
                for one in callers:
                    for ensemble in self._dependents.of(one):
                        if ensemble in self._catching_up:
                            await asyncio.wait([self._catching_up[ensemble]])
                        if ensemble not in callers:
                            callers.append(ensemble)

    async def _take_down_callers(self, name: str) -> None:
        """Stop serving the ensembles that call the model, and wait for their last requests."""
        for ensemble in self._dependents.of(name):
            if self._serves(ensemble):
                await self._take_down(ensemble, f"model '{name}', which it calls, is {UNLOADED}")
        for model_versions in list(self._versions_of.values()):
            # Some may have been unloaded before.
            if model_versions.source is not None and name in model_versions.source.needs:
                await model_versions.drained()

    async def _take_down(self, ensemble: str, reason: str) -> None:
        for is_last in (False, True):
            await self._take_down_callers(ensemble)
            async with self._turn(ensemble) as model_versions:
                if is_last or not self._is_called(ensemble):  # some may have come back meanwhile
                    source = model_versions.source
                    if source is not None and source.is_override and source.upload is None:
                        self._sent[ensemble] = source
                    self._withdraw(model_versions, reason)
                    break
        await model_versions.drained()

    async def _renew(self, ensemble: str) -> None:
        """Put an ensemble that serves together anew, for other versions serve its steps now.

        It is taken down when it does not fit them.
        """
        complaints: list[str] = []
        try:
            async with self._turn(ensemble) as model_versions:
                source = model_versions.source  # what it is made from by now
                if source is not None and model_versions.serving:
                    complaints = await self._apply(
                        model_versions, source, UNSHARED, is_requested=False
                    )
            await self._settle(ensemble)
        except InferdError as error:
            complaints = [error.message]
        if complaints and self._serves(ensemble):
            log.error("%s", complaints[0])
            await self._take_down(ensemble, complaints[0])

    def _callees(self, needs: Sequence[str]) -> tuple[object, ...]:
        """Return what serves the models in `needs`; the tuple differs when anything else does."""
        models = (self._catalog.models.get(name) for name in needs)
        return tuple(tuple(model.ready.values()) if model else () for model in models)

    def _with_reason(self, name: str) -> str:
        """Return the name of a model that does not serve, with the reason."""
        reasons = [row.reason for row in self._catalog.versions_of(name).values() if row.reason]
        return f"{name} ({reasons[-1][:MAX_REASON]})" if reasons else name

    def _is_called(self, name: str) -> bool:
        """Tell whether an ensemble that calls the model serves."""
        return any(map(self._serves, self._dependents.of(name)))

    def _serves(self, name: str) -> bool:
        model = self._catalog.models.get(name)
        return model is not None and model.default is not None

    def prints(self) -> Serves:
        """Return prints of what serves: see ModelVersions.prints, by model."""
        found = {name: versions.prints for name, versions in self._versions_of.items()}
        return {name: prints for name, prints in found.items() if prints}

    # --- tasks, and the versions by model ---

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[ModelVersions]:
        """Yield the model's versions, locked, when its turn to change comes. Raises Unavailable."""
        model_versions = self._model_versions(name)
        if model_versions.waiting_count >= MAX_WAITING:
            msg = f"{MAX_WAITING} loads and unloads of model '{name}' wait already"
            raise Unavailable(msg)
        model_versions.waiting_count += 1
        try:
            async with model_versions.lock:
                yield model_versions
        finally:
            model_versions.waiting_count -= 1
            self._drop_if_idle(name)

    def _model_versions(self, name: str) -> ModelVersions:
        model_versions = self._versions_of.get(name)
        if model_versions is None:
            model_versions = self._versions_of[name] = ModelVersions(
                name,
                self._catalog,
                self._loader,
                drain_timeout_s=self._options.model_unload_timeout_secs,
                on_idle=lambda: self._drop_if_idle(name),
            )
        return model_versions

    def _drop_if_idle(self, name: str) -> None:
        model_versions = self._versions_of.get(name)
        if model_versions is not None and model_versions.is_idle:
            del self._versions_of[name]

    async def _read(self, function: Callable[[], _Result]) -> _Result:
        async with self._reading:
            return await in_daemon_thread(function)

    def _spawn(self, job: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._after)
        return task

    def _after(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, InferdError):
            log.error("a change of models failed", exc_info=error)


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
