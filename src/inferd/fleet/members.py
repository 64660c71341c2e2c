"""Members: the processes of a server as the supervisor knows them, and which gets a connection."""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from inferd.core.processes import Failed, Serves
from inferd.fleet.messages import ConnectionLoad, Tally


class State(enum.Enum):
    """What a process does: see the picture in docs/tour.md."""

    LOADING = "loading"
    """It loads the models of the start."""
    JOINING = "joining"
    """It makes the changes that the others made before."""
    READY = "ready"
    DRAINING = "draining"
    """It finishes what is under way, and ends."""


@dataclass
class Member:
    """One process, the one of its `slot` or one that takes its place. Times are in seconds.

    `connection_count` is what it told when it had `received_count` of those `given_count`. `serves`
    are the versions of models that it has, `failed` those that it could not load. `replaying` is
    the number of the change of the journal that it is making, 0: none, and `reached` the place of
    that there. `proposed` is the number of the last proposal that it made. `ready_s` is when it
    began to serve, None if it never did.
    """

    number: int
    slot: int
    began_s: float
    heard_s: float
    state: State = State.LOADING
    connection_count: int = 0
    received_count: int = 0
    given_count: int = 0
    reached: int = 0
    proposed: int = 0
    replaying: int = 0
    ready_s: float | None = None
    drain_by_s: float = 0.0
    numbers: bytes = b""
    serves: Serves = field(default_factory=dict)
    failed: Failed = field(default_factory=dict)

    @property
    def load(self) -> int:
        """The connections that it has, with those that are on their way to it."""
        # What was handed over but is not yet counted there: otherwise a burst would all go to the
        # process whose last word is the oldest.
        return self.connection_count + self.given_count - self.received_count

    def note_load(self, message: ConnectionLoad) -> None:
        """Take what the process tells of its connections."""
        self.connection_count = message.connection_count
        self.received_count = message.received_count

    def note_numbers(self, message: Tally) -> None:
        """Take what the process has counted."""
        self.numbers = message.body


class Members:
    """All processes, by number."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}

    def __iter__(self) -> Iterator[Member]:
        """Iterate over them by their numbers."""
        # A copy, as what is done for one may remove another.
        return iter(list(self._members.values()))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._members)

    def get(self, number: int) -> Member | None:
        """Return the process of that number, None if it has ended."""
        return self._members.get(number)

    def add(self, member: Member) -> None:
        """Add a process that has been started."""
        self._members[member.number] = member

    def remove(self, number: int) -> Member | None:
        """Remove a process that has ended, and return it."""
        return self._members.pop(number, None)

    def ready(self) -> list[Member]:
        """Return those that serve."""
        return [member for member in self if member.state is State.READY]

    def of(self, slot: int) -> list[Member]:
        """Return the processes of a slot."""
        return [member for member in self if member.slot == slot]

    def has_another(self, slot: int) -> bool:
        """Tell whether a slot has a process that serves, or is going to."""
        return any(one.state is not State.DRAINING for one in self.of(slot))

    def least_loaded(self, among: Iterable[Member]) -> Member | None:
        """Return the one of these with the fewest connections, None if there is none.

        Of several it is the one that was given the fewest so far, so that short ones go round.
        """
        return min(among, key=lambda one: (one.load, one.given_count, one.slot), default=None)
