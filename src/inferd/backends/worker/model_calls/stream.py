"""The answers of a decoupled model to a call by another, each sent when there is room."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from inferd.core.interfaces import Models
from inferd.core.request import InferRequest, InferResponse

if TYPE_CHECKING:
    from inferd.backends.worker.model_calls.calls import WorkerCalls


async def answer_stream(
    calls: "WorkerCalls",
    number: int,
    models: Models,
    request: InferRequest,
    room: asyncio.Semaphore,
) -> None:
    """Answer the call `number` with each of the answers of `models` to `request`."""
    try:
        async with aclosing(models.stream(request)) as responses:
            async for response in responses:
                await room.acquire()
                if response.error is not None:
                    calls.refuse(number, response.error, is_last=response.final)
                else:
                    calls.answer(number, response, is_last=response.final)
                if response.final:
                    return
        calls.answer(number, InferResponse("", ""), is_last=True)
    except Exception as error:  # noqa: BLE001  reported to the caller
        calls.fail(number, request.model, error)
