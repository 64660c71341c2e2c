"""LoadConnection: what the kinds of connections have in common; one request at a time on each."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from inferd.bench.plan import Plan

BUFFER_BYTES = 1 << 16
MOST_TEXT = 300
"""The most characters of an error of a server that are repeated."""

now_ns = time.monotonic_ns


class LoadConnection(asyncio.BufferedProtocol):
    """A connection to the server.

    `send` starts a request, after which `on_end` is called once, with this connection and "" or
    the reason why there was no answer. `answers` counts those of a stream; `first_ns` is when the
    first was there. What the load does with it is noted here, too: `due_ns` is when the request
    should have been sent.
    """

    def __init__(self, plan: Plan, on_end: Callable[["LoadConnection", str], None]) -> None:
        self.due_ns = self.first_ns = 0
        self.answers = 0
        self.is_busy = False
        self.is_lost = False
        self.place = 0
        """Its number among those of the load, and with it that of its sequence."""
        self.step = 0
        self.number = 0
        self._plan = plan
        self._on_end = on_end
        self._transport: Any = None
        # One buffer for each connection, since nobody keeps what is received.
        self._view = memoryview(bytearray(BUFFER_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport

    def get_buffer(self, _hint: int) -> memoryview:
        """Return where received bytes go."""
        return self._view

    def connection_lost(self, error: Exception | None) -> None:
        """End the request under way: it has no answer."""
        self.is_lost = True
        if self.is_busy:
            self.end(f"the connection was lost{f': {error}' if error else ''}")

    def end(self, error: str) -> None:
        """Report the end of the request under way."""
        self.is_busy = False
        self._on_end(self, error[:MOST_TEXT])

    def send(self, content: bytes) -> None:
        """Send a request."""
        raise NotImplementedError

    def fail(self, reason: str) -> None:
        """End the connection, and without its answer the request under way."""
        self.close()
        if self.is_busy:
            self.end(reason)

    def close(self) -> None:
        """Close it; a request under way has no answer."""
        self.is_lost = True
        if self._transport is not None:
            self._transport.abort()
