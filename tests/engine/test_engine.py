import asyncio
import logging
import threading
from contextlib import aclosing

import numpy as np
import pytest
from fields import with_fields

import inferd
from inferd.backends.decoupled import SquareBackend, SquareInstance
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import Opened
from inferd.core.metadata import IndexEntry, ModelState, ServerState, TensorMetadata
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.engine.engine import EXTENSIONS, Engine
from inferd.engine.loading.catalog import NO_VERSION
from inferd.engine.loading.load import LoadOptions
from inferd.engine.serving.served import Served
from inferd.errors import (
    BackendFailed,
    InvalidConfig,
    InvalidRequest,
    ModelNotFound,
    Unavailable,
    Unsupported,
)
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.execution.execution import Execution
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

PATIENCE_S = 30
INT32 = DataType.INT32


class Echo:
    """Answers with its input as both outputs, the second one first, under a name of its own."""

    def __init__(self):
        self.may_end = threading.Event()
        self.may_end.set()
        self.started = threading.Event()
        self.is_closed = False

    def execute(self, requests):
        self.started.set()
        assert self.may_end.wait(PATIENCE_S)
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        [given] = request.inputs
        outputs = [Tensor(name, INT32, given.shape, given.data) for name in ("Z", "Y")]
        return InferResponse("whatever", "99", "no id", outputs)

    def close(self):
        self.is_closed = True
        self.may_end.set()


class Twice(Echo):
    """Decoupled: answers two times."""

    def __init__(self):
        super().__init__()
        self.has_left = threading.Event()

    def stream(self, request):
        try:
            for _ in range(2):
                yield self._answer(request)
        finally:
            self.has_left.set()


def served(name="m", version=1, instance=None, *, decoupled=False, execution=None):
    config = ModelConfig(
        name,
        input=(ModelInput("X", INT32, (-1,)),),
        output=(ModelOutput("Y", INT32, (-1,)), ModelOutput("Z", INT32, (-1,))),
        decoupled=decoupled,
    )
    instance = instance or Echo()
    execution = execution or Execution(name, [Opened(instance, instance)], may_run_inline=False)
    return Served(config, version, "onnx_onnxv1", DirectScheduler(execution))


def engine_of(*versions, name="m"):
    engine = Engine()
    for version in versions:
        engine.catalog.add(served(name, version))
    return engine


def ask_for(name="m", version="", id="", values=(1, 2)):
    tensor = Tensor.from_numpy("X", np.array(values, np.int32), INT32)
    return InferRequest(name, version, id, [tensor])


def infer(engine, request):
    async def go():
        try:
            return await engine.infer(request)
        finally:
            await engine.close(PATIENCE_S)

    return asyncio.run(go())


# --- inference ---


def test_an_answer_has_the_models_name_version_and_the_requests_id():
    answer = infer(engine_of(3), ask_for(id="seven"))
    assert (answer.model, answer.version, answer.id) == ("m", "3", "seven")
    assert [output.name for output in answer.outputs] == ["Y", "Z"]
    assert answer.outputs[0].numpy().tolist() == [1, 2]


def test_wanted_outputs_are_given_alone():
    request = ask_for()
    request.outputs = [WantedOutput("Z")]
    assert [output.name for output in infer(engine_of(3), request).outputs] == ["Z"]


MOST_RUNS = 1000


async def begun_at_once(engine, request=ask_for):
    """Ask until the model has come to the event loop; return what it says there, and the number."""
    for number in range(1, MOST_RUNS):
        begun = engine.begin(request())
        if isinstance(begun, InferResponse):
            return begun, number
        await begun
    msg = f"after {MOST_RUNS} runs the model is still in threads"
    raise AssertionError(msg)


def prompt_engine(instance):
    engine = Engine()
    execution = Execution("m", [Opened(instance, instance)], may_run_inline=True)
    engine.catalog.add(served(instance=instance, execution=execution))
    return engine


