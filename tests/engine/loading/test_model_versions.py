"""What the tests of Control do not reach: versions that do not end, and closing in the middle."""

import asyncio
import logging

import pytest

from inferd.config.model import InstanceGroup, ModelConfig
from inferd.core.metadata import ModelState
from inferd.engine.loading.catalog import Catalog
from inferd.engine.loading.model_versions import MAX_DRAINING, ModelVersions, close_served
from inferd.engine.loading.source import ModelSource
from inferd.engine.serving.served import Served
from inferd.errors import BackendFailed, Unavailable
from inferd.repository.layout import FoundModel
from inferd.repository.watch import Marks

PATIENCE_S = 30


class Scheduler:
    """Ends once `may_end` is set."""

    def __init__(self):
        self.may_end = asyncio.Event()
        self.is_closed = False

    async def close(self, timeout_s):
        try:
            async with asyncio.timeout(timeout_s):
                await self.may_end.wait()
        finally:
            self.is_closed = True


class Loader:
    """Loads versions that run nothing, and resizes none: that begins and does not end.

    Those in `failing` fail, those in `odd` as nobody expects, those in `slow` never come.
    """

    def __init__(self):
        self.schedulers = []
        self.failing = set()
        self.slow = set()
        self.odd = set()
        self.resizing = asyncio.Event()

    async def resize_in_thread(self, model, version, instances):
        self.resizing.set()
        await asyncio.Event().wait()

    async def load_in_thread(self, model, version):
        if version in self.slow:
            await asyncio.Event().wait()
        if version in self.odd:
            raise ZeroDivisionError
        if version in self.failing:
            msg = f"version {version} is broken"
            raise BackendFailed(msg)
        self.schedulers.append(Scheduler())
        return Served(model.config, version, "a platform", self.schedulers[-1])


class Stage:
    """A lineup with its catalog, loader, and whether it said that it was idle."""

    def __init__(self, drain_timeout_s=PATIENCE_S):
        self.catalog, self.loader = Catalog(), Loader()
        self.idle = asyncio.Event()
        self.model_versions = ModelVersions(
            "m",
            self.catalog,
            self.loader,
            drain_timeout_s=drain_timeout_s,
            on_idle=self.idle.set,
        )

    async def change(self, tmp_path, mark, *versions, config=None, **how):
        model = FoundModel("m", tmp_path, config or ModelConfig("m"), versions or (1,))
        return await self.model_versions.change(ModelSource(model, Marks(b"", mark, {})), **how)

    def states(self):
        return {row.version: row.state for row in self.catalog.index()}


