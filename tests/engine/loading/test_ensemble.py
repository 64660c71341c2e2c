"""Ensembles of loaded models: what loading checks, and what asking them gives."""

import asyncio
import contextlib
import functools

import numpy as np
import pytest
from patience import PATIENCE_S, until

from inferd.config.options.cache import LocalCacheSettings
from inferd.config.pbtxt import to_json
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import ModelState
from inferd.core.request import InferRequest, Sequence, WantedOutput
from inferd.engine.engine import Engine
from inferd.engine.loading import ensemble as ensemble_module
from inferd.engine.loading.load import LoadOptions
from inferd.engine.whole import Sum
from inferd.errors import (
    BackendFailed,
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    NotLoadable,
    Unsupported,
)
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

INT32 = DataType.INT32


def puts(kind, name, datatype="FP32", dims="2", more=""):
    return f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: [ {dims} ] {more} }}\n'


def identity(datatype="FP32", dims="2", more="max_batch_size: 8", label=""):
    inside = f'label_filename: "{label}"' if label else ""
    return (
        f'backend: "identity"\n{more}\n'
        f"{puts('input', 'INPUT0', datatype, dims)}"
        f"{puts('output', 'OUTPUT0', datatype, dims, inside)}"
    )


def step(model, reads, writes, version=-1):
    number = "" if version is None else f"model_version: {version}"
    return (
        f'step {{ model_name: "{model}" {number} input_map {{ key: "INPUT0" value: "{reads}" }} '
        f'output_map {{ key: "OUTPUT0" value: "{writes}" }} }}\n'
    )


def ensemble(*steps, more="max_batch_size: 8"):
    return (
        f'platform: "ensemble"\n{more}\n{puts("input", "X")}{puts("output", "Y")}'
        f"ensemble_scheduling {{\n{''.join(steps)}}}"
    )


@contextlib.asynccontextmanager
async def engine_on(root, mode="none", **options):
    options = LoadOptions(model_control_mode=mode, repository_poll_secs=0, **options)
    engine = Engine(load_options=options)
    try:
        await engine.load_all([root])
        yield engine
    finally:
        await engine.close(PATIENCE_S)


