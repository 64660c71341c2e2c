"""The answers of a decoupled model to a call by another, each sent when there is room."""

import asyncio
from contextlib import aclosing

from inferd.backends.worker.replies import Replies
from inferd.core.interfaces import Models
from inferd.core.request import InferRequest, InferResponse


async def answer_stream(
    replies: Replies,
    number: int,
    models: Models,
    request: InferRequest,
    room: asyncio.Semaphore,
) -> None:
    """Answer the call `number` with each of the answers of `models` to `request`."""
    try:
        # A generator that is left in the middle is closed by the collector, whenever that runs;
        # here the called model is to stop at once.
        async with aclosing(models.stream(request)) as responses:
            async for response in responses:
                await room.acquire()
                if response.error is not None:
                    replies.refuse(number, response.error, is_last=response.final)
                else:
                    replies.answer(number, response, is_last=response.final)
                if response.final:
                    return
        # The model ended its stream with a flag alone; the caller waits for something that says so.
        replies.answer(number, InferResponse("", ""), is_last=True)
    except Exception as error:  # noqa: BLE001  reported to the caller
        replies.fail(number, request.model, error)
