"""ClientTransport: how a client's bytes travel, ByteStream, and its calls wait, CallSlots.

inferd.client.aio.io waits on an event loop. In inferd.client.sync.io threads wait: its coroutines
block, and never suspend whoever awaits them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from inferd.client.settings import ClientSettings
from inferd.memory.buffer import Buffer


class ByteStream(Protocol):
    """A connection. Calls end at `deadline`, on the clock of time.monotonic."""

    deadline: float

    @property
    def protocol(self) -> str | None:
        """The protocol that both sides chose (ALPN), None if they did not."""

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send all of `buffers`. Raises OSError, TimeoutError among them."""

    async def recv_into(self, view: memoryview, *, whole: bool = False) -> int:
        """Put what arrives into `view`; return how much, 0 at the end. Raises OSError.

        With `whole` wait until `view` is full, if the system can.
        """

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived, the end of the connection included."""

    def is_here(self) -> bool:
        """Return whether it can be used by whoever asks: not in every event loop."""

    def close(self) -> None:
        """Close the connection."""


class CallSlots(Protocol):
    """How many calls may be under way at a time; others wait, in their order."""

    async def take(self, deadline: float) -> None:
        """Wait for a free slot and take it. Raises DeadlineExceeded."""

    def give_back(self) -> None:
        """Free a slot, or hand it to who waits longest."""


class ClientTransport(NamedTuple):
    """How a client's calls wait; `open_stream` raises ConnectFailed and DeadlineExceeded."""

    open_stream: Callable[[ClientSettings, float], Awaitable[ByteStream]]
    slots: Callable[[int], CallSlots]
    sleep: Callable[[float], Awaitable[None]]
