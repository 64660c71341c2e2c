"""Slots: places for sequences, several on each instance; the lowest is handed out first."""

from heapq import heappop, heappush
from typing import NamedTuple


class Slot(NamedTuple):
    """A place: its `number` on instance `lane`, both from 0."""

    number: int
    lane: int


class Slots:
    """The places of `lane_count` instances, `per_lane` on each; instances may come and go.

    Slot 0 of every instance is handed out before slot 1 of any: that spreads sequences over the
    instances and keeps batches dense. Memory grows with the places used, not with all places.
    """

    def __init__(self, lane_count: int, per_lane: int) -> None:
        self._per_lane = per_lane
        self._free: list[Slot] = []  # a heap: slots given back, and each lane's first unused slot
        self._unused: dict[int, int] = {}  # by lane: the first number that was never taken
        for lane in range(lane_count):
            self.open(lane)

    def open(self, lane: int) -> None:
        """Add the places of one more instance."""
        self._unused[lane] = 0
        heappush(self._free, Slot(0, lane))

    def close(self, lane: int) -> None:
        """Stop handing out places of an instance."""
        del self._unused[lane]

    def take(self) -> Slot | None:
        """Take and return the lowest free place, None if there is none."""
        while self._free:
            slot = heappop(self._free)
            unused = self._unused.get(slot.lane)
            if unused is None:
                continue
            if slot.number == unused:
                self._unused[slot.lane] = unused = unused + 1
                if unused < self._per_lane:
                    heappush(self._free, Slot(unused, slot.lane))
            return slot
        return None

    def free(self, slot: Slot) -> None:
        """Take a place back."""
        if slot.lane in self._unused:
            heappush(self._free, slot)
