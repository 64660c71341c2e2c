"""AdaptivePace: batch size and delay found by measuring, where no configuration gives them.

What an item of a batch costs is measured for each class of batch sizes (the power of two above).
The smallest class that costs no more than a tenth above the cheapest is the largest batch that
is made: a model whose time grows with the batch, as most do on a CPU, runs its requests one by one,
at once and on all instances; one that takes as long for many as for one gets full batches. Of the
classes that more than one batch waits for, a fiftieth above the cheapest is too much: there every
percent shortens the queue, and those in front lose little of what all behind them gain. Classes
that are not known yet are believed to be good, so the first batches are as large as they can be,
and neighbours of the best class are tried again now and then. Where no instance has
rested for a while nobody is served sooner by small batches: then it is the largest of the good
classes. That costs the event loop less, which no execution's time tells: what comes and goes in
crowds is cheaper.

Requests wait for others only where others are to be expected: so many as were under way together
lately, shared among the instances that are free. First for those that have been read but not
looked at yet, which costs nobody any time. Then, where executions are long, for those who have
just had their answers and will ask again: at most half as long as an execution costs beside its
items, which is what a second one would cost, and ever shorter when nobody comes.

A lone client is never expected to be joined by anybody. Its requests run as if nothing were
batched, on the event loop where the model is quick; there a look at every so many requests tells
whether they still come alone.

Refused: a target latency (nobody knows it), the length of the queue (it grows when the model is
slow and when it is busy, and only one of them is a reason), and gradient methods on throughput
(they need steady load, and a lone client pays for their steps).
"""

from math import ceil

from inferd.schedulers.pace import beginning
from inferd.schedulers.queue import RequestQueue

CHEAPER = 1.1
"""What an item in the best class may cost, times the cheapest: small batches are soon over."""

CHEAPEST = 1.02
"""The same where more wait than one batch takes; less is not told from chance."""

LEAP = 0.25
"""What one execution may seem to have changed at most: the system may have interrupted it."""

QUEUED_NS = 10_000
"""What it costs to make a request wait: a future, a task, joining and splitting."""

HANDED_OVER_NS = 60_000
"""What it costs to hand an execution over to a thread and back: both wake up with cold caches."""

WORTH_NS = 30_000
"""A model that takes less time than this for a request alone is not worth batching."""

TRIAL_RUNS = 8
"""So many requests run alone before the first batch, if they are quick: a model may be tiny."""

TRIAL_NS = 1_000_000
"""A request that takes longer than this ends the trial."""

MIN_WAIT_NS = 200_000
"""A wait shorter than this is not worth an alarm."""

FIRST_PATIENCE_NS = 1_000_000
"""How long the first wait for more requests may be."""

FORGIVEN_AFTER = 64
"""After so many batches without waiting, waiting is tried again."""

FIRST_PROBE, LAST_PROBE = 8, 128
"""A neighbour of the best class is tried after so many batches at first, and at last."""

LASTING = 16
"""After so many batches without a rest, more requests come than can be served at once."""

_NO_SIZES: frozenset[int] = frozenset()

FIRST_LOOK, LAST_LOOK = 64, 4096
"""After so many runs on the event loop, at first and at last, one is looked at."""


