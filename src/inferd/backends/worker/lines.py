"""WorkerLines: what a worker process, and the model in it, have to say to the log."""

import logging
import time
from collections.abc import Callable

from inferd.backends.worker.document import Logged


class Rate:
    """Allows `most_per_s` lines a second, by `clock_s`."""

    def __init__(self, most_per_s: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._most_per_s = most_per_s
        self._clock_s = clock_s
        self._second = 0
        self._count = 0

    def allows(self) -> bool:
        """Count a line, and return whether it may be logged."""
        self._count += 1
        return self._count <= self._most_per_s

    def missed(self, *, at_end: bool = False) -> int:
        """Return how many lines were not allowed, once their second is over or it is the end."""
        # Whole seconds in place of a sliding window: one counter, and
        # no time is kept for each line.
        second = int(self._clock_s())
        if second == self._second and not at_end:
            return 0
        missed_count = max(0, self._count - self._most_per_s)
        self._second, self._count = second, 0
        return missed_count


MAX_LOGS_PER_S = 1000
"""Log packets of a worker beyond this rate are counted, not logged."""

log = logging.getLogger("inferd.model")

_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.DEBUG)

_KEEPS_LINES = {"keeps_lines": True}  # for tracebacks


class WorkerLines:
    """Logs the lines of a worker of `model`, its packets at no more than a `rate`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.rate = Rate(MAX_LOGS_PER_S)

    def packet(self, content: Logged) -> None:
        """Log what a packet says, unless there are too many."""
        if missed_count := self.rate.missed():
            self._log(logging.WARNING, f"{missed_count} more lines were logged")
        if self.rate.allows():
            # Masked, as the number comes from the model's process.
            self._log(_LEVELS[content.level & 3], content.text)

    def line(self, line: str, is_error: bool) -> None:  # noqa: FBT001  as a thread that reads calls it
        """Log a line that the process has printed."""
        self._log(logging.WARNING if is_error else logging.INFO, line)

    def _log(self, level: int, text: str) -> None:
        log.log(level, "model '%s': %s", self._model, text, extra=_KEEPS_LINES)
