"""Inquiries: what processes, and the supervisor, ask the others, and what is added to replies."""

from collections.abc import Callable, Iterable, Sequence

from inferd.fleet.members import Member, Members, State
from inferd.fleet.messages import Ask, Replied, Reply, ToProcess
from inferd.fleet.questions import Questions

NUMBERS = "numbers"
"""The question for what has been counted; the supervisor adds what ended processes left."""

ENDED = "ended"
"""The question for what ended processes left alone, which no process is asked."""

LINES = "lines "
"""The question for the supervisor's own log lines after the first so many, a number."""

MODELS = "models"
"""The question how many model versions there are in each state; a JSON object of numbers."""

_SUPERVISOR = 0
"""Who asks, if it is no process."""


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
        self._questions = Questions(self._send, self._rest)
        self._asked: dict[int, Callable[[Sequence[bytes]], None]] = {}
        self._last_asked = 0
        self._ended = b""  # what processes counted that have ended

    def ask(self, what: str, answered: Callable[[Sequence[bytes]], None]) -> None:
        """Ask a process that serves; `answered` gets what it replies, nothing if it does not."""
        ready = self._members.ready()
        self._last_asked += 1
        self._asked[self._last_asked] = answered
        ask = Ask(self._last_asked, what)
        self._questions.ask(_SUPERVISOR, ask, [one.number for one in ready[:1]], self._clock())

    def pass_on(self, asker: Member, ask: Ask) -> None:
        """Pass the question of a process on to those others that can tell."""
        if ask.what == NUMBERS:
            asker.numbers = ask.own
        others: list[int] = []
        if ask.what != ENDED and not ask.what.startswith(LINES):
            # Those that still load have counted nothing.
            asked = (State.READY, State.DRAINING)
            others = [m.number for m in self._members if m is not asker and m.state in asked]
        self._questions.ask(asker.number, ask, others, self._clock())

    def reply(self, member: Member, reply: Reply) -> None:
        """Take the reply of a process."""
        if self._questions.what(reply.question) == NUMBERS:
            member.numbers = reply.body
        self._questions.reply(member.number, reply)

    def keep(self, ended: Member) -> None:
        """Keep what a process counted that has ended."""
        if ended.numbers:
            # Added up, so that no counter falls when a process ends:
            # Prometheus would take that for a restart.
            self._ended = self._merge([one for one in (self._ended, ended.numbers) if one])

    def lost(self, number: int) -> None:
        """Note that a process has ended, and `keep` knows what it counted."""
        self._questions.lost(number)

    def check_time(self, now: float) -> None:
        """Answer questions that have waited long enough with what there is."""
        self._questions.check_time(now)

    def _send(self, number: int, message: ToProcess) -> None:
        if number == _SUPERVISOR and isinstance(message, Replied):
            self._asked.pop(message.id)(message.bodies)
        else:
            self._tell(number, message)

    def _rest(self, what: str, silent: Iterable[int]) -> list[bytes]:
        if what.startswith(LINES):
            return [self._lines(int(what.removeprefix(LINES)))]
        if what not in (NUMBERS, ENDED):
            return []
        # Of those that did not reply, the last that they told by themselves.
        last = [one.numbers for one in map(self._members.get, silent) if one is not None]
        return [numbers for numbers in (*last, self._ended) if numbers]