def test_what_need_not_wait_has_its_answer_at_once():
    async def go():
        engine = prompt_engine(Echo())
        answer, count = await begun_at_once(engine, lambda: ask_for(id="seven"))
        [row] = engine.whole.statistics()
        await engine.close(PATIENCE_S)
        return answer, count, row.inference_count

    answer, asked_count, inference_count = asyncio.run(go())
    assert (answer.model, answer.version, answer.id) == ("m", "1", "seven")
    assert [output.name for output in answer.outputs] == ["Y", "Z"]
    assert asked_count == inference_count > 1


def test_a_wrong_answer_at_once_is_counted_as_failed():
    class Worse(Echo):
        is_bad = False

        def _answer(self, request):
            return BackendFailed("no") if self.is_bad else Echo._answer(self, request)

    async def go():
        instance = Worse()
        engine = prompt_engine(instance)
        await begun_at_once(engine)
        instance.is_bad = True
        with pytest.raises(BackendFailed):
            engine.begin(ask_for())
        [row] = engine.whole.statistics()
        await engine.close(PATIENCE_S)
        return row

    assert asyncio.run(go()).inference_stats.fail.count == 1


def test_a_request_is_checked_before_it_runs():
    with pytest.raises(InvalidRequest, match=r"missing required input.*'X'"):
        infer(engine_of(3), InferRequest("m"))


def test_an_answer_is_checked_after_it_ran():
    class Short(Echo):
        def _answer(self, request):
            return InferResponse("m", "1", outputs=[])

    engine = Engine()
    engine.catalog.add(served(instance=Short()))
    with pytest.raises(BackendFailed, match="gave outputs none, expected 'Y', 'Z'"):
        infer(engine, ask_for())


@pytest.mark.parametrize(
    ("asked", "got"),
    [("", "10"), ("9", "9"), ("v9", "9"), ("2", "2"), ("0", "0"), ("v10", "10"), ("09", "9")],
)
def test_a_version_is_the_one_asked_for_or_the_highest(asked, got):
    assert infer(engine_of(10, 2, 9, 0), ask_for(version=asked)).version == got


@pytest.mark.parametrize("version", ["7", "v7", "latest", "v", "-1", "1.0", "²", "٣", "9" * 20])
def test_an_unknown_version_is_not_found(version):
    with pytest.raises(ModelNotFound) as caught:
        infer(engine_of(2, 10), ask_for(version=version))
    known = {
        "7": "Request for unknown model: 'm' version 7 is not found, known versions: 2, 10",
        "v7": "Request for unknown model: 'm' version v7 is not found, known versions: 2, 10",
    }
    told = (
        f"failed to get model version from specified version string '{version}': expected a "
        f"number, known versions of model 'm': 2, 10"
    )
    assert caught.value.message == known.get(version, told)


@pytest.mark.parametrize("version", ["", "1"])
def test_an_unknown_model_is_not_found(version):
    with pytest.raises(ModelNotFound, match=r"^Request for unknown model: 'M' is not found on"):
        infer(engine_of(1), ask_for("M", version))


def test_the_highest_ready_version_answers_when_a_higher_one_failed():
    engine = engine_of(1, 2)
    engine.catalog.set_state("m", 3, ModelState.UNAVAILABLE, "it is broken")
    assert infer(engine, ask_for()).version == "2"


@pytest.mark.parametrize("ready", [(1,), ()])
@pytest.mark.parametrize("version", ["2", "v2"])
def test_a_failed_version_that_is_asked_for_is_unavailable(version, ready):
    engine = engine_of(*ready)
    engine.catalog.set_state("m", 2, ModelState.UNAVAILABLE, "it is broken")
    with pytest.raises(Unavailable) as caught:
        infer(engine, ask_for(version=version))
    assert caught.value.message == (
        "Request for unknown model: 'm' version 2 is not at ready state, "
        "it is UNAVAILABLE: it is broken"
    )


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("", "has no available versions: it is broken; so is this"),
        ("3", "version 3 is not found, known versions: 1, 2, 4"),
    ],
)
def test_a_model_without_a_ready_version_is_not_found(version, text):
    engine = Engine()
    engine.catalog.set_state("m", 1, ModelState.UNAVAILABLE, "it is broken")
    engine.catalog.set_state("m", 2, ModelState.UNAVAILABLE, "so is this")
    engine.catalog.set_state("m", 4, ModelState.UNAVAILABLE, "so is this")
    with pytest.raises(ModelNotFound) as caught:
        infer(engine, ask_for(version=version))
    assert caught.value.message == f"Request for unknown model: 'm' {text}"


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("", "has no available versions: it is still loading"),
        ("1", "version 1 is not at ready state, it is LOADING"),
    ],
)
def test_a_model_that_loads_is_unavailable(version, text):
    engine = Engine()
    engine.catalog.set_state("m", 1, ModelState.LOADING)
    with pytest.raises(Unavailable) as caught:
        infer(engine, ask_for(version=version))
    assert caught.value.message == f"Request for unknown model: 'm' {text}"


