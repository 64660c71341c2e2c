"""WorkerLines: what a worker process, and the model in it, have to say to the log."""

import logging

from inferd.backends.worker.document import Logged
from inferd.backends.worker.rate import Rate

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
