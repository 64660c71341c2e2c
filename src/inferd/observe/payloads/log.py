"""PayloadLog: samples of what clients send and get, on their way to a file or a receiver.

Nobody waits for it: what a thread has not written yet is bounded by its bytes, and what comes
beyond is dropped and counted.
"""

import logging
import queue
import random
import threading
from collections.abc import Sequence
from enum import Enum, auto
from typing import Protocol

from inferd.config.options.log import PayloadPolicy, PayloadSettings
from inferd.observe.complaints import Complaints
from inferd.observe.family import Family
from inferd.observe.payloads.event import PayloadEvent

LOGGER = logging.getLogger("inferd.payloads")

_OWN_BYTES = 1000  # about what an event takes beside its data

WRITTEN, DROPPED, FAILED = "written", "dropped", "failed"


class _Sign(Enum):
    """What the thread is told beside events."""

    REOPEN = auto()
    END = auto()


class PayloadSink(Protocol):
    """Where events go. Its methods run in the log's thread, except `open`.

    After `close` another event may come, for which the sink opens again.
    """

    def open(self) -> None:
        """Get ready. Raises OSError, or InvalidConfig for what is not installed."""
        ...

    def write(self, event: PayloadEvent, attributes: dict[str, str]) -> None:
        """Write or send `event`. Raises OSError, http.client.HTTPException."""
        ...

    def close(self) -> None:
        """Write what is left, and close."""
        ...


class PayloadLog:
    """Chooses the requests whose payloads are logged, and passes these to `sink`."""

    def __init__(self, settings: PayloadSettings, sink: PayloadSink) -> None:
        self._settings = settings
        self._sink = sink
        self._where = {
            "source": settings.source,
            "inferenceservicename": settings.service,
            "namespace": settings.namespace,
            "component": "predictor",
            "endpoint": "default",
            "metadata": "{}",
        }
        self._where = {name: value for name, value in self._where.items() if value}
        self._queue: queue.SimpleQueue[PayloadEvent | _Sign] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # events come from the event loop and from its threads
        self._waiting_bytes = 0
        self._counts = {WRITTEN: 0, DROPPED: 0, FAILED: 0}
        self._dropped = Complaints(
            LOGGER, "payloads were dropped: they come too fast to be written"
        )
        self._failed = Complaints(LOGGER, "payloads were lost")

    def open(self) -> None:
        """Get ready to write. Raises OSError or InvalidConfig when that is impossible."""
        self._sink.open()

    def policy(self, model: str) -> PayloadPolicy:
        """Return the policy of `model`."""
        return self._settings.models.get(model) or self._settings.policy

    def takes(self, model: str) -> bool:
        """Decide whether a request to `model` is logged."""
        sample = (self._settings.models.get(model) or self._settings.policy).sample
        # Without asking for a random number where all are logged.
        return sample >= 1 or random.random() < sample

    # Asked before a payload is copied: what is dropped costs no copy. Several may be told yes at
    # once, so the limit is exceeded by as many as there are threads.
    def has_room(self, size_bytes: int) -> bool:
        """Return whether so many bytes may be kept; if not, count what is dropped."""
        with self._lock:
            if self._waiting_bytes + size_bytes <= self._settings.buffer_bytes:
                return True
            self._counts[DROPPED] += 1
        # Outside of the lock: logging may wait for a disk.
        self._dropped.add(1)
        return False

    def add(self, event: PayloadEvent) -> None:
        """Have `event` written."""
        with self._lock:
            self._waiting_bytes += len(event.data) + _OWN_BYTES
            if self._thread is None:
                # A daemon: a receiver that hangs must not keep the process from ending.
                # With the first event, so a server whose models are not logged has no thread.
                self._thread = threading.Thread(target=self._work, name="payloads", daemon=True)
                self._thread.start()
        self._queue.put(event)

    def fail(self, reason: str) -> None:
        """Count a payload that cannot be logged, for `reason`."""
        with self._lock:
            self._counts[FAILED] += 1
        self._failed.add(1, f": {reason}")

    def reopen(self) -> None:
        """Have the file opened again by name, as log rotation may have renamed it."""
        if self._thread is not None:
            self._queue.put(_Sign.REOPEN)
        else:
            self._close_sink()

    def close(self, timeout_s: float) -> None:
        """Write what waits, but give up after `timeout_s` seconds."""
        if self._thread is not None:
            self._queue.put(_Sign.END)
            self._thread.join(timeout_s)
            # The sign is counted in place of the event that is being written.
            if self._thread.is_alive() and (count := self._queue.qsize()):
                LOGGER.warning("%d payloads were lost: there was no time to write them", count)
        else:
            self._close_sink()

    def families(self) -> Sequence[Family]:
        """Return the metrics of the log."""
        return (
            Family(
                "inferd_payload_log_events_total",
                "counter",
                "Payloads that were logged, dropped because they came too fast, or not delivered",
                [(f'result="{name}"', count) for name, count in self._counts.items()],
            ),
            Family(
                "inferd_payload_log_waiting_bytes",
                "gauge",
                "Bytes of payloads that wait to be written or sent",
                [("", self._waiting_bytes)],
            ),
        )

    def _work(self) -> None:
        while (event := self._queue.get()) is not _Sign.END:
            if event is _Sign.REOPEN:
                self._close_sink()
                continue
            try:
                # Sources first, so that an event's own attributes win.
                self._sink.write(event, self._where | event.attributes())
            except Exception as error:  # noqa: BLE001  one event that fails must not end the thread
                self.fail(_reason(error))
            else:
                with self._lock:
                    self._counts[WRITTEN] += 1
            with self._lock:
                # After the write: what is being sent still takes memory.
                self._waiting_bytes -= len(event.data) + _OWN_BYTES
        self._close_sink()

    def _close_sink(self) -> None:
        try:
            self._sink.close()
        except Exception as error:  # noqa: BLE001  as for an event: the thread goes on
            self.fail(_reason(error))


def _reason(error: Exception) -> str:
    # Without errno and file name, which the message has already.
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text or type(error).__name__
