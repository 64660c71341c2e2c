"""Slots: places for sequences, several on each instance; the lowest is handed out first."""

from heapq import heappop, heappush
from typing import NamedTuple


class Slot(NamedTuple):
    """A place: its `number` on the `instance` of that number, both from 0."""

    number: int
    instance: int


class Slots:
    """The places of `instance_count` instances, `per_instance` on each; instances may come and go.

    Slot 0 of every instance is handed out before slot 1 of any: that spreads sequences over the
    instances and keeps batches dense. Memory grows with the places used, not with all places.
    """

    def __init__(self, instance_count: int, per_instance: int) -> None:
        self._per_instance = per_instance
        self._free: list[Slot] = []  # a heap: given back, or each instance's first unused one
        self._unused: dict[int, int] = {}  # by instance: the first number that was never taken
        for instance in range(instance_count):
            self.open(instance)

    def open(self, instance: int) -> None:
        """Add the places of one more instance."""
        self._unused[instance] = 0
        heappush(self._free, Slot(0, instance))

    def close(self, instance: int) -> None:
        """Stop handing out places of an instance."""
        del self._unused[instance]

    def take(self) -> Slot | None:
        """Take and return the lowest free place, None if there is none."""
        while self._free:
            slot = heappop(self._free)
            unused = self._unused.get(slot.instance)
            if unused is None:
                # Of an instance that has left.
                continue
            if slot.number == unused:
                self._unused[slot.instance] = unused = unused + 1
                if unused < self._per_instance:
                    heappush(self._free, Slot(unused, slot.instance))
            return slot
        return None

    def free(self, slot: Slot) -> None:
        """Take a place back."""
        if slot.instance in self._unused:
            heappush(self._free, slot)
