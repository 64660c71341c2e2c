"""Requests of an ensemble's steps are not counted beside the one they belong to."""

import asyncio
from contextlib import aclosing

import pytest
from fields import with_fields

from inferd.config.model import ModelConfig
from inferd.config.options.trace import TraceSettings
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.engine.steps import Steps
from inferd.engine.traced import TracedEngine
from inferd.errors import BackendFailed, Overloaded
from inferd.observe.tracing.trace import MAX_CHILDREN, Trace


class Stepping:
    """A scheduler that asks the model `inner` twice at once, and notes what is counted then."""

    pending_count = 0

    def __init__(self, models, capacity, *, streams=False):
        self.models = models
        self.capacity = capacity
        self.streams = streams
        self.seen = []

    async def run(self, request):
        await asyncio.gather(self._ask(), self._ask())
        self.seen.append(self.capacity.request_count)
        return InferResponse("", "")

    async def _ask(self):
        if self.streams:
            async for _ in self.models.stream(InferRequest("inner")):
                self.seen.append(self.capacity.request_count)
        else:
            await self.models.infer(InferRequest("inner"))


class Slow:
    """A scheduler that waits one turn of the loop, and notes what is counted then."""

    pending_count = 0

    def __init__(self, capacity, error=None):
        self.capacity = capacity
        self.error = error
        self.seen = []

    async def run(self, request):
        await asyncio.sleep(0)
        self.seen.append(self.capacity.request_count)
        if self.error:
            raise self.error
        return InferResponse("", "")

    async def stream(self, request):
        yield await self.run(request)


def site(*, decoupled=False, error=None):
    engine = Engine()
    capacity = engine.capacity
    outer = Stepping(Steps(engine, capacity), capacity, streams=decoupled)
    inner = Slow(capacity, error)
    engine.catalog.add(Served(ModelConfig(name="outer"), 1, "ensemble", outer))
    engine.catalog.add(
        Served(ModelConfig(name="inner", decoupled=decoupled), 1, "onnx_onnxv1", inner)
    )
    capacity.max_requests = 1
    return engine, outer, inner


@pytest.mark.parametrize("decoupled", [False, True])
def test_steps_are_let_in_though_their_ensemble_takes_the_last_place(decoupled):
    engine, outer, inner = site(decoupled=decoupled)
    asyncio.run(engine.infer(InferRequest("outer")))
    assert set(outer.seen) == {1}
    assert len(inner.seen) == 2
    assert engine.capacity.request_count == 0


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_step_that_fails_leaves_nothing_counted(decoupled):
    engine, _, _ = site(decoupled=decoupled, error=BackendFailed("broke"))
    with pytest.raises(BackendFailed):
        asyncio.run(engine.infer(InferRequest("outer")))
    assert engine.capacity.request_count == 0


def test_somebody_elses_request_is_refused_meanwhile():
    async def go():
        engine, _, _ = site()
        running = asyncio.create_task(engine.infer(InferRequest("outer")))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await engine.infer(InferRequest("inner"))
        await running
        return engine.capacity

    capacity = asyncio.run(go())
    assert capacity.request_count == 0 and capacity.refused_for_requests == 1


class Chaining:
    """A scheduler that asks the model `inner` for each request, on its behalf."""

    pending_count = 0

    def __init__(self, models):
        self.models = models

    async def run(self, request):
        await self.models.infer(with_fields(InferRequest("inner", id="step"), trace=request.trace))
        return InferResponse("", "")

    async def stream(self, request):
        inner = with_fields(InferRequest("inner", id="step"), trace=request.trace)
        async with aclosing(self.models.stream(inner)) as responses:
            async for response in responses:
                yield response
                return


