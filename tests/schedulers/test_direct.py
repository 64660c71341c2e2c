import asyncio
import gc
import threading
import weakref

import numpy as np
import pytest

from inferd.config.model import DynamicBatching, QueuePolicy
from inferd.core.interfaces import Opened
from inferd.core.request import InferResponse
from inferd.errors import InferdError, InvalidRequest, Overloaded, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.execution.promotion import FIRST_RUNS, Gauges, Usage
from inferd.schedulers.queueing.policy import Levels

PATIENCE_S = 30


@pytest.fixture(params=["loop", "thread"])
def place(request, echo, request_of):
    """place(serve) awaits serve(scheduler) where its requests run on the loop, or in a thread."""

    def go(serve):
        async def whole():
            scheduler = DirectScheduler(
                Execution(
                    "m",
                    [Opened(echo, echo)],
                    may_run_inline=request.param == "loop",
                    counts=Counts(echo.clock),
                    gauges=Gauges(echo.clock, lambda: Usage(0, 0, 0)),
                )
            )
            for _ in range(FIRST_RUNS):
                await scheduler.run(request_of())
            try:
                return await serve(scheduler)
            finally:
                await scheduler.close(PATIENCE_S)

        result = asyncio.run(whole())
        assert echo.on_loop[-1] is (request.param == "loop")
        return result

    return go


def test_a_request_runs_alone_and_gets_its_answer(place, echo, request_of):
    answer = place(lambda scheduler: scheduler.run(request_of("7")))
    assert (type(answer), answer.id, echo.seen[-1]) == (InferResponse, "7", "7")


@pytest.mark.parametrize("is_short", [True, False])
def test_what_runs_on_the_loop_is_answered_without_waiting(echo, request_of, is_short):
    async def serve():
        scheduler = DirectScheduler(
            Execution(
                "m",
                [Opened(echo, echo)],
                may_run_inline=is_short,
                counts=Counts(echo.clock),
                gauges=Gauges(echo.clock, lambda: Usage(0, 0, 0)),
            )
        )
        assert scheduler.run_now(request_of()) is None
        for _ in range(FIRST_RUNS):
            await scheduler.run(request_of())
        answer = scheduler.run_now(request_of("7"))
        await scheduler.close(PATIENCE_S)
        return answer

    answer = asyncio.run(serve())
    assert (answer.id, echo.seen[-1]) == ("7", "7") if is_short else answer is None


def test_an_error_that_is_the_answer_is_raised(place, echo, request_of):
    async def serve(scheduler):
        echo.outcome = [InvalidRequest("not this one")]
        with pytest.raises(InvalidRequest, match="not this one"):
            await scheduler.run(request_of())

    place(serve)


@pytest.mark.parametrize(
    "outcome",
    [
        lambda: InvalidRequest("raised"),
        lambda: ValueError("raised"),
        lambda: [InvalidRequest("returned")],
        list,
    ],
)
def test_a_failed_request_leaves_no_tensors_for_the_garbage_collector(
    place, echo, request_of, outcome
):
    async def serve(scheduler):
        array = np.zeros(4, np.float32)
        data = weakref.ref(array)
        request = request_of()
        request.inputs[0].data = array
        del array
        echo.outcome = outcome()
        with pytest.raises(InferdError):
            await scheduler.run(request)
        echo.outcome = None
        del request
        await scheduler.run(request_of())  # a thread that takes the next has let go of the last
        return data()

    gc.collect()
    gc.disable()
    try:
        assert place(serve) is None
    finally:
        gc.enable()


def test_a_stream_is_the_models(echo, counter, request_of):
    async def serve():
        instance = counter(3)
        execution = Execution("m", [Opened(instance, instance)], may_run_inline=False)
        scheduler = DirectScheduler(execution)
        answers = [answer async for answer in scheduler.stream(request_of())]
        await scheduler.close(PATIENCE_S)
        return answers

    assert len(asyncio.run(serve())) == 3


class Gate:
    """A decoupled model whose first answer waits for `go_on`; it notes who came."""

    def __init__(self):
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.seen = []

    def execute(self, requests):
        raise NotImplementedError

    def stream(self, request):
        self.seen.append(request.id)
        self.started.set()
        assert self.go_on.wait(PATIENCE_S)
        yield InferResponse("m", "1", request.id)

    def close(self):
        pass


def levels(**policies):
    policy = {int(name[1:]): QueuePolicy(max_queue_size=most) for name, most in policies.items()}
    return Levels(
        DynamicBatching(priority_levels=3, default_priority_level=2, priority_queue_policy=policy)
    )


def test_streams_of_a_higher_level_come_first(request_of):
    async def serve():
        gate = Gate()
        scheduler = DirectScheduler(
            Execution("m", [Opened(gate, gate)], may_run_inline=False), levels()
        )

        async def ask(name, priority):
            request = request_of(name)
            request.priority = priority
            return [answer async for answer in scheduler.stream(request)]

        first = asyncio.create_task(ask("first", 3))
        assert await asyncio.to_thread(gate.started.wait, PATIENCE_S)
        asked = [("3", 3), ("default", 0), ("2", 2), ("1", 1), ("9", 9)]
        others = [asyncio.create_task(ask(name, priority)) for name, priority in asked]
        await asyncio.sleep(0)
        assert scheduler.pending_count == len(others)
        gate.go_on.set()
        await asyncio.gather(first, *others)
        await scheduler.close(PATIENCE_S)
        return gate.seen

    assert asyncio.run(serve()) == ["first", "1", "default", "2", "9", "3"]


def test_a_level_takes_no_more_than_its_own_policy_allows(request_of):
    async def serve():
        gate = Gate()
        scheduler = DirectScheduler(
            Execution("m", [Opened(gate, gate)], may_run_inline=False), levels(n1=1, n3=2)
        )

        async def ask(priority):
            request = request_of()
            request.priority = priority
            return [answer async for answer in scheduler.stream(request)]

        first = asyncio.create_task(ask(3))
        assert await asyncio.to_thread(gate.started.wait, PATIENCE_S)
        tasks = [asyncio.create_task(ask(priority)) for priority in (3, 1, 1, 3, 3, 2, 2)]
        await asyncio.sleep(0)
        gate.go_on.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await first
        await scheduler.close(PATIENCE_S)
        return [isinstance(outcome, Overloaded) for outcome in outcomes]

    assert asyncio.run(serve()) == [False, False, True, False, True, False, False]


def test_a_closed_scheduler_has_closed_its_instances_and_refuses(echo, request_of):
    async def serve():
        scheduler = DirectScheduler(Execution("m", [Opened(echo, echo)], may_run_inline=True))
        await scheduler.close(0.0)
        with pytest.raises(Unavailable):
            await scheduler.run(request_of())

    asyncio.run(serve())
    assert echo.is_closed
