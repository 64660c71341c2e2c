"""Inquiries: what processes, and the supervisor, ask the others, and what is added to replies."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from inferd.fleet.members import Member, Members, State
from inferd.fleet.messages import Ask, Question, Replied, Reply, ToProcess

NUMBERS = "numbers"
"""The question for what has been counted; the supervisor adds what ended processes left."""

ENDED = "ended"
"""The question for what ended processes left alone, which no process is asked."""

LINES = "lines "
"""The question for the supervisor's own log lines after the first so many, a number."""

MODELS = "models"
"""The question how many model versions there are in each state; a JSON object of numbers."""

SAYS = "says"
"""The question whether a model calls itself ready: its version and name follow, or none for all."""

NOT_READY = b"no"
"""The reply to SAYS of who has an instance that does not call itself ready."""

WAIT_S = 2.0
"""How long a question waits for a process that does not reply."""

SAYS_WAIT_S = 6.0
"""The same of SAYS: a second more than models themselves have."""

_SUPERVISOR = 0
"""Who asks, if it is no process."""


@dataclass
class _Open:
    """A question that some have not replied to: `answered` gets what `asker` wants to know."""

    asker: int
    what: str
    answered: Callable[[tuple[bytes, ...]], None]
    missing: set[int]
    until_s: float
    bodies: dict[int, bytes] = field(default_factory=dict)


class Inquiries:
    """The questions asked of `members`, and what is known of their numbers.

    `clock` tells the time in seconds, `tell` sends a process something, `merge` adds up what
    processes counted, `lines` returns the supervisor's log lines.
    """

    def __init__(
        self,
        members: Members,
        clock: Callable[[], float],
        tell: Callable[[int, ToProcess], None],
        merge: Callable[[Iterable[bytes]], bytes],
        lines: Callable[[int], bytes],
    ) -> None:
        self._members = members
        self._clock = clock
        self._tell = tell
        self._merge = merge
        self._lines = lines
        self._open: dict[int, _Open] = {}
        self._last = 0
        self._ended = b""  # what processes counted that have ended

    def ask(self, what: str, answered: Callable[[Sequence[bytes]], None]) -> None:
        """Ask a process that serves; `answered` gets what it replies, nothing if it does not."""
        ready = self._members.ready()
        self._begin(_SUPERVISOR, what, answered, [one.number for one in ready[:1]])

    def pass_on(self, asker: Member, ask: Ask) -> None:
        """Pass the question of a process on to those others that can tell."""
        if ask.what == NUMBERS:
            asker.numbers = ask.own
        others: list[int] = []
        if ask.what != ENDED and not ask.what.startswith(LINES):
            # Those that still load have counted nothing.
            asked = (State.READY, State.DRAINING)
            others = [m.number for m in self._members if m is not asker and m.state in asked]
        id, number = ask.id, asker.number
        self._begin(number, ask.what, lambda told: self._tell(number, Replied(id, told)), others)

    def _begin(
        self,
        asker: int,
        what: str,
        answered: Callable[[tuple[bytes, ...]], None],
        others: Iterable[int],
    ) -> None:
        """Pass a question on to `others`."""
        self._last += 1
        wait_s = SAYS_WAIT_S if what.startswith(SAYS) else WAIT_S
        question = _Open(asker, what, answered, set(others), self._clock() + wait_s)
        self._open[self._last] = question
        for other in sorted(question.missing):
            self._tell(other, Question(self._last, what))
        # There may be no others: then the answer is there at once.
        self._look(self._last)

    def reply(self, member: Member, reply: Reply) -> None:
        """Take the reply of a process."""
        question = self._open.get(reply.question)
        # A reply may come too late, or twice.
        if question is None:
            return
        if question.what == NUMBERS:
            member.numbers = reply.body
        if member.number in question.missing:
            question.missing.discard(member.number)
            question.bodies[member.number] = reply.body
            self._look(reply.question)

    def keep(self, ended: Member) -> None:
        """Keep what a process counted that has ended."""
        if ended.numbers:
            # Added up, so that no counter falls when a process ends:
            # Prometheus would take that for a restart.
            self._ended = self._merge([one for one in (self._ended, ended.numbers) if one])

    def lost(self, number: int) -> None:
        """Note that a process has ended: `keep` knows what it counted, and it replies no more."""
        for asked, question in list(self._open.items()):
            if question.asker == number:
                del self._open[asked]
                continue
            # Its last numbers are among those of ended processes from now on: with
            # its reply they would be counted twice.
            question.bodies.pop(number, None)
            question.missing.discard(number)
            self._look(asked)

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
        rest = self._rest(question.what, question.missing)
        question.answered((*question.bodies.values(), *rest))

    def _rest(self, what: str, silent: Iterable[int]) -> list[bytes]:
        if what.startswith(LINES):
            return [self._lines(int(what.removeprefix(LINES)))]
        if what not in (NUMBERS, ENDED):
            return []
        # Of those that did not reply, the last that they told by themselves.
        last = [one.numbers for one in map(self._members.get, silent) if one is not None]
        return [numbers for numbers in (*last, self._ended) if numbers]
