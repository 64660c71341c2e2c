"""Notable requests: slow and failed ones, for a while."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from inferd.engine.serving.served import Served
from inferd.errors import InferdError, foreign_text
from inferd.observe.stats import CANCELED, Timed

MOST = 250
"""The most slow ones, and the most failed ones, that are remembered."""

AGE_MS = 15 * 60 * 1000
MOST_SLOW_A_SECOND = 10
MOST_TEXT = 2000
MOST_ID = 200


class NotableRequest(msgspec.Struct, gc=False):
    """A request that was slow or failed; times in ns, `time`, when it ended, in ms since 1970.

    `reason` is one of FAILURE_REASONS, "" of a slow one. A phase that it did not reach took 0.
    """

    time: int
    model: str
    version: str
    id: str
    status: Literal["ok", "failed"]
    error: str
    reason: str
    took: int
    queue: int
    input: int
    infer: int
    output: int
    handover: int
    batch_size: int
    pid: int


class NotableRequests:
    """Remembers slow and failed requests of this process; `clock` is in seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.count = 0
        self._clock = clock
        self._slow: deque[tuple[int, NotableRequest]] = deque(maxlen=MOST)
        self._failed: deque[tuple[int, NotableRequest]] = deque(maxlen=MOST)
        self._second = 0
        self._in_second = 0
        self._pid = os.getpid()

    def listen(self, served: Served) -> None:
        """Have the counts of a version tell of its slow and failed requests."""
        name, version, counts = served.name, served.version, served.counts

        # Closures, made once for each version: Counts knows no names.
        def slow(request: Timed, took_ns: int) -> None:
            now_s = self._clock()
            if int(now_s) != self._second:
                self._second, self._in_second = int(now_s), 0
            self._in_second += 1
            # Under overload everything is slow: a few of each second tell as much.
            if self._in_second <= MOST_SLOW_A_SECOND:
                self._add(self._slow, _noted(now_s, name, version, request, took_ns, self._pid))

        def failed(request: Timed, error: BaseException, reason: str) -> None:
            now_s = self._clock()
            # An execution that failed may have no end.
            took_ns = counts.clock() - (request.queued_ns or request.started_ns)
            noted = _noted(now_s, name, version, request, took_ns, self._pid)
            noted.status, noted.reason, noted.error = "failed", reason, _text_of(error, reason)
            self._add(self._failed, noted)

        counts.on_slow, counts.on_failure = slow, failed

    def since(self, count: int, model: str = "", version: str = "") -> list[NotableRequest]:
        """Return those after the first `count`, of all models or of one version; oldest first."""
        least = int(self._clock() * 1000) - AGE_MS
        found = [
            (number, one)
            for several in (self._slow, self._failed)
            for number, one in several
            if number > count and one.time >= least
        ]
        if model:
            found = [each for each in found if (each[1].model, each[1].version) == (model, version)]
        return [one for _, one in sorted(found, key=lambda each: each[0])]

    def _add(self, several: deque[tuple[int, NotableRequest]], one: NotableRequest) -> None:
        self.count += 1
        several.append((self.count, one))


def _noted(
    now_s: float, name: str, version: str, request: Timed, took_ns: int, pid: int
) -> NotableRequest:
    queued, started, ended = request.queued_ns, request.started_ns, request.ended_ns
    computing = request.computing_ns or started
    computed = request.computed_ns or ended
    # Timed has no id: counts need none.
    id: Any = getattr(request, "id", "")
    return NotableRequest(
        int(now_s * 1000),
        name,
        version,
        _sendable(str(id), MOST_ID),
        "ok",
        "",
        "",
        took_ns,
        started - queued if queued and started else took_ns if queued and not ended else 0,
        computing - started,
        max(0, computed - computing) if started else 0,
        max(0, ended - computed) if started else 0,
        max(0, request.answered_ns - ended) if ended else 0,
        request.batch_size,
        pid,
    )


def _text_of(error: BaseException, reason: str) -> str:
    if isinstance(error, InferdError):
        text = error.message
    elif reason == CANCELED or isinstance(error, asyncio.CancelledError):
        text = "the client has gone"
    else:
        text = foreign_text(error)
    return _sendable(text, MOST_TEXT)


def _sendable(text: str, most: int) -> str:
    """Return `text`, cut, without halves of characters, which cannot be sent."""
    text = text if len(text) <= most else text[:most] + "…"
    # Half a surrogate pair cannot be encoded.
    return text.encode(errors="replace").decode()
