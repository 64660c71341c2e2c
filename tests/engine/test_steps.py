"""Requests of an ensemble's steps are not counted beside the one they belong to."""

import asyncio

import pytest

from inferd.config.model import ModelConfig
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.engine import Engine
from inferd.engine.served import Served
from inferd.engine.steps import Steps
from inferd.errors import BackendFailed, Overloaded


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
    engine.add(Served(ModelConfig(name="outer"), 1, "ensemble", outer))
    engine.add(Served(ModelConfig(name="inner", decoupled=decoupled), 1, "onnx_onnxv1", inner))
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
