"""Slots: places for sequences, a number of them on each instance, the lowest handed out first."""

from heapq import heappop, heappush
from typing import NamedTuple


class Slot(NamedTuple):
    """A place: its `number` on instance `lane`, both from 0."""

    number: int
    lane: int


class Slots:
    """The places of `lane_count` instances, `per_lane` on each.

    Slot 0 of every instance is handed out before slot 1 of any: that spreads sequences over the
    instances, and keeps batches dense. Memory grows with the places in use, not with those there
    are.
    """

    def __init__(self, lane_count: int, per_lane: int) -> None:
        self._lane_count = lane_count
        self._count = lane_count * per_lane
        self._unused = 0  # from here on no place has ever been taken
        self._freed: list[Slot] = []

    def take(self) -> Slot | None:
        """Return the lowest free place, None when there is none."""
        if self._freed:
            return heappop(self._freed)
        if self._unused == self._count:
            return None
        number, lane = divmod(self._unused, self._lane_count)
        self._unused += 1
        return Slot(number, lane)

    def free(self, slot: Slot) -> None:
        """Take a place back."""
        heappush(self._freed, slot)
