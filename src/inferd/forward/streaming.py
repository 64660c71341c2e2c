"""Streams of answers that come from another process of the server."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from inferd.core.request import InferResponse
from inferd.errors import InferdError
from inferd.forward.origin_end import BegunStream, Left, OriginEnd

SentStream = tuple[OriginEnd, BegunStream]
"""A link, and the request whose answers come back on it."""


async def answers_there(
    send: Callable[[], Awaitable[SentStream | None]],
    here: Callable[[], AsyncGenerator[InferResponse, None]],
    back: Callable[[int], None],
    left: Left | None = None,
) -> AsyncGenerator[InferResponse, None]:
    """Yield the answers to a request that `send` sends, or those from `here` if it sends nothing.

    `back` is told the number of the process that has answered, `left` of a run that the reader has
    left before it answered. Raises InferdError.
    """
    sent = await send()
    if sent is None:
        # Closed with this generator, not whenever the garbage is collected.
        async with aclosing(here()) as answers:
            async for each in answers:
                yield each
        return
    link, (number, items) = sent
    try:
        while True:
            answer, share = await items.get()
            if answer is None:
                return
            if isinstance(answer, InferdError):
                try:
                    raise answer
                finally:
                    del answer  # its traceback holds this frame
            link.credit(number, share)
            yield answer
    finally:
        # Also at the end, when it finds nothing to give up.
        link.give_up(number, left)
        back(link.number)
