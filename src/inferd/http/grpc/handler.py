"""The interface of gRPC handlers, independent of the transport.

Handlers see bytes and a Call, never grpcio, so the transport can be exchanged.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, Protocol

from inferd.errors import InferdError, Overloaded, TooLarge
from inferd.http.access import Guard
from inferd.http.request_log import Notes
from inferd.memory.buffer import Buffer

Metadata = list[tuple[str, str | bytes]]
"""Pairs in order, keys in lower case; the values of keys that end in -bin are bytes."""


class Call(Protocol):
    """One call, as its handler sees it.

    If the client goes away or the deadline passes, the handler is cancelled where it waits
    (asyncio.CancelledError); `cancelled` is for code that runs on without waiting.
    """

    @property
    def metadata(self) -> Metadata:
        """The request metadata."""
        ...

    @property
    def deadline_s(self) -> float | None:
        """When the client stops waiting, by time.monotonic; None means never."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the client has given up the call."""
        ...

    @property
    def peer(self) -> str:
        """The client's address as the transport writes it, such as ipv4:127.0.0.1:5000."""
        ...

    @property
    def notes(self) -> Notes | None:
        """Where the handler notes what the call is about; None if requests are not logged."""
        ...

    def note_request(self, notes: Notes, status: int, taken: int, sent: int, began_ns: int) -> None:
        """Log one request of a stream, whose message has `taken` bytes, and its answers `sent`.

        `status` is its gRPC code; it came at `began_ns`, by time.time_ns.
        """
        ...

    def hold(self, size_bytes: int) -> None:
        """Count bytes of messages that the handler has taken but not yet answered.

        If that is too many, the call ends, or Overloaded is raised.
        """
        ...

    def release(self, size_bytes: int) -> None:
        """Undo a `hold`; the end of the call undoes all of them."""
        ...

    def add_initial(self, metadata: Metadata) -> None:
        """Send `metadata` before the answer; no effect once its first message has been sent."""
        ...

    def add_trailing(self, metadata: Metadata) -> None:
        """Send `metadata` with the status."""
        ...


UnaryHandler = Callable[[bytes, Call], list[Buffer] | Awaitable[list[Buffer]]]
"""Takes a message and returns the answer, as buffers to be sent one after the other, or raises.

A handler that need not wait may return the answer itself, which saves a coroutine per call.
"""

StreamHandler = Callable[[AsyncIterator[bytes], Call], AsyncIterator[list[Buffer]]]
"""Takes messages as they arrive and yields answers, each as buffers."""


class Unary(NamedTuple):
    """A method that takes one message and returns one; the transport checks `guard` first.

    If `is_refusable`, an overloaded server may refuse a call before its message has arrived. If
    `refusal` is given, the client then gets the answer it returns instead of an error status.
    """

    handler: UnaryHandler
    guard: Guard | None = None
    is_refusable: bool = False
    refusal: Callable[[InferdError], list[Buffer]] | None = None


class Stream(NamedTuple):
    """A method that takes and yields any number of messages; otherwise like Unary."""

    handler: StreamHandler
    guard: Guard | None = None
    is_refusable: bool = False


Method = Unary | Stream


def refusal_of(method: Method, error: Exception) -> list[Buffer] | None:
    """Return the answer that reports `error`, None if a gRPC status reports it."""
    # Only what the server refuses by itself; all else a method words anyway.
    if isinstance(method, Unary) and method.refusal and isinstance(error, Overloaded | TooLarge):
        return method.refusal(error)
    return None


async def send_all(
    answers: AsyncIterator[list[Buffer]], send: Callable[[list[Buffer]], Awaitable[None]]
) -> None:
    """Send all `answers` with `send`; at the end close them if they are a generator."""
    try:
        async for buffers in answers:
            await send(buffers)
    finally:
        # Handlers may give any asynchronous iterator.
        if hasattr(answers, "aclose"):
            await answers.aclose()
