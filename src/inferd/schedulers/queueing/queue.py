"""RequestQueue: the waiting requests of one model, by priority and in order of arrival.

It knows the queue policies of Triton's model configuration but no clock: callers pass the time, in
nanoseconds of a monotonic clock. All operations except iteration take about the same time however
many requests wait.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from inferd.aio.driver import fulfil, reject
from inferd.aio.promise import Promise
from inferd.compiled import mypyc_attr
from inferd.config.model import DynamicBatching, QueuePolicy
from inferd.core.request import InferRequest
from inferd.errors import InferdError
from inferd.schedulers.queueing.policy import MAX_WAITING, Levels, full, timeout_us_of, too_late

Done = Promise[Any]
"""Becomes the answer to a request or, for a decoupled model, the Execution that is free."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiting:
    """A request that waits for its answer.

    `kind` is what the requests of a batch must have in common. `done` is None when nobody waits
    any longer. `late_ns` is when it has waited too long, 0 for never.
    """

    def __init__(self, request: InferRequest, kind: Hashable, done: Done | None) -> None:
        self.request = request
        self.kind = kind
        self.done = done
        self.number = 0
        self.level = 0
        self.late_ns = 0


class RequestQueue:
    """The requests that wait for an instance of one model."""

    def __init__(self, model: str, batching: DynamicBatching) -> None:
        self._model = model
        self._priorities = Levels(batching)
        default = self._default = self._new_level(self._priorities.default)
        self._levels = {default.number: default}
        self._order = [default]  # by priority, which is the order of the numbers
        self._deadlines: list[tuple[int, int, int]] = []  # a heap of late_ns, number, level
        self._next_number = 0
        self.count = 0
        """How many requests wait."""
        self.size = 0
        """The sum of the batch sizes of all that wait."""

    def __iter__(self) -> Iterator[Waiting]:
        """Walk through the queue in the order in which it is served."""
        for level in self._order:
            yield from level.in_time.values()
            yield from level.late.values()

    def add(self, waiting: Waiting, now_ns: int) -> None:
        """Queue a request. Raises Overloaded when as many wait as its level's policy allows.

        A policy that sets no limit allows MAX_WAITING.
        A priority of 0, or one without a level, means the default level.
        """
        request = waiting.request
        level = self._level_of(request) if request.priority else self._default
        if len(level.in_time) + len(level.late) >= level.most:
            raise full(self._model, level.policy)
        self._next_number += 1
        waiting.number, waiting.level, request.queued_ns = self._next_number, level.number, now_ns
        # Three reads before a call that most requests do not need.
        if (level.has_timeout or request.timeout_us or request.callers) and (
            timeout_us := timeout_us_of(level.policy, request)
        ):
            waiting.late_ns = now_ns + 1000 * timeout_us
            self._note_deadline(waiting)
        level.in_time[waiting.number] = waiting
        self.count += 1
        self.size += request.batch_size

    def take(self, count: int) -> list[Waiting]:
        """Take the first `count` requests out of the queue."""
        taken: list[Waiting] = []
        while len(taken) < count:
            level = next(level for level in self._order if level.in_time or level.late)
            requests = level.in_time or level.late
            most = min(count - len(taken), len(requests))
            taken += [requests.popitem(last=False)[1] for _ in range(most)]
            self._drop_if_empty(level)
        self.count -= len(taken)
        self.size -= sum([waiting.request.batch_size for waiting in taken])
        return taken

    def remove(self, waiting: Waiting) -> bool:
        """Remove one request, wherever it stands; return whether it was still there."""
        level = self._levels.get(waiting.level)
        if level is None:
            return False
        found = level.in_time.pop(waiting.number, None) or level.late.pop(waiting.number, None)
        if found is None:
            return False
        self._forget(found, level)
        return True

    def expire(self, now_ns: int) -> list[Waiting]:
        """Remove and return the requests that have waited too long.

        Under a DELAY policy they stay, behind all others of their level.
        """
        rejected = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ns:
            _, number, level_number = heappop(deadlines)
            level = self._levels.get(level_number)
            late = level.in_time.pop(number, None) if level is not None else None
            if late is None or level is None:
                # Deadlines are not removed with their requests: finding them in a heap takes as
                # long as the heap is.
                continue  # it was taken in time
            if level.policy.timeout_action == "DELAY":
                level.late[number] = late
            else:
                self._forget(late, level)
                rejected.append(late)
        return rejected

    def next_late_ns(self) -> int:
        """Return when to call `expire` next; 0 means not before another request comes."""
        return self._deadlines[0][0] if self._deadlines else 0

    def rejects(self, waiting: Waiting) -> bool:
        """Return whether a request that was queued here is refused once it has waited too long."""
        action = self._priorities.policy(waiting.level).timeout_action
        return waiting.late_ns > 0 and action != "DELAY"

    def too_late(self, waiting: Waiting) -> InferdError:
        """Return the error for a request that `expire` removed."""
        return too_late(self._model, (waiting.late_ns - waiting.request.queued_ns) // 1000)

    def _note_deadline(self, waiting: Waiting) -> None:
        deadlines = self._deadlines
        if len(deadlines) > 2 * self.count + 64:  # most of them belong to requests long gone
            deadlines[:] = [(w.late_ns, w.number, w.level) for w in self if w.late_ns]
            heapify(deadlines)
        heappush(deadlines, (waiting.late_ns, waiting.number, waiting.level))

    def _new_level(self, number: int) -> "_Level":
        return _Level(number, self._priorities.policy(number))

    def _level_of(self, request: InferRequest) -> "_Level":
        number = self._priorities.of(request)
        level = self._levels.get(number)
        if level is None:
            # Levels exist only while in use: a configuration may allow more than fit in memory.
            level = self._levels[number] = self._new_level(number)
            self._order = sorted(self._levels.values(), key=lambda one: one.number)
        return level

    def _forget(self, waiting: Waiting, level: "_Level") -> None:
        self.count -= 1
        self.size -= waiting.request.batch_size
        self._drop_if_empty(level)

    def _drop_if_empty(self, level: "_Level") -> None:
        if level is not self._default and not (level.in_time or level.late):
            del self._levels[level.number]
            self._order.remove(level)


class _Level:
    """The requests of one priority, by number: first those in time, then the delayed ones."""

    def __init__(self, number: int, policy: QueuePolicy) -> None:
        self.number = number
        self.policy = policy
        self.most = policy.max_queue_size or MAX_WAITING
        self.has_timeout = policy.default_timeout_microseconds > 0
        self.in_time: OrderedDict[int, Waiting] = OrderedDict()
        self.late: OrderedDict[int, Waiting] = OrderedDict()


def tell(waiting: Waiting, answer: object) -> None:
    """Give `answer` or an InferdError to the caller, if it still waits; see `Done`."""
    done = waiting.done
    if done is None or done.done():
        return
    if isinstance(answer, InferdError):
        reject(done, answer)
    else:
        fulfil(done, answer)
