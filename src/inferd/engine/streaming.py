"""Streams of answers: those of a decoupled model, for a client or for a step of an ensemble."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from inferd.core.interfaces import Models
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.serving.served import Served
from inferd.engine.traced_models import traced_step
from inferd.memory.capacity import Capacity
from inferd.observe.stats import AnswerCount
from inferd.shm.placing import place_outputs

if TYPE_CHECKING:
    from inferd.errors import InferdError


async def step_answers(
    models: Models, request: InferRequest, capacity: Capacity
) -> AsyncGenerator[InferResponse, None]:
    """Yield the answers of `models` to an ensemble's step, which takes its place in `capacity`."""
    capacity.request_count -= 1
    try:
        if request.trace is not None:
            models = traced_step(models, request)
        async with aclosing(models.stream(request)) as responses:
            async for response in responses:
                yield response
    finally:
        capacity.request_count += 1


async def all_answers(
    served: Served, request: InferRequest, capacity: Capacity
) -> AsyncGenerator[InferResponse, None]:
    """Yield the answers of a decoupled model, counting the request in `capacity` meanwhile."""
    answers = AnswerCount(served.counts, request)
    is_final = False
    failure: InferdError | None = None
    capacity.request_count += 1
    capacity.buffered_bytes += request.copied_bytes
    try:
        async with aclosing(served.scheduler.stream(request)) as responses:
            async for response in responses:
                # Before checking, which is not the model's time.
                answers.come()
                failure = response.error or failure
                await _finish(served, request, response)
                is_final = response.final
                yield response
                # After the yield: the time until the reader asked for the next answer counts as
                # sending.
                answers.gone(is_empty=not response.outputs, error=response.error)
    except BaseException as error:
        # Readers may stop at the answer that is marked as the last.
        if is_final and isinstance(error, GeneratorExit):  # nothing was given up
            answers.gone(is_empty=False)
            served.counts.add_outcome(request, failure)
        else:
            answers.fail(error)
            served.counts.add_failure(request, error)
        raise
    finally:
        capacity.request_count -= 1
        capacity.buffered_bytes -= request.copied_bytes
    answers.end()
    served.counts.add_outcome(request, failure)


async def _finish(served: Served, request: InferRequest, response: InferResponse) -> None:
    """Check one answer of a decoupled model, and put it into the form the client wants.

    One without any outputs is always right: it tells that there is nothing to tell (Triton).

    Raises as `Engine.infer` does, and the error it is, if the request does not take errors.
    """
    if response.error is None:
        if response.outputs:
            served.responses.check(request, response)
        if request.has_top_k:
            await served.responses.classify(request, response)
        if request.spans is not None:
            await place_outputs(request, response)
    elif not request.takes_errors:
        raise response.error
    response.model = served.name
    response.version = served.version
    response.id = request.id
