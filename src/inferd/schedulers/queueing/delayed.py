"""DelayedTiming: starts once enough requests wait, for tests that need known batches."""

from inferd.schedulers.queueing.queue import RequestQueue
from inferd.schedulers.queueing.timing import BatchTiming


class DelayedTiming:
    """Follows `timing` once `count` requests have waited together."""

    def __init__(self, timing: BatchTiming, count: int) -> None:
        self._timing = timing
        self._count = count
        self._is_delayed = True

    @property
    def starts_at_once(self) -> bool:
        """See BatchTiming."""
        return not self._is_delayed and self._timing.starts_at_once

    @property
    def look_after(self) -> int:
        """See BatchTiming."""
        return self._timing.look_after

    @property
    def enough(self) -> int:
        """See BatchTiming."""
        return 0 if self._is_delayed else self._timing.enough

    def choose(self, queue: RequestQueue, now_ns: int) -> tuple[int, int]:
        """See BatchTiming.choose. While delayed, only another request makes a difference."""
        if self._is_delayed and queue.count < self._count:
            return 0, 0
        self._is_delayed = False
        return self._timing.choose(queue, now_ns)

    def arrived(self, waiting_count: int) -> None:
        """See BatchTiming.arrived."""
        self._timing.arrived(waiting_count)

    def started(self, count: int) -> None:
        """See BatchTiming.started."""
        self._timing.started(count)

    def ended(self, count: int, size: int, took_ns: int) -> None:
        """See BatchTiming.ended."""
        self._timing.ended(count, size, took_ns)

    def ran(self, count: int, size: int, took_ns: int) -> None:
        """See BatchTiming.ran."""
        self._timing.ran(count, size, took_ns)

    def resized(self, instance_count: int) -> None:
        """See BatchTiming.resized."""
        self._timing.resized(instance_count)

    def looked(self, count: int, size: int) -> None:
        """See BatchTiming.looked."""
        self._timing.looked(count, size)
