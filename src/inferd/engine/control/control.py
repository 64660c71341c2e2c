"""RepositoryControl: loads, reloads and unloads models, in Triton's three modes.

none: the models in the repositories at the start. poll: those, and what changes there. explicit:
what clients ask for. A change goes on even if the client that asked for it goes away.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING

from inferd.aio.thread import in_daemon_thread
from inferd.core.change import UNSHARED, Agreement
from inferd.core.interfaces import GivenModel
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry
from inferd.core.processes import Failed, Serves
from inferd.engine.control.changes import ModelChanges, ModelReadiness, Read
from inferd.engine.control.load_queue import LoadQueue
from inferd.engine.loading.catalog import Catalog
from inferd.engine.loading.ensemble import Dependents
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.engine.loading.source import ALL, ModelSources, not_loaded
from inferd.errors import InferdError, InvalidRequest, NotLoadable, Unavailable
from inferd.repository.layout import check_model_name
from inferd.repository.repositories import Place

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("inferd.engine")


class RepositoryControl:
    """Decides what is loaded, and records what serves in `catalog`."""

    def __init__(self, catalog: Catalog, options: LoadOptions, loader: Loader) -> None:
        self._catalog = catalog
        self._options = options
        self._mode = options.model_control_mode
        self._loader = loader
        self._sources = ModelSources(loader, options)
        self._dependents = Dependents()
        self._ready = ready = ModelReadiness(catalog, self._dependents)
        self._queue = queue = LoadQueue(catalog, loader, options.model_unload_timeout_secs)
        self._changes = ModelChanges(self._sources, queue, ready, self._dependents, self._mode)
        # Loads that clients asked for, by their end: of which model, and which others they touch.
        self._requests: dict[asyncio.Future[None], tuple[str, set[str]]] = {}
        self._is_stopped = False
        self._is_polling = True
        self.placed: dict[str, Path] = {}
        """The folders of models that were loaded from one that a request named."""
        self.announce: Callable[[str], Coroutine[object, object, None]] = self._follow_alone
        """Has a model follow what has changed of it, here and in other processes."""

    async def start(self, paths: Sequence[Place], given: Sequence[GivenModel] = ()) -> None:
        """Load the models below `paths` that the mode selects; failures are in the catalog.

        Models `given` by the program are loaded in every mode. Raises InvalidConfig for a path that
        holds no models, NotLoadable for a cloud that does not answer.
        """
        self._catalog.is_reading = True
        try:
            models = await in_daemon_thread(lambda: self._sources.open(paths, given))
        finally:
            self._catalog.is_reading = False
        for model in models:
            self._queue.versions(model.name).announce(model.versions, model.config)
            self._dependents.ask(model.name)
        await asyncio.gather(
            *(self._changes.follow(m.name, partial(self._sources.of, m)) for m in models)
        )
        # The table of models that ends the start, and readiness, count ensembles that adapt still.
        while self._changes.catching_up:
            await asyncio.wait(self._changes.catching_up.values())
        self._changes.is_started = True

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
        # Versions first: models may read their files until they are closed.
        await self._queue.close(timeout_s)
        await in_daemon_thread(self._sources.close)

    def prints(self) -> Serves:
        """Return prints of what serves: see ModelVersions.prints, by model."""
        found = {name: versions.prints for name, versions in self._queue.versions_of.items()}
        return {name: prints for name, prints in found.items() if prints}

    async def withdraw(self, failed: Failed) -> None:
        """Have versions not serve here that failed in another process; none has had a request."""
        for name, versions in failed.items():
            failures = {int(version): reason for version, reason in versions.items()}
            model_versions = self._queue.versions(name)
            await model_versions.withdraw_failed(failures)
            if not model_versions.serving:
                # As where it failed: an ensemble does not come back by itself.
                self._dependents.want(name, ())

    def check_is_explicit(self) -> None:
        """Raise Unavailable unless clients may load and unload models."""
        if self._mode != "explicit":
            raise Unavailable(
                f"explicit model load / unload is not allowed if polling is enabled or the server "
                f"itself loads its models (--model-control-mode={self._mode} here); it needs "
                f"--model-control-mode=explicit"
            )
        if self._is_stopped:
            raise Unavailable("the server is shutting down")

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
        # A client that goes away must not leave a model half loaded, nor end a load that others
        # wait for.
        await asyncio.shield(self._queue.spawn(self._load(request, agreement)))

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
        await asyncio.shield(self._queue.spawn(job))

    async def index(self, *, ready: bool = False) -> list[IndexEntry]:
        """Return a row per known version, or `ready` one; in explicit mode per model never loaded.

        Raises NotLoadable when a repository cannot be read.
        """
        if ready or self._mode != "explicit":
            return self._catalog.index(ready=ready)
        names = await self._queue.read(self._sources.names)
        # In explicit mode a client looks here for what it may load.
        never = [IndexEntry(name) for name in names if name not in self._catalog.models]
        return sorted([*self._catalog.index(), *never], key=lambda row: row.name)

    async def _load(self, request: LoadRequest, agreement: Agreement) -> None:
        name, sources = request.model, self._sources
        if not request.files:
            await self._request(name, lambda: sources.requested(request), agreement)
        else:
            upload = await self._queue.read(lambda: sources.uploads.store(request.files))
            upload.hold()
            try:
                await self._request(name, lambda: sources.sent(request, upload), agreement)
            finally:
                # Held by the versions made from it as well: the last one to go discards it.
                if upload.release():
                    await in_daemon_thread(upload.discard)
        self.placed.pop(name, None)
        if request.folder is not None:
            self.placed[name] = request.folder
        self._dependents.ask(name)
        self._changes.sent.pop(name, None)
        await self._changes.callers_caught_up(name)

    async def _request(self, name: str, read: Read, agreement: Agreement) -> None:
        """Make the model serve what `read` finds, for a client; its steps are kept meanwhile."""
        looked: set[str] = set()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests[done] = name, looked
        try:
            await self._changes.change(name, read, agreement, is_requested=True, looked=looked)
        finally:
            del self._requests[done]
            done.set_result(None)

    async def _until_free(self, step: str) -> None:
        """Wait for the loads of ensembles that need `step`, as long as an unload may take."""
        loads = [
            done
            for done, (name, looked) in self._requests.items()
            # Those that the ensemble found to serve may not go before it is up.
            if step in looked and name != step
        ]
        if loads:
            await asyncio.wait(loads, timeout=self._options.model_unload_timeout_secs)

    async def _unload(self, name: str, *, dependents: bool = False) -> None:
        await self._until_free(name)
        if name in self._queue.versions_of or name in self._catalog.models:
            # An unload ends a load that is under way or hangs, rather than wait for it.
            self._loader.attempts.give_up(name)
            # As in ModelChanges.change.
            for is_last in (False, True):
                await self._changes.take_down_callers(name)
                async with self._queue.turn(name) as model_versions:
                    is_gone = await self._is_gone(name)
                    if is_last or not self._ready.is_called(
                        name
                    ):  # some may have come back meanwhile
                        self._changes.withdraw(model_versions, is_gone=is_gone)
                        break
        self.placed.pop(name, None)
        self._changes.sent.pop(name, None)
        alone = self._dependents.leave(name)
        await self._changes.settle(name)
        for step in alone if dependents else ():
            await self._unload(step, dependents=True)

    async def _is_gone(self, name: str) -> bool:
        """Tell whether no repository has the model; one that cannot be read may have it."""
        try:
            return name not in await self._queue.read(self._sources.names)
        # Forgetting it would take it out of the index for a fault of the network.
        except NotLoadable:
            return False

    async def look(self) -> Sequence[asyncio.Task[None]]:
        """Check the repositories; return the tasks that follow what has changed there."""
        try:
            names = await in_daemon_thread(self._sources.watch.look)
        except NotLoadable as error:  # a share that is gone for a moment unloads nothing
            self._changes.complain("", [f"{error.message}; what serves goes on"])
            return []
        self._changes.complaints.pop("", None)
        for name in self._changes.following.intersection(names):
            self._sources.watch.forget(name)  # it changed again: a later look will report it
        names = [name for name in names if name not in self._changes.following]
        for name in names:
            self._dependents.ask(name)
        self._changes.following.update(names)
        return [self._queue.spawn(self._announced(name)) for name in names]

    async def follow(self, name: str, agreement: Agreement) -> None:
        """Have a model be as it is in the repositories; failures are in the catalog."""
        self._dependents.ask(name)
        self._changes.following.add(name)
        # As for a load: the other processes count on it.
        await asyncio.shield(
            self._queue.spawn(self._changes.follow(name, self._changes.reader(name), agreement))
        )

    async def _announced(self, name: str) -> None:
        try:
            await self.announce(name)
        except InferdError as error:  # a later look will report it again
            self._changes.following.discard(name)
            self._sources.watch.forget(name)
            self._changes.complain(name, [error.message])

    async def _follow_alone(self, name: str) -> None:
        await self._changes.follow(name, self._changes.reader(name))

    def poll(self) -> None:
        """Follow the repositories from now on, if the mode is to."""
        if self._mode == "poll" and self._options.repository_poll_secs > 0:
            self._queue.spawn(self._poll())

    async def _poll(self) -> None:
        while self._is_polling:
            # The start has just looked.
            await asyncio.sleep(self._options.repository_poll_secs)
            try:
                await self.look()
            except Exception:  # the next look may succeed
                log.exception("looking at the model repositories failed")
