"""Readiness: what the model in a worker answers when asked whether it is ready.

It is asked between executions, so that it need not guard its state. A model in a long execution is
therefore not asked at once; until then its last answer holds. An idle model that does not answer is
asked again, at growing intervals; it may answer every question or only one.
"""

import asyncio
from collections.abc import Callable

IDLE_S = 5.0
"""An idle model that does not answer within this time is not ready."""

BUSY_S = 0.5
"""How long to wait for the answer of a busy model."""


class Readiness:
    """Asks one worker by `send`; `idle_s` and `busy_s` are how long it may take to answer."""

    def __init__(
        self, send: Callable[[], None], *, idle_s: float = IDLE_S, busy_s: float = BUSY_S
    ) -> None:
        self._send = send
        self._idle_s = idle_s
        self._busy_s = busy_s
        # A model that has just started is ready until it says otherwise.
        self._said = True
        self._pending: asyncio.Future[bool] | None = None
        self._patience_s = idle_s  # until a silent idle model is asked again
        self._again_s = 0.0

    async def ask(self, *, is_busy: bool) -> bool:
        """Return the model's answer. Concurrent callers share one question and its answer."""
        loop = asyncio.get_running_loop()
        pending, now_s = self._pending, loop.time()
        if pending is None:
            pending = self._pending = loop.create_future()
            self._patience_s = self._idle_s
            self._again_s = now_s + self._patience_s
            self._send()
        elif now_s >= self._again_s and not is_busy:  # the question may have been lost
            self._patience_s *= 2
            self._again_s = now_s + self._patience_s
            self._send()
        # asyncio.wait, unlike wait_for, leaves the future alone at the
        # timeout: others wait for it, too.
        await asyncio.wait((pending,), timeout=self._busy_s if is_busy else self._idle_s)
        if not pending.done() and not is_busy:
            self._said = False
        return self._said

    def say(self, *, is_ready: bool) -> None:
        """Take the model's answer; True when its process has ended, as the next will be ready."""
        self._said = is_ready
        pending, self._pending = self._pending, None
        if pending is not None and not pending.done():
            pending.set_result(is_ready)
