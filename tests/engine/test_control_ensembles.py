"""Ensembles and their steps: what comes and goes with what."""

import asyncio
import contextlib
import json
import shutil
import threading

import pytest
from controlled import BROKEN, PATIENCE_S, READY, SENT, UNAVAILABLE, identity, run, write
from patience import until

from inferd.config.pbtxt import parse_pbtxt, to_json
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry
from inferd.core.request import InferResponse
from inferd.engine.control import changes
from inferd.engine.control.control import RepositoryControl
from inferd.engine.loading.catalog import Catalog
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.engine.serving.served import Served
from inferd.errors import LoadFailed, NotLoadable

pytestmark = pytest.mark.usefixtures("temporary")


class Chain:
    """A scheduler that stands in for an ensemble's."""

    async def run(self, request):
        return InferResponse(request.model, "1", outputs=list(request.inputs))

    async def close(self, timeout_s):
        """End."""


class EnsembleLoader(Loader):
    """Loads ensembles, too, as if there were a scheduler for them."""

    def load(self, model, version, steps=(), attempt=None):
        if model.config is not None and model.config.ensemble_scheduling is not None:
            return Served(model.config, version, "ensemble", Chain())
        return super().load(model, version, steps)


def ensemble(*names):
    steps, outputs = [], []
    for number, name in enumerate(names):
        maps = f'input_map {{ key: "X" value: "X" }} output_map {{ key: "Y" value: "Y{number}" }}'
        steps.append(f'step {{ model_name: "{name}" model_version: -1 {maps} }}')
        outputs.append(f'output {{ name: "Y{number}" data_type: TYPE_FP32 dims: 1 }}')
    return (
        'platform: "ensemble"\ninput { name: "X" data_type: TYPE_FP32 dims: 1 }\n'
        f"{' '.join(outputs)}\nensemble_scheduling {{ {' '.join(steps)} }}"
    )


@contextlib.asynccontextmanager
async def ensembles_on(root, mode="explicit", loader=EnsembleLoader, others=(), **options):
    catalog = Catalog()
    options = LoadOptions(model_control_mode=mode, repository_poll_secs=0, **options)
    control = RepositoryControl(catalog, options, loader(options))
    await control.start([root, *others])
    try:
        yield control, catalog
    finally:
        await control.close(PATIENCE_S)


@run
async def test_an_ensemble_brings_its_steps_and_may_take_them_with_it(repository):
    root = repository(e=ensemble("a", "b"), a=identity(), b=identity(), c=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("b"))
        await control.load(LoadRequest("e"))
        assert catalog.names() == ["a", "b", "e"]
        await control.unload(UnloadRequest("e"))
        assert catalog.names() == ["a", "b"]
        await control.load(LoadRequest("e"))
        await control.unload(UnloadRequest("e", unload_dependents=True))
        assert catalog.names() == ["b"]  # it was asked for by itself


