"""What a handler of gRPC calls gets and gives, in words no transport owns.

Handlers see bytes and a Call, never grpcio: what carries them can be exchanged.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from inferd.errors import InferdError, Overloaded, TooLarge
from inferd.transport.access import Guard

Metadata = list[tuple[str, str | bytes]]
"""Keys in lower case, in order; those that end in -bin have bytes."""


class Call(Protocol):
    """One call as its transport knows it.

    A handler whose client has gone, or whose deadline has passed, is cancelled where it waits
    (asyncio.CancelledError); `cancelled` is for code that runs on without waiting.
    """

    @property
    def metadata(self) -> Metadata:
        """The request metadata."""
        ...

    @property
    def deadline_s(self) -> float | None:
        """When the client stops waiting, on the clock of time.monotonic; None: never."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the client has given the call up."""
        ...

    @property
    def peer(self) -> str:
        """The client's address as the transport writes it, such as ipv4:127.0.0.1:5000."""
        ...

    def hold(self, size_bytes: int) -> None:
        """Count bytes of messages that the handler has taken and not yet answered.

        When that is too much, the call ends, or Overloaded is raised.
        """
        ...

    def release(self, size_bytes: int) -> None:
        """Take back what `hold` counted; the end of the call takes back all of it."""
        ...

    def add_initial(self, metadata: Metadata) -> None:
        """Send `metadata` before the answer; without effect once its first message is sent."""
        ...

    def add_trailing(self, metadata: Metadata) -> None:
        """Send `metadata` with the status."""
        ...


UnaryHandler = Callable[[bytes, Call], list[Any] | Awaitable[list[Any]]]
"""Takes a message, returns the answer as buffers to be sent one after the other, or raises.

One that need not wait may return its answer at once: a coroutine less for each call.
"""

StreamHandler = Callable[[AsyncIterator[bytes], Call], AsyncIterator[list[Any]]]
"""Takes messages as they come and yields answers, each as buffers."""


class Unary(NamedTuple):
    """A method that takes one message and gives one; the transport checks `guard` first.

    One that `is_inference` may be refused by an overloaded server before its message is there.
    With `refusal` the client is told of that in an answer, which this returns, and not by a status.
    """

    handler: UnaryHandler
    guard: Guard | None = None
    is_inference: bool = False
    refusal: Callable[[InferdError], list[Any]] | None = None


class Stream(NamedTuple):
    """A method that takes and gives any number of messages; the rest as with Unary."""

    handler: StreamHandler
    guard: Guard | None = None
    is_inference: bool = False


Method = Unary | Stream


def told_refusal(method: Method, error: Exception) -> list[Any] | None:
    """Return the answer that tells of `error`, None if that is told by a status of gRPC."""
    if isinstance(method, Unary) and method.refusal and isinstance(error, Overloaded | TooLarge):
        return method.refusal(error)
    return None


async def send_all(
    answers: AsyncIterator[list[Any]], send: Callable[[list[Any]], Awaitable[None]]
) -> None:
    """Have `send` send all `answers`; at the end they are closed, if that is a generator."""
    try:
        async for buffers in answers:
            await send(buffers)
    finally:
        if hasattr(answers, "aclose"):
            await answers.aclose()
