"""Outbox: what goes back to the server for the requests of a model."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from . import packet
from .arena import GROWTH_SETTING, ArenaFull
from .pb_utils.error import TritonError, TritonModelException
from .pb_utils.tensor import write_tensor

if TYPE_CHECKING:
    from .line import Line

INTERNAL = int(TritonError.INTERNAL)

WINDOW = 16
"""How many answers, or WINDOW_BYTES of them, may be in flight before the model has to wait."""

WINDOW_BYTES = 1 << 20


class Outbox:
    """Describes and sends the answers of a model; `open_requests` are those still to be answered.

    They are weak references, by number: the model alone keeps a request, or its response sender.
    `model` is the model's name, `execute_place` where its execute is defined; for error texts.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self.is_decoupled = False
        self.model = ""
        self.execute_place = ""
        self.open_requests: dict[int, Any] = {}

    def describe(
        self,
        number: int,
        wanted: list[str] | None,
        response: Any,
        payload: packet.Payload,
        *,
        is_final: bool,
    ) -> tuple[Any, ...]:
        """Return the packet's description of an answer; a `response` of None is an empty one.

        `number` is the request's in the packet, `wanted` the outputs that it asks for.
        """
        if response is None:
            return number, None, None, None, is_final, 1
        error = response._error
        if error is not None:
            return refusal(number, error.message(), int(error.code()), is_final=is_final)
        size = payload.size
        try:
            outputs = [
                write_tensor(tensor, payload)
                for tensor in response._tensors
                if wanted is None or tensor._name in wanted
            ]
        except TritonModelException as failed:
            return refusal(number, self.invalid_text(failed), is_final=is_final)
        share = window_share(payload.size - size)
        return number, tuple(outputs), None, response._parameters, is_final, share

    def send(self, answer: tuple[Any, ...], payload: packet.Payload) -> None:
        """Send the one `answer` that a response sender was given."""
        number, _, _, _, is_final, share = answer
        if is_final:
            self.open_requests.pop(number, None)
        try:
            self.line.send(packet.ANSWER, [[answer]], payload)
        # The client gets an error in place of the answer, and the stream goes on.
        except ArenaFull as error:
            text = self.unsent_text(error, [answer])
            failed = refusal(number, text, is_final=is_final, share=share)
            self.line.send(packet.ANSWER, [[failed]])

    def drop(self, number: int) -> None:
        """Fail a request that can no longer be answered; called by the garbage collector."""
        self.open_requests.pop(number, None)
        text = (
            f"model '{self.model}' failed: {self.execute_place} let go of the request without "
            f"sending its final response"
        )
        self.line.send_unwaiting(packet.ANSWER, [[refusal(number, text)]])

    def invalid_text(self, failed: TritonModelException) -> str:
        """Return the error text for an answer that holds what cannot be sent."""
        return f"model '{self.model}' failed: {self.execute_place} gave an answer, whose {failed}"

    def unsent_text(self, error: Exception, answers: list[Any]) -> str:
        """Return the error text for `answers` that could not be sent."""
        start = f"model '{self.model}' failed: {self.execute_place} gave"
        if not isinstance(error, ArenaFull):
            return f"{start} an answer that cannot be sent: {error}"
        outputs = [output for answer in answers for output in answer[1] or ()]
        text = f"{start} {len(answers)} answers" if len(answers) > 1 else f"{start} an answer"
        text += f" too large to be sent: {error}; "
        if outputs:
            largest = max(outputs, key=itemgetter(4))
            text += f"output '{largest[0]}' {list(largest[2])} takes {largest[4]}; "
        return text + f"--backend-config=BACKEND,{GROWTH_SETTING}=BYTES lets it grow further"


MAX_TEXT = 64 << 10
"""The most characters of an error that clients get."""


def refusal(
    number: int, text: str, code: int = INTERNAL, *, is_final: bool = True, share: int = 1
) -> tuple[Any, ...]:
    """Return the packet's description of an answer that is an error; see Outbox.describe."""
    return number, None, (code, text[:MAX_TEXT]), None, is_final, share


def window_share(size: int) -> int:
    """Return how much of the window an answer of `size` bytes takes up."""
    # At most the whole of it, or an answer larger than the window could never be sent.
    return min(1 + size * WINDOW // WINDOW_BYTES, WINDOW)