class Costs:
    """What an item of a batch costs, by the class of the batch's size, in nanoseconds."""

    def __init__(self, most: int) -> None:
        self._most = most
        class_count = 1 + (most - 1).bit_length()
        self._costs = [0.0] * class_count  # 0: not known yet
        self._counts = [0] * class_count
        self._on_loop = [False] * class_count

    def note(self, size: int, cost_ns: int, *, on_loop: bool = False) -> None:
        """Take in what a batch of `size` items cost, in a thread or on the event loop."""
        size_class = self.class_of(size)
        if on_loop is not self._on_loop[size_class]:
            self.forget(size)  # it costs something else now
            self._on_loop[size_class] = on_loop
        cost, known = cost_ns / size, self._costs[size_class]
        self._counts[size_class] += 1
        # The first runs of a size are slow: memory is allocated, caches are cold.
        if self._counts[size_class] <= 4:
            self._costs[size_class] = min(cost, known) if known else cost
        else:
            leap = LEAP * known
            self._costs[size_class] += max(-leap, min(cost - known, leap)) / 16

    def class_of(self, size: int) -> int:
        """Return the class of a batch of `size` items; larger than the largest counts as that."""
        return min((size - 1).bit_length(), len(self._costs) - 1)

    def largest(self, size_class: int) -> int:
        """Return the largest size in a class."""
        return min(1 << size_class, self._most)

    def forget(self, size: int) -> None:
        """Have batches of `size` items measured anew."""
        size_class = self.class_of(size)
        self._costs[size_class] = self._counts[size_class] = 0

    def is_known(self, size_class: int) -> bool:
        """Tell whether a batch of this class has been measured."""
        return self._costs[size_class] > 0

    def best(
        self, tolerance: float = CHEAPER, below: int | None = None, *, largest: bool = False
    ) -> int:
        """Return the smallest known class that is about as cheap as the cheapest; 0 if none is.

        That is one of all classes, or of those `below` another; or the `largest` of them.
        """
        known = self._costs[:below]
        lowest = min(filter(None, known), default=0.0)
        good = [c for c, cost in enumerate(known) if 0 < cost <= lowest * tolerance]
        return good[-largest] if good else 0

    def fixed_ns(self, size: int) -> int:
        """Return what an execution costs beside its items, all of it while `size` is unknown."""
        smallest = next((c for c, cost in enumerate(self._costs) if cost), 0)
        most = self._costs[smallest] * (1 << smallest)
        if not self.is_known(self.class_of(size)):
            return int(most)
        best = self.best()
        if smallest >= best:
            return 0
        saved = self._costs[smallest] - self._costs[best]
        return int(min(most, saved / (1 / (1 << smallest) - 1 / (1 << best))))