def test_a_model_broken_before_its_versions_are_known_is_not_found():
    engine = Engine()
    engine.catalog.set_state("m", NO_VERSION, ModelState.UNAVAILABLE, "config.pbtxt is unreadable")
    with pytest.raises(ModelNotFound, match=r"no available versions: config.pbtxt is unreadable$"):
        engine.catalog.metadata("m", "")
    for call in (engine.catalog.metadata, engine.catalog.is_ready):
        with pytest.raises(ModelNotFound, match="'m' version 0 is not found, known versions: none"):
            call("m", "0")


def test_a_decoupled_model_needs_a_stream():
    engine = Engine()
    engine.catalog.add(served(decoupled=True, instance=Twice()))
    with pytest.raises(Unsupported, match=r"'m' is decoupled.*ModelStreamInfer"):
        infer(engine, ask_for())


# --- streams ---


def collect(engine, request):
    async def go():
        answers = [answer async for answer in engine.stream(request)]
        await engine.close(PATIENCE_S)
        return answers

    return asyncio.run(go())


@pytest.mark.parametrize(("kind", "count"), [(Echo, 1), (Twice, 2)])
def test_a_stream_gives_each_answer_under_the_requests_id(kind, count):
    engine = Engine()
    engine.catalog.add(served(version=4, instance=kind(), decoupled=kind is Twice))
    answers = collect(engine, ask_for(id="seven"))
    assert [(a.model, a.version, a.id) for a in answers] == [("m", "4", "seven")] * count
    assert all([output.name for output in a.outputs] == ["Y", "Z"] for a in answers)


@pytest.mark.parametrize(
    ("request_", "kind"), [(ask_for("M"), ModelNotFound), (InferRequest("m"), InvalidRequest)]
)
def test_a_stream_raises_what_an_inference_does(request_, kind):
    with pytest.raises(kind):
        collect(engine_of(1), request_)


def test_any_answer_of_a_stream_may_be_without_outputs():
    config = SquareBackend().complete(
        None, ModelConfig("m", parameters={"CUSTOM_EMPTY_COUNT": "2", "CUSTOM_FAIL_COUNT": "1"})
    )
    instance = SquareInstance(config, 1)
    execution = Execution("m", [Opened(instance, instance)], may_run_inline=False)
    square = Served(config, 1, "square", DirectScheduler(execution))
    engine = Engine()
    engine.catalog.add(square)
    given = Tensor.from_numpy("IN", np.array([4], np.int32), INT32)
    request = with_fields(InferRequest("m", inputs=[given]), takes_errors=True)
    answers = collect(engine, request)
    assert [len(a.outputs) for a in answers] == [1, 0, 0, 0]
    assert [a.error is None for a in answers] == [True, False, True, True]
    told = square.counts.statistics("square", "1").response_stats
    assert [told[str(n)].empty_response.count for n in range(4)] == [0, 0, 1, 1]


def test_a_stream_without_any_answer_is_an_empty_response():
    class Silent(Echo):
        def stream(self, request):
            yield from ()

    engine = Engine()
    silent = served(instance=Silent(), decoupled=True)
    engine.catalog.add(silent)
    assert collect(engine, ask_for()) == []
    stats = silent.counts.statistics("m", "1")
    assert stats.inference_stats.success.count == 1
    assert stats.response_stats["0"].empty_response.count == 1


