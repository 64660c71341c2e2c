"""Many changes at once, or one after the other: all end, and nothing grows with them."""

import asyncio

import pytest
from controlled import PATIENCE_S, READY, UNLOADED, engine_on, identity, run, states, write
from patience import until

from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import ModelState
from inferd.engine.control.control import RepositoryControl
from inferd.engine.control.load_queue import MAX_WAITING
from inferd.engine.loading.catalog import Catalog
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.errors import LoadFailed, NotLoadable, Unavailable

pytestmark = pytest.mark.usefixtures("temporary")


# --- many at once ---


@run
async def test_loads_of_one_model_at_once_load_it_once(theirs, repository):
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        await asyncio.gather(*(engine.changes.load(LoadRequest("m")) for _ in range(50)))
        assert theirs.log.count(("open", "m_0")) == 1


@run
async def test_loads_and_unloads_at_once_end_as_the_last_one_says(repository):
    async with engine_on(repository(m=identity())) as engine:
        for last in ("load", "unload", "load"):
            jobs = []
            for number in range(30):
                what = last if number == 29 else ("load", "unload")[number % 2]
                request = LoadRequest("m") if what == "load" else UnloadRequest("m")
                jobs.append(getattr(engine.changes, what)(request))
            await asyncio.gather(*jobs)
            expected = READY if last == "load" else UNLOADED
            await until(lambda: states(engine) == {("m", "1"): expected})  # noqa: B023


@run
async def test_more_changes_than_may_wait_are_refused(theirs, repository):
    theirs.may_open.clear()
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        jobs = [
            asyncio.create_task(engine.changes.load(LoadRequest("m")))
            for _ in range(MAX_WAITING + 1)
        ]
        done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        [refused] = done
        with pytest.raises(Unavailable, match="wait already"):
            refused.result()
        theirs.may_open.set()
        await asyncio.gather(*(job for job in jobs if job is not refused))
        assert states(engine) == {("m", "1"): READY}


@run
async def test_a_load_goes_on_though_its_client_has_gone(theirs, repository):
    theirs.may_open.clear()
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        loading = asyncio.create_task(engine.changes.load(LoadRequest("m")))
        assert await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        assert states(engine) == {("m", "1"): ModelState.LOADING}
        assert engine.catalog.models["m"].config.backend == "theirs"
        assert not engine.readiness.is_ready()  # who waits for that would ask too early
        theirs.may_open.set()
        await until(lambda: states(engine) == {("m", "1"): READY})
        assert engine.readiness.is_ready()


@run
async def test_an_engine_that_closes_gives_up_what_loads(theirs, repository):
    theirs.may_open.clear()
    async with engine_on(repository(m='backend: "theirs"')) as engine:
        loading = asyncio.create_task(engine.changes.load(LoadRequest("m")))
        assert await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        await engine.close(PATIENCE_S)
        assert loading.done()
        theirs.may_open.set()
        assert await asyncio.to_thread(theirs.closed.wait, PATIENCE_S)
        assert engine.catalog.index() == []


@run
async def test_a_model_that_does_not_load_in_time_has_failed(theirs, repository):
    theirs.may_open.clear()
    async with engine_on(repository(m='backend: "theirs"'), model_load_timeout_secs=0.01) as engine:
        with pytest.raises(LoadFailed, match=r"did not load within 0\.01 s \(--model-load-timeout"):
            await engine.changes.load(LoadRequest("m"))
        theirs.may_open.set()
        assert await asyncio.to_thread(theirs.closed.wait, PATIENCE_S)


# --- bounds ---


@run
async def test_the_index_does_not_grow_with_every_version_there_ever_was(repository):
    root = repository(m=identity())
    async with engine_on(root) as engine:
        for number in range(2, 40):
            (root / "m" / str(number)).mkdir()
            await engine.changes.load(LoadRequest("m"))
        await until(lambda: ModelState.UNLOADING not in states(engine).values())
        assert states(engine)["m", "39"] is READY
        assert len(engine.catalog.index()) <= 20


@run
async def test_names_that_were_tried_are_not_remembered(repository):
    catalog = Catalog()
    options = LoadOptions(model_control_mode="explicit")
    control = RepositoryControl(catalog, options, Loader(options))
    await control.start([repository(m=identity())])
    for number in range(50):
        with pytest.raises(NotLoadable):
            await control.load(LoadRequest(f"x{number}"))
        await control.unload(UnloadRequest(f"x{number}"))
    assert not control._queue.versions_of
    assert catalog.models == {}
    await control.close(PATIENCE_S)


# --- steadiness ---


@run
async def test_traffic_sees_no_gap_while_a_model_is_reloaded(repository, ask):
    root = repository(m=identity(more='parameters { key: "n" value: { string_value: "0" } }'))
    async with engine_on(root) as engine:
        await engine.changes.load(LoadRequest("m"))
        stop = False
        asked = 0

        async def ask_on(number):
            nonlocal asked
            while not stop:
                answer = await engine.infer(ask("m", INPUT0=[number]))
                assert answer.outputs[0].numpy().tolist() == [number]
                asked += 1
                await asyncio.sleep(0.001)  # a loop that never rests starves the loading thread

        clients = [asyncio.create_task(ask_on(number)) for number in range(8)]
        for number in range(1, 6):
            more = f'parameters {{ key: "n" value: {{ string_value: "{number}" }} }}'
            write(root / "m" / "config.pbtxt", identity(more=more))
            await engine.changes.load(LoadRequest("m"))
            assert engine.find("m", "").config.parameters["n"] == str(number)
        stop = True
        await asyncio.gather(*clients)
        assert asked > 8
