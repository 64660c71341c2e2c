"""Polling: what changes in the repository is followed, and nothing else happens."""

import asyncio
import logging
import shutil

import pytest
from controlled import (
    BROKEN,
    IN_THREADS,
    PATIENCE_S,
    READY,
    UNAVAILABLE,
    engine_on,
    identity,
    run,
    states,
    write,
)
from patience import until

from inferd.core.metadata import ModelState
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions
from inferd.errors import ModelNotFound

pytestmark = pytest.mark.usefixtures("temporary")


async def looked(engine):
    """Have the engine look at its repositories once, and wait for what follows from that."""
    await asyncio.gather(*await engine.control.look())


@run
async def test_polling_follows_what_happens_to_models(repository, ask, tmp_path):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        assert states(engine) == {("m", "1"): READY}
        repository(n=identity(2))
        await looked(engine)
        await engine.infer(ask("n", INPUT0=[1, 2]))
        write(root / "n" / "config.pbtxt", identity(3))
        await looked(engine)
        await engine.infer(ask("n", INPUT0=[1, 2, 3]))
        (root / "n" / "1").rename(root / "n" / "2")
        await looked(engine)
        assert (await engine.infer(ask("n", INPUT0=[1, 2, 3]))).version == "2"
        (root / "n").rename(tmp_path / "away")
        await looked(engine)
        with pytest.raises(ModelNotFound):
            await engine.infer(ask("n", INPUT0=[1, 2, 3]))
        await until(lambda: states(engine) == {("m", "1"): READY})
        (root / "m").rename(tmp_path / "last")
        await looked(engine)
        assert engine.readiness.lacks_models()
        assert not engine.readiness.is_ready()
        (tmp_path / "away").rename(root / "n")
        await looked(engine)
        await engine.infer(ask("n", INPUT0=[1, 2, 3]))
        assert engine.readiness.is_ready()


@run
async def test_polling_loads_nothing_that_did_not_change(theirs, repository):
    root = repository(m='backend: "theirs"')
    async with engine_on(root, mode="poll") as engine:
        write(root / "m" / "1" / "__pycache__" / "model.cpython-311.pyc")
        write(root / "m" / ".config.pbtxt.swp")
        for _ in range(3):
            await looked(engine)
        assert theirs.log.count(("open", "m_0")) == 1


@run
async def test_polling_keeps_what_serves_when_the_change_is_broken(repository, ask, caplog):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        with caplog.at_level(logging.ERROR, "inferd.engine"):
            write(root / "m" / "config.pbtxt", "nonsense")
            for _ in range(3):
                await looked(engine)
                await engine.infer(ask("m", INPUT0=[1]))
                assert engine.readiness.is_ready()
            assert len(caplog.messages) == 1  # it is tried each time, and told once
            write(root / "m" / "config.pbtxt", BROKEN)
            for _ in range(3):
                await looked(engine)
                await engine.infer(ask("m", INPUT0=[1]))
            assert len(caplog.messages) == 2
            write(root / "m" / "config.pbtxt", identity(2))
            await looked(engine)
            await engine.infer(ask("m", INPUT0=[1, 2]))
            assert states(engine) == {("m", "1"): READY}
            assert len(caplog.messages) == 2


@run
async def test_polling_tries_what_failed_again_though_nothing_changed(theirs, repository):
    theirs.failures.extend([OSError("busy"), OSError("busy")])
    async with engine_on(repository(m='backend: "theirs"'), mode="poll") as engine:
        assert not engine.readiness.is_ready()
        await looked(engine)
        assert not engine.readiness.is_ready()
        await looked(engine)
        assert states(engine) == {("m", "1"): READY}
        assert engine.readiness.is_ready()


@run
async def test_a_new_broken_model_is_told_of_and_the_others_go_on(repository, ask):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        repository(n="nonsense", o=BROKEN)
        await looked(engine)
        await engine.infer(ask("m", INPUT0=[1]))
        assert states(engine)["n", ""][0] is None
        assert states(engine)["o", "1"][0] is UNAVAILABLE
        assert not engine.readiness.is_ready()
        (root / "n" / "config.pbtxt").unlink()
        (root / "n" / "1").rmdir()
        (root / "n").rmdir()
        write(root / "o" / "config.pbtxt", identity())
        await looked(engine)
        assert states(engine) == {("m", "1"): READY, ("o", "1"): READY}


