"""Streams of answers that come from another process of the server."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from inferd.core.interfaces import Scheduler
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError
from inferd.forward.origin_end import OriginEnd


class Sender(Protocol):
    """What sends requests of one version to other processes: a ForwardScheduler."""

    version: str
    form: bytes

    @property
    def local(self) -> Scheduler:
        """What runs requests here."""
        ...

    async def reach(self, number: int, request: InferRequest) -> OriginEnd | None:
        """Return a link to the owner of `request`, None if it runs here. Raises Unavailable."""
        ...

    def note_sent(self, number: int) -> None:
        """Note that a request is under way in process `number`."""
        ...

    def note_back(self, number: int) -> None:
        """Note that it is not any more."""
        ...


async def answers_there(
    sender: Sender, number: int, request: InferRequest
) -> AsyncGenerator[InferResponse, None]:
    """Yield the answers to `request` of process `number`, as ForwardScheduler has them."""
    link = await sender.reach(number, request)
    if link is None:
        # Closed with this generator, not whenever the garbage is collected.
        async with aclosing(sender.local.stream(request)) as answers:
            async for each in answers:
                yield each
        return
    number, items = link.begin_stream(request, sender.version, sender.form)
    sender.note_sent(link.number)
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
        link.give_up(number)
        sender.note_back(link.number)
