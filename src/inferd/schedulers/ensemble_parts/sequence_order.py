"""SequenceOrder: the requests of a sequence come to a step of an ensemble in their own order.

What runs before such a step may take longer for one request than for the next. So they line up when
they come, one line for each sequence and step. Who is first may enter; who enters or leaves makes
room for the next. Nobody waits for what comes later, so the first always goes on or leaves.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Iterable

LineKey = tuple[str, int]
"""Which step a line is before: the model that it calls, and how many steps before it do so too."""


class Ticket:
    """The places of one request in the lines of its sequence, before those of `steps`."""

    __slots__ = ("sequence", "steps")

    def __init__(self, sequence: Hashable, steps: Iterable[LineKey]) -> None:
        self.sequence = sequence
        self.steps = set(steps)


_TicketLine = OrderedDict[Ticket, "asyncio.Future[None] | None"]


class SequenceOrder:
    """All lines of one ensemble, and of what replaces it; there are none where nobody waits."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Hashable, LineKey], _TicketLine] = {}

    def __len__(self) -> int:
        """Return how many lines there are."""
        return len(self._lines)

    def line_up(self, sequence: Hashable, steps: Iterable[LineKey]) -> Ticket:
        """Return the last place in the lines of `sequence` before `steps`, until `leave`."""
        ticket = Ticket(sequence, steps)
        # In all lines at once and without awaiting between, so that two requests are in the same
        # order in each.
        for step in ticket.steps:
            self._lines.setdefault((sequence, step), OrderedDict())[ticket] = None
        return ticket

    async def enter(self, ticket: Ticket, step: LineKey | None) -> None:
        """Wait until all before it have entered `step` or left; whoever returns enters at once.

        The next one comes in a later turn of the event loop, so nothing may be waited for between
        the return and the request to the step.
        """
        if step is None or step not in ticket.steps:
            return
        line = self._lines[ticket.sequence, step]
        if next(iter(line)) is not ticket:
            # No Promise: that might go on with who waits before this one has entered.
            line[ticket] = turn = asyncio.get_running_loop().create_future()
            await turn
        self._leave(ticket, step)

    def leave(self, ticket: Ticket) -> None:
        """Leave all lines, whose step then waits for it no more."""
        # The set shrinks meanwhile.
        for step in tuple(ticket.steps):
            self._leave(ticket, step)

    def _leave(self, ticket: Ticket, step: LineKey) -> None:
        ticket.steps.remove(step)
        key = ticket.sequence, step
        line = self._lines[key]
        was_first = next(iter(line)) is ticket
        del line[ticket]
        if not line:
            del self._lines[key]
        elif was_first:
            turn = next(iter(line.values()))
            if turn is not None and not turn.done():
                turn.set_result(None)
