"""Open: a received request that may still be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .pb_utils.error import TritonModelException

if TYPE_CHECKING:
    from .worker import Worker

WINDOW = 16
"""How many answers, or WINDOW_BYTES of them, may be in flight before the model has to wait."""

WINDOW_BYTES = 1 << 20


class Open:
    """The state of one request: whether it was cancelled, and what was sent."""

    __slots__ = (
        "__weakref__",
        "_worker",
        "granted",
        "has_sender",
        "is_cancelled",
        "is_closed",
        "number",
        "outputs",
        "sent_count",
        "spent",
    )

    def __init__(self, worker: Worker, number: int, outputs: list[str] | None) -> None:
        self._worker = worker
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
            self._worker.line.look()
        return self.is_cancelled

    def send(self, response: Any, *, is_final: bool) -> None:
        """Send an answer, or only the final flag. Raises TritonModelException."""
        worker = self._worker
        if not worker.is_decoupled:
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
        worker.send_answer(self, response, is_final=is_final)

    def __del__(self) -> None:
        if not self.is_closed:
            self._worker.drop(self.number)