def test_a_stream_that_is_closed_early_ends_the_model():
    instance = Twice()
    engine = Engine()
    engine.catalog.add(served(instance=instance, decoupled=True))

    async def go():
        async with aclosing(engine.stream(ask_for())) as stream:
            await anext(stream)
        assert await asyncio.to_thread(instance.has_left.wait, PATIENCE_S)
        await engine.close(PATIENCE_S)

    asyncio.run(go())


# --- statistics ---


def test_a_request_is_counted_with_its_times():
    async def go():
        engine = engine_of(3)
        await engine.infer(ask_for())
        [row] = engine.whole.statistics("m", "3")
        await engine.close(PATIENCE_S)
        return row

    row = asyncio.run(go())
    stats = row.inference_stats
    assert (row.name, row.version, row.inference_count, row.execution_count) == ("m", "3", 1, 1)
    assert stats.success.count == stats.queue.count == stats.compute_infer.count == 1
    assert stats.queue.ns > 0  # it waited for its thread
    assert stats.success.ns >= stats.queue.ns + stats.compute_infer.ns > stats.queue.ns
    assert [batch.batch_size for batch in row.batch_stats] == [1]
    assert row.response_stats == {}


@pytest.mark.parametrize("answer", [BackendFailed("no"), InferResponse("m", "1")])
def test_a_request_whose_model_fails_or_answers_wrongly_is_counted_as_failed(answer):
    class Bad(Echo):
        def _answer(self, request):
            return answer

    async def go():
        engine = Engine()
        engine.catalog.add(served(instance=Bad()))
        with pytest.raises(BackendFailed):
            await engine.infer(ask_for())
        [row] = engine.whole.statistics()
        await engine.close(PATIENCE_S)
        return row

    row = asyncio.run(go())
    assert (row.inference_count, row.execution_count) == (0, 1)
    assert (row.inference_stats.fail.count, row.inference_stats.success.count) == (1, 0)
    assert row.inference_stats.fail.ns > 0


def test_a_request_given_up_while_it_runs_is_counted_as_failed():
    async def go():
        instance = Echo()
        instance.may_end.clear()
        engine = Engine()
        engine.catalog.add(served(instance=instance))
        asking = asyncio.create_task(engine.infer(ask_for()))
        await asyncio.sleep(0)
        assert await asyncio.to_thread(instance.started.wait, PATIENCE_S)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        [row] = engine.whole.statistics()
        instance.may_end.set()
        await engine.close(PATIENCE_S)
        return row

    assert asyncio.run(go()).inference_stats.fail.count == 1


def test_requests_refused_before_the_scheduler_are_not_counted():
    async def go():
        engine = engine_of(1)
        for bad in (InferRequest("m"), InferRequest("nope")):
            with pytest.raises((InvalidRequest, ModelNotFound)):
                await engine.infer(bad)
        [row] = engine.whole.statistics()
        await engine.close(PATIENCE_S)
        return row

    row = asyncio.run(go())
    assert (row.execution_count, row.inference_stats.fail.count) == (0, 0)


def test_the_answers_of_a_stream_are_counted_by_their_place():
    async def go():
        engine = Engine()
        engine.catalog.add(served(instance=Twice(), decoupled=True))
        assert len([answer async for answer in engine.stream(ask_for())]) == 2
        async with aclosing(engine.stream(ask_for())) as stream:
            await anext(stream)
        [row] = engine.whole.statistics()
        await engine.close(PATIENCE_S)
        return row

    row = asyncio.run(go())
    rows = row.response_stats
    assert list(rows) == ["0", "1"]
    assert (rows["0"].success.count, rows["1"].success.count) == (2, 1)
    assert (row.inference_stats.success.count, row.inference_stats.fail.count) == (2, 0)


