"""Timing: how many waiting requests run next, and when, as the configuration says.

Triton's rules (docs: dynamic batcher): a batch is the longest prefix of the queue whose batch
sizes add up to at most max_batch_size and whose requests are of one kind. No request is overtaken
to fill a batch, and none is split. A prefix that adds up to a preferred size is sent at once, and
if none does, so is one that the next request would make larger than all of these sizes, or that is
so already. Otherwise the batch waits for more until its oldest request has waited for the queue
delay, unless no more can join; once it has, all of it is sent.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from inferd.compiled import mypyc_attr
from inferd.schedulers.queueing.queue import RequestQueue, Waiting


class Beginning(NamedTuple):
    """The longest prefix of a queue that may run as one batch.

    Its first `preferred_count` requests add up to the largest preferred size reached; if none is,
    they are those before the request that exceeds the largest of these sizes; 0 if none does. If it
    `is_closed`, no other request may join. `oldest_ns` is when its oldest was queued.
    """

    request_count: int
    preferred_count: int
    is_closed: bool
    oldest_ns: int


def beginning(queue: Iterable[Waiting], most: int, preferred: frozenset[int]) -> Beginning:
    """Return the beginning of `queue`, which is not empty, for a batch of at most `most` items."""
    requests = iter(queue)
    largest = max(preferred) if preferred else most
    first = next(requests)
    count, size, oldest_ns = 1, first.request.batch_size, first.request.queued_ns
    preferred_count = 1 if size in preferred else 0
    for waiting in requests:
        request = waiting.request
        larger = size + request.batch_size
        if larger > most or waiting.kind != first.kind:
            return Beginning(count, preferred_count, True, oldest_ns)
        # Triton: beyond the largest preferred size nothing better can come.
        if not preferred_count and larger > largest:
            preferred_count = count
        count += 1
        size = larger
        oldest_ns = min(oldest_ns, request.queued_ns)
        if size in preferred:
            preferred_count = count
    return Beginning(count, preferred_count, size >= largest, oldest_ns)


@mypyc_attr(allow_interpreted_subclasses=True)
class BatchTiming:
    """Decides how many waiting requests run next, and when; it is told of all that happens."""

    starts_at_once: bool
    """Whether a request that finds none waiting and an instance free runs at once."""

    look_after: int
    """After how many requests run on the event loop it wants to look at one; 0: never."""

    enough: int
    """While fewer items wait, all of one kind, one more request changes no decision."""

    def choose(self, queue: RequestQueue, now_ns: int) -> tuple[int, int]:
        """Return how many requests of `queue`, which is not empty, form the next batch.

        An instance is free. 0 means to wait until the time returned with it; if that is `now_ns`,
        for one turn of the event loop.
        """
        raise NotImplementedError

    def arrived(self, waiting_count: int) -> None:
        """Note that a request came that cannot run on the event loop, and how many wait now."""

    def started(self, count: int) -> None:
        """Note that a batch of `count` requests has begun on a free instance."""

    def ended(self, count: int, size: int, took_ns: int) -> None:
        """Note that a batch of `count` requests, `size` items, has ended; 0 ns: it failed."""

    def ran(self, count: int, size: int, took_ns: int) -> None:
        """Note that a batch of `count` requests, `size` items, ran on the loop; 0 ns: it failed."""

    def resized(self, instance_count: int) -> None:
        """Note that the number of instances has changed."""

    def looked(self, count: int, size: int) -> None:
        """Note that `count` requests, `size` items, ran at once in one turn of the loop."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FixedTiming(BatchTiming):
    """The numbers in the configuration: preferred sizes, and a delay."""

    def __init__(self, max_batch_size: int, preferred: Sequence[int], delay_us: int) -> None:
        self._most = max(1, max_batch_size)
        self._preferred = frozenset(preferred)
        self._delay_ns = 1000 * delay_us
        self.starts_at_once = not delay_us
        self.look_after = 0
        self.enough = min((self._most, *self._preferred))

    def choose(self, queue: Iterable[Waiting], now_ns: int) -> tuple[int, int]:
        """See BatchTiming.choose."""
        found = beginning(queue, self._most, self._preferred)
        due_ns = found.oldest_ns + self._delay_ns
        # Late ones go with all that wait, preferred size or not: the delay was their limit.
        is_late = self._delay_ns > 0 and due_ns <= now_ns
        if found.preferred_count and not is_late:
            return found.preferred_count, 0
        if found.is_closed or due_ns <= now_ns:
            return found.request_count, 0
        return 0, due_ns


class DelayedTiming(FixedTiming):
    """Follows the numbers in the configuration once `count` requests have waited together.

    For tests that need known batches.
    """

    def __init__(
        self, max_batch_size: int, preferred: Sequence[int], delay_us: int, count: int
    ) -> None:
        super().__init__(max_batch_size, preferred, delay_us)
        self._count = count
        self._usual = self.starts_at_once, self.enough
        self.starts_at_once, self.enough = False, 0

    def choose(self, queue: Iterable[Waiting], now_ns: int) -> tuple[int, int]:
        """See BatchTiming.choose. While delayed, only another request makes a difference."""
        if self._count:
            if len([*queue]) < self._count:
                return 0, 0
            self._count = 0
            self.starts_at_once, self.enough = self._usual
        return super().choose(queue, now_ns)


COMPUTES = 0.75
"""From this ratio of CPU time to wall time on, a model counts as computing in its thread."""

FADES = 1 / 256
"""The fraction by which the largest ratio decays with each execution."""


class ExecutionTime:
    """How long executions of one model take, apart from other work on the same machine.

    A model that computes in its own thread is measured in CPU time. On a machine with other work to
    do, such as serving the clients of a batch, wall time grows with what the others get; long
    executions are interrupted more often than short ones, so large batches would look expensive.

    A model that waits, for a GPU or another process, is measured in wall time. The two are told
    apart by the ratio of CPU time to wall time when nothing interrupts, the largest seen recently.

    Rejected: the time that the system reports a thread as ready but not running. It is exact, but
    takes two more system calls per execution, and not every system reports it.
    """

    def __init__(self) -> None:
        self._share = 0.0

    def took_ns(self, wall_ns: int, cpu_ns: int) -> int:
        """Return how long an execution took; `cpu_ns` of its thread is 0 where unknown."""
        if wall_ns <= 0:
            return 0
        share = cpu_ns / wall_ns
        # Interruptions only lower the ratio, so the largest one is the model's own; it fades,
        # because models change.
        self._share = max(share, self._share - FADES * self._share)
        return min(wall_ns, cpu_ns) if self._share >= COMPUTES else wall_ns
