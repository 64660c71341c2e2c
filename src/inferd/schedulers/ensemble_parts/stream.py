"""The answers of an ensemble with decoupled steps, as they come.

The steps after a decoupled step run once for each of its answers. One without outputs, which tells
that there is nothing to tell, gives them nothing to read: it is an answer of the ensemble as it is.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError
from inferd.schedulers.ensemble_parts.in_order import in_order
from inferd.schedulers.ensemble_parts.plan import Stage, Step

if TYPE_CHECKING:
    from inferd.schedulers.ensemble import EnsembleScheduler, Run

_Part = tuple["Run", InferResponse]

INFLIGHT = 16
"""How many answers of a decoupled step are in progress unless max_inflight_requests says."""


async def answers_of(
    ensemble: "EnsembleScheduler", request: InferRequest
) -> AsyncGenerator[InferResponse, None]:
    """Yield the answers of `request`; see Scheduler.stream."""
    run = ensemble.begin(request)
    try:
        stages = ensemble.plan.stages(ensemble.plan.needed(request.outputs))
        async with aclosing(_staged(ensemble, run, stages)) as answers:
            async for answer in answers:
                yield answer
    finally:
        ensemble.end(run)


async def _staged(
    ensemble: "EnsembleScheduler", run: "Run", stages: Sequence[Stage]
) -> AsyncGenerator[InferResponse, None]:
    (steps, decoupled), *later = stages
    await ensemble.run_steps(run, steps)
    if decoupled is None:
        yield ensemble.answer(run)
        return
    parts = _parts(ensemble, run, decoupled)
    if len(later) == 1:
        limit = ensemble.plan.max_inflight_requests or INFLIGHT
        answers = in_order(parts, partial(_finished, ensemble, later[0].steps), limit)
    else:
        answers = _nested(ensemble, parts, later)
    async with aclosing(answers):
        async for answer in answers:
            yield answer


async def _parts(
    ensemble: "EnsembleScheduler", run: "Run", step: Step
) -> AsyncGenerator[_Part, None]:
    """Yield the run as it goes on with each answer of `step`, and that answer."""
    if run.ticket is not None:
        await ensemble.order.enter(run.ticket, ensemble.places.get(step.number))
    call = ensemble.call(run, step)
    try:
        async with aclosing(ensemble.models.stream(call)) as responses:
            async for response in responses:
                part = run.part()
                part.take(step, response)
                yield part, response
    except InferdError as error:
        raise ensemble.failed(step, call, error) from error


async def _finished(
    ensemble: "EnsembleScheduler", steps: Sequence[Step], part: _Part
) -> InferResponse:
    run, response = part
    if not response.outputs:
        return _empty(run, response)
    await ensemble.run_steps(run, steps)
    return ensemble.answer(run, is_final=response.final)


def _empty(run: "Run", response: InferResponse) -> InferResponse:
    """Return the answer of the ensemble to a decoupled step's `response` without outputs."""
    request = run.request
    said, is_final = response.parameters, response.final
    return InferResponse(request.model, "", request.id, parameters=said, final=is_final)


async def _nested(
    ensemble: "EnsembleScheduler",
    parts: AsyncGenerator[_Part, None],
    stages: Sequence[Stage],
) -> AsyncGenerator[InferResponse, None]:
    async with aclosing(parts):
        async for run, response in parts:
            if not response.outputs:
                yield _empty(run, response)
                continue
            async with aclosing(_staged(ensemble, run, stages)) as answers:
                async for answer in answers:
                    answer.final = answer.final and response.final
                    yield answer
