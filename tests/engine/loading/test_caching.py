"""The response cache under whole models: who has one, what empties it, and ensembles."""

import asyncio
import contextlib
import functools
import os

import pytest

from inferd.config.options.cache import LocalCacheSettings, RedisCacheSettings
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions
from inferd.engine.whole import Sum
from inferd.errors import InvalidRequest, LoadFailed

PATIENCE_S = 30
CACHE = LocalCacheSettings(1 << 20)
KEPT = "response_cache { enable: true }"
ROWS = [[1, 2], [3, 4]]


def identity(more="", backend="identity"):
    return (
        f'backend: "{backend}" max_batch_size: 8 {more}\n'
        'input { name: "X" data_type: TYPE_FP32 dims: 2 }\n'
        'output { name: "Y" data_type: TYPE_FP32 dims: 2 }\n'
    )


def ensemble(*models, more=KEPT):
    """Return an ensemble that puts its input through `models`, one after the other."""
    tensors = ["X", *(f"t{number}" for number in range(1, len(models))), "Y"]
    steps = "".join(
        f'step {{ model_name: "{model}" model_version: -1 '
        f'input_map {{ key: "X" value: "{reads}" }} output_map {{ key: "Y" value: "{writes}" }} }}'
        for model, reads, writes in zip(models, tensors[:-1], tensors[1:], strict=True)
    )
    return (
        f'platform: "ensemble" max_batch_size: 8 {more}\n'
        'input { name: "X" data_type: TYPE_FP32 dims: 2 }\n'
        'output { name: "Y" data_type: TYPE_FP32 dims: 2 }\n'
        f"ensemble_scheduling {{ {steps} }}"
    )


