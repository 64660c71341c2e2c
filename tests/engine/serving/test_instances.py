"""More instances, and fewer, of a version that goes on: nothing is lost or begins anew."""

import asyncio
import contextlib
import functools
import os

import numpy as np
import pytest
from fields import with_fields
from patience import PATIENCE_S, until

from inferd.config.options.backends import HostPolicy
from inferd.config.options.cache import LocalCacheSettings
from inferd.core.load import LoadRequest
from inferd.core.request import InferRequest, Sequence
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions
from inferd.errors import LoadFailed
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


def model(groups, more="", backend="theirs"):
    return (
        f'backend: "{backend}" max_batch_size: 8 {more}\n'
        'input { name: "A" data_type: TYPE_FP32 dims: 2 }\n'
        'output { name: "A" data_type: TYPE_FP32 dims: 2 }\n'
    ) + groups


def group(count, name="g", more=""):
    return f'instance_group {{ name: "{name}" count: {count} kind: KIND_CPU {more} }}\n'


def run(test):
    """Return `test`, a coroutine function, as one pytest can run; fixtures come as arguments."""

    @functools.wraps(test)
    def runner(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return runner


@contextlib.asynccontextmanager
async def engine_on(root, mode="explicit", **options):
    options = LoadOptions(
        model_control_mode=mode, load_model=("*",), repository_poll_secs=0, **options
    )
    engine = Engine(load_options=options)
    try:
        await engine.load_all([root])
        yield engine
    finally:
        await engine.close(PATIENCE_S)


class Stage:
    """A model `m` whose configuration changes, and the log of its backend."""

    def __init__(self, repository, theirs, config):
        self.root = repository(m=config)
        self.theirs = theirs

    def write(self, config):
        (self.root / "m" / "config.pbtxt").write_text(config)

    def happened(self, what):
        return [
            name for kind, name in (e for e in self.theirs.log if e != "backend") if kind == what
        ]

    async def closed(self, count):
        """Wait until so many instances have been closed."""
        await until(lambda: len(self.happened("close")) >= count)


@pytest.fixture
def stage(repository, theirs):
    return functools.partial(Stage, repository, theirs)


def executions(engine):
    [row] = engine.whole.statistics("m")
    return row.execution_count


@pytest.mark.parametrize("more", ["", "dynamic_batching {}"])
@run
async def test_more_instances_are_opened_beside_those_there_are(stage, ask, more):
    it = stage(model(group(1), more))
    async with engine_on(it.root) as engine:
        await engine.infer(ask("m", A=[[1, 2]]))
        it.write(model(group(3), more))
        await engine.changes.load(LoadRequest("m"))
        assert it.happened("open") == ["g_0", "g_1", "g_2"]
        assert it.happened("close") == []
        await engine.infer(ask("m", A=[[1, 2]]))
        assert executions(engine) == 2
        [told] = engine.find("m", "").config.instance_group
        assert told.count == 3
    assert len(it.happened("close")) == 3


@pytest.mark.parametrize("more", ["", "dynamic_batching {}", "sequence_batching {}"])
@run
async def test_the_scheduler_knows_which_instances_take_part(stage, more):
    it = stage(model(group(1), more))
    async with engine_on(it.root) as engine:
        for count in (1, 3, 2):
            it.write(model(group(count), more))
            await engine.changes.load(LoadRequest("m"))
            [served] = engine.catalog.served("m")
            await until(lambda served=served, n=count: len(served.scheduler.instances) == n)
            assert served.instances.remote == []


@pytest.mark.parametrize("more", ["", "dynamic_batching {}", "sequence_batching {}"])
@run
async def test_fewer_instances_close_the_others(stage, more):
    it = stage(model(group(3), more))
    async with engine_on(it.root) as engine:
        it.write(model(group(1), more))
        await engine.changes.load(LoadRequest("m"))
        await it.closed(2)
        assert len(it.happened("open")) == 3
        it.write(model(group(2), more))
        await engine.changes.load(LoadRequest("m"))
        assert len(it.happened("open")) == 4
    assert len(it.happened("close")) == 4


@run
async def test_a_first_instance_group_changes_the_count_of_what_was_there(stage, ask):
    it = stage(model(""))
    async with engine_on(it.root) as engine:
        await engine.infer(ask("m", A=[[1, 2]]))
        it.write(model("instance_group { count: 3 kind: KIND_CPU }"))
        await engine.changes.load(LoadRequest("m"))
        assert it.happened("open") == ["m_0", "m_0_1", "m_0_2"]
        assert it.happened("close") == []
        it.write(model(""))
        await engine.changes.load(LoadRequest("m"))
        await it.closed(2)
        assert executions(engine) == 1
        assert len(it.happened("open")) == 3


@run
async def test_polling_changes_counts_as_well(stage, ask):
    it = stage(model(group(1)))
    async with engine_on(it.root, "poll") as engine:
        await engine.infer(ask("m", A=[[1, 2]]))
        it.write(model(group(2)))
        await asyncio.gather(*await engine.control.look())
        assert it.happened("open") == ["g_0", "g_1"]
        assert executions(engine) == 1


@run
async def test_the_same_counts_again_change_nothing(stage):
    it = stage(model(group(2)))
    async with engine_on(it.root) as engine:
        it.write(model(group(2)) + "\n")
        await engine.changes.load(LoadRequest("m"))
        assert (len(it.happened("open")), it.happened("close")) == (2, [])


@run
async def test_requests_without_pause_notice_nothing(stage, ask):
    it = stage(model(group(2), backend="unbounded"))
    async with engine_on(it.root) as engine:
        asked = 0
        is_over = False

        async def client():
            nonlocal asked
            while not is_over:
                await engine.infer(ask("m", A=[[1, 2]]))
                asked += 1

        clients = [asyncio.create_task(client()) for _ in range(8)]
        for count in (4, 1, 3, 1, 2):
            it.write(model(group(count), backend="unbounded"))
            await engine.changes.load(LoadRequest("m"))
            before = asked
            await until(lambda before=before: asked >= before + 50)
        is_over = True
        await asyncio.gather(*clients)
        assert executions(engine) == asked
    assert len(it.happened("open")) == len(it.happened("close"))


@pytest.mark.parametrize(
    "changed",
    [
        model(group(2, "other")),
        model(group(2) + group(1, "h")),
        model(group(2), "version_policy { all {} } parameters { key: 'a' }"),
    ],
)
@run
async def test_any_other_change_loads_the_model_anew(stage, changed):
    it = stage(model(group(1)))
    async with engine_on(it.root) as engine:
        it.write(changed)
        await engine.changes.load(LoadRequest("m"))
        assert it.happened("open")[0] == "g_0"
        await it.closed(1)
        assert executions(engine) == 0


@run
async def test_a_file_that_changed_too_loads_the_model_anew(stage):
    it = stage(model(group(1)))
    async with engine_on(it.root) as engine:
        it.write(model(group(2)))
        (it.root / "m" / "1" / "weights").write_text("new")
        await engine.changes.load(LoadRequest("m"))
        assert it.happened("open") == ["g_0", "g_0", "g_1"]
        await it.closed(1)


POLICY = "host_policy: 'other'"


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "dynamic_batching {}", "sequence_batching {}"])
@pytest.mark.parametrize("backend", ["theirs", "unbounded"])
@run
async def test_fewer_of_one_kind_among_several_close_those_alone(stage, ask, more, backend):
    it = stage(model(group(2) + group(1, "h", POLICY), more, backend))
    async with engine_on(it.root) as engine:
        it.write(model(group(3) + group(1, "h", POLICY), more, backend))
        await engine.changes.load(LoadRequest("m"))
        assert len(it.happened("open")) == 4
        for number in range(8):  # all of them have run
            request = ask("m", A=[[1, 2]])
            request.sequence = Sequence(1 + number, start=True, end=True)
            await engine.infer(request)
        it.write(model(group(1) + group(1, "h", POLICY), more, backend))
        await engine.changes.load(LoadRequest("m"))
        await it.closed(2)
        it.write(model(group(1) + group(2, "h", POLICY), more, backend))
        await engine.changes.load(LoadRequest("m"))
        assert len(it.happened("open")) == 5
        assert all(name.startswith("g") for name in it.happened("close"))
        assert executions(engine) == 8
    assert len(it.happened("close")) == 5


