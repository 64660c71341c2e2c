"""AdaptiveTiming: batch size and delay found by measuring, where no configuration gives them.

The cost per item is measured for each class of batch sizes (the next power of two). The smallest
class within a tenth of the cheapest bounds the batch size: a model whose time grows with the batch,
as most do on a CPU, runs its requests one by one, at once and on all instances; one that takes as
long for many as for one gets full batches. For classes that the waiting requests more than fill,
the margin is a fiftieth: there every percent shortens the queue, and the requests in front lose
less than those behind them gain. Classes not yet measured are assumed to be good, so the first
batches are as large as possible, and neighbours of the best class are tried again now and then.
When no instance has been idle for a while, small batches serve no request sooner, so there is no
margin: the cheapest class is used.

Requests wait for others only where others are expected: as many as were recently under way
together, shared among the free instances. First they wait for requests that have been read but not
handled yet, which costs no time. Then, where executions are long, for clients that have just been
answered and will ask again: at most half the fixed cost of an execution, which is what a second
execution would add, and ever shorter when none come.

A lone client is never expected to be joined by others. Its requests run as if nothing were
batched, on the event loop where the model is quick; there, a sample taken now and then shows
whether they still come alone.

Rejected: a target latency (nobody knows it), the length of the queue (it grows when the model is
slow and when it is busy, and only one of these is a reason), and gradient methods on throughput
(they need steady load, and a lone client pays for their steps).
"""

from math import ceil

from inferd.schedulers.queueing.queue import RequestQueue
from inferd.schedulers.queueing.timing import BatchTiming, beginning

CHEAPER = 1.1
"""The most an item of the best class may cost, relative to the cheapest: small batches end soon."""

CHEAPEST = 1.02
"""The same where more wait than one batch takes; a smaller margin would be noise."""

LEAP = 0.25
"""The most one execution may change a known cost, as a fraction: it may have been interrupted."""

QUEUED_NS = 10_000
"""The cost of making a request wait: a future, a task, joining and splitting."""

HANDED_OVER_NS = 60_000
"""The cost of handing an execution to a thread and back: both wake up with cold caches."""

WORTH_NS = 30_000
"""A model that takes less time than this for a request alone is not worth batching."""

TRIAL_RUNS = 8
"""How many requests, if quick, run alone before the first batch: a model may be tiny."""

TRIAL_NS = 1_000_000
"""A request that takes longer than this ends the trial."""

MIN_WAIT_NS = 200_000
"""A wait shorter than this is not worth a timer."""

FIRST_PATIENCE_NS = 1_000_000
"""How long the first wait for more requests may be."""

FORGIVEN_AFTER = 64
"""After this many batches without waiting, waiting is tried again."""

FIRST_PROBE, LAST_PROBE = 8, 128
"""The first and longest interval, in batches, between trials of a neighbour of the best class."""

LASTING = 16
"""After this many batches without an idle instance, the load counts as lasting."""

_NO_SIZES: frozenset[int] = frozenset()

FIRST_LOOK, LAST_LOOK = 64, 4096
"""The first and the longest interval, in runs on the event loop, between samples."""


class Costs:
    """The cost per item of a batch, by the class of the batch's size, in nanoseconds."""

    def __init__(self, most: int) -> None:
        self._most = most
        class_count = 1 + (most - 1).bit_length()
        self._costs = [0.0] * class_count  # 0: not known yet
        self._counts = [0] * class_count
        self._on_loop = [False] * class_count

    def note(self, size: int, cost_ns: int, *, on_loop: bool = False) -> None:
        """Record the cost of a batch of `size` items, run in a thread or on the event loop."""
        size_class = self.class_of(size)
        if on_loop is not self._on_loop[size_class]:
            self.forget(size)  # the cost differs between the two
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
        """Return the class of a batch of `size` items, the largest class for all larger sizes."""
        return min((size - 1).bit_length(), len(self._costs) - 1)

    def largest(self, size_class: int) -> int:
        """Return the largest size in a class."""
        return min(1 << size_class, self._most)

    def forget(self, size: int) -> None:
        """Forget the cost of batches of `size` items, so that it is measured anew."""
        size_class = self.class_of(size)
        self._costs[size_class] = self._counts[size_class] = 0

    def is_known(self, size_class: int) -> bool:
        """Return whether a batch of this class has been measured."""
        return self._costs[size_class] > 0

    def best(self, tolerance: float = CHEAPER, below: int | None = None) -> int:
        """Return the smallest known class within `tolerance` of the cheapest; 0 if none is known.

        With `below`, only lower classes count.
        """
        costs = self._costs
        end = len(costs) if below is None else min(below, len(costs))
        least = 0.0
        for size_class in range(end):  # generators are slower
            cost = costs[size_class]
            if cost and (cost < least or not least):
                least = cost
        limit = least * tolerance
        for size_class in range(end):
            if 0 < costs[size_class] <= limit:
                return size_class
        return 0

    def fixed_ns(self, size: int) -> int:
        """Return the fixed cost of an execution, without its items.

        While `size` is unmeasured it is the whole cost of the smallest measured class.
        """
        smallest = next((c for c, cost in enumerate(self._costs) if cost), 0)
        most = self._costs[smallest] * (1 << smallest)
        if not self.is_known(self.class_of(size)):
            return int(most)
        best = self.best()
        if smallest >= best:
            return 0
        saved = self._costs[smallest] - self._costs[best]
        # cost(n) = fixed / n + item: from two classes the fixed part follows.
        return int(min(most, saved / (1 / (1 << smallest) - 1 / (1 << best))))