def test_a_stream_closed_before_its_final_answer_is_a_failure():
    class Endless(Twice):
        def stream(self, request):
            while True:
                answer = self._answer(request)
                answer.final = False
                yield answer

    async def go():
        engine = Engine()
        engine.catalog.add(served(instance=Endless(), decoupled=True))
        async with aclosing(engine.stream(ask_for())) as stream:
            await anext(stream)
        [row] = engine.whole.statistics()
        await engine.close(PATIENCE_S)
        return row

    row = asyncio.run(go())
    assert (row.inference_stats.success.count, row.inference_stats.fail.count) == (0, 1)
    assert row.response_stats["0"].cancel.count == 1


def test_statistics_have_a_row_for_each_ready_version():
    engine = engine_of(1, 3)
    engine.catalog.add(served("a", 2))
    engine.catalog.set_state("m", 4, ModelState.UNAVAILABLE, "no file")

    def rows(*asked):
        return [(row.name, row.version) for row in engine.whole.statistics(*asked)]

    assert rows() == [("a", "2"), ("m", "1"), ("m", "3")]
    assert rows("m") == [("m", "1"), ("m", "3")]
    assert rows("m", "3") == [("m", "3")]
    assert Engine().whole.statistics() == []


def test_a_row_of_statistics_is_made_when_it_is_taken():
    engine, square = Engine(), served()
    engine.catalog.add(square)
    rows = asyncio.run(engine.whole.all_statistics())
    square.counts.add_success(with_fields(InferRequest("m"), started_ns=1, ended_ns=2))
    assert [row.inference_count for row in rows] == [1]


@pytest.mark.parametrize(("name", "version"), [("nope", ""), ("m", "9"), ("m", "4"), ("new", "")])
def test_statistics_of_what_is_not_ready_are_an_invalid_request(name, version):
    engine = engine_of(1)
    engine.catalog.set_state("m", 4, ModelState.UNAVAILABLE, "no file")
    engine.catalog.set_state("new", 1, ModelState.LOADING)
    with pytest.raises(InvalidRequest, match=f"model:? '{name}'"):
        engine.whole.statistics(name, version)


# --- what it tells ---


def test_server_metadata_has_name_version_and_extensions():
    told = Engine("host-a", allow_client_shm=True).server_metadata()
    assert (told.name, told.version) == ("host-a", inferd.__version__)
    assert told.extensions == EXTENSIONS
    assert Engine().server_metadata().name == "inferd"


def test_shared_memory_is_an_extension_only_where_clients_may_use_it():
    shared = {"system_shared_memory", "cuda_shared_memory"}
    assert set(EXTENSIONS) - set(Engine().server_metadata().extensions) == shared


def test_model_metadata_lists_all_ready_versions_by_number():
    engine = engine_of(10, 9, 2)
    engine.catalog.set_state("m", 11, ModelState.UNAVAILABLE, "broken")
    told = engine.catalog.metadata("m", "")
    assert (told.name, told.versions, told.platform) == ("m", ["2", "9", "10"], "onnx_onnxv1")
    assert told.inputs == [TensorMetadata("X", INT32, (-1,))]
    assert [output.name for output in told.outputs] == ["Y", "Z"]


@pytest.mark.parametrize("version", ["9", "v9"])
def test_model_metadata_of_a_version_lists_that_one(version):
    assert engine_of(10, 9).catalog.metadata("m", version).versions == ["9"]


def test_metadata_of_what_is_not_there_is_not_found():
    with pytest.raises(ModelNotFound):
        engine_of(1).catalog.metadata("m", "2")
    with pytest.raises(ModelNotFound):
        engine_of(1).catalog.metadata("M", "")


def test_names_are_those_of_models_with_a_ready_version():
    engine = engine_of(1, name="b")
    engine.catalog.add(served("a"))
    engine.catalog.set_state("c", 1, ModelState.UNAVAILABLE)
    assert engine.catalog.names() == ["a", "b"]


