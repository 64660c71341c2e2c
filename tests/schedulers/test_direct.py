import asyncio
import gc
import weakref

import numpy as np
import pytest

from inferd.core.request import InferResponse
from inferd.errors import InferdError, InvalidRequest, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.execution import FIRST_RUNS, Execution
from inferd.schedulers.overrun import Gauges

PATIENCE_S = 30


@pytest.fixture(params=["loop", "thread"])
def place(request, echo, request_of):
    """place(serve) awaits serve(scheduler) where its requests run on the loop, or in a thread."""

    def go(serve):
        async def whole():
            scheduler = DirectScheduler(
                Execution(
                    "m",
                    [echo],
                    may_run_inline=request.param == "loop",
                    counts=Counts(echo.clock),
                    gauges=Gauges(echo.clock, lambda: 0),
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
                [echo],
                may_run_inline=is_short,
                counts=Counts(echo.clock),
                gauges=Gauges(echo.clock, lambda: 0),
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
        scheduler = DirectScheduler(Execution("m", [counter(3)], may_run_inline=False))
        answers = [answer async for answer in scheduler.stream(request_of())]
        await scheduler.close(PATIENCE_S)
        return answers

    assert len(asyncio.run(serve())) == 3


def test_a_closed_scheduler_has_closed_its_instances_and_refuses(echo, request_of):
    async def serve():
        scheduler = DirectScheduler(Execution("m", [echo], may_run_inline=True))
        await scheduler.close(0.0)
        with pytest.raises(Unavailable):
            await scheduler.run(request_of())

    asyncio.run(serve())
    assert echo.is_closed