def ask_traced(trace, *, decoupled=False, error=None):
    """Ask `outer`, and have it noted in `trace`."""

    async def go():
        engine = Engine()
        capacity = engine.capacity
        outer = Chaining(Steps(engine, capacity))
        engine.catalog.add(Served(ModelConfig("outer", decoupled=decoupled), 1, "ensemble", outer))
        inner = Slow(capacity, error)
        engine.catalog.add(
            Served(ModelConfig("inner", decoupled=decoupled), 7, "onnx_onnxv1", inner)
        )
        outside = TracedEngine(engine, trace)
        if decoupled:
            assert len([one async for one in outside.stream(InferRequest("outer"))]) == 1
        else:
            await outside.infer(InferRequest("outer"))

    asyncio.run(go())


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_step_of_a_traced_request_has_a_trace_of_its_own(decoupled):
    trace = Trace(1, "outer", TraceSettings(levels=("TIMESTAMPS",)))
    ask_traced(trace, decoupled=decoupled)
    [child] = trace.children
    assert (child.id, child.model, child.version, child.request_id) == (2, "inner", "7", "step")
    names = [name for name, _ in child.stamps]
    assert (names[0], names[-1]) == ("REQUEST_START", "REQUEST_END")
    assert "INFER_RESPONSE_COMPLETE" in names
    assert child.error == ""  # though a stream is left after its last answer


def test_a_step_that_fails_says_so_in_its_trace():
    trace = Trace(1, "outer", TraceSettings(levels=("TIMESTAMPS",)))
    with pytest.raises(BackendFailed):
        ask_traced(trace, error=BackendFailed("broke"))
    assert trace.error == trace.children[0].error == "internal"


def test_of_a_request_with_too_many_steps_the_last_ones_are_not_traced():
    trace = Trace(1, "outer", TraceSettings(levels=("TIMESTAMPS",)))
    engine = Engine()
    models = Steps(engine, engine.capacity)
    engine.catalog.add(Served(ModelConfig("inner"), 1, "onnx_onnxv1", Slow(engine.capacity)))

    async def go():
        for _ in range(MAX_CHILDREN + 1):
            await models.infer(with_fields(InferRequest("inner"), trace=trace))

    asyncio.run(go())
    assert len(trace.children) == MAX_CHILDREN


class Prompt(Slow):
    """A scheduler that has `outcome` at once: an answer, an error, or None."""

    may_be_prompt = True

    def __init__(self, capacity, outcome):
        super().__init__(capacity)
        self.outcome = outcome

    def run_now(self, request):
        request.started_ns = 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def close(self, timeout_s):
        """Nothing is open."""


def prompt_site(outcome, **config):
    engine = Engine()
    served = Served(
        ModelConfig("inner", **config), 7, "onnx_onnxv1", Prompt(engine.capacity, outcome)
    )
    engine.catalog.add(served)
    return engine, Steps(engine, engine.capacity), served


def counted(served):
    """Return how many requests the model has answered."""
    return served.counts.statistics("inner", "7").inference_count


def test_a_step_that_waits_for_nothing_has_its_answer_at_once():
    engine, steps, served = prompt_site(InferResponse("", ""))
    answer = steps.infer_now(InferRequest("inner", id="a"))
    assert (answer.model, answer.version, answer.id) == ("inner", "7", "a")
    assert (counted(served), engine.capacity.request_count) == (1, 0)


@pytest.mark.parametrize(
    ("outcome", "config", "request_has"),
    [
        (None, {}, {}),
        (InferResponse("", ""), {"decoupled": True}, {}),
        (
            InferResponse("", ""),
            {},
            {"trace": Trace(1, "outer", TraceSettings(levels=("TIMESTAMPS",)))},
        ),
    ],
    ids=["it has to wait", "it answers any number of times", "it is traced"],
)
def test_another_step_has_no_answer_at_once_and_is_not_counted(outcome, config, request_has):
    _, steps, served = prompt_site(outcome, **config)
    assert steps.infer_now(with_fields(InferRequest("inner"), **request_has)) is None
    assert counted(served) == 0


def test_a_step_whose_model_never_answers_at_once_has_no_answer_then():
    engine, _, _ = site()
    assert Steps(engine, engine.capacity).infer_now(InferRequest("inner")) is None


def test_a_step_that_fails_at_once_is_counted_as_failed():
    _, steps, served = prompt_site(BackendFailed("broke"))
    with pytest.raises(BackendFailed, match="broke"):
        steps.infer_now(InferRequest("inner"))
    assert sum(one.count for one in served.counts.failures.values()) == 1


def test_models_that_never_answer_at_once_are_asked_no_such_thing():
    class Others:
        async def infer(self, request):
            return InferResponse("", "")

    steps = Steps(Others(), Engine().capacity)
    assert steps.infer_now(InferRequest("inner")) is None