def test_the_index_has_a_row_for_each_version():
    engine = engine_of(10, 9, 0)
    engine.catalog.set_state("a", NO_VERSION, ModelState.UNAVAILABLE, "no config")
    engine.catalog.set_state("m", 11, ModelState.LOADING)
    assert engine.catalog.index() == [
        IndexEntry("a", "", ModelState.UNAVAILABLE, "no config"),
        IndexEntry("m", "0", ModelState.READY),
        IndexEntry("m", "9", ModelState.READY),
        IndexEntry("m", "10", ModelState.READY),
        IndexEntry("m", "11", ModelState.LOADING),
    ]


def test_the_index_may_be_of_ready_versions_only():
    engine = engine_of(9)
    engine.catalog.set_state("m", 11, ModelState.LOADING)
    assert engine.catalog.index(ready=True) == [IndexEntry("m", "9", ModelState.READY)]


def test_a_ready_model_tells_its_configuration():
    engine = engine_of(9)
    assert engine.find("m", "").config.name == engine.find("m", "v9").config.name == "m"
    for name, version in (("M", ""), ("m", "8")):
        with pytest.raises(ModelNotFound):
            engine.find(name, version)


# --- readiness ---


def test_an_engine_that_has_failed_is_neither_live_nor_ready():
    engine = Engine()
    engine.readiness.fail()
    assert (engine.readiness.is_live(), engine.readiness.is_ready()) == (False, False)
    assert engine.readiness.state() is ServerState.FAILED_TO_INITIALIZE


def test_an_engine_is_live_from_the_start_and_ready_when_loaded():
    engine = engine_of(1)
    assert (engine.readiness.is_live(), engine.readiness.is_ready()) == (True, False)
    engine.readiness.finish_loading()
    assert engine.readiness.is_ready()


@pytest.mark.parametrize(
    "accepting",
    [
        {"load_options": LoadOptions(allow_empty=True)},
        {"strict_readiness": False},
        {"load_options": LoadOptions(model_control_mode="explicit")},
    ],
)
def test_an_engine_without_models_is_ready_where_that_is_accepted(accepting):
    engine = Engine(**accepting)
    assert not engine.readiness.is_ready()
    engine.readiness.finish_loading()
    assert (engine.readiness.is_ready(), engine.readiness.lacks_models()) == (True, False)


def test_an_engine_without_models_is_not_ready():
    engine = Engine()
    assert not engine.readiness.lacks_models()  # it may still find some
    engine.readiness.finish_loading()
    assert (engine.readiness.is_ready(), engine.readiness.lacks_models()) == (False, True)
    engine.catalog.set_state("m", 1, ModelState.UNAVAILABLE, "failed")
    assert (engine.readiness.is_ready(), engine.readiness.lacks_models()) == (False, False)
    engine.catalog.add(served())
    assert (engine.readiness.is_ready(), engine.readiness.lacks_models()) == (True, False)


@pytest.mark.parametrize("state", [ModelState.UNAVAILABLE, ModelState.LOADING])
@pytest.mark.parametrize("strict", [True, False])
def test_one_version_that_is_not_ready_makes_a_strict_engine_not_ready(state, strict):
    engine = Engine(strict_readiness=strict)
    engine.catalog.add(served())
    engine.catalog.set_state("m", 2, state)
    engine.readiness.finish_loading()
    assert engine.readiness.is_ready() is not strict


def test_a_draining_engine_is_live_not_ready_and_still_answers():
    engine = engine_of(1)
    engine.readiness.finish_loading()
    engine.drain()
    assert (engine.readiness.is_live(), engine.readiness.is_ready()) == (True, False)
    assert engine.catalog.is_ready("m", "")
    assert infer(engine, ask_for()).model == "m"


@pytest.mark.parametrize(
    ("version", "is_ready"),
    [("", True), ("1", True), ("v1", True), ("2", False), ("v3", False)],
)
def test_a_model_is_ready_when_the_version_meant_is(version, is_ready):
    engine = engine_of(1)
    engine.catalog.set_state("m", 2, ModelState.UNAVAILABLE)
    engine.catalog.set_state("m", 3, ModelState.LOADING)
    assert engine.catalog.is_ready("m", version) is is_ready


def test_a_model_without_a_ready_version_is_not_ready():
    engine = Engine()
    engine.catalog.set_state("m", 1, ModelState.LOADING)
    assert engine.catalog.is_ready("m", "") is False


