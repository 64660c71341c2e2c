"""Replacements: processes that take the place of others, one after the other."""

import logging
from collections.abc import Callable

from inferd.fleet.members import Member, Members, State
from inferd.fleet.status import Replacement, ReplacementState

log = logging.getLogger("inferd")


class Replacements:
    """Replaces processes without losing a request: the new one serves before the old one drains.

    `spawn` starts a process for a slot, `drain` has one end, and `look` tells all who serves.
    `last` is the last replacement of all processes.
    """

    def __init__(
        self,
        members: Members,
        process_count: int,
        *,
        spawn: Callable[[int], Member],
        drain: Callable[[Member], None],
        look: Callable[[], None],
    ) -> None:
        self._members = members
        self._process_count = process_count
        self._spawn = spawn
        self._drain = drain
        self._look = look
        self._slots: list[int] = []  # those whose process is still to be replaced
        self._new: Member | None = None  # the process that is to replace another
        self._is_stopped = False
        self.last: Replacement | None = None

    def roll(self) -> str:
        """Begin to replace all processes. Return why that is not done, "" if it is."""
        if self._is_stopped or self._new is not None or self._slots:
            why = "the server ends" if self._is_stopped else "processes are being replaced already"
            log.warning("%s", why)
            return why
        log.info("replacing all processes, one after the other")
        self._slots = list(range(self._process_count))
        number = self.last.number + 1 if self.last is not None else 1
        self.last = Replacement(number, self._process_count)
        self.go_on()
        return ""

    def add(self, member: Member) -> None:
        """Have a process replaced that has asked for it, unless that is under way."""
        if self._new not in self._members.of(member.slot):
            log.info("process %d asks to be replaced", member.slot)
            self._slots.append(member.slot)
            self.go_on()

    def has(self, slot: int) -> bool:
        """Tell whether the process of a slot is still to be replaced."""
        return slot in self._slots

    def go_on(self) -> None:
        """Start the process that is to replace the next one, if no other is being replaced."""
        # One after the other: two at a time would need the memory of two more.
        draining = any(member.state is State.DRAINING for member in self._members)
        if self._is_stopped or draining or self._new is not None:
            return
        if self._slots:
            self._new = self._spawn(self._slots.pop(0))
            self._look()  # the new one learns where the old one is, before it takes its place
        else:
            self._end(ReplacementState.DONE)

    def drain_replaced(self, member: Member) -> bool:
        """Drain the process that `member` replaces, which serves now; return whether it does."""
        if member is not self._new:
            return False
        self._new = None
        if self.last is not None and self.last.state is ReplacementState.RUNNING:
            self.last.replaced_count += 1
        for one in self._members.of(member.slot):
            if one is not member:
                self._drain(one)
        self._look()
        return True

    def lost(self, member: Member) -> None:
        """Note that a process has ended: if it was the new one, no more are replaced."""
        if self._new is member:
            log.error("no more processes are replaced: the new one did not start")
            # What the new one met, the others would meet as well: the old ones serve on.
            self._new, self._slots = None, []
            self._end(ReplacementState.FAILED)

    def stop(self) -> None:
        """Replace no more processes: the server ends."""
        self._is_stopped = True
        self._end(ReplacementState.FAILED)

    def _end(self, state: ReplacementState) -> None:
        """Note how a replacement that was under way ended."""
        if self.last is not None and self.last.state is ReplacementState.RUNNING:
            self.last.state = state
            if state is ReplacementState.DONE:
                log.info("all processes have been replaced")
