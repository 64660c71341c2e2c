"""Home: in which processes of the server a version of a model has its instances."""

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

T = TypeVar("T")

Kind = Literal["copy", "single", "spread"]


class Home(msgspec.Struct, frozen=True):
    """Where the instances of a version are, as process `number` of `count` sees it.

    "copy": all of them in each process. "single": all of them in process `first`. "spread": the
    first one there, the next in the next process, and so on. `by_sequence`: the requests of a
    sequence all run in one process.
    """

    kind: Kind = "copy"
    first: int = 0
    number: int = 0
    count: int = 1
    by_sequence: bool = False

    @property
    def is_forwarded(self) -> bool:
        """Whether a request may have to run in another process than the one it reaches."""
        # One process owns everything, whatever it is.
        return self.count > 1 and (self.kind != "copy" or self.by_sequence)

    def own(self, instances: Sequence[T]) -> list[T]:
        """Return those of all `instances` of the version that this process has."""
        if self.kind == "copy":
            return list(instances)
        # How many processes behind the first this one is, around the circle.
        behind = (self.number - self.first) % self.count
        if self.kind == "single":
            return [] if behind else list(instances)
        return list(instances[behind :: self.count])

    def owners(self, instance_count: int) -> tuple[int, ...]:
        """Return the processes that have any of `instance_count` instances, in their order."""
        if self.kind == "copy":
            return tuple(range(self.count))
        # As many processes as there are instances, as they are dealt out one by one.
        reached = min(instance_count, self.count) if self.kind == "spread" else 1
        # In a fixed order, so that hashing gives the same owner everywhere.
        return tuple(sorted((self.first + behind) % self.count for behind in range(reached)))


EVERYWHERE = Home()
"""Of a server that is one process."""
