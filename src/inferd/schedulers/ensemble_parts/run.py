"""EnsembleRun: how far a request to an ensemble has come, and its turn among those of its sequence.

What runs before a step may take longer for one request of a sequence than for the next. So they
line up when they come, one line for each sequence and step. Who is first may enter; who enters or
leaves makes room for the next. Nobody waits for what comes later, so the first always goes on or
leaves.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Iterable

from inferd.core.request import UNSEQUENCED, InferRequest, InferResponse, Sequence
from inferd.schedulers.ensemble_parts.plan import Step
from inferd.tensor.tensor import Parameters, Tensor

LineKey = tuple[str, int]
"""Which step a line is before: the model that it calls, and how many steps before it do so too."""


class Ticket:
    """The places of one request in the lines of its sequence, before those of `steps`."""

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


class EnsembleRun:
    """A request to the ensemble, the tensors there are so far, by name, and if a step made any.

    With a `ticket` it belongs to a sequence, and takes its turn at steps that know these. Its
    `sequence` is that of the request, unless a step's answer has named another.
    """

    def __init__(self, request: InferRequest, tensors: dict[str, Tensor]) -> None:
        self.request = request
        self.tensors = tensors
        self.sequence = request.sequence
        self.has_begun = False
        self.ticket: Ticket | None = None

    def part(self) -> "EnsembleRun":
        """Return a copy of the run that goes on with one of several answers."""
        # Each answer goes its own way from here; the tensors themselves are never written.
        part = EnsembleRun(self.request, dict(self.tensors))
        part.sequence = self.sequence
        return part

    def take(self, step: Step, response: InferResponse) -> None:
        """Store the outputs of a step under the ensemble's tensor names."""
        self.has_begun = True
        if response.parameters:
            self._follow(response.parameters)
        names = step.outputs
        for tensor in response.outputs:
            outer = names.get(tensor.name)
            if outer is not None:
                self.tensors[outer] = tensor

    def _follow(self, said: Parameters) -> None:
        """Go on with the sequence that a step's answer names, if it names any (Triton)."""
        if said is UNSEQUENCED or said.keys().isdisjoint(UNSEQUENCED):
            return
        now = self.sequence
        id = said.get("sequence_id", now.id if now is not None else 0)
        start, end = said.get("sequence_start", False), said.get("sequence_end", False)
        # JSON's true is an int in Python.
        if isinstance(id, int | str) and id is not True and (id or start or end):
            self.sequence = Sequence(id, bool(start), bool(end))
