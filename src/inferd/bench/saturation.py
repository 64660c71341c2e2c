"""Whether a latency is the server's, or that of the program that measures it.

A load generator takes CPU time for each request. What it needs for one, and what requests wait for
while it is busy with others or while the system has no core for it, is part of every latency that
it sees. Both are known: the CPU time that a generator used, and the time that it was ready to run
and did not (Linux counts it). If they are much of what was measured, the latency says little of the
server, and it is not given.
"""

import enum

import msgspec

# From there on a queue's waiting time grows steeply.
BUSY = 0.8
"""The share of a core from which on a generator is at its limit: requests queue there."""
TOO_MUCH = 0.25
"""The share of the median that may be the generator's own for the latency to be the server's."""
NOTABLE = 0.1
LATE = 0.05
"""The share of requests at a rate that may be sent later than they should be, notably so."""


class GeneratorUse(msgspec.Struct, frozen=True):
    """What a generator used while it measured."""

    elapsed_s: float
    cpu_s: float
    waited_s: float
    """For a core, while it was ready to run; 0 where the system does not tell."""
    request_count: int
    late_share: float = 0.0
    """Of requests at a rate, how many were sent notably later than they should have been."""
    runs: int = 0
    """How often it was given a core; 0 where the system does not tell."""

    def own_us(self) -> float:
        """Return how much of a latency is the generator's: its work, and waits for its work.

        Answers that come while it waits for a core are taken together when it has one: each has
        waited for that as long as a run does on average, and for the work on half of the others.
        """
        each_us = self.cpu_s / self.request_count * 1e6
        if self.runs:
            together = max(1.0, self.request_count / self.runs)
            return each_us * (together + 1) / 2 + self.waited_s / self.runs * 1e6
        taken = min((self.cpu_s + self.waited_s) / self.elapsed_s, 0.99)
        # One queue whose work is even, served by a program that is busy for that share.
        waited_us = self.waited_s / self.request_count * 1e6
        # Pollaczek and Khinchine's formula for service times that do not vary (M/D/1).
        return (each_us + waited_us) * (1 + taken / (2 * (1 - taken)))


class Trust(enum.Enum):
    """How far a latency is the server's."""

    FULL = "full"
    NOTABLE = "notable"
    """It is, with a part that is the generator's, which is said."""
    NONE = "none"


class TrustVerdict(msgspec.Struct, frozen=True):
    """What can be said of a measurement; `own_us` is the generator's part of a latency."""

    trust: Trust
    own_us: float
    busy: float
    reason: str = ""


def verdict(use: GeneratorUse, median_us: float, process_count: int) -> TrustVerdict:
    """Return what a measured median is worth."""
    if use.elapsed_s <= 0 or not use.request_count:
        return TrustVerdict(Trust.NONE, 0.0, 0.0, "nothing was answered")
    busy = use.cpu_s / use.elapsed_s
    taken = min((use.cpu_s + use.waited_s) / use.elapsed_s, 0.99)
    own_us = min(use.own_us(), median_us)
    share = own_us / median_us if median_us else 1.0
    remedy = _remedy(process_count)
    if busy >= BUSY:
        reason = f"the load generator is at its limit ({busy:.0%} of a core): {remedy}"
        return TrustVerdict(Trust.NONE, own_us, busy, reason)
    waited = use.waited_s / use.elapsed_s
    if taken >= BUSY or (share > TOO_MUCH and waited > busy):
        reason = (
            f"the load generator waited for a core for {waited:.0%} of the time, {own_us:.0f} µs a "
            "request: what else runs here, the server too, takes them; send the load from elsewhere"
        )
        return TrustVerdict(Trust.NONE, own_us, busy, reason)
    if share > TOO_MUCH:
        reason = (
            f"{share:.0%} of it may be the load generator's own ({own_us:.0f} µs): the server is "
            "too quick for a program in Python to time it"
        )
        return TrustVerdict(Trust.NONE, own_us, busy, reason)
    if use.late_share > LATE:
        reason = f"{use.late_share:.0%} of the requests were sent late: {remedy}"
        return TrustVerdict(Trust.NOTABLE, own_us, busy, reason)
    if share > NOTABLE:
        reason = f"about {own_us:.0f} µs of it ({share:.0%}) may be the load generator's own"
        return TrustVerdict(Trust.NOTABLE, own_us, busy, reason)
    return TrustVerdict(Trust.FULL, own_us, busy)


def _remedy(process_count: int) -> str:
    return f"try --processes {process_count * 2}, or fewer requests at once"
