"""DelayedTiming: starts once enough requests wait, for tests that need known batches."""

from collections.abc import Iterable, Sequence

from inferd.schedulers.queueing.queue import Waiting
from inferd.schedulers.queueing.timing import FixedTiming


class DelayedTiming(FixedTiming):
    """Follows the numbers in the configuration once `count` requests have waited together."""

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
