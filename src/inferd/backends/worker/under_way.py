"""The batches and streams in flight in a worker, with their answers so far."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from inferd.backends.worker.document import DescribedAnswer
from inferd.core.interfaces import Outcome
from inferd.core.request import InferRequest, InferResponse, Round
from inferd.errors import InferdError

if TYPE_CHECKING:
    import asyncio

Deliver = Callable[[InferResponse | InferdError | None, int], None]
"""Takes an answer and its share of the stream's window; at the end, None."""


class RunningBatch:
    """Requests that are executed together."""

    __slots__ = ("answers", "finish", "is_executing", "missing", "requests", "size", "timer")

    def __init__(self, requests: Sequence[InferRequest], finish: Callable[[Outcome], None]) -> None:
        self.requests = requests
        self.finish = finish
        self.answers: list[Any] = [None] * len(requests)  # an InferResponse or InferdError each
        self.missing = len(requests)
        self.is_executing = True
        self.size = 0  # of the tensors it was sent with, in bytes
        self.timer: asyncio.TimerHandle | None = None


class RunningStream:
    """A request to a decoupled model; `deliver` gets its answers."""

    __slots__ = ("ahead", "deliver", "request", "taken")

    def __init__(self, request: InferRequest, deliver: Deliver) -> None:
        self.request = request
        self.deliver = deliver
        self.ahead = 0  # answers delivered but not taken yet
        self.taken = 0


def joined(
    before: InferResponse | InferdError | None,
    answer: DescribedAnswer,
    response: InferResponse | InferdError,
) -> InferResponse | InferdError:
    """Return the round so far, `before`, extended by `answer`, of which `response` is made."""
    if isinstance(response, InferdError):
        return response
    round = before if isinstance(before, Round) else Round(response.model, response.version)
    if answer.outputs is not None:
        round.answers.append(response)
    round.again = answer.is_again
    return round