async def until(condition):
    """Wait until `condition()` holds, and one turn of the loop more."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.001)
    await asyncio.sleep(0)


def test_so_many_versions_may_wait_for_their_requests(tmp_path):
    async def go():
        stage = Stage()
        for number in range(MAX_DRAINING + 1):
            await stage.change(tmp_path, b"%d" % number)
        with pytest.raises(Unavailable, match="32 replaced versions of model 'm'"):
            await stage.change(tmp_path, b"one more")
        stage.loader.schedulers[0].may_end.set()
        await until(lambda: stage.loader.schedulers[0].is_closed)
        await stage.change(tmp_path, b"one more")
        await stage.model_versions.end_drains(0.0)
        assert all(scheduler.is_closed for scheduler in stage.loader.schedulers[:-1])

    asyncio.run(go())


def test_a_version_is_unloaded_when_the_last_of_its_kind_has_ended(tmp_path):
    async def go():
        stage = Stage()
        for mark in (b"1", b"2"):
            await stage.change(tmp_path, mark)
        stage.model_versions.withdraw()
        first, second = stage.loader.schedulers
        second.may_end.set()
        await until(lambda: second.is_closed)
        assert stage.states() == {"1": ModelState.UNLOADING}
        first.may_end.set()
        await asyncio.wait_for(stage.idle.wait(), PATIENCE_S)
        assert stage.states() == {"1": ModelState.UNAVAILABLE}
        assert stage.model_versions.is_idle

    asyncio.run(go())


def test_the_reason_of_the_last_of_its_kind_stays(tmp_path):
    async def go():
        stage = Stage()
        for mark in (b"1", b"2"):
            await stage.change(tmp_path, mark)
        stage.model_versions.withdraw("its step is gone")
        for scheduler in reversed(stage.loader.schedulers):
            scheduler.may_end.set()
            await until(lambda one=scheduler: one.is_closed)
        await asyncio.wait_for(stage.idle.wait(), PATIENCE_S)
        stage.model_versions.withdraw("another step is gone")
        assert [row.reason for row in stage.catalog.index()] == ["its step is gone"]
        stage.model_versions.withdraw()
        assert [row.reason for row in stage.catalog.index()] == ["unloaded"]

    asyncio.run(go())


def test_a_model_that_is_gone_is_forgotten_when_it_has_ended(tmp_path):
    async def go():
        stage = Stage()
        await stage.change(tmp_path, b"1")
        stage.model_versions.withdraw(is_gone=True)
        assert stage.states() == {"1": ModelState.UNLOADING}
        stage.loader.schedulers[0].may_end.set()
        await asyncio.wait_for(stage.idle.wait(), PATIENCE_S)
        assert stage.catalog.models == {}

    asyncio.run(go())


def test_a_model_that_comes_back_before_it_was_gone_stays(tmp_path):
    async def go():
        stage = Stage()
        await stage.change(tmp_path, b"1")
        stage.model_versions.withdraw(is_gone=True)
        await stage.change(tmp_path, b"2")
        await stage.model_versions.end_drains(0.0)
        assert stage.states() == {"1": ModelState.READY}

    asyncio.run(go())


def test_some_versions_may_serve_though_others_failed(tmp_path):
    async def go():
        stage = Stage()
        stage.loader.failing = {1, 3}
        failures = await stage.change(tmp_path, b"", 1, 2, 3, is_partial=True)
        assert failures == {1: "version 1 is broken", 3: "version 3 is broken"}
        unavailable = ModelState.UNAVAILABLE
        assert stage.states() == {"1": unavailable, "2": ModelState.READY, "3": unavailable}
        stage.loader.failing = {1}
        assert await stage.change(tmp_path, b"", 1, 2, 3, is_partial=True) == {
            1: "version 1 is broken"
        }
        assert stage.states() == {"1": unavailable, "2": ModelState.READY, "3": ModelState.READY}
        assert len(stage.loader.schedulers) == 2

    asyncio.run(go())


def test_what_came_up_is_closed_when_loading_is_given_up(tmp_path):
    async def go():
        stage = Stage()
        stage.loader.slow = {2}
        changing = asyncio.create_task(stage.change(tmp_path, b"", 1, 2))
        await until(lambda: stage.loader.schedulers)
        changing.cancel()
        await asyncio.wait((changing,))
        assert changing.cancelled()
        assert stage.loader.schedulers[0].is_closed
        assert not stage.model_versions.serving

    asyncio.run(go())


def test_what_came_up_is_closed_when_another_fails_as_nobody_expects(tmp_path):
    async def go():
        stage = Stage()
        stage.loader.odd = {2}
        with pytest.raises(ZeroDivisionError):
            await stage.change(tmp_path, b"", 1, 2)
        assert stage.loader.schedulers[0].is_closed
        assert not stage.model_versions.serving

    asyncio.run(go())


class Resizable:
    """The instances of a version that can become more, but never do."""

    def can_become(self, config):
        return True

    @property
    def remote(self):
        return []


def test_what_came_up_is_closed_when_another_version_s_resizing_is_given_up(tmp_path):
    async def go():
        stage = Stage()
        groups = [(InstanceGroup(name="g", count=count),) for count in (1, 2)]
        await stage.change(tmp_path, b"", 1, config=ModelConfig("m", instance_group=groups[0]))
        stage.model_versions.serving[1].instances = Resizable()
        more = ModelConfig("m", instance_group=groups[1])
        changing = asyncio.create_task(stage.change(tmp_path, b"", 1, 2, config=more))
        await stage.loader.resizing.wait()
        changing.cancel()
        await asyncio.wait((changing,))
        assert changing.cancelled()
        assert [one.is_closed for one in stage.loader.schedulers] == [False, True]

    asyncio.run(go())


def test_a_version_that_cannot_end_is_told_of(caplog):
    class Stuck(Scheduler):
        async def close(self, timeout_s):
            msg = "stuck"
            raise OSError(msg)

    async def go():
        await close_served(Served(ModelConfig("m"), 1, "a platform", Stuck()), 0.0)

    with caplog.at_level(logging.ERROR, "inferd.engine"):
        asyncio.run(go())
    assert caplog.messages == ["model 'm' does not close: stuck"]
