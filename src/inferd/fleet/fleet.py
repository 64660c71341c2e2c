"""Fleet: decides what the processes of a server do; without sockets, processes or a clock.

It hears what happened (a message, an end, the time) and tells a Shell what to do. So a simulator
can drive it through any order of events (tests/fleet).
"""

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from inferd.core.processes import unlike
from inferd.fleet.changes import Changes
from inferd.fleet.members import Member, Members, State
from inferd.fleet.messages import (
    Ask,
    Beat,
    Begin,
    CannotStart,
    Change,
    ConnectionLoad,
    Done,
    Drain,
    Follow,
    FromProcess,
    Leave,
    LogChanged,
    ModelsLoaded,
    Propose,
    ReadySockets,
    Reopen,
    Replied,
    Reply,
    Retire,
    Stopping,
    Tally,
    ToProcess,
    Vote,
)
from inferd.fleet.questions import Questions
from inferd.fleet.restarts import Restarts
from inferd.fleet.status import Replacement, ReplacementState

log = logging.getLogger("inferd")

LATE_S = 5.0
"""A check of the time that comes so late: the whole machine, or container, has stood still."""

START_S = 120.0
"""How long a process may take for its first word."""

_MOST_SHOWN = 5

NUMBERS = "numbers"
"""The question for what has been counted; the supervisor adds what ended processes left."""

ENDED = "ended"
"""The question for what ended processes left alone, which no process is asked."""

LINES = "lines "
"""The question for the supervisor's own log lines after the first so many, a number."""

MODELS = "models"
"""The question how many model versions there are in each state; a JSON object of numbers."""

_SUPERVISOR = 0
"""The number of no process, for questions of the supervisor's own."""


class Shell(Protocol):
    """What the Fleet makes happen."""

    def spawn(self, number: int, slot: int) -> None:
        """Start a process."""
        ...

    def send(self, number: int, message: ToProcess) -> None:
        """Send a message to a process; one that has ended does not get it."""
        ...

    def kill(self, number: int) -> None:
        """End a process at once."""
        ...

    def accept(self, *, is_open: bool) -> None:
        """Take connections from now on, or leave them waiting: nobody is ready for them."""
        ...

    def close(self) -> None:
        """Take those connections that wait, and no more: the server ends."""
        ...

    def show(self, loaded: ModelsLoaded) -> None:
        """Tell the user that the server has started."""
        ...

    def change_log(self, change: LogChanged) -> None:
        """Log as the processes do."""
        ...

    def lines(self, count: int) -> bytes:
        """Return the supervisor's log lines after the first `count`, encoded."""
        ...

    def end(self, code: int) -> None:
        """End the supervisor; no process is left."""
        ...


class Rules(NamedTuple):
    """The options: `process_count`, and times in seconds.

    A process that is silent for `silence_s` hangs; 0: never. One that drains ends within
    `drain_s`. Connections are taken for `delay_s` after the drain began.
    """

    process_count: int
    silence_s: float = 60.0
    drain_s: float = 30.0
    delay_s: float = 0.0