@pytest.mark.parametrize(("name", "version"), [("M", ""), ("m", "2"), ("m", "one")])
def test_readiness_of_what_is_not_there_is_not_found(name, version):
    with pytest.raises(ModelNotFound):
        engine_of(1).catalog.is_ready(name, version)


# --- loading repositories ---

IDENTITY = """
backend: "identity"
max_batch_size: 4
input { name: "INPUT0" data_type: TYPE_FP32 dims: 2 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 2 }
"""
BROKEN = 'backend: "faulty"\nparameters { key: "fault" value: { string_value: "load" } }'


def test_all_backends_serve_from_one_repository(repository, onnx_sum, ask):
    root = repository(echo=IDENTITY, often='backend: "repeat"', odd='backend: "faulty"')
    onnx_sum()

    async def go():
        engine = Engine()
        await engine.load_all([root])
        assert engine.readiness.is_ready()
        assert engine.catalog.names() == ["echo", "odd", "often", "sum"]
        total = await engine.infer(ask("sum", A=[[1, 2]], B=[[3, 4]]))
        same = await engine.infer(ask("echo", INPUT0=[[1, 2], [3, 4]]))
        zeros = await engine.infer(ask("odd", INPUT0=[7]))
        request = InferRequest(
            "often", inputs=[Tensor.from_numpy("IN", np.array([5, 6], np.int32), INT32)]
        )
        often = [answer async for answer in engine.stream(request)]
        await engine.close(PATIENCE_S)
        return [answer.outputs[0].numpy().tolist() for answer in (total, same, zeros, *often)]

    assert asyncio.run(go()) == [[[4, 6]], [[1, 2], [3, 4]], [0], [5], [6]]


def test_versions_are_loaded_as_the_policy_says(repository):
    root = repository(1, 2, 3, m=IDENTITY + "version_policy { specific { versions: [1, 3] } }")

    async def go():
        engine = Engine()
        await engine.load_all([root])
        versions = engine.catalog.metadata("m", "").versions
        await engine.close(PATIENCE_S)
        return versions

    assert asyncio.run(go()) == ["1", "3"]


def test_models_that_fail_are_listed_with_reasons_and_the_others_serve(
    repository, onnx_sum, ask, caplog
):
    root = repository(
        echo=IDENTITY, broken=BROKEN, wrong='platform: "magic"', far='backend: "elsewhere"'
    )
    (onnx_sum("torn") / "torn" / "1" / "model.onnx").write_bytes(b"no model")
    (root / "empty").mkdir()
    repository(none=IDENTITY)
    (root / "none" / "1").rmdir()

    async def go():
        engine = Engine()
        with caplog.at_level(logging.ERROR, "inferd.engine"):
            await engine.load_all([root])
        answer = await engine.infer(ask("echo", INPUT0=[[1, 2]]))
        assert answer.outputs[0].numpy().tolist() == [[1, 2]]
        assert not engine.readiness.is_ready()
        index = engine.catalog.index()
        await engine.close(PATIENCE_S)
        return {entry.name: entry for entry in index}

    index = asyncio.run(go())
    assert index.pop("echo") == IndexEntry("echo", "1", ModelState.READY)
    assert {entry.name for entry in index.values() if entry.state is None} == {"wrong", "empty"}
    assert {entry.state for entry in index.values()} == {None, ModelState.UNAVAILABLE}
    assert {entry.name: entry.version for entry in index.values()} == {
        "broken": "1", "wrong": "", "far": "1", "torn": "1", "empty": "", "none": "",
    }  # fmt: skip
    for entry in index.values():
        assert entry.name in entry.reason or entry.name == "far"
        assert str(root) not in entry.reason
        assert entry.reason in caplog.messages
    assert index["broken"].reason == "model 'broken' fails to load, as its fault 'load' says"
    assert "there is no backend 'elsewhere'" in index["far"].reason


