"""ClientCall: what is sent, and how its answer is read; ServerAnswer: what was received."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from inferd.memory.buffer import Buffer

T = TypeVar("T", covariant=True)

SMALL_BYTES = 16384
"""Up to this size, buffers are joined before they are sent; larger ones are gathered."""


class ServerAnswer(NamedTuple):
    """An answer: `status` is that of HTTP, and 0 for OK of gRPC, whose message is the `body`."""

    status: int
    headers: Mapping[str, str]
    body: memoryview


class ClientCall(Generic[T]):
    """A call: `path` names it, `buffers` are its body, `read` makes a value of its answer.

    `verb` is that of HTTP. `is_safe` says that the call changes nothing, so that it may be sent
    again; `is_health` that a refusal is its answer. `headers` are those of this call alone.
    """

    __slots__ = ("buffers", "headers", "is_health", "is_safe", "path", "read", "size", "verb")

    # One argument for each attribute; most are given by name.
    def __init__(  # noqa: PLR0913
        self,
        path: str,
        read: Callable[[ServerAnswer], T],
        buffers: Sequence[Buffer] = (),
        *,
        verb: str = "POST",
        headers: Sequence[tuple[str, str]] = (),
        is_safe: bool = True,
        is_health: bool = False,
    ) -> None:
        self.path = path
        self.read = read
        self.buffers = buffers
        self.verb = verb
        self.headers = headers
        self.is_safe = is_safe
        self.is_health = is_health
        self.size = sum(map(len, buffers))
