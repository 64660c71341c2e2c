"""Topics: what the streams of events of the dashboard tell of, and who makes these events."""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, Protocol

GROUPS: Mapping[str, tuple[str, ...]] = {
    "overview": ("statistics",),
    "models": ("statistics",),
    "model": ("statistics",),
    "log": ("statistics", "logging"),
    "requests": ("statistics", "trace"),
}
"""The topics, and the API groups that a client needs access to."""


class Subject(NamedTuple):
    """What a reader wants to hear of: a topic; `model` and `version` belong to the topic "model".

    An empty `version` is the one that serves requests without a version.
    """

    topic: str
    model: str = ""
    version: str = ""


class Event(NamedTuple):
    """An event: its `name`, and its `data`, JSON without line feeds."""

    name: str
    data: bytes


class Feed(Protocol):
    """What one reader hears of one subject."""

    def news(self) -> Sequence[Event]:
        """Return what is new since the last call; the first call returns all there is.

        It is called after a `refresh`, as soon as the reader takes more: nothing is kept for one
        that is slow, who hears of the latest state alone.
        """
        ...


class Topics(Protocol):
    """Makes the events; all readers of a process share one."""

    async def refresh(self, subjects: Set[Subject]) -> None:
        """Learn how things are now, in all processes of the server.

        Called at most once a second for each subject, and only while somebody reads of it; never
        twice at the same time. `subjects` are those about which something will be asked next.
        """
        ...

    def feed(self, subject: Subject) -> Feed:
        """Return what a new reader hears of `subject`. Raises ModelNotFound."""
        ...