def test_a_repository_that_is_not_there_is_an_error(tmp_path):
    engine = Engine()
    with pytest.raises(InvalidConfig, match="nowhere"):
        asyncio.run(engine.load_all([tmp_path / "nowhere"]))
    assert not engine.readiness.is_ready()


def test_a_path_may_be_text_and_several_repositories_serve_together(repository, tmp_path):
    root = repository(m=IDENTITY)
    (tmp_path / "more" / "n" / "1").mkdir(parents=True)
    (tmp_path / "more" / "n" / "config.pbtxt").write_text(IDENTITY)

    async def go():
        engine = Engine()
        await engine.load_all([str(root), tmp_path / "more"])
        names = engine.catalog.names()
        await engine.close(PATIENCE_S)
        return names

    assert asyncio.run(go()) == ["m", "n"]


def test_while_models_load_they_say_so_and_those_that_have_loaded_serve(theirs, repository, ask):
    theirs.may_open.clear()
    root = repository(echo=IDENTITY, slow='backend: "theirs"')

    async def go():
        engine = Engine(load_options=LoadOptions(model_load_thread_count=1))
        loading = asyncio.create_task(engine.load_all([root]))
        assert await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        states = [(entry.name, entry.state) for entry in engine.catalog.index()]
        assert states == [("echo", ModelState.READY), ("slow", ModelState.LOADING)]
        assert not engine.readiness.is_ready()
        await engine.infer(ask("echo", INPUT0=[[1, 2]]))
        with pytest.raises(
            Unavailable, match="'slow' has no available versions: it is still loading"
        ):
            await engine.infer(ask("slow", A=[1]))
        theirs.may_open.set()
        await loading
        await engine.infer(ask("slow", A=[1]))
        assert engine.readiness.is_ready()
        await engine.close(PATIENCE_S)

    asyncio.run(go())


def test_as_many_models_load_at_once_as_there_are_threads(theirs, repository):
    theirs.pairs = threading.Barrier(2)
    root = repository(**{f"m{number}": 'backend: "theirs"' for number in range(6)})

    async def go():
        engine = Engine(load_options=LoadOptions(model_load_thread_count=2))
        await engine.load_all([root])
        assert engine.readiness.is_ready()
        await engine.close(PATIENCE_S)

    asyncio.run(go())
    assert theirs.peak == 2


# --- closing ---


def test_closing_waits_for_requests_that_run_and_takes_no_more():
    instance = Echo()
    instance.may_end.clear()
    engine = Engine()
    engine.catalog.add(served(instance=instance))
    engine.readiness.finish_loading()

    async def go():
        running = asyncio.create_task(engine.infer(ask_for()))
        await asyncio.to_thread(instance.started.wait, PATIENCE_S)
        closing = asyncio.create_task(engine.close(PATIENCE_S))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not instance.is_closed
        assert not engine.readiness.is_ready()
        with pytest.raises(ModelNotFound):
            await engine.infer(ask_for())
        instance.may_end.set()
        await closing
        assert instance.is_closed
        return await running

    assert asyncio.run(go()).model == "m"


def test_closing_gives_a_model_that_hangs_no_longer_than_asked():
    instance, other = Echo(), Echo()
    instance.may_end.clear()
    engine = Engine()
    engine.catalog.add(served(instance=instance))
    engine.catalog.add(served("n", instance=other))

    async def go():
        running = asyncio.create_task(engine.infer(ask_for()))
        await asyncio.to_thread(instance.started.wait, PATIENCE_S)
        await engine.close(0.0)
        return await running

    assert asyncio.run(go()).model == "m"
    assert instance.is_closed
    assert other.is_closed


def test_a_model_that_does_not_close_is_told_of_and_the_others_close(caplog):
    class Stuck(Echo):
        def close(self):
            msg = "stuck"
            raise OSError(msg)

    other = Echo()
    engine = Engine()
    engine.catalog.add(served(instance=Stuck()))
    engine.catalog.add(served("n", instance=other))
    with caplog.at_level(logging.ERROR, "inferd.engine"):
        asyncio.run(engine.close(PATIENCE_S))
    assert other.is_closed
    assert caplog.messages == ["model 'm' does not close: stuck"]