class Fleet:
    """The processes of a server. `clock` tells the time in seconds.

    `merge` adds up what processes counted; `socket_of` tells where the process of a number takes
    what belongs to it; `discard` is told of changes that nobody needs again.
    """

    def __init__(
        self,
        rules: Rules,
        shell: Shell,
        clock: Callable[[], float],
        *,
        merge: Callable[[Iterable[bytes]], bytes],
        socket_of: Callable[[int], str],
        discard: Callable[[bytes], None],
    ) -> None:
        self._rules = rules
        self._shell = shell
        self._clock = clock
        self._merge = merge
        self._socket_of = socket_of
        self.members = Members()
        self.restarts = Restarts()
        self.changes = Changes(self._tell, self._replace, discard)
        self._questions = Questions(self._pass_on, self._rest)
        self._asked: dict[int, Callable[[Sequence[bytes]], None]] = {}
        self._last_asked = 0
        self._ended = b""  # what processes counted that have ended
        self._last = 0
        self._loaded: ModelsLoaded | None = None
        self._follower = 0
        self._rolling: list[int] = []  # slots whose process is still to be replaced
        self._renewing: Member | None = None  # the process that is to replace another
        self.replacement: Replacement | None = None
        """The last replacement of all processes."""
        self._code = 0
        self.is_stopping = False
        """Whether the server ends."""
        self._close_s = 0.0
        self._checked_s = 0.0
        self._is_closed = False
        self.has_begun = False
        """Whether all processes have been ready once."""
        self._handlers: dict[type, Callable[[Member, Any], None]] = {
            Beat: lambda _member, _message: None,
            ConnectionLoad: self._on_load,
            Tally: self._on_numbers,
            Vote: self._on_vote,
            Done: self._on_done,
            Propose: self._on_propose,
            Ask: self._on_ask,
            Reply: self._on_reply,
            ModelsLoaded: self._on_loaded,
            CannotStart: self._on_cannot_start,
            LogChanged: lambda _member, message: self._shell.change_log(message),
            Retire: self._on_retire,
            Stopping: self._on_stopping,
        }

    def start(self) -> None:
        """Start all processes."""
        for slot in range(self._rules.process_count):
            self._spawn(slot)

    def hear(self, number: int, message: FromProcess) -> None:
        """Take a message of a process."""
        member = self.members.get(number)
        if member is None:
            return
        member.heard_s = self._clock()
        self._handlers[type(message)](member, message)

    def lost(self, number: int, why: str) -> None:
        """Note that a process has ended: `why`, in words for the log."""
        member = self.members.remove(number)
        if member is None:
            return
        if member.numbers:
            self._ended = self._merge([one for one in (self._ended, member.numbers) if one])
        was_draining = member.state is State.DRAINING
        if not was_draining and not self.is_stopping:
            log.error("process %d ended: %s", member.slot, why)
            if not self._has_another(member.slot):
                now = self._clock()
                served_s = None if member.ready_s is None else now - member.ready_s
                self.restarts.ended(member.slot, now, served_s=served_s)
        self.changes.lost(number)
        self._questions.lost(number)
        if self._renewing is member:
            log.error("no more processes are replaced: the new one did not start")
            self._renewing, self._rolling = None, []
            self._note_replacement(ReplacementState.FAILED)
        self._advance()
        self._look()
        if was_draining:
            self._roll_on()
        if self.is_stopping:
            self._end_if_empty()
        elif self.restarts.is_hopeless(self._clock()) and not self.members.ready():
            log.error("ending: processes end again and again before they are ready")
            self._fail(1)

    def choose(self, but: Container[int] = ()) -> Member | None:
        """Return the process, `but` not one of these, that is to have a new connection.

        None if none can have it now.

        Until all processes have been ready once, that is the first, which answers that the server
        is not ready, as one process does while it loads.
        """
        ready = self.members.ready()
        if self.is_stopping:
            ready = ready or [one for one in self.members if one.state is not State.DRAINING]
        elif not self.has_begun:
            ready = self.members.of(0)
        return self.members.least_loaded([one for one in ready if one.number not in but])

    def check_time(self) -> None:
        """Do what is due; to be called several times a second."""
        now = self._clock()
        late_s = now - (self._checked_s or now)
        self._checked_s = now
        self._questions.check_time(now)
        for member in self.members:
            if late_s > LATE_S:  # this process did not run either: what was said is still unheard
                member.heard_s += late_s
            if self._rules.silence_s and now - member.heard_s > self._patience_with(member):
                log.error(
                    "process %d has been silent for %.0f s: ending it",
                    member.slot,
                    now - member.heard_s,
                )
                self._shell.kill(member.number)
                member.heard_s = now
            elif member.state is State.DRAINING and now > member.drain_by_s:
                log.error("process %d did not end in time: ending it", member.slot)
                self._shell.kill(member.number)
                member.drain_by_s = now + self._rules.drain_s
                self._code = max(self._code, 1)
        if self.is_stopping:
            if not self._is_closed and now >= self._close_s:
                self._close()
            return
        for slot in self.restarts.due(now):
            if not self._has_another(slot):
                self._spawn(slot)

    def roll(self) -> str:
        """Replace all processes, one after the other, without losing a request.

        Return why that is not done, "" if it is.
        """
        if self.is_stopping or self._renewing is not None or self._rolling:
            why = "the server ends" if self.is_stopping else "processes are being replaced already"
            log.warning("%s", why)
            return why
        log.info("replacing all processes, one after the other")
        self._rolling = list(range(self._rules.process_count))
        number = self.replacement.number + 1 if self.replacement is not None else 1
        self.replacement = Replacement(number, self._rules.process_count)
        self._roll_on()
        return ""

    def ask(self, what: str, answered: Callable[[Sequence[bytes]], None]) -> None:
        """Ask a process that serves; `answered` gets what it replies, nothing if it does not."""
        ready = self.members.ready()
        self._last_asked += 1
        self._asked[self._last_asked] = answered
        ask = Ask(self._last_asked, what)
        self._questions.ask(_SUPERVISOR, ask, [one.number for one in ready[:1]], self._clock())

    def reopen_logs(self) -> None:
        """Have all processes open their log files again."""
        for member in self.members:
            self._tell(member.number, Reopen())

    def stop(self) -> None:
        """Have all processes finish what is under way, and end."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self._note_replacement(ReplacementState.FAILED)
        for member in self.members:
            self._tell(member.number, Leave())
        if self._rules.delay_s:
            self._close_s = self._clock() + self._rules.delay_s
        else:
            self._close()
        self._end_if_empty()

    def _close(self) -> None:
        """Take the last connections, and have all processes end."""
        self._is_closed = True
        self._shell.close()
        for member in self.members:
            self._drain(member)

    def _end_if_empty(self) -> None:
        if not len(self.members):
            if not self._is_closed:
                self._close()
            self._shell.end(self._code)

    def kill_all(self) -> None:
        """End all processes at once."""
        for member in self.members:
            self._shell.kill(member.number)

    def _on_load(self, member: Member, message: ConnectionLoad) -> None:
        member.connection_count = message.connection_count
        member.received_count = message.received_count

    def _on_numbers(self, member: Member, message: Tally) -> None:
        member.numbers = message.body

    def _on_vote(self, member: Member, message: Vote) -> None:
        self.changes.vote(member.number, message)
        self._advance()

    def _on_propose(self, member: Member, message: Propose) -> None:
        if message.id <= member.proposed:  # it has come before
            return
        member.proposed = message.id
        self.changes.propose(member.number, message, self._parties())

    def _on_stopping(self, _member: Member, message: Stopping) -> None:
        if self.is_stopping:
            self._code = max(self._code, message.code)

    def _on_cannot_start(self, member: Member, message: CannotStart) -> None:
        if self.has_begun:  # others serve, or have: this may be one that goes wrong later
            self._shell.kill(member.number)
        else:
            self._fail(message.code)

    def _on_retire(self, member: Member, _message: Retire) -> None:
        if self.is_stopping or member.state is State.DRAINING or member.slot in self._rolling:
            return
        if member.state is not State.READY:
            self._shell.kill(member.number)
        elif self._renewing not in self.members.of(member.slot):
            log.info("process %d asks to be replaced", member.slot)
            self._rolling.append(member.slot)
            self._roll_on()

    def _on_loaded(self, member: Member, message: ModelsLoaded) -> None:
        if member.state is not State.LOADING:
            return
        member.state = State.JOINING
        member.serves = message.serves
        if self._loaded is None or member.slot == 0:
            self._loaded = message
        self._advance()

    def _on_done(self, member: Member, message: Done) -> None:
        if message.serves is not None:
            member.serves = message.serves
        if member.replaying and message.change == member.replaying:
            member.replaying = 0
            if message.failure is not None:
                text = "process %d could not repeat an earlier change: %s"
                log.warning(text, member.slot, message.failure.text)
        else:
            self.changes.done(member.number, message)
        self._advance()

    def _on_ask(self, member: Member, ask: Ask) -> None:
        if ask.what == NUMBERS:
            member.numbers = ask.own
        others = [one.number for one in self.members if self._is_asked(one, member)]
        if ask.what == ENDED or ask.what.startswith(LINES):
            others.clear()
        self._questions.ask(member.number, ask, others, self._clock())

    def _on_reply(self, member: Member, message: Reply) -> None:
        if self._questions.what(message.question) == NUMBERS:
            member.numbers = message.body
        self._questions.reply(member.number, message)

    def _patience_with(self, member: Member) -> float:
        """Return how long a process may be silent; before its first word it starts Python."""
        has_spoken = member.heard_s > member.began_s
        return self._rules.silence_s if has_spoken else max(START_S, self._rules.silence_s)

    def _spawn(self, slot: int) -> Member:
        self._last += 1
        now = self._clock()
        member = Member(self._last, slot, began_s=now, heard_s=now)
        self.members.add(member)
        self._shell.spawn(member.number, slot)
        return member

    def _tell(self, number: int, message: ToProcess) -> None:
        if self.members.get(number) is not None:
            self._shell.send(number, message)

    def _has_another(self, slot: int) -> bool:
        """Tell whether a slot has a process that serves, or is going to."""
        return any(one.state is not State.DRAINING for one in self.members.of(slot))

    def _replace(self, number: int) -> None:
        if (member := self.members.get(number)) is not None:
            log.error("process %d is not like the others any more: ending it", member.slot)
            self._shell.kill(number)

    def _fail(self, code: int) -> None:
        """End the server: a process has met what it would meet again."""
        self._code = max(self._code, code)
        self.stop()

    def _advance(self) -> None:
        """Let processes join, and begin the changes that wait."""
        joining = [one for one in self.members if one.state is State.JOINING]
        for member in joining:
            self._catch_up(member)
        self._let_join([one for one in joining if not one.replaying])
        if not any(one.state in (State.LOADING, State.JOINING) for one in self.members):
            self.changes.journal.tidy()
        self.changes.hold(is_held=any(map(_is_in_the_way, self.members)))
        self.changes.advance(self._parties())

    def _parties(self) -> list[int]:
        return [member.number for member in self._answering()]

    def _answering(self) -> list[Member]:
        """Return the processes that answer requests, if only those of clients they still have."""
        states = (State.READY,) if self._is_closed else (State.READY, State.DRAINING)
        return [one for one in self.members if one.state in states and one.ready_s is not None]

    def _catch_up(self, member: Member) -> None:
        """Have a process make the next change of those that it has missed."""
        if member.replaying:
            return
        entry = self.changes.journal.after(member.reached)
        if entry is not None:
            member.replaying = entry.change
            member.reached = entry.place
            is_last = self.changes.journal.after(entry.place) is None
            change = Change(entry.change, entry.body, is_replay=True, is_last=is_last)
            self._tell(member.number, change)

    def _let_join(self, up_to_date: list[Member]) -> None:
        """Let processes serve that have made all changes, while none is under way.

        At the start they all begin at the same moment.
        """
        if not up_to_date or not self.changes.is_idle:
            return
        if not self.has_begun and len(up_to_date) < self._rules.process_count:
            return
        up_to_date = self._alike(up_to_date)
        for member in up_to_date:
            member.state = State.READY
            member.ready_s = self._clock()
            self.restarts.served()
            self._tell(member.number, Begin())
        is_first = not self.has_begun
        self.has_begun = True
        self._look()
        if is_first and self._loaded is not None:
            self._shell.show(self._loaded)
        for member in up_to_date:
            if member is self._renewing:
                self._renewed(member)

    def _alike(self, members: list[Member]) -> list[Member]:
        """Return those that serve what the others do, or else the first of them; end the rest."""
        like = (self._answering() or members)[0].serves
        alike = []
        for member in members:
            others = unlike(like, member.serves, is_start=not self.has_begun)
            if self.has_begun:
                others += sorted(like.keys() - member.serves.keys())
            if others:
                text = "process %d would not serve %s as the others do, %s: ending it"
                why = "for the files have changed, or do not load any more"
                log.error(text, member.slot, ", ".join(others[:_MOST_SHOWN]), why)
                member.state = State.LOADING  # it is looked at no more
                self._shell.kill(member.number)
            else:
                alike.append(member)
        return alike

    def _look(self) -> None:
        """Tell who serves, and whether connections can be taken."""
        ready = self.members.ready()
        sockets = {member.slot: self._socket_of(member.number) for member in ready}
        for member in self.members:
            self._tell(member.number, ReadySockets(sockets, self.restarts.count))
        followers = [member.number for member in ready]
        if followers and self._follower not in followers:
            self._follower = followers[0]
            self._tell(self._follower, Follow())
        if not self.is_stopping:
            self._shell.accept(is_open=self.choose() is not None)

    def _drain(self, member: Member) -> None:
        member.state = State.DRAINING
        member.drain_by_s = self._clock() + self._rules.drain_s
        self._tell(member.number, Drain(is_replaced=not self.is_stopping))

    def _roll_on(self) -> None:
        """Start the process that is to replace the next one, if no other is being replaced."""
        draining = any(member.state is State.DRAINING for member in self.members)
        if self.is_stopping or draining or self._renewing is not None:
            return
        if self._rolling:
            self._renewing = self._spawn(self._rolling.pop(0))
            self._look()  # the new one learns where the old one is, before it takes its place
        else:
            self._note_replacement(ReplacementState.DONE)

    def _renewed(self, member: Member) -> None:
        self._renewing = None
        if self.replacement is not None and self.replacement.state is ReplacementState.RUNNING:
            self.replacement.replaced_count += 1
        old = [one for one in self.members.of(member.slot) if one is not member]
        for one in old:
            self._drain(one)
        self._look()
        self._advance()
        if not old:
            self._roll_on()

    def _note_replacement(self, state: ReplacementState) -> None:
        """Note how a replacement that was under way ended."""
        if self.replacement is not None and self.replacement.state is ReplacementState.RUNNING:
            self.replacement.state = state
            if state is ReplacementState.DONE:
                log.info("all processes have been replaced")

    def _is_asked(self, one: Member, asker: Member) -> bool:
        return one is not asker and one.state in (State.READY, State.DRAINING)

    def _pass_on(self, number: int, message: ToProcess) -> None:
        """Pass a question or its answers on."""
        if number == _SUPERVISOR and isinstance(message, Replied):
            self._asked.pop(message.id)(message.bodies)
        else:
            self._tell(number, message)

    def _rest(self, what: str, silent: Iterable[int]) -> list[bytes]:
        if what.startswith(LINES):
            return [self._shell.lines(int(what.removeprefix(LINES)))]
        if what not in (NUMBERS, ENDED):
            return []
        last = [one.numbers for one in map(self.members.get, silent) if one is not None]
        return [numbers for numbers in (*last, self._ended) if numbers]


def _is_in_the_way(member: Member) -> bool:
    """Tell whether changes must wait for a process: one that joins."""
    return member.state is State.JOINING and not member.replaying
