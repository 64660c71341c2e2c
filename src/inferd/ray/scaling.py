"""Scaling: how many replicas a group should have, from what they have to do.

The number that fits is computed at each look. It is followed upwards once it was too large for the
present number all through a short time, and downwards once it was small enough all through a longer
one: the least of the first, and the largest of the second, are the numbers that nothing in that
time speaks against. So neither a peak nor a pause changes anything.
"""

from collections import deque
from typing import NamedTuple

from inferd.ray.spec import ScalingRule, replicas_for

_CALM = 0.5
"""Replicas become fewer only while the latency is below this part of what is allowed."""


class GroupLoad(NamedTuple):
    """What a group has to do: sums over its replicas, since the last look.

    `pending` is how many requests were under way, on average, `cpu` how many cores' worth of time
    was used per core of a replica. `latency_ms` is the mean of what has been answered, 0 if nothing
    was; `is_active` is false if there was no request at all.
    """

    pending: float
    cpu: float
    latency_ms: float
    is_active: bool


class Scaling:
    """Follows one group by its `rule`; times in seconds, on the clock of the caller."""

    def __init__(self, rule: ScalingRule, start: int, now: float) -> None:
        self._rule = rule
        self._looks: deque[tuple[float, int]] = deque()
        self._began_s = now
        self._active_s = now
        self.desired = min(max(start, rule.least), rule.most)
        """How many replicas there should be."""

    def become(self, rule: ScalingRule, now: float) -> None:
        """Go on by another rule; the number changes only as far as its bounds say."""
        self._rule = rule
        self._set(min(max(self.desired, rule.least), rule.most), now)

    def wake(self, now: float) -> None:
        """Have at least one replica, as a request is waiting for one."""
        self._active_s = now
        if self.desired == 0:
            self._set(min(1, self._rule.most), now)

    def force(self, count: int, now: float) -> None:
        """Have `count` replicas now, within the bounds; the load decides from here on."""
        self._active_s = now
        self._set(min(max(count, self._rule.least), self._rule.most), now)

    def look(self, load: GroupLoad, ready: int, now: float) -> None:
        """Take in what the `ready` replicas had to do."""
        rule = self._rule
        if load.is_active:
            self._active_s = now
        if rule.is_fixed:
            return
        if self.desired == 0 or not ready:  # nobody has anything to do, which says nothing
            self._restart(now)
            self._active_s = now
            return
        if rule.least == 0 and now - self._active_s >= rule.idle_s:
            self._set(0, now)
            return
        self._looks.append((now, self._fitting(load, ready)))
        while self._looks and self._looks[0][0] < now - max(rule.up_after_s, rule.down_after_s):
            self._looks.popleft()
        self._decide(now)

    def _fitting(self, load: GroupLoad, ready: int) -> int:
        """Return how many replicas would have just enough to do."""
        rule = self._rule
        count = max(replicas_for(load.pending, rule.pending), replicas_for(load.cpu, rule.cpu))
        # By one: how latency follows from the number of replicas is not known, unlike requests and
        # CPU time, which are shared by them.
        if rule.latency_ms and load.latency_ms > rule.latency_ms:
            count = max(count, ready + 1)
        # Between the two the number stays: fewer replicas would be too
        # slow, and the group would swing.
        elif rule.latency_ms and load.latency_ms > rule.latency_ms * _CALM:
            count = max(count, ready)
        # At least 1: to sleep is decided by idle_s, not by a pause.
        return min(max(count, rule.least, 1), rule.most)

    def _decide(self, now: float) -> None:
        rule = self._rule
        # Not before the present number has been seen for the whole time: what was measured with
        # another one says nothing.
        if now - self._began_s >= rule.up_after_s:
            least = min(count for at, count in self._looks if at >= now - rule.up_after_s)
            if least > self.desired:
                self._set(least, now)
                return
        if now - self._began_s >= rule.down_after_s:
            most = max(count for at, count in self._looks if at >= now - rule.down_after_s)
            if most < self.desired:
                self._set(most, now)

    def _set(self, count: int, now: float) -> None:
        if count != self.desired:
            self.desired = count
            self._restart(now)

    def _restart(self, now: float) -> None:
        """Forget what was seen: it says nothing of the number that there is now."""
        self._looks.clear()
        self._began_s = now
