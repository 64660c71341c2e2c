"""OpenRequest: a received request that may still be answered."""

from __future__ import annotations

from typing import Any

from .outbox import WINDOW, Outbox
from .packet import Payload
from .pb_utils.error import TritonModelException


class OpenRequest:
    """The state of one request: whether it was cancelled, and what was sent."""

    __slots__ = (
        "__weakref__",
        "_outbox",
        "granted",
        "has_sender",
        "is_cancelled",
        "is_closed",
        "number",
        "outputs",
        "sent_count",
        "spent",
    )

    def __init__(self, outbox: Outbox, number: int, outputs: list[str] | None) -> None:
        self._outbox = outbox
        self.number = number
        self.outputs = outputs
        self.is_cancelled = False
        self.is_closed = False  # its last answer was sent
        self.has_sender = False
        self.sent_count = 0
        self.granted = WINDOW  # changed only by the reading thread
        self.spent = 0  # changed only by the sending thread

    def look(self) -> bool:
        """Return whether it was cancelled, after reading all packets that have arrived."""
        if not self.is_cancelled and not self.is_closed:
            self._outbox.line.look()
        return self.is_cancelled

    def send(self, response: Any, *, is_final: bool) -> None:
        """Send an answer, or only the final flag, once the window has some room.

        Raises TritonModelException.
        """
        outbox = self._outbox
        if not outbox.is_decoupled:
            if self.sent_count and response is not None:
                raise TritonModelException(
                    "the response was sent already; only a decoupled model may send several"
                )
            if response is None and not self.sent_count:
                raise TritonModelException(
                    "the final flag came before a response; only a decoupled model may send none"
                )
            if self.is_closed:
                return  # the final flag after the only response
            is_final = True
        elif self.is_closed:
            raise TritonModelException("the final response of this request was sent already")
        self.sent_count += response is not None
        self.is_closed = is_final
        payload = Payload()
        answer = outbox.describe(self.number, self.outputs, response, payload, is_final=is_final)
        if outbox.is_decoupled:
            # Any room is enough, even for a larger answer: the server keeps some of the window back
            # until that is worth a packet, and would not know that the model waits for it.
            spent, self.spent = self.spent, self.spent + answer[5]
            if self.granted <= spent and not self.is_cancelled:
                # Waits in the sender's own thread, so that a model is
                # never far ahead of its client.
                outbox.line.wait(lambda: self.granted > spent or self.is_cancelled)
        # Not before: until now the request needed its credit and cancellation.
        outbox.send(answer, payload)

    def __del__(self) -> None:
        if not self.is_closed:
            self._outbox.drop(self.number)