def run(test):
    """Return `test`, a coroutine function, as one pytest can run; fixtures come as arguments."""

    @functools.wraps(test)
    def runner(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return runner


def reason(engine, name="e"):
    return next(row.reason for row in engine.catalog.index() if row.name == name)


def nested(first, inner):
    called = f'step {{ model_name: "{inner}" model_version: -1 input_map {{ key: "X" value: "t" }} '
    return ensemble(step(first, "X", "t"), called + 'output_map { key: "Y" value: "Y" } }')


ROWS = [[1, 2], [3, 4]]


@run
async def test_an_ensemble_answers_and_says_what_it_is(repository, ask):
    root = repository(
        a=identity(), b=identity(), e=ensemble(step("b", "t", "Y"), step("a", "X", "t"))
    )
    async with engine_on(root) as engine:
        answer = await engine.infer(ask("e", X=ROWS))
        assert (answer.model, answer.version, answer.id) == ("e", "1", "an id")
        [output] = answer.outputs
        assert (output.name, output.numpy().tolist()) == ("Y", ROWS)
        assert engine.catalog.metadata("e", "").platform == "ensemble"
        assert not engine.is_decoupled("e", "")
        shown = to_json(engine.find("e", "").config)
        assert shown["model_transaction_policy"] == {"decoupled": False}
        assert engine.readiness.is_ready()


URGENT_FIRST = (
    "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 20000 "
    "priority_levels: 2 default_priority_level: 2 }"
)
SLOW = 'max_batch_size: 8 parameters { key: "execute_delay_ms" value: { string_value: "50" } }'
WITH_SEQUENCES = "max_batch_size: 8 sequence_batching { direct { } }"


@pytest.mark.parametrize("is_nested", [False, True])
@run
async def test_requests_of_a_sequence_do_not_overtake_each_other(repository, ask, is_nested):
    models = {
        "a": identity(more=URGENT_FIRST),
        "s": identity(more=WITH_SEQUENCES),
        "e": ensemble(step("a", "X", "t"), step("s", "t", "Y")),
    }
    if is_nested:
        models |= {"i": ensemble(step("s", "X", "Y")), "e": nested("a", "i")}
    async with engine_on(repository(**models)) as engine:
        requests = [ask("e", X=[[n, n]]) for n in range(3)]
        for n, request in enumerate(requests):
            request.sequence = Sequence(7, start=n == 0, end=n == 2)
            request.priority = 1 if n else 2  # which lets those that follow go first at "a"
        answers = await asyncio.gather(*map(engine.infer, requests))
        assert [one.outputs[0].numpy().tolist() for one in answers] == [[[n, n]] for n in range(3)]


@run
async def test_an_onnx_model_is_a_step_like_any_other(repository, onnx_sum, ask):
    two = (
        'step { model_name: "sum" model_version: -1 input_map { key: "A" value: "t" } '
        'input_map { key: "B" value: "X" } output_map { key: "Y" value: "Y" } }'
    )
    root = repository(a=identity(), e=ensemble(two, step("a", "X", "t"), more="max_batch_size: 4"))
    onnx_sum()
    async with engine_on(root) as engine:
        answer = await engine.infer(ask("e", X=ROWS))
        assert answer.outputs[0].numpy().tolist() == [[2, 4], [6, 8]]


@run
async def test_the_ensemble_and_each_step_count_for_themselves(repository, ask):
    root = repository(a=identity(), e=ensemble(step("a", "X", "t"), step("a", "t", "Y")))
    async with engine_on(root) as engine:
        await engine.infer(ask("e", X=ROWS))
        a, e = engine.whole.statistics()
        assert (a.name, a.inference_count, a.execution_count) == ("a", 4, 2)
        assert (e.name, e.inference_count, e.execution_count) == ("e", 2, 1)
        assert e.inference_stats.success.count == 1
        assert e.inference_stats.success.ns >= a.inference_stats.success.ns > 0


@run
async def test_a_failure_is_counted_where_it_happens_and_above(repository, ask):
    fault = 'parameters { key: "fault" value: { string_value: "raise" } }'
    failing = identity(more=f"max_batch_size: 8 {fault}").replace("identity", "faulty")
    root = repository(
        a=identity(), bad=failing, e=ensemble(step("a", "X", "t"), step("bad", "t", "Y"))
    )
    async with engine_on(root) as engine:
        with pytest.raises(BackendFailed, match=r"^in ensemble 'e', .*; step 1 \(model 'bad'\): "):
            await engine.infer(ask("e", X=ROWS))
        fails = {row.name: row.inference_stats.fail.count for row in engine.whole.statistics()}
        assert fails == {"a": 0, "bad": 1, "e": 1}
        reasons = {one.name: one.counts.fail_counts for one in Sum(engine.whole).observed()}
        assert (reasons["bad"]["BACKEND"], reasons["e"]["BACKEND"]) == (1, 0)
        assert reasons["e"]["OTHER"] == 1


@run
async def test_classes_have_the_labels_of_the_step_that_gives_the_scores(repository, ask):
    root = repository(
        a=identity(label="labels.txt"),
        b=identity(),
        e=ensemble(step("b", "X", "t"), step("a", "t", "Y")),
    )
    (root / "a" / "labels.txt").write_text("ant\nbee\n")
    async with engine_on(root) as engine:
        request = ask("e", X=ROWS)
        request.outputs = [WantedOutput("Y", top_k=1)]
        answer = await engine.infer(request)
        assert answer.outputs[0].strings() == [b"2.000000:1:bee", b"4.000000:1:bee"]


@run
async def test_a_batch_that_does_not_fit_is_refused_before_any_step(repository, ask):
    root = repository(a=identity(), e=ensemble(step("a", "X", "Y")))
    async with engine_on(root) as engine:
        with pytest.raises(InvalidRequest, match="batch-size must be <= 8 for 'e'"):
            await engine.infer(ask("e", X=[[1, 2]] * 9))
        assert engine.whole.statistics("a")[0].execution_count == 0


@run
async def test_a_variable_batch_that_a_step_does_not_take_names_the_step(repository, ask):
    whole = ensemble(step("a", "X", "Y"), more="").replace("dims: [ 2 ]", "dims: [ -1, 2 ]")
    root = repository(a=identity(), e=whole)
    async with engine_on(root) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.infer(ask("e", X=[[1, 2]] * 9))
        assert caught.value.message == (
            "in ensemble 'e', inference request batch-size must be <= 8 for 'a', that of input "
            "'INPUT0' is 9; step 0 (model 'a'): input 'INPUT0' is tensor 'X', FP32 [9, 2]"
        )


# --- what loading checks ---


@pytest.mark.parametrize(
    ("called", "text"),
    [
        (
            step("a", "X", "Y", version=9),
            ", step 0: Request for unknown model: 'a' version 9 is not found, known versions: 1",
        ),
        (
            step("a", "X", "Y", version=None),
            ", step 0: Request for unknown model: 'a' version 0 is not found, known versions: 1; "
            "a model_version that is left out means 0, write -1 for the latest",
        ),
        (
            step("a", "X", "t") + step("integers", "t", "Y"),
            ": datatypes differ: step 0 (model 'a') output 'OUTPUT0', FP32 [-1, 2] → tensor 't' → "
            "step 1 (model 'integers') input 'INPUT0', INT32 [-1, 2]",
        ),
    ],
)
@run
async def test_what_does_not_fit_is_the_reason_in_the_index(repository, called, text):
    root = repository(a=identity(), integers=identity("INT32"), e=ensemble(called))
    async with engine_on(root) as engine:
        assert reason(engine) == f"ensemble 'e'{text}"
        assert not engine.readiness.is_ready()


@run
async def test_a_version_that_is_named_is_the_one_that_runs(repository, ask):
    both = identity(more="max_batch_size: 8\nversion_policy { all {} }")
    root = repository(1, 2, a=both)
    repository(e=ensemble(step("a", "X", "Y", version=1)))
    async with engine_on(root) as engine:
        await engine.infer(ask("e", X=ROWS))
        counts = {row.version: row.execution_count for row in engine.whole.statistics("a")}
        assert counts == {"1": 1, "2": 0}


# --- what changes below an ensemble ---


@run
async def test_a_reloaded_step_is_the_one_that_runs(repository, ask):
    root = repository(a=identity(), e=ensemble(step("a", "X", "Y")))
    async with engine_on(root, "explicit") as engine:
        await engine.changes.load(LoadRequest("e"))
        (root / "a" / "2").mkdir()
        await engine.changes.load(LoadRequest("a"))
        assert (await engine.infer(ask("e", X=ROWS))).outputs[0].numpy().tolist() == ROWS
        [two] = engine.whole.statistics("a")
        assert (two.version, two.execution_count) == ("2", 1)


@pytest.mark.parametrize("cache", [None, LocalCacheSettings(1 << 20)])
@run
async def test_requests_of_a_sequence_keep_their_order_while_a_step_is_reloaded(
    repository, ask, cache
):
    root = repository(
        a=identity(more=SLOW.replace("50", "100")),
        s=identity(more=WITH_SEQUENCES),
        e=ensemble(
            step("a", "X", "t"),
            step("s", "t", "Y"),
            more="max_batch_size: 8 response_cache { enable: true }",
        ),
    )
    async with engine_on(root, "explicit", cache=cache) as engine:
        await engine.changes.load(LoadRequest("e"))
        one, two = ask("e", X=[[1, 1]]), ask("e", X=[[2, 2]])
        one.sequence, two.sequence = Sequence(7, start=True), Sequence(7, end=True)
        asked = asyncio.create_task(engine.infer(one))
        await asyncio.sleep(0)
        (root / "a" / "config.pbtxt").write_text(identity())
        await engine.changes.load(LoadRequest("a"))
        assert (await engine.infer(two)).outputs[0].numpy().tolist() == [[2, 2]]
        assert asked.done()
        await asked


@run
async def test_a_reloaded_step_that_does_not_fit_takes_the_ensemble_down_and_back(repository, ask):
    root = repository(
        a=identity(), e=ensemble(step("a", "X", "Y")), f=ensemble(step("e", "X", "Y"))
    )
    (root / "f" / "config.pbtxt").write_text(
        ensemble(step("e", "X", "Y")).replace("INPUT0", "X").replace("OUTPUT0", "Y")
    )
    async with engine_on(root, "explicit") as engine:
        await engine.changes.load(LoadRequest("f"))
        assert engine.catalog.names() == ["a", "e", "f"]
        (root / "a" / "config.pbtxt").write_text(identity("INT32", more="max_batch_size: 4"))
        await engine.changes.load(LoadRequest("a"))
        await until(lambda: engine.catalog.names() == ["a"])
        await until(lambda: "takes batches of at most 4" in reason(engine))
        with pytest.raises(ModelNotFound, match="takes batches of at most 4"):
            await engine.infer(ask("e", X=ROWS))
        (root / "a" / "config.pbtxt").write_text(identity(more="max_batch_size: 16"))
        await engine.changes.load(LoadRequest("a"))
        await until(lambda: engine.catalog.names() == ["a", "e", "f"])
        assert (await engine.infer(ask("f", X=ROWS))).outputs[0].numpy().tolist() == ROWS


@run
async def test_an_ensemble_sent_by_a_client_stays_what_was_sent(repository, ask):
    root = repository(a=identity(), e=ensemble(step("a", "X", "t"), step("a", "t", "Y")))
    async with engine_on(root, "explicit") as engine:
        sent = (
            '{"platform": "ensemble", "max_batch_size": 1, '
            '"input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}], '
            '"output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [2]}], '
            '"ensemble_scheduling": {"step": [{"model_name": "a", "model_version": -1, '
            '"input_map": {"INPUT0": "X"}, "output_map": {"OUTPUT0": "Y"}}]}}'
        )
        await engine.changes.load(LoadRequest("a"))
        await engine.changes.load(LoadRequest("e", config=sent))
        (root / "a" / "2").mkdir()
        await engine.changes.load(LoadRequest("a"))
        await until(lambda: engine.catalog.metadata("a", "").versions == ["2"])
        assert engine.find("e", "").config.max_batch_size == 1
        await engine.changes.unload(UnloadRequest("a"))
        assert engine.catalog.names() == []
        await engine.changes.load(LoadRequest("a"))
        await until(lambda: engine.catalog.names() == ["a", "e"])
        assert engine.find("e", "").config.max_batch_size == 1
        await engine.infer(ask("e", X=[[1, 2]]))
        await engine.changes.load(LoadRequest("e"))
        assert engine.find("e", "").config.max_batch_size == 8
        await engine.changes.unload(UnloadRequest("a"))
        await engine.changes.load(LoadRequest("a"))
        await until(lambda: engine.catalog.names() == ["a", "e"])
        assert engine.find("e", "").config.max_batch_size == 8


@run
async def test_an_unloaded_step_is_the_reason_the_ensemble_is_not_ready(repository, ask):
    root = repository(a=identity(), e=ensemble(step("a", "X", "Y")))
    async with engine_on(root, "explicit") as engine:
        await engine.changes.load(LoadRequest("e"))
        await engine.changes.unload(UnloadRequest("a"))
        assert not engine.catalog.is_ready("e", "")
        await until(lambda: engine.catalog.index()[1].state is ModelState.UNAVAILABLE)
        assert reason(engine) == "model 'a', which it calls, is unloaded"
        with pytest.raises(ModelNotFound, match="'a', which it calls, is unloaded"):
            await engine.infer(ask("e", X=ROWS))


@run
async def test_a_step_is_unloaded_after_the_ensemble_that_loads_with_it(repository, theirs):
    other = 'backend: "theirs" ' + identity().partition("\n")[2]
    root = repository(a=identity(), b=other, e=ensemble(step("a", "X", "t"), step("b", "t", "Y")))
    theirs.may_open.clear()
    async with engine_on(root, "explicit") as engine:
        loading = asyncio.create_task(engine.changes.load(LoadRequest("e")))
        await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        unloading = asyncio.create_task(engine.changes.unload(UnloadRequest("a")))
        await asyncio.wait((unloading,), timeout=0.05)
        assert "a" in engine.catalog.names()
        theirs.may_open.set()
        await loading
        await unloading
        assert engine.catalog.names() == ["b"]
        assert reason(engine) == "model 'a', which it calls, is unloaded"


@pytest.mark.parametrize("mode", ["explicit", "poll"])
@run
async def test_requests_under_way_keep_the_steps_they_still_need(repository, ask, tmp_path, mode):
    root = repository(
        a=identity(more=SLOW), b=identity(), e=ensemble(step("a", "X", "t"), step("b", "t", "Y"))
    )
    async with engine_on(root, mode) as engine:
        if mode == "explicit":
            await engine.changes.load(LoadRequest("e"))
        asked = asyncio.create_task(engine.infer(ask("e", X=ROWS)))
        await asyncio.sleep(0)
        if mode == "explicit":
            await engine.changes.unload(UnloadRequest("b"))
        else:
            (root / "b").rename(tmp_path / "away")
            await asyncio.gather(*await engine.control.look())
        assert engine.catalog.names() == ["a"]
        assert (await asked).outputs[0].numpy().tolist() == ROWS


@pytest.mark.parametrize("with_steps", [True, False])
@run
async def test_requests_under_way_keep_the_steps_of_an_ensemble_that_is_unloaded(
    repository, ask, with_steps
):
    inner = ensemble(step("a", "X", "t"), step("b", "t", "Y"))
    outer = ensemble(step("e", "X", "t"), step("c", "t", "Y"))
    outer = outer.replace("INPUT0", "X", 1).replace("OUTPUT0", "Y", 1)
    root = repository(a=identity(more=SLOW), b=identity(), c=identity(), e=inner, f=outer)
    async with engine_on(root, "explicit") as engine:
        await engine.changes.load(LoadRequest("f"))
        asked = asyncio.create_task(engine.infer(ask("f", X=ROWS)))
        await asyncio.sleep(0)
        await engine.changes.unload(UnloadRequest("f", unload_dependents=with_steps))
        for name in "cba" if not with_steps else "":
            await engine.changes.unload(UnloadRequest(name))
        assert engine.catalog.names() == []
        assert (await asked).outputs[0].numpy().tolist() == ROWS


@run
async def test_a_step_that_is_a_link_out_of_the_repository_is_not_loaded(repository, tmp_path):
    root = repository(a=identity(), e=ensemble(step("a", "X", "Y")))
    (root / "a").rename(tmp_path / "elsewhere")
    (root / "a").symlink_to(tmp_path / "elsewhere")
    async with engine_on(root, "explicit") as engine:
        with pytest.raises(NotLoadable, match="'a' is a link that leads out of the repository"):
            await engine.changes.load(LoadRequest("e"))
        assert engine.catalog.names() == []


@run
async def test_no_more_than_so_many_ensembles_lie_inside_each_other(repository, monkeypatch):
    monkeypatch.setattr(ensemble_module, "MAX_NESTING", 1)
    outer = ensemble(step("e", "X", "Y")).replace("INPUT0", "X").replace("OUTPUT0", "Y")
    root = repository(a=identity(), e=ensemble(step("a", "X", "Y")), f=outer)
    async with engine_on(root) as engine:
        assert engine.catalog.names() == ["a", "e"]
        assert reason(engine, "f") == "ensemble 'f' is more than 1 ensembles inside each other"


@run
async def test_an_ensemble_takes_no_more_runs_than_it_may_those_inside_it_counted(
    repository, monkeypatch
):
    monkeypatch.setattr(ensemble_module, "MAX_RUNS", 5)

    def chain(*names):
        """An ensemble of these models, one after the other, with the tensors of an identity."""
        tensors = ["INPUT0", *"stuv"[: len(names) - 1], "OUTPUT0"]
        steps = [step(name, *tensors[at : at + 2]) for at, name in enumerate(names)]
        return ensemble(*steps).replace('"X"', '"INPUT0"').replace('"Y"', '"OUTPUT0"')

    root = repository(a=identity(), d=chain("a", "a"), e=chain("a", "d", "d"), f=chain("a", "e"))
    async with engine_on(root) as engine:
        assert engine.catalog.names() == ["a", "d", "e"]
        assert reason(engine, "f") == (
            "ensemble 'f' takes 6 runs of models for each request, at most 5 may be; most of them "
            "on this way: f (6) → e (5) → d (2)"
        )


@run
async def test_a_reload_that_fails_leaves_an_ensemble_with_the_models_it_calls(repository, ask):
    root = repository(a=identity(), b=identity("INT32"), e=ensemble(step("a", "X", "Y")))
    async with engine_on(root, "explicit") as engine:
        await engine.changes.load(LoadRequest("e"))
        (root / "e" / "config.pbtxt").write_text(ensemble(step("b", "X", "Y")))
        with pytest.raises(LoadFailed):
            await engine.changes.load(LoadRequest("e"))
        await engine.changes.load(LoadRequest("b"))
        await engine.changes.unload(UnloadRequest("b"))  # which it does not call
        assert engine.catalog.names() == ["a", "e"]
        await engine.changes.unload(UnloadRequest("a"))
        assert engine.catalog.names() == []


@run
async def test_a_bad_ensemble_is_refused_with_its_reason(repository):
    root = repository(a=identity("INT32"), e=ensemble(step("a", "X", "Y")))
    async with engine_on(root, "explicit") as engine:
        with pytest.raises(
            LoadFailed,
            match="load failed for model 'e': version 1 is at UNAVAILABLE state: ensemble 'e': ",
        ):
            await engine.changes.load(LoadRequest("e"))


@run
async def test_an_ensemble_whose_tensors_are_not_tied_together_cannot_be_read(repository):
    root = repository(a=identity(), e=ensemble(step("a", "X", "t")))
    async with engine_on(root, "explicit") as engine:
        with pytest.raises(NotLoadable, match=r"failed to load 'e', .* no step writes tensor 'Y' "):
            await engine.changes.load(LoadRequest("e"))


# --- decoupled ---

REPEATED = (
    'platform: "ensemble"\n'
    + puts("input", "X", "INT32", "-1")
    + puts("output", "Y", "INT32", "1")
    + 'ensemble_scheduling { step { model_name: "repeat" model_version: -1 '
    + 'input_map { key: "IN" value: "X" } output_map { key: "OUT" value: "t" } } '
    + step("a", "t", "Y")
    + "}"
)


@run
async def test_an_ensemble_with_a_decoupled_step_is_decoupled(repository):
    root = repository(a=identity("INT32", "1", ""), repeat='backend: "repeat"', e=REPEATED)
    async with engine_on(root) as engine:
        assert engine.is_decoupled("e", "")
        given = Tensor.from_numpy("X", np.array([5, 6, 7], np.int32), INT32)
        with pytest.raises(Unsupported, match="'e' is decoupled"):
            await engine.infer(InferRequest("e", inputs=[given]))
        answers = [one async for one in engine.stream(InferRequest("e", inputs=[given]))]
        assert [one.outputs[0].numpy().tolist() for one in answers] == [[5], [6], [7]]
        assert not any(one.final for one in answers)
        counts = {row.name: row.inference_count for row in engine.whole.statistics()}
        assert counts == {"a": 3, "e": 1, "repeat": 1}