def run(test):
    """Return `test`, a coroutine function, as one pytest can run; fixtures come as arguments."""

    @functools.wraps(test)
    def runner(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return runner


@contextlib.asynccontextmanager
async def engine_on(root, cache=CACHE, mode="explicit", models=("*",), **more):
    options = LoadOptions(model_control_mode=mode, load_model=models, cache=cache, **more)
    engine = Engine(load_options=options)
    try:
        await engine.load_all([root])
        yield engine
    finally:
        await engine.close(PATIENCE_S)


class Numbers:
    """What the statistics of a model say."""

    def __init__(self, engine, name="m"):
        [row] = engine.whole.statistics(name)
        stats = row.inference_stats
        self.answered = stats.success.count
        self.executed = row.execution_count
        self.hits = stats.cache_hit.count
        self.misses = stats.cache_miss.count


def told(engine):
    families = [family for family in engine.whole.families() if family.name.startswith("nv_cache")]
    return {family.name: family.samples[0][1] for family in families}


@run
async def test_a_model_that_wants_it_answers_from_the_cache(repository, ask):
    async with engine_on(repository(m=identity(KEPT))) as engine:
        for number in range(3):
            request = ask("m", X=ROWS)
            request.id = f"id {number}"
            answer = await engine.infer(request)
            assert (answer.model, answer.version, answer.id) == ("m", "1", f"id {number}")
            assert answer.outputs[0].numpy().tolist() == ROWS
        numbers = Numbers(engine)
        assert (numbers.answered, numbers.executed) == (3, 1)
        assert (numbers.hits, numbers.misses) == (2, 1)
        assert told(engine)["nv_cache_num_hits"] == 2
        assert next(Sum(engine.whole).observed()).is_cached


@run
async def test_a_model_that_does_not_want_it_runs_each_time(repository, ask):
    async with engine_on(repository(m=identity())) as engine:
        for _ in range(2):
            await engine.infer(ask("m", X=ROWS))
        numbers = Numbers(engine)
        assert (numbers.executed, numbers.hits, numbers.misses) == (2, 0, 0)
        assert not next(Sum(engine.whole).observed()).is_cached


@run
async def test_without_a_cache_on_the_server_the_model_loads_and_runs_each_time(repository, ask):
    async with engine_on(repository(m=identity(KEPT)), cache=None) as engine:
        for _ in range(2):
            await engine.infer(ask("m", X=ROWS))
        assert Numbers(engine).executed == 2
        assert told(engine) == {}


@run
async def test_a_hit_waits_in_no_queue(repository, ask):
    slow = "dynamic_batching { max_queue_delay_microseconds: 50000 }"
    async with engine_on(repository(m=identity(f"{KEPT} {slow}"))) as engine:
        await engine.infer(ask("m", X=ROWS))
        answering = engine.infer(ask("m", X=ROWS))
        with pytest.raises(StopIteration):
            answering.send(None)
        assert Numbers(engine).hits == 1


@run
async def test_requests_of_one_batch_are_kept_one_by_one(repository, ask):
    batching = "dynamic_batching { preferred_batch_size: 2 max_queue_delay_microseconds: 9000000 }"
    async with engine_on(repository(m=identity(f"{KEPT} {batching}"))) as engine:
        for _ in range(2):
            both = await asyncio.gather(*(engine.infer(ask("m", X=[row])) for row in ROWS))
            assert [answer.outputs[0].numpy().tolist() for answer in both] == [[r] for r in ROWS]
        numbers = Numbers(engine)
        assert (numbers.executed, numbers.hits, numbers.misses) == (1, 2, 2)


@run
async def test_a_failing_model_fails_each_time(repository, ask):
    fault = 'parameters { key: "fault" value: { string_value: "raise" } }'
    async with engine_on(repository(m=identity(KEPT + fault, "faulty"))) as engine:
        for _ in range(2):
            with pytest.raises(Exception, match="m"):
                await engine.infer(ask("m", X=ROWS))
        assert Numbers(engine).misses == 2


@run
async def test_loading_a_changed_model_empties_its_cache(repository, ask):
    root = repository(m=identity(KEPT))
    async with engine_on(root) as engine:
        await engine.infer(ask("m", X=ROWS))
        (root / "m" / "1" / "changed").write_text("x")
        await engine.changes.load(LoadRequest("m"))
        assert told(engine)["nv_cache_num_entries"] == 0
        await engine.infer(ask("m", X=ROWS))
        numbers = Numbers(engine)
        assert (numbers.executed, numbers.hits, numbers.misses) == (1, 0, 1)


@run
async def test_unloading_empties_the_cache_of_that_model_alone(repository, ask):
    async with engine_on(repository(m=identity(KEPT), other=identity(KEPT))) as engine:
        await engine.infer(ask("m", X=ROWS))
        await engine.infer(ask("other", X=ROWS))
        await engine.changes.unload(UnloadRequest("m"))
        async with asyncio.timeout(PATIENCE_S):
            while told(engine)["nv_cache_num_entries"] != 1:  # noqa: ASYNC110  it ends by itself
                await asyncio.sleep(0)
        await engine.infer(ask("other", X=ROWS))
        assert Numbers(engine, "other").hits == 1


@run
async def test_versions_have_answers_of_their_own(repository, ask):
    root = repository(1, 2, m=identity(f"{KEPT} version_policy {{ all {{}} }}"))
    async with engine_on(root) as engine:
        for version in ("1", "2"):
            await engine.infer(ask("m", version, X=ROWS))
        assert [row.inference_stats.cache_miss.count for row in engine.whole.statistics("m")] == [
            1,
            1,
        ]


@run
async def test_the_end_of_the_server_empties_the_cache(repository, ask):
    async with engine_on(repository(m=identity(KEPT))) as engine:
        await engine.infer(ask("m", X=ROWS))
    assert told(engine)["nv_cache_num_entries"] == 0


# --- ensembles ---


@run
async def test_a_step_answers_from_its_cache(repository, ask):
    root = repository(a=identity(KEPT), e=ensemble("a", more=""))
    async with engine_on(root) as engine:
        for _ in range(2):
            answer = await engine.infer(ask("e", X=ROWS))
            assert answer.outputs[0].numpy().tolist() == ROWS
        assert (Numbers(engine, "a").hits, Numbers(engine, "a").executed) == (1, 1)
        assert (Numbers(engine, "e").hits, Numbers(engine, "e").executed) == (0, 2)


@run
async def test_an_ensemble_that_answers_from_its_cache_runs_no_step(repository, ask):
    root = repository(a=identity(), b=identity(), e=ensemble("a", "b"))
    async with engine_on(root) as engine:
        for _ in range(2):
            answer = await engine.infer(ask("e", X=ROWS))
            assert (answer.model, answer.outputs[0].name) == ("e", "Y")
            assert answer.outputs[0].numpy().tolist() == ROWS
        assert (Numbers(engine, "e").hits, Numbers(engine, "e").answered) == (1, 2)
        assert Numbers(engine, "a").executed == Numbers(engine, "b").executed == 1


@run
async def test_an_ensemble_forgets_at_the_moment_a_step_is_another(repository, ask):
    root = repository(a=identity(), inner=ensemble("a", more=""), e=ensemble("inner"))
    async with engine_on(root) as engine:
        await engine.infer(ask("e", X=ROWS))
        (root / "a" / "1" / "changed").write_text("x")
        await engine.changes.load(LoadRequest("a"))
        await engine.infer(ask("e", X=ROWS))  # nothing has waited for the ensembles
        assert Numbers(engine, "a").executed == 1


@run
async def test_a_cached_ensemble_may_be_a_step(repository, ask):
    root = repository(a=identity(), inner=ensemble("a"), e=ensemble("inner", "inner"))
    async with engine_on(root) as engine:
        await engine.infer(ask("e", X=ROWS))
        assert Numbers(engine, "inner").hits == 1
        assert Numbers(engine, "a").executed == 1


@run
async def test_an_ensemble_with_a_decoupled_step_keeps_no_answers(repository):
    repeat = (
        'backend: "repeat" model_transaction_policy { decoupled: true }\n'
        'input { name: "IN" data_type: TYPE_INT32 dims: -1 }\n'
        'input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }\n'
        'input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }\n'
        'output { name: "OUT" data_type: TYPE_INT32 dims: 1 }\n'
        'output { name: "IDX" data_type: TYPE_UINT32 dims: 1 }\n'
    )
    names = ("IN", "DELAY", "WAIT")
    inputs = "".join(f'input_map {{ key: "{name}" value: "{name}" }}' for name in names)
    declared = "\n".join(
        line for line in repeat.splitlines() if line.startswith(("input", "output"))
    )
    outer = (
        f'platform: "ensemble" {KEPT}\n{declared}\nensemble_scheduling {{ step {{ '
        f'model_name: "r" model_version: -1 {inputs} output_map {{ key: "OUT" value: "OUT" }} '
        f'output_map {{ key: "IDX" value: "IDX" }} }} }}'
    )
    async with engine_on(repository(r=repeat, e=outer), models=("r",)) as engine:
        with pytest.raises(LoadFailed, match="response_cache does not go with a decoupled"):
            await engine.changes.load(LoadRequest("e"))
        with pytest.raises(InvalidRequest):
            engine.whole.statistics("e")


# --- a cache that servers share ---


@pytest.fixture
def shared_cache(redis_server):
    """The settings of a Redis cache."""
    return RedisCacheSettings("127.0.0.1", redis_server().port, socket_timeout_s=10.0)


async def stored(engine, request):
    """Ask, and wait until a server that asks next finds the answer."""
    answer = await engine.infer(request)
    await engine._store.close()
    return answer


@run
async def test_servers_with_the_same_model_share_answers(repository, ask, shared_cache):
    root = repository(m=identity(KEPT))
    async with engine_on(root, shared_cache) as one, engine_on(root, shared_cache) as other:
        await stored(one, ask("m", X=ROWS))
        answer = await other.infer(ask("m", X=ROWS))
        assert answer.outputs[0].numpy().tolist() == ROWS
        assert (Numbers(other).hits, Numbers(other).executed) == (1, 0)


@run
async def test_a_server_that_starts_again_finds_what_it_kept(repository, ask, shared_cache):
    root = repository(m=identity(KEPT))
    for hits in (0, 1):
        async with engine_on(root, shared_cache) as engine:
            await engine.infer(ask("m", X=ROWS))
            assert Numbers(engine).hits == hits


@run
async def test_a_changed_model_finds_nothing_that_was_kept(repository, ask, shared_cache):
    root = repository(m=identity(KEPT))
    async with engine_on(root, shared_cache) as engine:
        await stored(engine, ask("m", X=ROWS))
        (root / "m" / "1" / "changed").write_text("x")
        await engine.changes.load(LoadRequest("m"))
        await engine.infer(ask("m", X=ROWS))
        assert Numbers(engine).hits == 0


TIMES = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(one, "X").as_numpy() for one in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", one * FACTOR)]) for one in rows]
"""


@pytest.mark.slow
@run
async def test_a_model_of_another_python_based_backend_finds_nothing_that_was_kept(
    repository, ask, shared_cache, tmp_path
):
    root = repository(m=identity(KEPT, backend="times"))
    for folder, factor in (("two", 2), ("three", 3)):
        (tmp_path / folder / "times").mkdir(parents=True)
        text = TIMES.replace("FACTOR", str(factor))
        (tmp_path / folder / "times" / "model.py").write_text(text)
    places = [str(tmp_path / folder) for folder in ("two", "three", "two")]
    answers, hits = [], []
    for place in places:
        async with engine_on(root, shared_cache, backend_directory=place) as engine:
            answer = await stored(engine, ask("m", X=ROWS))
            answers.append(answer.outputs[0].numpy().tolist()[0])
            hits.append(Numbers(engine).hits)
    assert answers == [[2, 4], [3, 6], [2, 4]]
    assert hits == [0, 0, 1]


@run
async def test_an_ensemble_shares_its_answers_while_its_steps_are_the_same(
    repository, ask, shared_cache
):
    root = repository(a=identity(), e=ensemble("a"))
    async with engine_on(root, shared_cache) as one, engine_on(root, shared_cache) as other:
        await stored(one, ask("e", X=ROWS))
        await other.infer(ask("e", X=ROWS))
        assert (Numbers(other, "e").hits, Numbers(other, "a").executed) == (1, 0)
        (root / "a" / "1" / "changed").write_text("x")
        await other.changes.load(LoadRequest("a"))
        await other.infer(ask("e", X=ROWS))
        assert Numbers(other, "a").executed == 1


@run
async def test_a_model_whose_files_cannot_be_read_serves_without_a_cache(
    repository, ask, shared_cache, caplog
):
    root = repository(m=identity(KEPT))
    os.mkfifo(root / "m" / "1" / "pipe")
    async with engine_on(root, shared_cache) as engine:
        await engine.infer(ask("m", X=ROWS))
        assert (Numbers(engine).executed, Numbers(engine).misses) == (1, 0)
    assert "answers of model 'm' are not kept" in caplog.text
