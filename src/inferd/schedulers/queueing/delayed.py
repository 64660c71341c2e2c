"""HeldPace: a pace that starts once enough requests wait, for tests that need known batches."""

from inferd.schedulers.queueing.queue import RequestQueue
from inferd.schedulers.queueing.timing import Pace


class HeldPace:
    """Follows `pace` from the moment when `count` requests wait together."""

    def __init__(self, pace: Pace, count: int) -> None:
        self._pace = pace
        self._count = count
        self._is_held = True

    @property
    def starts_at_once(self) -> bool:
        """See Pace."""
        return not self._is_held and self._pace.starts_at_once

    @property
    def look_after(self) -> int:
        """See Pace."""
        return self._pace.look_after

    @property
    def enough(self) -> int:
        """See Pace."""
        return 0 if self._is_held else self._pace.enough

    def choose(self, queue: RequestQueue, now_ns: int) -> tuple[int, int]:
        """See Pace.choose. While held, only another request makes a difference."""
        if self._is_held and queue.count < self._count:
            return 0, 0
        self._is_held = False
        return self._pace.choose(queue, now_ns)

    def came(self, waiting_count: int) -> None:
        """See Pace.came."""
        self._pace.came(waiting_count)

    def started(self, count: int) -> None:
        """See Pace.started."""
        self._pace.started(count)

    def ended(self, count: int, size: int, took_ns: int) -> None:
        """See Pace.ended."""
        self._pace.ended(count, size, took_ns)

    def ran(self, count: int, size: int, took_ns: int) -> None:
        """See Pace.ran."""
        self._pace.ran(count, size, took_ns)

    def resized(self, instance_count: int) -> None:
        """See Pace.resized."""
        self._pace.resized(instance_count)

    def looked(self, count: int, size: int) -> None:
        """See Pace.looked."""
        self._pace.looked(count, size)
