"""ModelVersions: the versions of one model that serve, and how others replace them.

New versions load beside the ones that serve. When all have loaded, they take over at one moment on
the event loop; requests that found the old ones finish there, and then the old ones are closed.
When one fails to load, none takes over.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from inferd.aio.thread import in_daemon_thread
from inferd.config.model import ModelConfig
from inferd.core.change import UNSHARED, Agreement
from inferd.core.metadata import ModelState
from inferd.engine.loading.catalog import NO_VERSION, UNLOADED, Catalog
from inferd.engine.loading.load import Loader
from inferd.engine.loading.source import ModelSource
from inferd.engine.serving.instances import Resize, is_resized
from inferd.engine.serving.served import Served
from inferd.errors import (
    InferdError,
    InvalidConfig,
    LoadFailed,
    NoDatatype,
    NotUnique,
    NoVersion,
    Unavailable,
)
from inferd.repository.layout import FoundModel

log = logging.getLogger("inferd.engine")

# Each holds its weights until its last request is done, and clients can load as fast as they like.
MAX_DRAINING = 32
"""The most replaced versions of a model that may wait for their last requests; with as many, no
more are replaced."""

# Repositories that get a version a day would fill the index.
MAX_UNLOADED = 16
"""The most unloaded versions that stay in the index."""


class _ServingVersion(NamedTuple):
    """A version that serves, and what it was made from; `config` follows what is changed of it."""

    served: Served
    config: ModelConfig
    source: ModelSource


class ModelVersions:
    """The versions of one model that serve. Callers of `change` and `withdraw` hold `lock`.

    `on_idle` is called when a version has been closed and the model is then idle.
    """

    def __init__(
        self,
        name: str,
        catalog: Catalog,
        loader: Loader,
        *,
        drain_timeout_s: float,
        on_idle: Callable[[], None],
    ) -> None:
        self.name = name
        # Changes of one model, each of which waits for frameworks, take turns in their order.
        self.lock = asyncio.Lock()
        self.waiting_count = 0
        self._catalog = catalog
        self._loader = loader
        self._drain_timeout_s = drain_timeout_s
        self._on_idle = on_idle
        self._serving: dict[int, _ServingVersion] = {}
        self._drains: set[asyncio.Task[None]] = set()
        self._draining: Counter[int] = Counter()
        self._reasons: dict[int, str] = {}  # why versions that are draining went, the last of them
        self._is_gone = False
        self.source: ModelSource | None = None
        """What the serving versions were last made from."""

    @property
    def serving(self) -> dict[int, Served]:
        """The versions that serve, by number."""
        return {number: one.served for number, one in sorted(self._serving.items())}

    @property
    def prints(self) -> dict[str, tuple[str, ...]]:
        """Prints of what the versions that serve are made from, by number."""
        return {
            str(number): one.source.prints.get(number, ()) for number, one in self._serving.items()
        }

    @property
    def is_idle(self) -> bool:
        """Whether no version serves or is being closed, and no change waits."""
        return not (self._serving or self._drains or self.waiting_count)

    async def change(
        self, source: ModelSource, agreement: Agreement = UNSHARED, *, is_partial: bool = False
    ) -> dict[int, str]:
        """Serve the versions of `source` and no others; return why versions failed.

        Unchanged versions go on as they are. When a version fails, here or in another process of
        the `agreement`, everything stays as it was; with `is_partial` the others serve
        nevertheless. Raises Unavailable when too many replaced versions still wait for their
        requests, and as Agreement.all_can does.
        """
        if self._draining.total() >= MAX_DRAINING:
            msg = f"{MAX_DRAINING} replaced versions of model '{self.name}' still have requests"
            raise Unavailable(msg)
        self._is_gone = False
        model = source.model
        # What has not changed is neither loaded again nor loses its state.
        fresh = [number for number in model.versions if not self._is_current(source, number)]
        self.announce(fresh, model.config)
        resized = {
            number: one
            for number, one in self._serving.items()
            if number in model.versions and number not in fresh and _is_resized(one, model)
        }
        loaded, failures = await self._load(model, fresh)
        resizes: dict[int, Resize] = {}
        try:
            more = await self._prepare(model, resized, resizes)
            # Asked with the failures of this process: all of them decide by the same list.
            failures = await agreement.all_can(self.name, failures | more)
        except BaseException:  # usually because the server is shutting down
            await _close_all(loaded)
            await _undo_all(resizes.values())
            raise
        if failures and not is_partial:
            await _close_all(loaded)
            await _undo_all(resizes.values())
            self._note_failures(source, self._not_served(loaded, min(failures)) | failures)
            return failures
        # What failed elsewhere is not to serve here.
        await _close_all([one for one in loaded if int(one.version) in failures])
        await _undo_all([resizes.pop(number) for number in failures.keys() & resizes.keys()])
        # Numbers of a version that was loaded anew are not added to those of the one before, in any
        # process.
        for served in loaded:
            served.counts.born = agreement.number
        self._resize(resizes)
        fit = [one for one in loaded if int(one.version) not in failures]
        self._take_over(source, fit, unchanged=failures.keys() & resized.keys())
        self._note_failures(source, failures)
        return failures

    def announce(self, versions: Iterable[int], config: ModelConfig | None) -> None:
        """Show those of `versions` that do not serve as loading, with `config`."""
        for number in versions:
            if number not in self._serving:
                # While a version serves, another that loads keeps nobody from being served.
                self._set_state(number, ModelState.LOADING, is_excused=bool(self._serving))
        self._catalog.describe(self.name, config)

    def withdraw(self, reason: str = UNLOADED, *, is_gone: bool = False) -> None:
        """Have no version serve any more; the index tells the `reason`.

        A model that `is_gone` is forgotten as soon as its last request is done. What did not serve
        before keeps the reason it had, unless all of it is unloaded.
        """
        for number in list(self._catalog.versions_of(self.name)):
            if number == NO_VERSION:
                self._catalog.remove(self.name, number)
            elif reason == UNLOADED and number not in self._serving and not self._draining[number]:
                self._set_state(number, ModelState.UNAVAILABLE, UNLOADED)
        serving, self._serving = self._serving, {}
        # All are taken out at one moment; each then drains by itself.
        for number, one in serving.items():
            self._set_state(number, ModelState.UNLOADING)
            self._drain(number, one, reason)
        self._is_gone = is_gone
        self._forget_if_gone()

    async def withdraw_failed(self, failures: Mapping[int, str]) -> None:
        """Have versions that failed in another process not serve here; no request has come yet."""
        gone = [self._serving.pop(number) for number in failures if number in self._serving]
        for number, reason in failures.items():
            self._set_state(number, ModelState.UNAVAILABLE, reason, is_excused=bool(self._serving))
        await _close_all([one.served for one in gone])

    def fail(self, error: InferdError, found: FoundModel | None = None) -> None:
        """Say why nothing of the model can be loaded; what serves of it goes on.

        `found` is what was read of it, None if nothing could be read.
        """
        reason = error.message
        for number in self._serving:
            self._catalog.note(self.name, number, reason)
        if self._serving:
            return
        if isinstance(error, NotUnique) and self._draining.total():
            return  # it was withdrawn for this reason, which comes as its last request ends
        rows = self._catalog.versions_of(self.name).items()
        idle = (ModelState.LOADING, ModelState.UNAVAILABLE, ModelState.UNKNOWN)
        known = [n for n, row in rows if row.state in idle and row.reason != UNLOADED]
        wanted = found.versions if found is not None else ()
        shown = [n for n in wanted if not self._draining[n]] or known or [NO_VERSION]
        for number in shown:
            state, is_excused = _state_after(error, number)
            self._set_state(number, state, reason, is_excused=is_excused)
        if NO_VERSION in known and NO_VERSION not in shown:
            self._catalog.remove(self.name, NO_VERSION)
        if found is not None:
            self._catalog.describe(self.name, found.config)

    async def drained(self) -> None:
        """Wait for the requests of withdrawn versions, for as long as they may run."""
        if self._drains:
            await asyncio.wait(self._drains)

    async def end_drains(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for the requests of withdrawn versions."""
        if self._drains:
            _, late = await asyncio.wait(self._drains, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _is_current(self, source: ModelSource, number: int) -> bool:
        serving = self._serving.get(number)
        return (
            serving is not None
            and serving.source.marks_of(number) == source.marks_of(number)
            and not serving.served.unavailable_reason  # what was wrong may have been repaired
            and (
                _without_policy(serving.config) == _without_policy(source.model.config)
                or _is_resized(serving, source.model)
            )
        )

    async def _load(
        self, model: FoundModel, versions: Sequence[int]
    ) -> tuple[list[Served], dict[int, str]]:
        loads = [
            asyncio.create_task(self._loader.load_in_thread(model, number)) for number in versions
        ]
        try:
            # All of them end before anything is decided, since a thread that loads cannot be
            # stopped.
            ends = await asyncio.gather(*loads, return_exceptions=True)
        except asyncio.CancelledError:  # the server is shutting down
            done = [load for load in loads if load.done() and not load.cancelled()]
            for load in done:
                if load.exception() is None:
                    await close_served(load.result(), 0.0)
            raise
        loaded = [end for end in ends if isinstance(end, Served)]
        failures: dict[int, str] = {}
        for number, end in zip(versions, ends, strict=True):
            if isinstance(end, InferdError):
                failures[number] = end.message
            elif isinstance(end, BaseException):
                # An error that is none of ours is a mistake in here: nothing is kept of a load that
                # it ended.
                await _close_all(loaded)
                raise end
        return loaded, failures

    async def _prepare(
        self,
        model: FoundModel,
        versions: Mapping[int, _ServingVersion],
        resizes: dict[int, Resize],
    ) -> dict[int, str]:
        """Open the instances to be added; put what is prepared into `resizes`.

        Returns why some failed.
        """
        failures: dict[int, str] = {}
        for number, serving in versions.items():
            assert serving.served.instances is not None
            try:
                resizes[number] = await self._loader.resize_in_thread(
                    model, number, serving.served.instances
                )
            except InferdError as error:
                failures[number] = error.message
        return failures

    def _not_served(self, loaded: Iterable[Served], failed: int) -> dict[int, str]:
        """Return what the index says of `loaded` versions when version `failed` is not one."""
        why = f"because version {failed} failed"
        return {
            number: f"not reloaded, {why}" if number in self._serving else f"not served, {why}"
            for number in (int(one.version) for one in loaded)
        }

    def _note_failures(self, source: ModelSource, failures: dict[int, str]) -> None:
        for number, reason in failures.items():
            if source.upload is not None:  # it lies nowhere where it could be seen to
                if number not in self._serving:
                    self._catalog.remove(self.name, number)
            elif number in self._serving:
                self._catalog.note(self.name, number, reason)
            else:
                self._catalog.set_state(
                    self.name,
                    number,
                    ModelState.UNAVAILABLE,
                    reason,
                    is_excused=bool(self._serving),
                )

    def _resize(self, resizes: Mapping[int, Resize]) -> None:
        """Apply prepared changes: versions go on with more instances, or fewer."""
        for number, resize in resizes.items():
            instances = self._serving[number].served.instances
            assert instances is not None
            instances.apply(resize)
            count = len(resize.places)
            log.info("model '%s' version %d now has %d instances", self.name, number, count)

    def _take_over(
        self, source: ModelSource, loaded: Iterable[Served], unchanged: Collection[int] = ()
    ) -> None:
        """Replace what serves. Nothing here waits, so no request sees half of the change.

        Versions that are `unchanged` keep their configuration.
        """
        self.source = source
        model, before = source.model, self._serving
        assert model.config is not None
        self._serving = {number: one for number, one in before.items() if number in model.versions}
        for number, one in self._serving.items():
            policy, groups = model.config.version_policy, one.served.config.instance_group
            if _is_resized(one, model) and number not in unchanged:
                groups = model.config.instance_group
            one.served.config = replace(
                one.served.config, version_policy=policy, instance_group=groups
            )
            if number not in unchanged:
                self._serving[number] = one._replace(config=model.config)
        for served in loaded:
            number = int(served.version)
            replaced = before[number].served.ensemble if number in before else None
            if served.ensemble is not None and replaced is not None:
                # Before it is in the catalog, so that no request of a sequence overtakes one that
                # is in the old ensemble.
                served.ensemble.follow(replaced)
            self._serving[number] = _ServingVersion(served, model.config, source)
            if source.upload:
                source.upload.hold()
        # Together: no request sees some versions of the new kind and some of the old.
        self._catalog.add(*(one.served for one in self._serving.values()))
        for number, old in before.items():
            new = self._serving.get(number)
            if new is None:
                self._set_state(number, ModelState.UNLOADING)
            if new is None or new.served is not old.served:
                self._drain(number, old, UNLOADED)
        self._tidy()

    def _tidy(self) -> None:
        """Remove versions that failed once and are gone, and all but a few of the unloaded ones."""
        rows = self._catalog.versions_of(self.name)
        idle = [number for number, row in rows.items() if row.state is ModelState.UNAVAILABLE]
        unloaded = sorted(number for number in idle if rows[number].reason == UNLOADED)
        for number in idle:
            if number not in unloaded[-MAX_UNLOADED:]:
                self._catalog.remove(self.name, number)

    def _drain(self, number: int, old: _ServingVersion, reason: str) -> None:
        # A counter: of one version several may drain, one after each reload.
        self._draining[number] += 1
        self._reasons[number] = reason
        task = asyncio.get_running_loop().create_task(self._drained(number, old))
        self._drains.add(task)
        task.add_done_callback(self._after_drain)

    async def _drained(self, number: int, old: _ServingVersion) -> None:
        try:
            await close_served(old.served, self._drain_timeout_s)
        finally:
            self._draining -= Counter((number,))
            # The last of them says what became of the version.
            if not self._draining[number]:
                reason = self._reasons.pop(number)
                row = self._catalog.versions_of(self.name).get(number)
                if row is not None and row.state is ModelState.UNLOADING:
                    self._set_state(number, ModelState.UNAVAILABLE, reason)
        upload = old.source.upload
        if upload is not None and upload.release():
            await in_daemon_thread(upload.discard)

    def _after_drain(self, task: asyncio.Task[None]) -> None:
        self._drains.discard(task)
        self._forget_if_gone()
        if self.is_idle:
            self._on_idle()

    def _forget_if_gone(self) -> None:
        if self._is_gone and not self._draining.total():
            self._catalog.remove_model(self.name)

    def _set_state(
        self, number: int, state: ModelState, reason: str = "", *, is_excused: bool = True
    ) -> None:
        self._catalog.set_state(self.name, number, state, reason, is_excused=is_excused)


async def _close_all(loaded: Iterable[Served]) -> None:
    """Close versions that have had no requests."""
    await asyncio.gather(*(close_served(one, 0.0) for one in loaded))


async def _undo_all(resizes: Collection[Resize]) -> None:
    """Close what was opened for changes that are not made."""
    if resizes:
        await in_daemon_thread(lambda: [resize.undo() for resize in resizes])


async def close_served(served: Served, timeout_s: float) -> None:
    """Close a version, as Scheduler.close does; errors are logged."""
    try:
        await served.scheduler.close(timeout_s)
    except Exception as error:  # of a model that fails even to close
        log.exception("model '%s' does not close: %s", served.name, error)


def was_read(error: InferdError) -> bool:
    """Tell whether a model of which nothing was begun was read, as Triton tells them apart.

    It then has no version or no steps to serve, or tensors that lack something, and failed as one
    that does not come up.
    """
    return isinstance(error, LoadFailed | NoVersion | NoDatatype)


def _state_after(error: InferdError, number: int) -> tuple[ModelState, bool]:
    """Return the state of version `number` after `error`, and whether it is excused.

    As in Triton, a model whose configuration cannot be read, or whose name another has too, never
    was one: the index names it, but it does not keep the server from being ready. One that is
    wanted and not there does, unlike in Triton.
    """
    if isinstance(error, NotUnique):
        return ModelState.UNAVAILABLE, True
    if number == NO_VERSION and isinstance(error, InvalidConfig) and not was_read(error):
        return ModelState.UNKNOWN, True
    return ModelState.UNAVAILABLE, False


def _without_policy(config: ModelConfig | None) -> ModelConfig | None:
    """Return `config` without its version policy, which can change without a reload."""
    return config and replace(config, version_policy=None)


def _is_resized(serving: _ServingVersion, model: FoundModel) -> bool:
    """Tell whether opening and closing instances turns `serving` into that of `model`."""
    before, after = _without_policy(serving.config), _without_policy(model.config)
    if before is None or after is None or not is_resized(before, after):
        return False
    return serving.served.instances is not None and serving.served.instances.can_become(after)
