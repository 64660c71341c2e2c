"""Streams of answers of a decoupled model, wherever it runs."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from inferd.core.request import InferResponse
from inferd.errors import InferdError
from inferd.schedulers.execution.job import StreamJob


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
