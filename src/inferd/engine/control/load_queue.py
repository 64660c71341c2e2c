"""LoadQueue: changes to one model are made one after the other, each under the model's lock.

No task holds two of these locks.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

from inferd.aio.thread import in_daemon_thread
from inferd.engine.loading.catalog import Catalog
from inferd.engine.loading.load import Loader
from inferd.engine.loading.model_versions import ModelVersions, close_served
from inferd.errors import InferdError, Unavailable

log = logging.getLogger("inferd.engine")

# Each waits with a task and a request in memory, and loads come from clients.
MAX_WAITING = 100
"""The most changes to one model that may wait; more are refused as Unavailable."""

# Reading is mostly waiting for a disk; more at once make spinning and network disks slower, not
# faster.
_READING_AT_ONCE = 4
_Result = TypeVar("_Result")


class LoadQueue:
    """The versions of each model that serves or changes, and the tasks that change them.

    What a version serves is recorded in `catalog`. One that goes has `drain_timeout_s` for the
    requests that run.
    """

    def __init__(self, catalog: Catalog, loader: Loader, drain_timeout_s: float) -> None:
        self.versions_of: dict[str, ModelVersions] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._catalog = catalog
        self._loader = loader
        self._drain_timeout_s = drain_timeout_s
        self._reading = asyncio.Semaphore(_READING_AT_ONCE)

    async def close(self, timeout_s: float) -> None:
        """Give up changes under way, and close all versions.

        Waits at most `timeout_s` for requests that run in threads.
        """
        # Loads run in threads, which cannot be cancelled: they are told to end by themselves.
        self._loader.attempts.give_up()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Side by side, so that the time limit is one for all.
        drains = [versions.end_drains(timeout_s) for versions in self.versions_of.values()]
        closes = [close_served(served, timeout_s) for served in self._catalog.clear()]
        await asyncio.gather(*drains, *closes)
        self.versions_of.clear()

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[ModelVersions]:
        """Yield the model's versions, locked, when its turn to change comes. Raises Unavailable."""
        model_versions = self.versions(name)
        if model_versions.waiting_count >= MAX_WAITING:
            raise Unavailable(f"{MAX_WAITING} loads and unloads of model '{name}' wait already")
        # Counted before waiting, and looked at by drop_if_idle: a lock that somebody waits for must
        # not be replaced by another.
        model_versions.waiting_count += 1
        try:
            async with model_versions.lock:
                yield model_versions
        finally:
            model_versions.waiting_count -= 1
            self.drop_if_idle(name)

    def versions(self, name: str) -> ModelVersions:
        """Return the versions of a model, of which none need be known."""
        model_versions = self.versions_of.get(name)
        if model_versions is None:
            model_versions = self.versions_of[name] = ModelVersions(
                name,
                self._catalog,
                self._loader,
                drain_timeout_s=self._drain_timeout_s,
                on_idle=lambda: self.drop_if_idle(name),
            )
        return model_versions

    def drop_if_idle(self, name: str) -> None:
        """Forget a model that neither serves nor changes."""
        model_versions = self.versions_of.get(name)
        if model_versions is not None and model_versions.is_idle:
            del self.versions_of[name]

    async def read(self, function: Callable[[], _Result]) -> _Result:
        """Return what `function` does, in a thread; few read repositories at once."""
        async with self._reading:
            return await in_daemon_thread(function)

    def spawn(self, job: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start a task that goes on whoever waits for it, and ends with the server."""
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._after)
        return task

    def _after(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # Those have been logged or answered where they belong.
        if error is not None and not isinstance(error, InferdError):
            log.error("a change of models failed", exc_info=error)