@run
async def test_a_model_serves_no_more_when_another_of_its_name_appears(repository, ask, tmp_path):
    root, other = repository(m=identity(), n=identity()), tmp_path / "other"
    other.mkdir()
    async with engine_on(root, other, mode="poll") as engine:
        shutil.copytree(root / "m", other / "m")
        why = (
            UNAVAILABLE,
            "model appears in two or more repositories: 'm' is in 2 places, expected one",
        )
        for _ in range(2):
            await looked(engine)
            assert engine.readiness.is_ready()
            with pytest.raises(ModelNotFound):
                await engine.infer(ask("m", INPUT0=[1]))
            await until(lambda: states(engine) == {("m", "1"): why, ("n", "1"): READY})
        shutil.rmtree(other / "m")
        await looked(engine)
        assert states(engine) == {("m", "1"): READY, ("n", "1"): READY}
        assert engine.readiness.is_ready()


@run
async def test_the_last_requests_of_a_model_that_is_not_unique_any_more_are_answered(
    theirs, repository, ask, tmp_path
):
    root, other = repository(m=IN_THREADS), tmp_path / "other"
    other.mkdir()
    async with engine_on(root, other, mode="poll") as engine:
        theirs.may_execute.clear()
        running = asyncio.create_task(engine.infer(ask("m", A=[1])))
        await until(theirs.executing.is_set)
        shutil.copytree(root / "m", other / "m")
        for _ in range(2):
            await looked(engine)
            assert states(engine) == {("m", "1"): ModelState.UNLOADING}
        theirs.may_execute.set()
        await running


@run
async def test_polling_unloads_nothing_while_the_repository_is_away(repository, ask, caplog):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        root.rename(root.with_name("away"))
        with caplog.at_level(logging.ERROR, "inferd.engine"):
            for _ in range(3):
                await looked(engine)
        assert len(caplog.messages) == 1
        await engine.infer(ask("m", INPUT0=[1]))
        root.with_name("away").rename(root)
        await looked(engine)
        assert states(engine) == {("m", "1"): READY}


@run
async def test_one_model_that_loads_slowly_holds_up_no_other(theirs, repository, ask):
    root = repository(m=identity())
    async with engine_on(root, mode="poll") as engine:
        theirs.may_open.clear()
        repository(slow='backend: "theirs"')
        slow = await engine.control.look()
        assert await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        write(root / "m" / "config.pbtxt", identity(2))
        write(root / "slow" / "config.pbtxt", 'backend: "theirs"\nmax_batch_size: 2')
        await looked(engine)
        await engine.infer(ask("m", INPUT0=[1, 2]))
        theirs.may_open.set()
        await asyncio.gather(*slow)
        assert engine.find("slow", "").config.max_batch_size == 0
        await looked(engine)  # what changed while it loaded
        assert engine.find("slow", "").config.max_batch_size == 2


@run
async def test_a_model_that_is_removed_while_it_loads_goes(theirs, repository, tmp_path):
    root = repository(slow='backend: "theirs"')
    async with engine_on(root, mode="poll") as engine:
        theirs.opening.clear()
        theirs.may_open.clear()
        write(root / "slow" / "config.pbtxt", 'backend: "theirs"\nmax_batch_size: 2')
        slow = await engine.control.look()
        assert await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        (root / "slow").rename(tmp_path / "away")
        await looked(engine)
        theirs.may_open.set()
        await asyncio.gather(*slow)
        await looked(engine)
        await until(lambda: states(engine) == {})


@run
async def test_a_polling_engine_looks_by_itself(repository):
    root = repository(m=identity())
    options = LoadOptions(model_control_mode="poll", repository_poll_secs=0.001)
    engine = Engine(load_options=options)
    await engine.load_all([root])
    repository(n=identity())
    await until(lambda: ("n", "1") in states(engine))
    await engine.close(PATIENCE_S)
