"""Streams of answers: those of a decoupled model, wherever it runs, or a single answer."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError
from inferd.schedulers.execution.job import StreamJob


async def one_answer(
    run: Callable[[InferRequest], Awaitable[InferResponse]], request: InferRequest
) -> AsyncGenerator[InferResponse, None]:
    """Yield the only answer, that of `run`."""
    yield await run(request)


async def answers_of(
    job: StreamJob,
    submit: Callable[[], asyncio.TimerHandle | None],
    end: Callable[[asyncio.TimerHandle | None], None],
) -> AsyncGenerator[InferResponse, None]:
    """Yield the answers of `job`, which `submit` starts and `end` ends, along with its timer.

    Raises InferdError while iterating.
    """
    timer = submit()
    try:
        while True:
            answer, share = await job.answers.get()
            if answer is None:
                return
            job.give_room(share)
            if isinstance(answer, InferdError):
                try:
                    raise answer
                finally:
                    del answer  # its traceback holds this frame
            yield answer
    finally:
        end(timer)
