"""Attempts: when the next replica of a group is started, and when that is given up."""

FIRST_S = 1.0
"""The wait after the first failure; it doubles with each."""

LONGEST_S = 60.0

FORGIVEN_S = 30.0
"""A replica that has served for so long is replaced at once when it ends."""

MOST_FAILURES = 5
"""So many replicas of which none ever served, and no more are started until the next deploy."""


class StartAttempts:
    """The starts of replicas that are alike; times in seconds, on the clock of the caller."""

    def __init__(self) -> None:
        self.failure_count = 0
        """How many failed in a row."""
        self.reason = ""
        """Why the last one failed, "" after one that did not."""
        self.due_s = 0.0
        """Before that, none is started."""
        self._has_served = False

    @property
    def is_given_up(self) -> bool:
        """Whether none is started any more. Replicas like those that have served never are."""
        # What has served once will serve again when its trouble is over (a file share, a GPU); what
        # never has will not by being tried.
        return not self._has_served and self.failure_count >= MOST_FAILURES

    def served(self) -> None:
        """Note that a replica has become ready."""
        self._has_served = True

    def failed(self, reason: str, now: float, *, served_s: float) -> None:
        """Note that a replica ended by itself, after it had been ready for `served_s`."""
        # It ended for a reason of its own, a machine that went, say:
        # nothing speaks against the next one.
        if served_s >= FORGIVEN_S:
            self.failure_count = 0
            self.due_s = now
        else:
            self.due_s = now + min(FIRST_S * 2**self.failure_count, LONGEST_S)
            self.failure_count += 1
        self.reason = reason

    def settled(self) -> None:
        """Note that a replica has served for long enough: earlier failures do not count."""
        self.failure_count = 0
        self.reason = ""
