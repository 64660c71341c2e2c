"""MergedHistory: the history of all processes of a server, put together while somebody looks."""

import asyncio
from collections.abc import Iterable, Sequence

from inferd.ui.figures.history import MINUTE, DayHistory, Row, at_the_same_time
from inferd.ui.figures.part import ProcessPart

PATIENCE_S = 3
"""How far a process may be behind others until they do not wait for it."""

_AT_ONCE = 50
"""How many rows are put together before others get a turn."""


class MergedHistory:
    """Takes the rows of processes as they come, and has a `history` up to where all are."""

    def __init__(self) -> None:
        self.history = DayHistory()
        self._is_new = True
        self._waiting: dict[int, list[Row]] = {}

    async def add(self, parts: Sequence[ProcessPart]) -> None:
        """Add what is new; the first time, what was before.

        Other work has its turns meanwhile.
        """
        for part in parts:
            for row in part.seconds:
                # The first time, the past hour is wanted as well.
                if row.second > self.history.last or self._is_new:
                    self._waiting.setdefault(row.second, []).append(row)
        newest = max(part.second for part in parts)
        # Up to where all are, but for those that are far behind: they may hang.
        up_to = min(part.second for part in parts if part.second >= newest - PATIENCE_S)
        if self._is_new:
            self._is_new = False
            await self._add_before(parts, up_to // MINUTE * MINUTE)
        for number, second in enumerate(sorted(self._waiting)):
            if second <= up_to:
                self.history.add(at_the_same_time(self._waiting.pop(second)))
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _add_before(self, parts: Sequence[ProcessPart], minute: int) -> None:
        """Add the seconds and minutes that were over when `minute` began."""
        minutes: dict[int, list[Row]] = {}
        for part in parts:
            for row in part.minutes:
                if row.second < minute:
                    minutes.setdefault(row.second, []).append(row)
        # Seconds of the minute under way are added as seconds, so that `history` can make the
        # minute of them.
        early = {at: self._waiting.pop(at) for at in sorted(self._waiting) if at < minute}
        for row in await _in_turns(early.values()):
            self.history.seconds.append(row)
        for row in await _in_turns([minutes[at] for at in sorted(minutes)]):
            self.history.minutes.append(row)


async def _in_turns(several: Iterable[Sequence[Row]]) -> list[Row]:
    found = []
    for number, rows in enumerate(several):
        found.append(at_the_same_time(rows))
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    return found
