"""Processes: those that together are one server, as each of them knows the others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

Serves = dict[str, dict[str, tuple[str, ...]]]
"""What a process serves: by model and version, prints of the configuration (first) and of each file
that it was made from. One print differs from another when that has changed."""

Failed = dict[str, dict[str, str]]
"""Why versions did not load, by model and version."""


def unlike(one: Serves, other: Serves, *, is_start: bool = False) -> list[str]:
    """Return the models that both serve, `other` not as `one` does.

    That has other versions, or one made from another configuration, or files have changed or are
    gone. More files may be there: models write some. At the start files are not compared at all,
    for a model may write them while other processes still begin.
    """
    return sorted(
        name
        for name in one.keys() & other.keys()
        if one[name].keys() != other[name].keys()
        or any(
            # The first print is the configuration's.
            set(prints[:1] if is_start else prints) - set(other[name][version])
            for version, prints in one[name].items()
        )
    )


class Processes:
    """The processes of a server: this one has `number`, from 0 to below `count`.

    `sockets` are the paths of Unix sockets on which the ready ones take what belongs to them, by
    number; this one's, `path`, is among them once it is ready. A process that is replaced keeps its
    number: until it has ended there are two of that number, of which the new one's path is named.
    `generation` is 0 in those that the server starts with, and a number of its own in each that is
    started later.
    `restart_count` is how often any was started again after it had ended. `on_change` are called
    when `sockets` has changed.
    """

    def __init__(
        self, number: int = 0, count: int = 1, path: str = "", generation: int = 0
    ) -> None:
        self.number = number
        self.count = count
        self.path = path
        self.generation = generation
        self.sockets: Mapping[int, str] = {}
        self.restart_count = 0
        self.on_change: list[Callable[[], None]] = []

    def update(self, sockets: Mapping[int, str], restart_count: int = 0) -> None:
        """Note that `sockets` are the ready ones now."""
        self.sockets = dict(sockets)
        self.restart_count = restart_count
        for tell in self.on_change:
            tell()


ALONE = Processes()
"""The one process that most servers are."""


class Others(Protocol):
    """The other processes of the server, as the engine asks them."""

    async def numbers(self, own: bytes) -> Sequence[bytes]:
        """Return the encoded numbers of each other process, and the sum of those that have ended.

        They are as of now, and kept as those to be added if their process ends; so are this
        process's `own`. Otherwise a counter that somebody has seen might fall. A process is either
        among the others or among the ended, never in both.
        """
        ...

    async def say_ready(self, name: str = "", version: str = "") -> bool:
        """Tell whether no instance of a model there, or of all, calls itself not ready.

        Of a process that does not tell nothing is known.
        """
        ...

    async def ask(self, what: str) -> Sequence[bytes]:
        """Return what each other process replies to a question; some may not.

        What it is about is said by its first word, and each process replies as it has been told to.
        """
        ...

    async def starter_lines(self, count: int) -> Sequence[bytes]:
        """Return the log lines, after the first `count`, of the process that started the others.

        They are encoded as by inferd.observe.log_lines; nothing if it does not reply.
        """
        ...

    async def ended(self) -> Sequence[bytes]:
        """Return the encoded sum of the numbers of processes that have ended, nothing without."""
        ...
