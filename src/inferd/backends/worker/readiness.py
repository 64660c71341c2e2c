"""Readiness: what the model in a worker says when somebody asks whether it is ready.

It is asked between executions, never beside one: what it looks at then is its own. So one that
executes for long is not asked at once, and what it said last holds meanwhile. One that executes
nothing and says nothing is asked again, ever less often; it may answer each time, or once.
"""

import asyncio
from collections.abc import Callable

IDLE_S = 5.0
"""A model that says nothing for so long, though it executes nothing, is not ready."""

BUSY_S = 0.5
"""So long somebody waits for one that executes."""


class Readiness:
    """Asks one worker by `send`; `idle_s` and `busy_s` are how long it may take to answer."""

    def __init__(
        self, send: Callable[[], None], *, idle_s: float = IDLE_S, busy_s: float = BUSY_S
    ) -> None:
        self._send = send
        self._idle_s = idle_s
        self._busy_s = busy_s
        self._said = True
        self._asked: asyncio.Future[bool] | None = None
        self._patience_s = idle_s  # after which an idle model that says nothing is asked again
        self._again_s = 0.0

    async def ask(self, *, is_busy: bool) -> bool:
        """Return what the model says. Those who ask at the same time get the same answer."""
        loop = asyncio.get_running_loop()
        asked, now_s = self._asked, loop.time()
        if asked is None:
            asked = self._asked = loop.create_future()
            self._patience_s = self._idle_s
            self._again_s = now_s + self._patience_s
            self._send()
        elif now_s >= self._again_s and not is_busy:  # what was sent may have been lost
            self._patience_s *= 2
            self._again_s = now_s + self._patience_s
            self._send()
        await asyncio.wait((asked,), timeout=self._busy_s if is_busy else self._idle_s)
        if not asked.done() and not is_busy:
            self._said = False
        return self._said

    def say(self, *, is_ready: bool) -> None:
        """Take the model's answer; if its process has ended, that it will be ready again."""
        self._said = is_ready
        asked, self._asked = self._asked, None
        if asked is not None and not asked.done():
            asked.set_result(is_ready)
