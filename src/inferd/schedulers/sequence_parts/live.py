"""Live sequences, the slots they hold, and their requests."""

import asyncio
from collections import deque
from heapq import heappop, heappush
from typing import NamedTuple

from inferd.core.interfaces import Answer
from inferd.core.request import InferRequest, InferResponse, Sequence
from inferd.errors import InferdError
from inferd.schedulers.execution.job import STREAM_AHEAD, STREAM_AHEAD_BYTES
from inferd.schedulers.queueing.queue import Done, RequestQueue, Waiting, tell
from inferd.tensor.tensor import Tensor


class Slot(NamedTuple):
    """A place: its `number` on the `instance` of that number, both from 0."""

    number: int
    instance: int


class Slots:
    """The places of `instance_count` instances, `per_instance` on each; instances may come and go.

    Slot 0 of every instance is handed out before slot 1 of any: that spreads sequences over the
    instances and keeps batches dense. Memory grows with the places used, not with all places.
    """

    def __init__(self, instance_count: int, per_instance: int) -> None:
        self._per_instance = per_instance
        self._free: list[Slot] = []  # a heap: given back, or each instance's first unused one
        self._unused: dict[int, int] = {}  # by instance: the first number that was never taken
        for instance in range(instance_count):
            self.open(instance)

    def open(self, instance: int) -> None:
        """Add the places of one more instance."""
        self._unused[instance] = 0
        heappush(self._free, Slot(0, instance))

    def close(self, instance: int) -> None:
        """Stop handing out places of an instance."""
        del self._unused[instance]

    def take(self) -> Slot | None:
        """Take and return the lowest free place, None if there is none."""
        while self._free:
            slot = heappop(self._free)
            unused = self._unused.get(slot.instance)
            if unused is None:
                # Of an instance that has left.
                continue
            if slot.number == unused:
                self._unused[slot.instance] = unused = unused + 1
                if unused < self._per_instance:
                    heappush(self._free, Slot(unused, slot.instance))
            return slot
        return None

    def free(self, slot: Slot) -> None:
        """Take a place back."""
        if slot.instance in self._unused:
            heappush(self._free, slot)


class LiveSequence:
    """A live sequence: in the backlog while it has no `slot`, idle while no request waits.

    It is known by its `key`, which is its id, unless it belongs to a single request: then no other
    request can name it, whatever id the model sees.
    """

    slot: Slot | None

    def __init__(self, id: int | str, state: list[Tensor], *, is_own: bool = False) -> None:
        self.id = id
        self.key: int | str | LiveSequence = self if is_own else id
        self.slot = None
        self.waiting: deque[SequenceStep] = deque()
        self.running: SequenceStep | None = None
        self.is_ended = False  # the last request that arrived ends it
        self.state = state

    @property
    def row(self) -> int:
        """The row of the batch that its slot stands for."""
        assert self.slot is not None
        return self.slot.number


class UnreadAnswers:
    """A decoupled model's answers that its reader has not taken yet."""

    def __init__(self) -> None:
        self._answers: asyncio.Queue[Answer | None] = asyncio.Queue()
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the model is as far ahead of its reader as it may be."""
        # The same limits as for streams in threads.
        return self._answers.qsize() >= STREAM_AHEAD or self._size_bytes >= STREAM_AHEAD_BYTES

    def put(self, answer: Answer | None) -> None:
        """Add an answer, an error, or None as the end."""
        self._size_bytes += _size_bytes(answer)
        self._answers.put_nowait(answer)

    async def take(self) -> Answer | None:
        """Wait for the next item and return it."""
        answer = await self._answers.get()
        self._size_bytes -= _size_bytes(answer)
        return answer


class SequenceStep(Waiting):
    """A request of `sequence`; `done` becomes its answer.

    `inputs`, `outputs` and `sent` keep the client's `inputs`, `outputs` and `sequence` while the
    request itself holds what the model sees; `shown` is the sequence that the model sees. `answers`
    is set when a decoupled model answers in rounds. `began_ns` is when the first round began.
    """

    def __init__(
        self,
        request: InferRequest,
        done: Done,
        sequence: LiveSequence,
        shown: Sequence,
        queue: RequestQueue,
    ) -> None:
        super().__init__(request, None, done)
        self.sequence = sequence
        self.inputs = request.inputs
        self.outputs = request.outputs
        self.sent = request.sequence
        self.shown = shown
        self.queue = queue
        self.answers: UnreadAnswers | None = None
        self.began_ns = 0

    def give(self, answer: Answer) -> None:
        """Give its last answer, or the error it ends with, to its caller."""
        tell(self, answer)
        if self.answers is not None:
            self.answers.put(answer)
            self.answers.put(None)


def _size_bytes(answer: InferResponse | InferdError | None) -> int:
    if not isinstance(answer, InferResponse):
        return 0
    return sum(tensor.size_bytes for tensor in answer.outputs)
