"""The batches and streams in flight in a worker, with their answers so far."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from inferd.backends.worker.document import DescribedAnswer
from inferd.core.interfaces import Outcome
from inferd.core.request import InferRequest, InferResponse, Round
from inferd.errors import InferdError

if TYPE_CHECKING:
    import asyncio

AHEAD_NS = 1_000_000
"""How much work a worker is sent ahead, if its plan allows several executions at once."""

AHEAD_BYTES = 4 << 20
"""No execution is sent behind this many bytes: a worker's pending inputs should fit in caches."""

MAX_AHEAD = 64
"""A worker that keeps to the window never has more answers of one stream in flight."""

Deliver = Callable[[InferResponse | InferdError | None, int], None]
"""Takes an answer and its share of the stream's window; at the end, None."""


class RunningBatch:
    """Requests that are executed together."""

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

    def __init__(self, request: InferRequest, deliver: Deliver) -> None:
        self.request = request
        self.deliver = deliver
        self.ahead = 0  # answers delivered but not taken yet
        self.taken = 0

    def take(self, answer: DescribedAnswer, response: InferResponse | InferdError) -> None:
        """Deliver an answer, of which `response` is made. Raises ValueError for one too many."""
        is_final = answer.ends_stream
        if isinstance(response, InferdError):
            if not is_final:
                response = InferResponse("", "", final=False, error=response)
        elif is_final and answer.outputs == [] and not answer.parameters:
            return
        self.ahead += 1
        if self.ahead > MAX_AHEAD:
            raise ValueError(f"{self.ahead} answers that nobody has taken")
        self.deliver(response, answer.share)


class Ahead:
    """How many executions a worker may have at once: at `most`, and `room` as long as these take.

    Those behind the first are sent ahead, so that the process need not wait for the next.
    """

    def __init__(self) -> None:
        self.most = 1
        self.room = 1
        self._ended_ns = 0  # when the previous execution ended

    def has_room(self, running_count: int, running_bytes: int) -> bool:
        """Tell whether one more may be sent behind so many, with so many bytes of tensors."""
        return running_count < self.room and running_bytes < AHEAD_BYTES

    def note(self, batch: RunningBatch, began_ns: int, ended_ns: int) -> None:
        """Note that an execution has ended; it began when the one before it had ended."""
        if batch.requests and batch.requests[0].started_ns < self._ended_ns:
            batch.requests[0].started_ns = self._ended_ns
        self._ended_ns = ended_ns
        self.note_time(ended_ns - began_ns)

    def note_time(self, took_ns: int) -> None:
        """Choose how many executions may be sent ahead, after one that took `took_ns`."""
        self.room = min(self.most, AHEAD_NS // (took_ns + 1)) or 1


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
