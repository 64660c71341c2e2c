"""Restarts: when a process that has ended is started again, and when that is given up."""

from collections import Counter, deque

FIRST_S = 0.1
"""The wait before the first restart of a slot; it doubles with each."""

LONGEST_S = 10.0

LONGEST_PAUSE_S = 1.0
"""The longest wait after a process that did serve: requests end it, and others wait for it."""

FORGIVEN_S = 60.0
"""A process that has served for so long starts at once when it ends."""

MOST_FAILURES = 5
"""So many ends of processes that never served, in a row, within FAILURES_S: the server ends."""

FAILURES_S = 60.0


class Restarts:
    """The restarts of all slots; times in seconds, on the clock of the caller."""

    def __init__(self) -> None:
        self._waits: dict[int, float] = {}
        self._due: dict[int, float] = {}
        # Only the last few, whose first tells how fast they came.
        self._failures: deque[float] = deque(maxlen=MOST_FAILURES)
        self.counts: Counter[int] = Counter()
        """How many restarts there were, by slot."""

    @property
    def count(self) -> int:
        """How many restarts there were."""
        return self.counts.total()

    def ended(self, slot: int, now: float, *, served_s: float | None) -> None:
        """Note that a process ended which had served for `served_s`, None if it never did."""
        if served_s is None:
            self._failures.append(now)
        wait_s = self._waits.get(slot, FIRST_S)
        if served_s is not None and served_s >= FORGIVEN_S:
            wait_s = FIRST_S
        elif served_s is not None:
            # A request that kills processes may be one among many good
            # ones, whose clients wait meanwhile.
            wait_s = min(wait_s, LONGEST_PAUSE_S)
        self._waits[slot] = min(wait_s * 2, LONGEST_S)
        self._due[slot] = now + wait_s

    def served(self) -> None:
        """Note that a process has begun to serve: whatever ended others, a start may work."""
        self._failures.clear()

    def is_hopeless(self, now: float) -> bool:
        """Tell whether too many processes in a row could not even start."""
        enough = len(self._failures) == MOST_FAILURES
        # Failures that are far apart, in a cluster's bad hour say, do not
        # end a server that otherwise goes on.
        return enough and now - self._failures[0] < FAILURES_S

    def due(self, now: float) -> list[int]:
        """Return the slots to be started now; they are due no more."""
        slots = sorted(slot for slot, at in self._due.items() if at <= now)
        for slot in slots:
            del self._due[slot]
            self.counts[slot] += 1
        return slots
