"""The answers of an ensemble with decoupled steps, as they come.

The steps after a decoupled step run once for each of its answers. One without outputs, which tells
that there is nothing to tell, gives them nothing to read: it is an answer of the ensemble as it is.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from inferd.core.request import InferResponse
from inferd.errors import InferdError
from inferd.schedulers.ensemble_parts.plan import Stage, Step
from inferd.schedulers.ensemble_parts.run import EnsembleRun
from inferd.schedulers.ensemble_parts.runner import StepRunner

_AnsweredRun = tuple[EnsembleRun, InferResponse]

# As many as a stream is ahead of its reader (STREAM_AHEAD).
INFLIGHT = 16
"""How many answers of a decoupled step are in progress unless max_inflight_requests says."""


async def answers_of(
    runner: StepRunner, begin: Callable[[], EnsembleRun], end: Callable[[EnsembleRun], None]
) -> AsyncGenerator[InferResponse, None]:
    """Yield the answers of a run that `begin` begins and `end` ends; see Scheduler.stream."""
    run = begin()
    try:
        stages = runner.plan.stages(runner.plan.needed(run.request.outputs))
        # A reader that leaves ends the models' generators at once, not when garbage is collected.
        async with aclosing(_staged(runner, run, stages)) as answers:
            async for answer in answers:
                yield answer
    finally:
        end(run)


async def _staged(
    runner: StepRunner, run: EnsembleRun, stages: Sequence[Stage]
) -> AsyncGenerator[InferResponse, None]:
    (steps, decoupled), *later = stages
    await runner.run_steps(run, steps)
    if decoupled is None:
        yield runner.answer(run)
        return
    parts = _parts(runner, run, decoupled)
    # Several decoupled steps: each answer of the first is a stream of its own, and two at a time
    # would mix theirs.
    if len(later) == 1:
        limit = runner.plan.max_inflight_requests or INFLIGHT
        answers = in_order(parts, partial(_finished, runner, later[0].steps), limit)
    else:
        answers = _nested(runner, parts, later)
    async with aclosing(answers):
        async for answer in answers:
            yield answer


async def _parts(
    runner: StepRunner, run: EnsembleRun, step: Step
) -> AsyncGenerator[_AnsweredRun, None]:
    """Yield the run as it goes on with each answer of `step`, and that answer."""
    if run.ticket is not None:
        await runner.order.enter(run.ticket, runner.places.get(step.number))
    slot = runner.slots.get(step.number)
    if slot is not None:
        await slot.acquire()
    try:
        call = runner.call(run, step)
        try:
            async with aclosing(runner.models.stream(call)) as responses:
                async for response in responses:
                    part = run.part()
                    part.take(step, response)
                    yield part, response
        except InferdError as error:
            raise runner.failed(step, call, error) from error
    finally:
        if slot is not None:
            slot.release()


async def _finished(runner: StepRunner, steps: Sequence[Step], part: _AnsweredRun) -> InferResponse:
    run, response = part
    if not response.outputs:
        return _empty(run, response)
    await runner.run_steps(run, steps)
    return runner.answer(run, is_final=response.final)


def _empty(run: EnsembleRun, response: InferResponse) -> InferResponse:
    """Return the answer of the ensemble to a decoupled step's `response` without outputs."""
    request = run.request
    said, is_final = response.parameters, response.final
    return InferResponse(request.model, "", request.id, parameters=said, final=is_final)


async def _nested(
    runner: StepRunner,
    parts: AsyncGenerator[_AnsweredRun, None],
    stages: Sequence[Stage],
) -> AsyncGenerator[InferResponse, None]:
    async with aclosing(parts):
        async for run, response in parts:
            if not response.outputs:
                yield _empty(run, response)
                continue
            async with aclosing(_staged(runner, run, stages)) as answers:
                async for answer in answers:
                    # The last of the last: an inner stream ends once for each outer answer.
                    answer.final = answer.final and response.final
                    yield answer


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


async def in_order(
    items: AsyncGenerator[_Item, None],
    work: Callable[[_Item], Coroutine[object, object, _Result]],
    limit: int,
) -> AsyncGenerator[_Result, None]:
    """Yield the result of `work` for each of `items`, in order.

    At most `limit` items are taken before their results are consumed. An error of `work` or of
    `items` is raised in its place, after the results before it. Closing the generator ends it all.
    """
    # Released by the reader's progress, not by the work's end: results that nobody takes are
    # memory.
    free = asyncio.Semaphore(limit)
    tasks: deque[asyncio.Task[_Result]] = deque()
    news = asyncio.Event()

    async def take() -> None:
        try:
            async with aclosing(items):
                # Before each item is asked for, so that a decoupled model is not made to answer
                # ahead of its reader.
                await free.acquire()
                async for item in items:
                    tasks.append(asyncio.create_task(work(item)))
                    news.set()
                    await free.acquire()
        finally:
            # Also at the end and after an error, or the reader would wait for news for ever.
            news.set()

    taker = asyncio.create_task(take())
    try:
        while True:
            await news.wait()
            news.clear()
            while tasks:
                result = await tasks[0]
                yield result
                # After the yield: a generator that is closed there still has the task in its list,
                # and ends it.
                tasks.popleft()
                free.release()
            if taker.done():
                # Raises what the items raised, after all results before it.
                await taker
                return
    finally:
        taker.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(taker, *tasks, return_exceptions=True)