@run
async def test_a_step_that_another_ensemble_needs_stays(repository):
    root = repository(e=ensemble("a"), f=ensemble("a"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("e"))
        await control.load(LoadRequest("f"))
        await control.unload(UnloadRequest("e", unload_dependents=True))
        assert catalog.names() == ["a", "f"]
        await control.unload(UnloadRequest("f", unload_dependents=True))
        assert catalog.names() == []


@run
async def test_an_ensemble_goes_and_comes_with_its_steps(repository):
    root = repository(e=ensemble("a"), outer=ensemble("e"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("outer"))
        assert catalog.names() == ["a", "e", "outer"]
        await control.unload(UnloadRequest("a"))
        assert catalog.names() == []
        await until(lambda: catalog.models["e"].versions[1].state is UNAVAILABLE)
        assert catalog.models["e"].versions[1].reason == "model 'a', which it calls, is unloaded"
        await control.load(LoadRequest("a"))
        assert catalog.names() == ["a", "e", "outer"]  # they can be asked once the load is answered
        await control.unload(UnloadRequest("outer", unload_dependents=True))
        assert catalog.names() == ["a"]


@pytest.mark.parametrize("inner", ["", "d"])
@run
async def test_an_ensemble_that_comes_back_while_its_step_waits_to_go_ends_before_it(
    repository, inner
):
    may_end = {name: asyncio.Event() for name in "def"}
    may_end["d"].set()
    may_end["e"].set()

    class Ends(Chain):
        def __init__(self, name):
            self.name = name

        async def close(self, timeout_s):
            await may_end[self.name].wait()

    class EndsWhenItMay(EnsembleLoader):
        def load(self, model, version, steps=(), attempt=None):
            if model.name in may_end:
                return Served(model.config, version, "ensemble", Ends(model.name))
            return super().load(model, version, steps)

    step = inner or "a"
    models = {"d": ensemble("a")} if inner else {}
    root = repository(e=ensemble(step), f=ensemble(step), a=identity(), **models)
    async with ensembles_on(root, loader=EndsWhenItMay) as (control, catalog):
        await asyncio.gather(control.load(LoadRequest("e")), control.load(LoadRequest("f")))
        unloading = asyncio.create_task(control.unload(UnloadRequest("a")))
        await until(lambda: not {"e", "f"}.intersection(catalog.names()))
        may_end["e"].clear()  # from now on it has a request that runs
        await control.load(LoadRequest("e"))
        may_end["f"].set()
        await until(lambda: "e" not in catalog.names())
        assert {step, "a"} <= set(catalog.names())
        may_end["e"].set()
        await unloading
        assert catalog.names() == []


@run
async def test_loading_an_ensemble_looks_at_its_steps_that_serve_too(repository):
    root = repository(outer=ensemble("e", "a"), e=ensemble("a"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("outer"))
        before = catalog.models["e"].default
        await control.load(LoadRequest("outer"))
        assert catalog.models["e"].default is before
        (root / "a" / "2").mkdir()
        write(root / "outer" / "config.pbtxt", ensemble("e"))
        await control.load(LoadRequest("outer"))
        assert list(catalog.models["a"].ready) == ["2"]
        await until(lambda: catalog.models["e"].default is not before)
        await control.load(LoadRequest("outer"))  # what was put together anew is so with its config
        assert len(catalog.models["outer"].default.config.ensemble_scheduling.step) == 1


@run
async def test_a_step_that_does_not_reload_goes_on_in_an_ensemble_that_is_loaded(
    repository, caplog
):
    root = repository(e=ensemble("a"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("e"))
        write(root / "a" / "config.pbtxt", BROKEN)
        await control.load(LoadRequest("e"))
        assert catalog.names() == ["a", "e"]
        assert caplog.messages[-1].startswith("model 'a' fails to load")


class Stuck:
    """The instances of a version whose worker processes do not start."""

    unavailable_reason = "no weights; the next start is in 2 s"

    @property
    def remote(self):
        return [self]


@run
async def test_an_ensemble_does_not_load_while_a_step_cannot_run(repository):
    root = repository(e=ensemble("a"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("a"))
        step = catalog.models["a"].default
        step.instances = Stuck()
        write(root / "a" / "config.pbtxt", BROKEN)  # it is started anew, which does not help
        why = "failed for model 'e': model 'e' needs a, which cannot run: no weights; the next"
        with pytest.raises(LoadFailed, match=why):
            await control.load(LoadRequest("e"))
        assert catalog.names() == ["a"]
        step.instances = None
        await control.load(LoadRequest("e"))
        assert catalog.names() == ["a", "e"]


@run
async def test_a_step_stays_as_a_client_sent_it_when_its_ensemble_is_loaded(repository):
    root = repository(e=ensemble("a", "up"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("a", SENT))
        await control.load(LoadRequest("up", SENT, {"1/weights": b""}))
        for _ in range(2):
            await control.load(LoadRequest("e"))
        assert catalog.models["a"].default.config.input[0].dims == (3,)
        assert catalog.names() == ["a", "e", "up"]


@run
async def test_an_ensemble_that_is_put_together_anew_keeps_what_it_was_loaded_with(repository):
    root = repository(e=ensemble("a", "b"), a=identity(), b=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("e"))
        (root / "a" / "2").mkdir()
        write(root / "e" / "config.pbtxt", ensemble("a"))
        await asyncio.gather(control.load(LoadRequest("e")), control.load(LoadRequest("a")))
        assert len(catalog.models["e"].default.config.ensemble_scheduling.step) == 1
        assert list(catalog.models["a"].ready) == ["2"]


@run
async def test_an_ensemble_whose_step_is_unloaded_while_it_loads_is_back_with_the_step(repository):
    begun, goes_on = threading.Event(), threading.Event()

    class EnsembleTakesLong(EnsembleLoader):
        def load(self, model, version, steps=(), attempt=None):
            if model.name == "e":
                begun.set()
                goes_on.wait(PATIENCE_S)
            return super().load(model, version, steps)

    root = repository(e=ensemble("a"), a=identity())
    async with ensembles_on(root, loader=EnsembleTakesLong) as (control, catalog):
        await control.load(LoadRequest("a"))
        loading = asyncio.create_task(control.load(LoadRequest("e")))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        unloading = asyncio.create_task(control.unload(UnloadRequest("a")))
        await asyncio.wait((unloading,), timeout=0.02)
        assert catalog.names() == ["a"]  # the unload waits for the load
        goes_on.set()
        await loading
        await unloading
        assert catalog.names() == []
        await control.load(LoadRequest("a"))
        assert catalog.names() == ["a", "e"]


@run
async def test_a_load_does_not_wait_for_ever_for_an_ensemble(repository, monkeypatch):
    monkeypatch.setattr(changes, "CALLERS_WAIT_S", 0.02)
    goes_on = threading.Event()

    class OtherStepTakesLong(EnsembleLoader):
        def load(self, model, version, steps=(), attempt=None):
            if model.name == "b":
                goes_on.wait(PATIENCE_S)
            return super().load(model, version, steps)

    root = repository(e=ensemble("a", "b"), a=identity(), b=identity())
    async with ensembles_on(root, loader=OtherStepTakesLong) as (control, catalog):
        goes_on.set()
        await control.load(LoadRequest("e"))
        await control.unload(UnloadRequest("a"))
        await control.unload(UnloadRequest("b"))
        goes_on.clear()
        await control.load(LoadRequest("a"))
        assert catalog.names() == ["a"]
        goes_on.set()
        await until(lambda: catalog.names() == ["a", "b", "e"])


@run
async def test_an_ensemble_without_its_step_does_not_load(repository, caplog):
    root = repository(e=ensemble("a", "nobody"), a=identity(), f=ensemble("broken"), broken=BROKEN)
    async with ensembles_on(root) as (control, catalog):
        with pytest.raises(LoadFailed) as caught:
            await control.load(LoadRequest("e"))
        assert caught.value.message == (
            "load failed for model 'e': model 'e' needs nobody, which is not loaded"
        )
        assert [row for row in catalog.index() if row.name == "e"] == [
            IndexEntry("e", "1", UNAVAILABLE, "model 'e' needs nobody, which is not loaded")
        ]
        assert not catalog.is_sound()
        assert caplog.messages[-1] == "model 'e' needs nobody, which is not loaded"
        with pytest.raises(LoadFailed, match=r"needs broken \(model 'broken' fails to load, as"):
            await control.load(LoadRequest("f"))


@run
async def test_an_ensemble_that_calls_itself_does_not_load(repository):
    root = repository(e=ensemble("f"), f=ensemble("e"))
    async with ensembles_on(root) as (control, catalog):
        with pytest.raises(LoadFailed) as caught:
            await control.load(LoadRequest("e"))
        assert {row.name: row.reason for row in catalog.index()} == {
            "e": "ensemble 'e' calls itself: e → f → e"
        }
    assert caught.value.message == (
        "load failed for model 'e': ensemble 'e' calls itself: e → f → e"
    )


@run
async def test_an_ensemble_above_some_that_call_each_other_does_not_load(repository):
    root = repository(top=ensemble("e"), e=ensemble("f"), f=ensemble("e"))
    async with ensembles_on(root) as (control, _):
        with pytest.raises(LoadFailed) as caught:
            await control.load(LoadRequest("top"))
    assert caught.value.message == (
        "load failed for model 'top': ensemble 'e' calls itself: e → f → e"
    )


@run
async def test_an_ensemble_that_serves_cannot_be_made_to_call_itself(repository):
    root = repository(e=ensemble("a"), f=ensemble("e"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("f"))
        write(root / "e" / "config.pbtxt", ensemble("f"))
        with pytest.raises(LoadFailed, match="ensemble 'e' calls itself: e → f → e"):
            await control.load(LoadRequest("e"))
        assert catalog.names() == ["a", "e", "f"]
        await control.unload(UnloadRequest("e"))
        assert catalog.names() == ["a"]


@run
async def test_two_loads_at_once_cannot_make_ensembles_call_each_other(repository):
    root = repository(e=ensemble("a"), f=ensemble("a"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await asyncio.gather(control.load(LoadRequest("e")), control.load(LoadRequest("f")))
        write(root / "e" / "config.pbtxt", ensemble("f"))
        write(root / "f" / "config.pbtxt", ensemble("e"))
        loads = control.load(LoadRequest("e")), control.load(LoadRequest("f"))
        done = await asyncio.gather(*loads, return_exceptions=True)
        [error] = [one for one in done if one is not None]
        assert "calls itself" in error.message
        await control.unload(UnloadRequest("a"))
        assert catalog.names() == []


@pytest.mark.parametrize("mode", ["none", "poll"])
@run
async def test_at_the_start_the_index_says_why_an_ensemble_does_not_load(repository, mode):
    root = repository(e=ensemble("f"), f=ensemble("e"), g=ensemble("nobody"))
    async with ensembles_on(root, mode) as (_, catalog):
        assert {row.name: (row.version, row.state, row.reason) for row in catalog.index()} == {
            "e": ("1", UNAVAILABLE, "ensemble 'e' calls itself: e → f → e"),
            "f": ("1", UNAVAILABLE, "ensemble 'f' calls itself: f → e → f"),
            "g": ("1", UNAVAILABLE, "model 'g' needs nobody, which is not loaded"),
        }


@run
async def test_the_start_does_not_end_while_an_ensemble_is_tried_again(repository):
    """It is when a step serves; the table at the start would say LOADING, without a reason."""

    class Misfit(EnsembleLoader):
        def load(self, model, version, steps=(), attempt=None):
            if model.config.ensemble_scheduling is not None:
                threading.Event().wait(0.05)  # longer than the step takes
                msg = "it does not fit"
                raise LoadFailed(msg)
            return super().load(model, version, steps)

    root = repository(e=ensemble("a"), f=ensemble("a", "b"), a=identity(), b=identity())
    async with ensembles_on(root, "none", Misfit) as (_, catalog):
        rows = {row.name: (row.state, row.reason) for row in catalog.index()}
        assert rows["e"] == rows["f"] == (UNAVAILABLE, "it does not fit")


@pytest.mark.parametrize("mode", ["none", "poll"])
@run
async def test_ensembles_and_their_steps_load_together_at_the_start(repository, mode):
    root = repository(e=ensemble("a"), outer=ensemble("e", "b"), a=identity(), b=identity())
    async with ensembles_on(root, mode) as (_, catalog):
        assert catalog.names() == ["a", "b", "e", "outer"]
        assert catalog.is_sound()


@run
async def test_polling_takes_down_the_ensemble_of_a_step_that_goes(repository, tmp_path):
    root = repository(e=ensemble("a"), a=identity())
    async with ensembles_on(root, "poll") as (control, catalog):
        (root / "a").rename(tmp_path / "away")
        await asyncio.gather(*await control.look())
        assert catalog.names() == []
        (tmp_path / "away").rename(root / "a")
        await asyncio.gather(*await control.look())
        await until(lambda: catalog.names() == ["a", "e"])


@run
async def test_an_ensemble_ends_when_another_model_has_the_name_of_its_step(repository, tmp_path):
    root, other = repository(e=ensemble("a"), a=identity()), tmp_path / "other"
    other.mkdir()
    async with ensembles_on(root, "poll", others=[other]) as (control, catalog):
        shutil.copytree(root / "a", other / "a")
        await asyncio.gather(*await control.look())
        assert catalog.names() == []
        shutil.rmtree(other / "a")
        await asyncio.gather(*await control.look())
        await until(lambda: catalog.names() == ["a", "e"])


@run
async def test_an_ensemble_whose_step_has_gone_has_one_row(repository, tmp_path):
    root = repository(e=ensemble("a"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        await control.load(LoadRequest("e"))
        await control.unload(UnloadRequest("e", unload_dependents=True))
        await until(lambda: {row.state for row in catalog.index()} == {UNAVAILABLE})
        shutil.move(root / "a", tmp_path / "kept")
        with pytest.raises(LoadFailed):
            await control.load(LoadRequest("e"))
        [row] = [row for row in catalog.index() if row.name == "e"]
        assert (row.version, row.state) == ("1", UNAVAILABLE)
        assert row.reason.startswith("model 'e' needs a")
        shutil.move(tmp_path / "kept", root / "a")
        await control.load(LoadRequest("e"))
        assert [row for row in catalog.index() if row.name == "e"] == [IndexEntry("e", "1", READY)]


@run
async def test_where_clients_load_models_one_goes_on_when_another_has_its_name(
    repository, tmp_path
):
    root, other = repository(e=ensemble("a"), a=identity()), tmp_path / "other"
    other.mkdir()
    async with ensembles_on(root, others=[other]) as (control, catalog):
        await control.load(LoadRequest("e"))
        shutil.copytree(root / "a", other / "a")
        with pytest.raises(
            NotLoadable, match="model appears in two or more repositories: 'a' is in 2 places"
        ):
            await control.load(LoadRequest("a"))
        await control.load(LoadRequest("e"))
        assert catalog.names() == ["a", "e"]


@run
async def test_a_sent_ensemble_that_does_not_fit_is_refused_as_any_load(repository):
    root = repository(e=ensemble("a"), a=identity())
    async with ensembles_on(root) as (control, catalog):
        config = to_json(parse_pbtxt(ensemble("nobody"), "config.pbtxt"))
        with pytest.raises(LoadFailed) as caught:
            await control.load(LoadRequest("e", json.dumps(config)))
        assert caught.value.message == (
            "load failed for model 'e': model 'e' needs nobody, which is not loaded"
        )
        assert list(catalog.index()) == []
