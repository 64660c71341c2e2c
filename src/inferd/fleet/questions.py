"""Questions that a process asks all others."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from inferd.fleet.messages import Ask, Question, Replied, Reply, ToProcess

WAIT_S = 2.0
"""How long a question waits for a process that does not reply."""


@dataclass
class _Open:
    """A question that some have not replied to: `asker` wants to know `what`."""

    asker: int
    ask: Ask
    missing: set[int]
    until_s: float
    bodies: dict[int, bytes] = field(default_factory=dict)


class Questions:
    """The questions that wait for replies.

    `send` tells a process something. `rest` returns what is to be added to the replies to a
    question, of those that did not reply, and of those that ended.
    """

    def __init__(
        self,
        send: Callable[[int, ToProcess], None],
        rest: Callable[[str, Iterable[int]], list[bytes]],
    ) -> None:
        self._send = send
        self._rest = rest
        self._open: dict[int, _Open] = {}
        self._last = 0

    def ask(self, asker: int, ask: Ask, others: Iterable[int], now: float) -> None:
        """Pass a question on to `others`."""
        self._last += 1
        question = _Open(asker, ask, set(others), now + WAIT_S)
        self._open[self._last] = question
        for other in sorted(question.missing):
            self._send(other, Question(self._last, ask.what))
        # There may be no others: then the answer is there at once.
        self._look(self._last)

    def what(self, number: int) -> str:
        """Return what an open question is about, "" if it is not open."""
        question = self._open.get(number)
        return question.ask.what if question is not None else ""

    def reply(self, member: int, reply: Reply) -> None:
        """Take the reply of a process."""
        question = self._open.get(reply.question)
        # A reply may come too late, or twice.
        if question is not None and member in question.missing:
            question.missing.discard(member)
            question.bodies[member] = reply.body
            self._look(reply.question)

    def lost(self, member: int) -> None:
        """Note that a process has ended: what it left is among the rest, not among the replies."""
        for number, question in list(self._open.items()):
            if question.asker == member:
                del self._open[number]
                continue
            # Its last numbers are among those of ended processes from now on: with
            # its reply they would be counted twice.
            question.bodies.pop(member, None)
            question.missing.discard(member)
            self._look(number)

    def check_time(self, now: float) -> None:
        """Answer questions that have waited long enough with what there is."""
        for number, question in list(self._open.items()):
            # Numbers that lack a process that hangs are better than none: /metrics is asked just
            # when something is wrong.
            if now >= question.until_s:
                self._answer(number)

    def _look(self, number: int) -> None:
        if number in self._open and not self._open[number].missing:
            self._answer(number)

    def _answer(self, number: int) -> None:
        question = self._open.pop(number)
        bodies = [*question.bodies.values(), *self._rest(question.ask.what, question.missing)]
        self._send(question.asker, Replied(question.ask.id, tuple(bodies)))