class AdaptivePace:
    """Batches where that pays, and waits where others are to be expected."""

    def __init__(self, max_batch_size: int, instance_count: int) -> None:
        self._most = max(1, max_batch_size)
        self._instance_count = instance_count
        self._costs = Costs(self._most)
        self._alone_ns = 0  # what a request alone took at least, of late
        self._trial_runs = TRIAL_RUNS
        self._busy_count = 0
        self._running_count = 0
        self._expected = 1.0  # requests under way together
        self._mean_size = 1.0  # items of a request
        self._best = 0
        self._cheapest = 0
        self._probe_after = self._until_probe = FIRST_PROBE
        self._probes_larger = True
        self._since_ns = 0  # when an instance began to wait for more
        self._patience_ns = FIRST_PATIENCE_NS
        self._until_forgiven = FORGIVEN_AFTER
        self._unrested_count = 0  # batches since a request found an instance free
        self.look_after = FIRST_LOOK
        self.enough = 0  # each request tells something
        self.starts_at_once = True

    # --- what happens ---

    def came(self, waiting_count: int) -> None:
        """See Pace.came."""
        if self._busy_count < self._instance_count:
            self._unrested_count = 0
        self._expect(waiting_count + self._running_count)

    def started(self, count: int) -> None:
        """See Pace.started."""
        self._busy_count += 1
        self._running_count += count

    def ended(self, count: int, size: int, took_ns: int) -> None:
        """See Pace.ended."""
        self._busy_count -= 1
        self._running_count -= count
        cost_ns = took_ns + HANDED_OVER_NS + QUEUED_NS * count
        self._note(count, size, took_ns, cost_ns, on_loop=False)

    def ran(self, count: int, size: int, took_ns: int) -> None:
        """See Pace.ran."""
        cost_ns = took_ns + QUEUED_NS * count if count > 1 else took_ns
        self._note(count, size, took_ns, cost_ns, on_loop=True)

    def resized(self, instance_count: int) -> None:
        """See Pace.resized."""
        self._instance_count = instance_count
        self._decide()

    def looked(self, count: int, size: int) -> None:
        """See Pace.looked."""
        self.look_after = min(2 * self.look_after, LAST_LOOK)
        if count > 1 and self._alone_ns >= WORTH_NS:
            self._costs.forget(size)  # what did not pay then may pay now
            self._expect(count)

    # --- what to do ---

    def choose(self, queue: RequestQueue, now_ns: int) -> tuple[int, int]:
        """See Pace.choose."""
        coming_count = self._coming()
        size = max(queue.size, round(coming_count * self._mean_size))
        found = beginning(queue, self._limit(size), _NO_SIZES)
        if not found.is_closed and found.request_count < coming_count:
            if not self._since_ns:
                self._since_ns = now_ns
                return 0, now_ns  # those who come in this turn of the event loop cost nothing
            if wait_ns := self._wait_ns(size):
                if self._since_ns + wait_ns > now_ns:
                    return 0, self._since_ns + wait_ns
                self._patience_ns //= 2
        elif self._since_ns:
            self._patience_ns = max(self._patience_ns, 2 * (now_ns - self._since_ns))
        self._since_ns = 0
        self._unrested_count += 1
        under_way = found.request_count + self._running_count
        self._expected += (under_way - self._expected) / 8
        self._decide()
        return found.request_count, 0

    def _coming(self) -> int:
        """Return how many requests are to be expected for each of the free instances."""
        free_count = max(1, self._instance_count - self._busy_count)
        return ceil((round(self._expected) - self._running_count) / free_count)

    def _limit(self, size: int) -> int:
        """Return the largest batch to make of `size` items that wait or will."""
        if self._trial_runs > 0:
            return 1
        costs, best = self._costs, self._best
        reachable = costs.class_of(size)
        if not costs.is_known(reachable):
            return self._most
        # All classes that less than what waits would fill.
        lasts = self._unrested_count >= LASTING
        cheapest = costs.best(CHEAPEST, (size - 1).bit_length(), largest=lasts)
        if cheapest != self._cheapest:
            self._probe_soon(larger=cheapest > self._cheapest)
            self._cheapest = cheapest
        best = max(best, cheapest)
        self._until_probe -= 1
        if self._until_probe > 0:
            return costs.largest(best)
        self._probe_after = self._until_probe = min(2 * self._probe_after, LAST_PROBE)
        self._probes_larger = not self._probes_larger
        if self._probes_larger and best < reachable:
            return costs.largest(best + 1)
        return costs.largest(max(0, best - 1))

    def _wait_ns(self, size: int) -> int:
        """Return how long an instance may wait for a batch of `size` items."""
        if self._patience_ns < MIN_WAIT_NS:
            self._until_forgiven -= 1
            if self._until_forgiven > 0:
                return 0
            self._until_forgiven = FORGIVEN_AFTER
            self._patience_ns = FIRST_PATIENCE_NS
        wait_ns = min(self._patience_ns, self._costs.fixed_ns(size) // 2)
        return wait_ns if wait_ns >= MIN_WAIT_NS else 0

    # --- what it knows ---

    def _note(self, count: int, size: int, took_ns: int, cost_ns: int, *, on_loop: bool) -> None:
        if not took_ns:
            return  # it failed
        if count == 1:
            alone_ns = self._alone_ns
            is_least = not alone_ns or took_ns < alone_ns
            self._alone_ns = took_ns if is_least else alone_ns + (took_ns - alone_ns) // 8
            self._trial_runs = self._trial_runs - 1 if took_ns <= TRIAL_NS else 0
        self._mean_size += (size / count - self._mean_size) / 8
        self._costs.note(size, cost_ns, on_loop=on_loop)
        best = self._costs.best()
        if best != self._best:
            self._probe_soon(larger=best > self._best)
            self._best = best
        self._decide()

    def _probe_soon(self, *, larger: bool) -> None:
        """Have a neighbour of the best class tried soon, where that one lay to the last."""
        self._probes_larger = not larger  # it changes before each probe
        self._probe_after = self._until_probe = FIRST_PROBE

    def _expect(self, count: int) -> None:
        if count > self._expected:
            self._expected = float(count)
            self._decide()

    def _decide(self) -> None:
        reachable = self._costs.class_of(round(self._expected * self._mean_size))
        gains = self._best > 0 or not self._costs.is_known(reachable)
        may_pay = self._alone_ns >= WORTH_NS and gains
        are_more = self._expected >= self._instance_count + 0.5
        self.starts_at_once = self._trial_runs > 0 or not (may_pay and are_more)