class AdaptiveTiming(BatchTiming):
    """Batches where that pays, and waits where more requests are expected."""

    def __init__(self, max_batch_size: int, instance_count: int) -> None:
        self._most = max(1, max_batch_size)
        self._instance_count = instance_count
        self._costs = Costs(self._most)
        self._alone_ns = 0  # about the least that a request alone took recently
        self._trial_runs = TRIAL_RUNS
        self._busy_count = 0
        self._running_count = 0
        self._expected = 1.0  # requests under way together
        self._mean_size = 1.0  # items per request
        self._best = 0
        self._cheapest = 0
        self._probe_after = self._until_probe = FIRST_PROBE
        self._probes_larger = True
        self._since_ns = 0  # when an instance began to wait for more
        self._patience_ns = FIRST_PATIENCE_NS
        self._until_forgiven = FORGIVEN_AFTER
        self._unrested_count = 0  # batches since a request found an instance free
        self.look_after = FIRST_LOOK
        self.enough = 0  # every request matters
        self.starts_at_once = True

    def arrived(self, waiting_count: int) -> None:
        """See BatchTiming.arrived."""
        if self._busy_count < self._instance_count:
            self._unrested_count = 0
        self._expect(waiting_count + self._running_count)

    def started(self, count: int) -> None:
        """See BatchTiming.started."""
        self._busy_count += 1
        self._running_count += count

    def ended(self, count: int, size: int, took_ns: int) -> None:
        """See BatchTiming.ended."""
        self._busy_count -= 1
        self._running_count -= count
        # Costs beside the model's own are counted in, since what is compared is a batch against so
        # many single runs.
        cost_ns = took_ns + HANDED_OVER_NS + QUEUED_NS * count
        self._note(count, size, took_ns, cost_ns, on_loop=False)

    def ran(self, count: int, size: int, took_ns: int) -> None:
        """See BatchTiming.ran."""
        cost_ns = took_ns + QUEUED_NS * count if count > 1 else took_ns
        self._note(count, size, took_ns, cost_ns, on_loop=True)

    def resized(self, instance_count: int) -> None:
        """See BatchTiming.resized."""
        self._instance_count = instance_count
        self._decide()

    def looked(self, count: int, size: int) -> None:
        """See BatchTiming.looked."""
        self.look_after = min(2 * self.look_after, LAST_LOOK)
        # Several came in one turn, so joining them might pay again.
        if count > 1 and self._alone_ns >= WORTH_NS:
            self._costs.forget(size)  # batching that did not pay before may pay now
            self._expect(count)

    def choose(self, queue: RequestQueue, now_ns: int) -> tuple[int, int]:
        """See BatchTiming.choose."""
        coming_count = self._coming()
        size = max(queue.size, round(coming_count * self._mean_size))
        found = beginning(queue, self._limit(size), _NO_SIZES)
        if not found.is_closed and found.request_count < coming_count:
            if not self._since_ns:
                self._since_ns = now_ns
                return 0, now_ns  # waiting for this turn of the event loop costs nothing
            if wait_ns := self._wait_ns(size):
                if self._since_ns + wait_ns > now_ns:
                    return 0, self._since_ns + wait_ns
                # The wait was in vain: the next one is half as long.
                self._patience_ns //= 2
        elif self._since_ns:
            # What came during a wait shows that waiting pays; a longer one may bring more.
            self._patience_ns = max(self._patience_ns, 2 * (now_ns - self._since_ns))
        self._since_ns = 0
        self._unrested_count += 1
        under_way = found.request_count + self._running_count
        self._expected += (under_way - self._expected) / 8
        self._decide()
        return found.request_count, 0

    def _coming(self) -> int:
        """Return how many requests to expect for each free instance."""
        free_count = max(1, self._instance_count - self._busy_count)
        return ceil((round(self._expected) - self._running_count) / free_count)

    def _limit(self, size: int) -> int:
        """Return the largest batch to make when `size` items wait or are expected."""
        if self._trial_runs > 0:
            return 1
        costs, best = self._costs, self._best
        reachable = costs.class_of(size)
        if not costs.is_known(reachable):
            return self._most
        # Only classes that `size` items more than fill.
        tolerance = 1.0 if self._unrested_count >= LASTING else CHEAPEST
        cheapest = costs.best(tolerance, (size - 1).bit_length())
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
        # Rent or buy: waiting costs at most half of what a second execution would add.
        wait_ns = min(self._patience_ns, self._costs.fixed_ns(size) // 2)
        return wait_ns if wait_ns >= MIN_WAIT_NS else 0

    def _note(self, count: int, size: int, took_ns: int, cost_ns: int, *, on_loop: bool) -> None:
        if not took_ns:
            return  # it failed
        if count == 1:
            alone_ns = self._alone_ns
            is_least = not alone_ns or took_ns < alone_ns
            # The least counts at once, more only slowly: other work can make a run longer, never
            # shorter.
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
        """Try a neighbour of the best class soon, on the side to which the best has just moved."""
        self._probes_larger = not larger  # it changes before each probe
        self._probe_after = self._until_probe = FIRST_PROBE

    def _expect(self, count: int) -> None:
        # Up at once, down slowly in `choose`: too few expected costs a whole execution, too many
        # costs a short wait.
        if count > self._expected:
            self._expected = float(count)
            self._decide()

    def _decide(self) -> None:
        reachable = self._costs.class_of(round(self._expected * self._mean_size))
        gains = self._best > 0 or not self._costs.is_known(reachable)
        may_pay = self._alone_ns >= WORTH_NS and gains
        # Above the number of instances by a margin, or a client that comes and goes would flip it.
        are_more = self._expected >= self._instance_count + 0.5
        self.starts_at_once = self._trial_runs > 0 or not (may_pay and are_more)
