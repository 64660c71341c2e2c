"""Admission: processes that have loaded make the changes that the others made, and then serve."""

import logging
from collections.abc import Callable, Sequence

from inferd.core.processes import Failed, unlike
from inferd.fleet.changes import Changes
from inferd.fleet.members import Member, Members, State
from inferd.fleet.messages import Change, ToProcess, Withdraw

log = logging.getLogger("inferd")

_MOST_SHOWN = 5


class Admission:
    """Which of `members` may begin to serve, as far as `changes` are concerned.

    At the start they all begin at the same moment, `process_count` of them. `tell` sends a process
    something, `kill` ends one.
    """

    def __init__(
        self,
        members: Members,
        changes: Changes,
        process_count: int,
        *,
        tell: Callable[[int, ToProcess], None],
        kill: Callable[[int], None],
    ) -> None:
        self._members = members
        self._changes = changes
        self._process_count = process_count
        self._tell = tell
        self._kill = kill

    def advance(self, answering: Sequence[Member], *, is_start: bool) -> list[Member]:
        """Have those that join go on; return those that may serve, while no change is under way.

        They serve what those that are `answering` do, or else the first of them.
        """
        joining = [one for one in self._members if one.state is State.JOINING]
        for member in joining:
            self._catch_up(member)
        up_to_date = [one for one in joining if not one.replaying]
        # A change that is under way was begun without those that join,
        # and would be missing from them.
        if not up_to_date or not self._changes.is_idle:
            return []
        # All at once, so that the first request to any of them finds the server whole.
        if is_start and len(up_to_date) < self._process_count:
            return []
        if self._withdraw(up_to_date, answering[:1] or up_to_date):
            return []
        like = (answering or up_to_date)[0]
        return [one for one in up_to_date if self._is_like(like, one, is_start=is_start)]

    def _catch_up(self, member: Member) -> None:
        """Have a process make the next change of those that it has missed."""
        if member.replaying:
            return
        entry = self._changes.journal.after(member.reached)
        if entry is not None:
            # One at a time: the next is sent when it is done, so that they are made in order.
            member.replaying = entry.change
            member.reached = entry.place
            is_last = self._changes.journal.after(entry.place) is None
            change = Change(entry.change, entry.body, is_replay=True, is_last=is_last)
            self._tell(member.number, change)

    def _withdraw(self, joining: Sequence[Member], others: Sequence[Member]) -> bool:
        """Have none that are `joining` serve what failed in `others`; tell whether one has to.

        Where a version has no instances, nothing of it can fail: only its owner knows.
        """
        failed: dict[tuple[str, str], str] = {}
        for other in others:
            for name, versions in other.failed.items():
                serves = other.serves.get(name, {})
                failed |= {(name, one): why for one, why in versions.items() if one not in serves}
        is_one = False
        for member in joining:
            here: Failed = {}
            for (name, version), why in failed.items():
                if version in member.serves.get(name, {}) and not self._may_differ(member, name):
                    here.setdefault(name, {})[version] = why
            if here:
                is_one = True
                member.state = State.LOADING  # until it has told anew what it serves
                self._tell(member.number, Withdraw(here))
        return is_one

    def _may_differ(self, member: Member, name: str) -> bool:
        """Tell whether a model may be served by `member` alone until the others are replaced, too.

        It may have been repaired, if nothing else serves it.
        """
        replaced = [one for one in self._members.of(member.slot) if one is not member]
        return bool(replaced) and not any(name in one.serves for one in replaced)

    def _is_like(self, like: Member, member: Member, *, is_start: bool) -> bool:
        """Tell whether a process serves what `like` does; end it if it does not."""
        others = unlike(like.serves, member.serves, is_start=is_start)
        if not is_start:
            # What does not load here, but is served by the others, would be
            # an error of every other request.
            others += sorted(like.serves.keys() - member.serves.keys())
        if others:
            text = "process %d would not serve %s as the others do, %s: ending it"
            why = "for the files have changed, or do not load any more"
            log.error(text, member.slot, ", ".join(others[:_MOST_SHOWN]), why)
            member.state = State.LOADING  # it is looked at no more
            self._kill(member.number)
        return not others
