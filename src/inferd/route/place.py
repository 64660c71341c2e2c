"""Place: a server that requests can be sent to, and what tells which places there are."""

import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from inferd.errors import InferdError


class PlaceState(enum.Enum):
    """What a place is to be given."""

    READY = "ready"
    """Requests, as long as it says itself that it is ready, or none of the others does."""
    DRAINING = "draining"
    """Only requests of sequences that it has already: it is going to end."""
    ASLEEP = "asleep"
    """Nothing: there is no server. Its source starts one when it is told to."""


@dataclass(frozen=True, slots=True)
class Place:
    """One server, which has a `name` of its own among the places.

    `models` are those that it is meant to have; None: every model. `http_port` may equal
    `grpc_port`, if the server has one port for everything; one that sleeps has none. A server that
    comes back with other models, or at another address, is the same place as long as it has the
    same name.
    """

    name: str
    host: str
    http_port: int
    grpc_port: int
    models: frozenset[str] | None = None
    state: PlaceState = PlaceState.READY


class SourceFailed(InferdError):
    """A source cannot tell the places now. Whoever follows it keeps those it knows, and retries."""


class Source(Protocol):
    """What knows the places, and when they change; `name` is for the log: "the file a.toml"."""

    name: str

    def follow(self) -> AsyncIterator[tuple[Place, ...]]:
        """Yield all places that there are now, and again all of them whenever any has changed.

        Raises SourceFailed when it cannot tell; `follow` may be called again after that, and then
        begins with all places. The iterator has no end, and may be closed at any time.
        """
        ...

    def wake(self, name: str) -> None:
        """Have a place that sleeps serve; it is told by `follow` when it does."""
        ...
