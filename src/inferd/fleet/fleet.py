"""Fleet: decides what the processes of a server do; without sockets, processes or a clock.

It hears what happened (a message, an end, the time) and tells a Shell what to do. So a simulator
can drive it through any order of events (tests/fleet).
"""

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from inferd.fleet.admission import Admission
from inferd.fleet.changes import Changes
from inferd.fleet.inquiries import Inquiries
from inferd.fleet.members import Member, Members, State
from inferd.fleet.messages import (
    Ask,
    Beat,
    Begin,
    CannotStart,
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
    Reply,
    Retire,
    Stopping,
    Tally,
    ToProcess,
    Vote,
)
from inferd.fleet.replacements import Replacements
from inferd.fleet.restarts import Restarts

log = logging.getLogger("inferd")

LATE_S = 5.0
"""A check of the time that comes so late: the whole machine, or container, has stood still."""

START_S = 120.0
"""How long a process may take for its first word."""


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

    def patience_with(self, member: Member) -> float:
        """Return how long a process may be silent; before its first word it starts Python."""
        has_spoken = member.heard_s > member.began_s
        return self.silence_s if has_spoken else max(START_S, self.silence_s)


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
        self._socket_of = socket_of
        self.members = Members()
        self.restarts = Restarts()
        self.changes = Changes(self._tell, self._replace, discard)
        self.inquiries = inquiries = Inquiries(self.members, clock, self._tell, merge, shell.lines)
        self._admission = Admission(
            self.members, self.changes, rules.process_count, tell=self._tell, kill=shell.kill
        )
        self.replacements = Replacements(
            self.members,
            rules.process_count,
            spawn=self._spawn,
            drain=self._drain,
            look=self._look,
        )
        self._last = 0
        self._loaded: ModelsLoaded | None = None
        self._follower = 0
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
            ConnectionLoad: Member.note_load,
            Tally: Member.note_numbers,
            Vote: self._on_vote,
            Done: self._on_done,
            Propose: self._on_propose,
            Ask: inquiries.pass_on,
            Reply: inquiries.reply,
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
        self.inquiries.keep(member)
        was_draining = member.state is State.DRAINING
        if not was_draining and not self.is_stopping:
            log.error("process %d ended: %s", member.slot, why)
            # A replacement may be under way: then the slot has a process already.
            if not self.members.has_another(member.slot):
                now = self._clock()
                served_s = None if member.ready_s is None else now - member.ready_s
                self.restarts.ended(member.slot, now, served_s=served_s)
        # After it has left the members: what this decides is told to those that live.
        self.changes.lost(number)
        self.inquiries.lost(number)
        self.replacements.lost(member)
        self._advance()
        self._look()
        if was_draining:
            self.replacements.go_on()
        if self.is_stopping:
            self._end_if_empty()
        # Only with nobody serving: one that serves is better than a server that ends.
        elif self.restarts.is_hopeless(self._clock()) and not self.members.ready():
            log.error("ending: processes end again and again before they are ready")
            self.stop(1)

    def choose(self, but: Container[int] = ()) -> Member | None:
        """Return the process, `but` not one of these, that is to have a new connection.

        None if none can have it now.

        Until all processes have been ready once, that is the first, which answers that the server
        is not ready, as one process does while it loads.
        """
        ready = self.members.ready()
        if self.is_stopping:
            # At the end the last connections still go somewhere, to processes that were loading
            # too: they answer that the server ends.
            ready = ready or [one for one in self.members if one.state is not State.DRAINING]
        elif not self.has_begun:
            ready = self.members.of(0)
        return self.members.least_loaded([one for one in ready if one.number not in but])

    def check_time(self) -> None:
        """Do what is due; to be called several times a second."""
        now = self._clock()
        late_s = now - (self._checked_s or now)
        self._checked_s = now
        self.inquiries.check_time(now)
        for member in self.members:
            if late_s > LATE_S:  # this process did not run either: what was said is still unheard
                member.heard_s += late_s
            if self._rules.silence_s and now - member.heard_s > self._rules.patience_with(member):
                log.error(
                    "process %d has been silent for %.0f s: ending it",
                    member.slot,
                    now - member.heard_s,
                )
                self._shell.kill(member.number)
                # Killed already; the end is heard later, and the log should not
                # say it at each check until then.
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
            if not self.members.has_another(slot):
                self._spawn(slot)

    def reopen_logs(self) -> None:
        """Have all processes open their log files again."""
        for member in self.members:
            self._tell(member.number, Reopen())

    def stop(self, code: int = 0) -> None:
        """Have all processes finish what is under way, and end; at last the server, with `code`."""
        self._code = max(self._code, code)
        if self.is_stopping:
            return
        self.is_stopping = True
        self.replacements.stop()
        for member in self.members:
            # First they only say that they are not ready, so that load balancers look elsewhere;
            # connections are taken for the delay.
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

    def _on_vote(self, member: Member, message: Vote) -> None:
        self.changes.vote(member.number, message)
        self._advance()

    def _on_propose(self, member: Member, message: Propose) -> None:
        if message.id <= member.proposed:  # it has come before
            return
        member.proposed = message.id
        parties = [one.number for one in self._answering()]
        self.changes.propose(member.number, message, parties)

    def _on_stopping(self, _member: Member, message: Stopping) -> None:
        if self.is_stopping:
            self._code = max(self._code, message.code)

    def _on_cannot_start(self, member: Member, message: CannotStart) -> None:
        if self.has_begun:  # others serve, or have: this may be one that goes wrong later
            self._shell.kill(member.number)
        else:
            self.stop(message.code)  # others would meet it, too

    def _on_retire(self, member: Member, _message: Retire) -> None:
        if self.is_stopping or member.state is State.DRAINING or self.replacements.has(member.slot):
            return
        if member.state is not State.READY:
            self._shell.kill(member.number)
        else:
            self.replacements.add(member)

    def _on_loaded(self, member: Member, message: ModelsLoaded) -> None:
        if member.state is not State.LOADING:
            return
        member.state = State.JOINING
        member.serves = message.serves
        member.failed = message.failed
        # The first process speaks for all, as their reports are alike;
        # until it has loaded, any other may.
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

    def _replace(self, number: int) -> None:
        if (member := self.members.get(number)) is not None:
            log.error("process %d is not like the others any more: ending it", member.slot)
            self._shell.kill(number)

    def _advance(self) -> None:
        """Let processes join, and begin the changes that wait."""
        is_start = not self.has_begun
        self._begin(self._admission.advance(self._answering(), is_start=is_start))
        if not any(one.state in (State.LOADING, State.JOINING) for one in self.members):
            # Only when nobody is starting: who is amid the journal needs what it undoes, too.
            self.changes.journal.tidy()
        # A process that joins has to make all changes first; if new
        # ones kept beginning, it never would.
        is_held = any(one.state is State.JOINING and not one.replaying for one in self.members)
        self.changes.hold(is_held=is_held)
        self.changes.advance(one.number for one in self._answering())

    def _answering(self) -> list[Member]:
        """Return the processes that answer requests, if only those of clients they still have."""
        # One that drains still answers its clients, so it makes changes as the
        # others do, until the whole server ends.
        states = (State.READY,) if self._is_closed else (State.READY, State.DRAINING)
        return [one for one in self.members if one.state in states and one.ready_s is not None]

    def _begin(self, members: Sequence[Member]) -> None:
        """Let processes serve."""
        if not members:
            return
        for member in members:
            member.state = State.READY
            member.ready_s = self._clock()
            self.restarts.served()
            self._tell(member.number, Begin())
        is_first = not self.has_begun
        self.has_begun = True
        self._look()
        if is_first and self._loaded is not None:
            self._shell.show(self._loaded)
        for member in members:
            if self.replacements.drain_replaced(member):
                self._advance()
                self.replacements.go_on()

    def _look(self) -> None:
        """Tell who serves, and whether connections can be taken."""
        ready = self.members.ready()
        sockets = {member.slot: self._socket_of(member.number) for member in ready}
        for member in self.members:
            self._tell(member.number, ReadySockets(sockets, self.restarts.count))
        followers = [member.number for member in ready]
        # One process looks at the repositories, and proposes what it finds:
        # two would find the same change twice.
        if followers and self._follower not in followers:
            self._follower = followers[0]
            self._tell(self._follower, Follow())
        if not self.is_stopping:
            # With nobody ready, connections wait in the system's queue, instead of being refused.
            self._shell.accept(is_open=self.choose() is not None)

    def _drain(self, member: Member) -> None:
        member.state = State.DRAINING
        member.drain_by_s = self._clock() + self._rules.drain_s
        self._tell(member.number, Drain(is_replaced=not self.is_stopping))