@run
async def test_an_instance_that_cannot_be_opened_leaves_all_as_it_was(stage, theirs, ask):
    it = stage(model(group(1)))
    async with engine_on(it.root) as engine:
        it.write(model(group(3)))
        theirs.failures += [None, RuntimeError("no room")]
        with pytest.raises(LoadFailed, match="no room"):
            await engine.changes.load(LoadRequest("m"))
        assert it.happened("close") == ["g_1"]
        assert engine.find("m", "").config.instance_group[0].count == 1
        await engine.infer(ask("m", A=[[1, 2]]))
        await engine.changes.load(LoadRequest("m"))  # now there is
        assert it.happened("open") == ["g_0", "g_1", "g_1", "g_2"]


@run
async def test_another_version_that_fails_keeps_the_counts_as_they_were(stage, theirs):
    policy = "version_policy { all {} }"
    it = stage(model(group(1), policy))
    async with engine_on(it.root) as engine:
        (it.root / "m" / "2").mkdir()
        it.write(model(group(2), policy))
        theirs.failures.append(RuntimeError("broken"))
        with pytest.raises(LoadFailed, match=r"version 2.*broken"):
            await engine.changes.load(LoadRequest("m"))
        await it.closed(1)
        assert it.happened("open") == ["g_0", "g_1"]
        assert engine.find("m", "").config.instance_group[0].count == 1


