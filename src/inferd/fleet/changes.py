"""Changes: each is made in all processes, or in none, before it is answered.

A change has gates. At a gate a process has everything ready and nothing done, and tells which
parts failed. When all are there, all go through it without the parts that failed anywhere. A
process that ends the change before, because it cannot make it, ends it for all.

A change may bring others with it: the steps of an ensemble that is loaded are changed at gates of
their own, in processes where they need it. So when all have come to a gate, or ended, and the gates
differ, those that are not about the change itself open for whoever stands there.

What was made is in a journal: a process that starts must make it, too, to be like the others.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from inferd.core.processes import Serves, unlike
from inferd.fleet.messages import Answered, Change, Decide, Done, Failure, Propose, ToProcess, Vote

MAX_WAITING = 1000
"""The most changes that wait in a queue; more are refused."""

LOST = Failure("Unavailable", "the process that was asked ended; ask again")


class JournalEntry(NamedTuple):
    """A change that was made: its number, what it is about, and what a process needs of it.

    `place` is the place in the journal: changes end in another order than they begin. One that
    `is_erasing` undid others: who has made none of them needs not make it either.
    """

    place: int
    change: int
    key: str
    body: bytes
    is_erasing: bool


class Journal:
    """The changes, in order, without those that later ones made unnecessary."""

    def __init__(self) -> None:
        self._entries: dict[str, JournalEntry] = {}
        self._last = 0

    def note(self, change: int, key: str, body: bytes, *, is_erasing: bool) -> list[JournalEntry]:
        """Note a change that was made; return those that are needed no more."""
        self._last += 1
        entry = JournalEntry(self._last, change, key, body, is_erasing)
        gone = [self._entries.pop(key) for key in self._undone_by(entry)]
        # An unload is noted, too: a process that is amid the journal may have loaded the model by
        # an earlier entry already.
        self._entries[entry.key] = entry
        return gone

    def _undone_by(self, entry: JournalEntry) -> list[str]:
        if entry.is_erasing and entry.key.endswith("/"):
            return [key for key in self._entries if key.startswith(entry.key)]
        return [entry.key] if entry.key in self._entries else []

    def tidy(self) -> None:
        """Forget what only processes need that are making these changes; there is none now."""
        for entry in list(self):
            if entry.is_erasing:
                del self._entries[entry.key]

    def after(self, place: int) -> JournalEntry | None:
        """Return the first change after that `place`, None if there is none."""
        return next((entry for entry in self if entry.place > place), None)

    def __iter__(self) -> Iterator[JournalEntry]:
        """Iterate over the changes in the order in which they were made."""
        # By place, the first field: a later change about a key took over
        # its slot in the dict, not its order.
        return iter(sorted(self._entries.values()))


@dataclass
class _Waiting:
    """A proposal whose turn has not come; `asker` is the process that made it."""

    asker: int
    proposal: Propose


@dataclass
class _UnderWay:
    """A change under way in `parties`, those processes that have neither ended it nor their lives.

    `votes` are those of the processes that stand at a gate; `passed` are the gates that processes
    were told of, and `bound` are processes that went through that of the change itself: they must
    make it now. `serves` is what they told that they serve then.
    """

    number: int
    asker: int
    proposal: Propose
    parties: set[int]
    votes: dict[int, Vote] = field(default_factory=dict)
    passed: set[tuple[int, str]] = field(default_factory=set)
    bound: set[int] = field(default_factory=set)
    failures: dict[int, Failure] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    serves: dict[int, Serves] = field(default_factory=dict)


class Changes:
    """The changes of a server, and the journal of those that were made.

    `send` tells a process something. `replace` ends a process that is not like the others any
    more: it alone failed in what all had been ready for, or found other files. `discard` is told
    of changes that nobody needs again.
    """

    def __init__(
        self,
        send: Callable[[int, ToProcess], None],
        replace: Callable[[int], None],
        discard: Callable[[bytes], None],
    ) -> None:
        self.journal = Journal()
        self._send = send
        self._replace = replace
        self._discard = discard
        self._last = 0
        self._queues: dict[str, deque[_Waiting]] = {}
        self._running: dict[str, _UnderWay] = {}  # by queue
        self._is_held = False

    @property
    def is_idle(self) -> bool:
        """Whether no change is under way; others may wait."""
        return not self._running

    def hold(self, *, is_held: bool) -> None:
        """Begin no more changes, or begin them again: for a process that is to join."""
        self._is_held = is_held

    def propose(self, asker: int, proposal: Propose, members: Iterable[int]) -> None:
        """Make a change in `members`, when its turn comes; tell the `asker` how it ends."""
        # One queue each for models, regions and settings (core/change.py): within one, all
        # processes make the changes in the same order; a load, which may take minutes, holds up
        # no region.
        waiting = self._queues.setdefault(proposal.queue, deque())
        if len(waiting) >= MAX_WAITING:
            msg = f"{MAX_WAITING} changes wait already"
            self._send(asker, Answered(proposal.id, Failure("Unavailable", msg)))
            self._discard(proposal.body)
            return
        waiting.append(_Waiting(asker, proposal))
        self.advance(members)

    def advance(self, members: Iterable[int]) -> None:
        """Begin the changes whose turn it is, in `members`, the processes that serve now."""
        members = set(members)
        for queue in list(self._queues):
            waiting = self._queues[queue]
            if waiting and queue not in self._running and not self._is_held and members:
                one = waiting.popleft()
                self._last += 1
                change = _UnderWay(self._last, one.asker, one.proposal, set(members))
                self._running[queue] = change
                # Sorted, so that the simulator plays a seed a second time as it did the first.
                for member in sorted(members):
                    self._send(member, Change(change.number, one.proposal.body))
            if not waiting:
                del self._queues[queue]

    def vote(self, member: int, vote: Vote) -> None:
        """Note that a process stands at a gate."""
        change = self._find(vote.change, member)
        # A vote may come twice: it was sent again, or had not heard the decision yet.
        if change is not None and (member, vote.gate) not in change.passed:
            change.votes[member] = vote
            self._look(change)

    def done(self, member: int, message: Done) -> None:
        """Note that a process has made a change, or could not."""
        change = self._find(message.change, member)
        if change is None:
            return
        change.parties.discard(member)
        change.votes.pop(member, None)
        change.done.add(member)
        if message.failure is not None:
            change.failures[member] = message.failure
        if message.serves is not None:
            change.serves[member] = message.serves
        self._look(change)

    def lost(self, member: int) -> None:
        """Note that a process has ended."""
        for waiting in self._queues.values():
            # Nobody would hear how it went; the client has lost its connection with the process.
            for one in [one for one in waiting if one.asker == member]:
                waiting.remove(one)
                self._discard(one.proposal.body)
        for change in list(self._running.values()):
            known = member in change.parties or member in change.done
            change.parties.discard(member)
            change.done.discard(member)
            # What has ended has not failed: only those that live on must be alike.
            change.failures.pop(member, None)
            change.votes.pop(member, None)
            if known:
                self._look(change)

    def _find(self, number: int, member: int) -> _UnderWay | None:
        for change in self._running.values():
            if change.number == number and member in change.parties:
                return change
        return None

    def _look(self, change: _UnderWay) -> None:
        """Decide on a gate if nobody is on the way to one; end a change that all have ended."""
        if not change.parties:
            self._end(change)
            return
        # Somebody is still on the way to a gate, and might fail there.
        if change.parties - change.votes.keys():
            return
        gates = {vote.gate for vote in change.votes.values()}
        own = max(gates)  # see gate_of: that of the change itself comes last
        if len(gates) == 1 and change.done:
            failure = next(iter(change.failures.values()), None)
            if failure is not None or not own.startswith(SIDE):
                # Who has ended it did not come through this gate: nobody must.
                self._decide(change, gates, failure or _UNLIKE)
                return
        self._decide(change, gates if len(gates) == 1 else gates - {own}, None)

    def _decide(self, change: _UnderWay, gates: set[str], failure: Failure | None) -> None:
        failed: dict[str, str] = {}
        there = [vote for vote in change.votes.values() if vote.gate in gates]
        for vote in there:
            failed |= vote.failures
        at_gates = [member for member, vote in change.votes.items() if vote.gate in gates]
        for member in sorted(at_gates):
            gate = change.votes.pop(member).gate
            change.passed.add((member, gate))
            # Nothing speaks against it any more: who fails from here on is
            # unlike the others, and is replaced.
            if failure is None and not failed and not gate.startswith(SIDE):
                change.bound.add(member)
            self._send(member, Decide(change.number, gate, failed, failure))

    def _end(self, change: _UnderWay) -> None:
        proposal = change.proposal
        del self._running[proposal.queue]
        made = change.done - change.failures.keys()
        failure = change.failures.get(change.asker) or next(iter(change.failures.values()), None)
        # If some have made it, all others must have. If none has, the change as such is at fault,
        # but those that were bound may have made half of it.
        failed = change.failures.keys() if made else change.failures.keys() & change.bound
        told = [member for member in sorted(made) if member in change.serves]
        # A change of files during the change can make one process load
        # other weights than its fellows.
        others = [one for one in told if unlike(change.serves[told[0]], change.serves[one])]
        for member in sorted({*failed, *others}):
            self._replace(member)
        if made:
            failure = None
        if made and failure is None:
            for gone in self.journal.note(
                change.number, proposal.key, proposal.body, is_erasing=proposal.is_erasing
            ):
                self._discard(gone.body)
        else:
            self._discard(proposal.body)
            failure = failure or LOST
        self._send(change.asker, Answered(proposal.id, failure))


SIDE = "-"
"""How the name of a gate begins that is not about the change itself, but about one it needs."""

_UNLIKE = Failure("LoadFailed", "the processes of the server do not find the same: ask again")


def gate_of(name: str, *, is_side: bool) -> str:
    """Return the name of the gate at which `name` is changed; that of the change sorts last."""
    # "=" sorts after "-", whatever the names are.
    return f"{SIDE}{name}" if is_side else f"={name}"
