"""Replies: what a worker's model is told in answer to its calls and commands."""

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

from inferd.backends.worker.link import Loans
from inferd.backends.worker.message import code_of, described
from inferd.core.request import InferResponse
from inferd.errors import BackendFailed, InferdError, foreign_text
from inferd_worker import packet
from inferd_worker.arena import ArenaFull

if TYPE_CHECKING:
    from inferd.backends.worker.plan import WorkerPlan

log = logging.getLogger("inferd.model")


class Caller(Protocol):
    """The calling worker, as seen from here: see WorkerInstance.

    The event loop `reads_on` reads from it; None while a thread does.
    """

    plan: "WorkerPlan"
    reads_on: asyncio.AbstractEventLoop | None

    def send(
        self, kind: int, document: list[Any], payload: packet.Payload | None = None, number: int = 0
    ) -> None:
        """Send a packet. Raises ArenaFull."""
        ...

    def settle(self, released: list[int], named: Collection[int]) -> Loans:
        """See Link.settle."""
        ...


class Replies:
    """The replies to one worker, the `caller`."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def fail(self, number: int, model: str, error: Exception) -> None:
        """Answer the call `number` of `model` with the error that ended it."""
        if not isinstance(error, InferdError):
            said = "model '%s': a call of model '%s' failed"
            log.error(said, self.caller.plan.model, model, exc_info=error)
            error = BackendFailed(foreign_text(error))
        self.refuse(number, error)

    def answer(self, number: int, response: InferResponse, *, is_last: bool) -> None:
        """Answer the call `number`. Raises BackendFailed if the response is too large."""
        payload = packet.Payload()
        document = [
            "response",
            [described(tensor, payload) for tensor in response.outputs],
            response.parameters,
            response.model,
            response.version,
            response.id,
        ]
        try:
            self.reply(number, [is_last, document], payload)
        except ArenaFull as error:
            raise BackendFailed(str(error)) from error

    def refuse(self, number: int, error: InferdError, *, is_last: bool = True) -> None:
        """Answer the call or command `number` with an error."""
        self.reply(number, [is_last, ["error", code_of(error), error.message]])

    def reply(
        self, number: int, document: list[Any], payload: packet.Payload | None = None
    ) -> None:
        """Answer the call or command `number`."""
        self.caller.send(packet.REPLY, document, payload, number)