@run
async def test_new_instances_are_warmed_up(stage, theirs):
    warm = (
        "model_warmup { name: 'w' batch_size: 1 inputs { key: 'A' value { data_type: TYPE_FP32 "
        "dims: 2 zero_data: true } } }"
    )
    it = stage(model(group(1), warm))
    async with engine_on(it.root) as engine:
        assert len(theirs.on_loop) == 1
        it.write(model(group(3), warm))
        await engine.changes.load(LoadRequest("m"))
        assert len(theirs.on_loop) == 3


def of_sequence(number, *, start=False, end=False):
    tensor = Tensor.from_numpy("A", np.array([[1, 2]], np.float32), DataType.FP32)
    return with_fields(InferRequest("m", inputs=[tensor]), sequence=Sequence(number, start, end))


@run
async def test_sequences_go_on_while_instances_come_and_go(stage):
    config = (
        "sequence_batching { max_sequence_idle_microseconds: 60000000 "
        "oldest { max_candidate_sequences: 1 } }"
    )
    it = stage(model(group(2), config))
    async with engine_on(it.root) as engine:
        for number in (1, 2):
            await engine.infer(of_sequence(number, start=True))
        third = asyncio.create_task(engine.infer(of_sequence(3, start=True)))
        it.write(model(group(3), config))
        await engine.changes.load(LoadRequest("m"))
        await third  # it waited for a slot
        it.write(model(group(1), config))
        await engine.changes.load(LoadRequest("m"))
        assert it.happened("close") == []
        for number in (1, 2, 3):
            await engine.infer(of_sequence(number))
        for number in (3, 2, 1):
            await engine.infer(of_sequence(number, end=True))
        await it.closed(2)
        await engine.infer(of_sequence(4, start=True, end=True))
        assert executions(engine) == 10


@run
async def test_a_cached_model_keeps_its_answers(stage, ask):
    kept = "response_cache { enable: true }"
    it = stage(model(group(1), kept))
    async with engine_on(it.root, cache=LocalCacheSettings(1 << 20)) as engine:
        await engine.infer(ask("m", A=[[1, 2]]))
        it.write(model(group(2), kept))
        await engine.changes.load(LoadRequest("m"))
        await engine.infer(ask("m", A=[[1, 2]]))
        assert executions(engine) == 1
        assert len(it.happened("open")) == 2


# --- the processors they work on ---

ONE_CORE = frozenset({min(os.sched_getaffinity(0))})


@pytest.mark.parametrize(
    ("policy", "more"), [("cpu", ""), ("mine", "host_policy: 'mine'")], ids=["default", "named"]
)
@run
async def test_instances_are_opened_and_run_on_the_processors_of_their_policy(
    stage, theirs, ask, policy, more
):
    it = stage(model(group(1, more=more), backend="unbounded"))
    where = []
    execute = theirs.Instance.execute

    def execute_and_look(self, requests):
        where.append(os.sched_getaffinity(0))
        return execute(self, requests)

    theirs.Instance.execute = execute_and_look
    theirs.cores = []
    policies = {policy: HostPolicy(ONE_CORE)}
    async with engine_on(it.root, host_policies=policies) as engine:
        await engine.infer(ask("m", A=[[1, 2]]))
        it.write(model(group(2, more=more), backend="unbounded"))
        await engine.changes.load(LoadRequest("m"))
        await asyncio.gather(*(engine.infer(ask("m", A=[[1, 2]])) for _ in range(8)))
    assert {frozenset(cores) for cores in where} == {ONE_CORE}
    assert theirs.cores == [ONE_CORE, ONE_CORE]
    assert os.sched_getaffinity(0) >= ONE_CORE


@run
async def test_a_policy_nobody_gave_is_told_and_has_no_effect(stage, ask, caplog):
    it = stage(model(group(1, more="host_policy: 'theirs'")))
    async with engine_on(it.root, host_policies={"cpu": HostPolicy(ONE_CORE)}) as engine:
        await engine.infer(ask("m", A=[[1, 2]]))
    assert "no --host-policy is called 'theirs'" in caplog.text


@run
async def test_another_policy_loads_the_model_anew(stage):
    it = stage(model(group(1)))
    async with engine_on(it.root) as engine:
        it.write(model(group(1, more="host_policy: 'mine'")))
        await engine.changes.load(LoadRequest("m"))
        assert it.happened("open") == ["g_0", "g_0"]
