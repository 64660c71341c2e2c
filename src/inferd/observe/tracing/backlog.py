"""Backlog: finished traces on their way from the event loop to the thread that writes them."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from inferd.observe.complaints import Complaints
from inferd.observe.tracing.trace import Trace

LOGGER = logging.getLogger("inferd.trace")

MAX_WAITING_BYTES = 1 << 26
"""About how much memory waiting traces may hold; further ones are dropped."""

# Traces of a stream can be large; so many are held twice at most, as objects and as text.
_MOST_AT_ONCE = 100


class Backlog:
    """Passes traces to `write`, several at once, in a thread of its own, started when needed."""

    def __init__(
        self,
        write: Callable[[Sequence[Trace]], None],
        *,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        self._pass_on = write
        self._max_waiting_bytes = max_waiting_bytes
        self._queue: queue.SimpleQueue[Trace | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # Each is increased by one thread only; the difference is what waits.
        self._taken_bytes = 0
        self._written_bytes = 0
        self._dropped = Complaints(
            LOGGER, "traces were dropped, because they come too fast to be written"
        )

    def open(self) -> None:
        """Get ready to write. Raises InvalidConfig when that is impossible."""

    @property
    # Without a lock: each count has one writer, and being off by one trace does no harm.
    def is_full(self) -> bool:
        """Whether a trace taken now would be dropped."""
        return self._taken_bytes - self._written_bytes >= self._max_waiting_bytes

    def take(self, trace: Trace) -> None:
        """Queue `trace`, or drop it if too much waits already. Called on the event loop."""
        if self.is_full:
            self._dropped.add(1)
            return
        self._taken_bytes += trace.size_bytes
        self._queue.put(trace)
        if self._thread is None:
            # A daemon: a disk or collector that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._work, name="inferd-trace", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds until all traces taken are written."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout_s)

    def _work(self) -> None:
        while True:
            found = self._waiting()
            traces = [trace for trace in found if trace is not None]
            try:
                self._pass_on(traces)
            # A trace that cannot be written must not end the thread, and with it all traces.
            except Exception:
                LOGGER.exception("unexpected failure in writing traces")
            # After the write, whatever came of it: only then is the memory free.
            self._written_bytes += sum(trace.size_bytes for trace in traces)
            if found[-1] is None:
                return

    def _waiting(self) -> list[Trace | None]:
        """Wait for at least one item and return those queued; a last None ends the thread."""
        found = [self._queue.get()]
        while found[-1] is not None and len(found) < _MOST_AT_ONCE and not self._queue.empty():
            found.append(self._queue.get())
        return found
