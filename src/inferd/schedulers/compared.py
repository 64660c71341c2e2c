"""ComparedScheduler: joins the requests of a model only after it was seen to keep them apart.

It stands before the scheduler of a model of which nobody knows whether its rows are independent.
At first that scheduler runs each request alone, and clients get these answers. Now and then some
that have been answered, all different, are run once more as one, for nobody, and both answers to
each are compared. One joined run of each size is made in turn; in each, every request is compared,
the first and the last, too. When WANTED answers agreed, requests are joined, in batches no larger
than those that were compared. From then on, one request in EVERY is run again, alone, if it was
joined. The first answer that differs, whenever it comes, ends joining for good.

A model that gives two answers to the same request when it runs alone is not deterministic: nothing
can be compared, so it is not joined either.

Runs for comparisons are not counted, are unknown to whatever measures executions, never run on the
event loop, and take at most a fixed share of the model's time (`comparing.budget`). There is none
while no two requests are under way together: joining would then gain nothing.

Rejected: to compare batches as they are formed, while their clients wait: the measured costs of
batches would be those of comparisons, and clients would wait for these.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from inferd.core.interfaces import (
    GatheringScheduler,
    Instance,
    JoiningScheduler,
    Opened,
    Outcome,
    Resizable,
)
from inferd.core.request import InferRequest, InferResponse
from inferd.core.rows import Joining
from inferd.core.streaming import one_answer
from inferd.errors import Cancelled, InferdError, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers.comparing.budget import ComparisonBudget
from inferd.schedulers.comparing.copies import CopyPool, RequestCopy, copied, is_small
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.queueing.adaptive import AdaptiveTiming
from inferd.schedulers.queueing.timing import BatchTiming
from inferd.tensor.closeness import difference
from inferd.tensor.tensor import Tensor

log = logging.getLogger("inferd.model")

WANTED = 3000
"""How many answers, to requests that all differ, must agree before requests are joined.

By the rule of three: if one in a thousand answers differed, chances would be 20 to 1 against that.
"""

EVERY = 256
"""One in this many requests is compared after that."""

MOST_ROWS = 64
"""The most rows of a joined run that is compared, and so of a batch that is made later."""

# Else a model with few clients at a time, who never fill the next size, would never be compared.
PATIENCE = 64
"""After so many samples that were too few for the next size, a smaller run is made of them."""

# Clients that repeat themselves cost a copy and a hash for each sample that is thrown away.
MOST_SKIPPED = 64
"""How many requests are passed over at most after inputs that were sampled before."""

# A model that dies of joined requests must not be made to die again and again.
MOST_UNANSWERED = 3
"""So many joined runs may be lost, with their worker's process for example."""

# The loop is the other connections' as well; below this, handing over to a thread costs more than
# comparing.
INLINE_BYTES = 64 << 10
"""Answers with more bytes are compared in a thread."""


_Outputs = Sequence[Tensor]


class Joinable(GatheringScheduler, JoiningScheduler, Resizable, Protocol):
    """A scheduler that can run requests alone or joined, and some for nobody (DynamicScheduler)."""

    def run_beside(
        self, requests: Sequence[InferRequest], finish: Callable[[Outcome], None]
    ) -> None:
        """Run `requests` as one for nobody, and call `finish` with the outcome."""
        ...

    def start_joining(self, timing: BatchTiming, most: int) -> None:
        """Join requests from now on, up to `most` items, when `timing` says."""
        ...


class ComparedScheduler:
    """Has `scheduler` run each request alone, until comparisons have shown that it may join them.

    That takes `wanted` answers that agree. What it finds out is noted in `joining`, counted in
    `counts`, and logged.
    """

    def __init__(
        self,
        scheduler: Joinable,
        plan: BatchPlan,
        joining: Joining,
        counts: Counts,
        *,
        wanted: int = WANTED,
    ) -> None:
        self._scheduler = scheduler
        self._plan = plan
        self._joining = joining
        self._counts = counts
        self._why = joining.reason
        self._wanted = wanted
        self._under_way = 0
        self._is_over = False  # nothing is compared any more
        self._is_running = False  # a comparison
        self._pool = CopyPool()
        # Time of instances, not of this thread: what comparisons take from clients is instances
        # that are busy.
        self._budget = ComparisonBudget()
        self._due: _Due | None = None
        self._sizes = sizes_up_to(min(plan.max_batch_size, MOST_ROWS))
        self._turn = 0  # which size is next
        self._lacking = 0  # samples that came since the last comparison
        self._to_skip = self._skipped = 0
        self._agreed = self._largest = self._unanswered = 0
        self._until_sample = EVERY
        # Direct access saves a call for each request of a small model.
        self.prompt = scheduler
        """What has answers at once: it runs on the event loop, where nothing is compared."""

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count."""
        return self._scheduler.pending_count

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run."""
        # A coroutine that returns another's result: nothing else is paid once the verdict is known.
        if self._is_over:
            return await self._scheduler.run(request)
        self._under_way += 1
        try:
            sample = self._sample_of(request)  # before it runs: a model may write to its inputs
            response = await self._scheduler.run(request)
        finally:
            self._under_way -= 1
        if not self._is_over:
            self._note(request, response, sample)
        return response

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream; there is one answer."""
        return one_answer(self.run, request)

    @property
    def instances(self) -> Sequence[Instance]:
        """See Resizable.instances."""
        return self._scheduler.instances

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow."""
        self._scheduler.grow(instance)

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink."""
        self._scheduler.shrink(kind)

    def hurry(self) -> None:
        """See GatheringScheduler.hurry."""
        self._stop_comparing()
        self._scheduler.hurry()

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close."""
        self._stop_comparing()
        await self._scheduler.close(timeout_s)

    def stop_joining(self) -> bool:
        """Run each request alone from now on; return whether this is new."""
        is_new = self._joining.state != "alone"
        self._stop_comparing()
        self._joining.state = "alone"
        self._scheduler.stop_joining()
        return is_new

    def _sample_of(self, request: InferRequest) -> RequestCopy | None:
        """Return a copy of `request`, which is about to run, if it is to be compared."""
        if self._is_running or not is_small(request):
            return None
        if self._joining.state == "joined":
            self._until_sample -= 1
            if self._until_sample > 0:
                return None
            self._until_sample = EVERY
        else:
            # A request that fills a batch by itself is never joined, and one that is alone gains
            # nothing.
            is_of_use = request.batch_size < self._plan.max_batch_size and self._under_way > 1
            if not is_of_use or self._due is not None or not self._budget.has_some:
                return None
            if self._to_skip:
                self._to_skip -= 1
                return None
        return RequestCopy(request, self._plan.kind(request))

    def _note(
        self, request: InferRequest, response: InferResponse, sample: RequestCopy | None
    ) -> None:
        """Note that `request`, of which `sample` is a copy, was answered."""
        if self._joining.state == "joined":
            # A joined run that failed gave answers from runs by itself: no comparison with those.
            if sample is not None and request.shared and not request.ran_again:
                sample.take(response)
                self._begin([sample.request], partial(self._check, sample))
            return
        # It was joined before joining was ended, so its answer is no measure for others.
        if request.shared:
            return
        self._budget.earn(request.ended_ns - request.started_ns, request.batch_size)
        if sample is not None:
            self._collect(sample, response)
        # A due comparison waits until it can be paid; the clients' requests earn meanwhile.
        if self._due is not None and not self._is_running and self._budget.allows(self._due.rows):
            due, self._due = self._due, None
            samples = self._pool.take(due.kind, due.rows)
            if samples:
                requests = [one.request for one in samples]
                self._begin(requests, partial(self._check_joined, samples))

    def _collect(self, sample: RequestCopy, response: InferResponse) -> None:
        """Keep a sample that was answered; decide whether there are enough to compare them."""
        pool = self._pool
        if pool.has_seen(sample):
            # Twice as many each time: who sends equal requests goes on doing so.
            self._skipped = self._to_skip = min(2 * self._skipped + 1, MOST_SKIPPED)
        else:
            self._skipped = 0
            sample.take(response)
            pool.add(sample)
        if self._due is not None:
            return
        self._lacking += 1
        size = min(self._sizes[self._turn], self._budget.most_rows())
        rows = pool.rows(sample.kind)
        if rows >= size or pool.is_full or self._lacking >= PATIENCE:
            self._lacking = 0
            self._turn = (self._turn + 1) % len(self._sizes)
            self._due = _Due(sample.kind, min(rows, size))

    def _begin(self, requests: Sequence[InferRequest], check: Callable[[Outcome], None]) -> None:
        """Run `requests` as one for nobody, then `check` the outcome."""

        def finish(outcome: Outcome) -> None:
            first = requests[0]
            expected_ns = self._budget.expected_ns(sum(one.batch_size for one in requests))
            # A run that failed before it began has no times; it is charged as one that went well.
            took_ns = first.ended_ns - first.started_ns if first.ended_ns else expected_ns
            self._budget.spend(took_ns)
            self._is_running = False
            check(outcome)

        self._is_running = True
        try:
            self._scheduler.run_beside(requests, finish)
        except InferdError:  # the model is being unloaded
            self._stop_comparing()

    def _check_joined(self, samples: Sequence[RequestCopy], outcome: Outcome) -> None:
        """Compare the answers of a joined run with those that the clients got."""
        if self._is_over or self._is_unanswered(outcome):
            return
        answers = [] if isinstance(outcome, InferdError) else list(outcome)
        outputs = [one.outputs for one in answers if not isinstance(one, InferdError)]
        # JoinedInstance hides a failed joined run by running each by itself, which for clients is
        # right.
        if len(outputs) < len(samples) or samples[0].request.ran_again:
            self._counts.comparison_count += len(samples)
            self._counts.disagreement_count += len(samples)
            self._run_alone("joined with others, requests fail that succeed alone")
            return
        self._compare(samples, [one.outputs for one in samples], outputs)

    def _check(self, sample: RequestCopy, outcome: Outcome) -> None:
        """Compare the answer that a client got, joined with others, with one computed alone."""
        # Alone, it failed; that it had an answer when joined says nothing of its rows.
        if self._is_over or isinstance(outcome, InferdError):
            return
        [answer] = outcome
        if not isinstance(answer, InferdError):
            self._compare([sample], [answer.outputs], [sample.outputs])

    def _is_unanswered(self, outcome: Outcome) -> bool:
        """Tell whether a joined run did not come back, which says little of the model's rows."""
        if not isinstance(outcome, InferdError):
            return False
        if not (outcome.is_lost or isinstance(outcome, Unavailable | Cancelled)):
            return False
        self._unanswered += 1
        if self._unanswered >= MOST_UNANSWERED:
            self._run_alone(f"joined runs are not answered: {outcome.message}")
        return True

    def _compare(
        self, samples: Sequence[RequestCopy], alone: Sequence[_Outputs], joined: Sequence[_Outputs]
    ) -> None:
        """Compare the outputs for each sample, in a thread if there is much to compare."""

        def compare() -> list[str]:
            return [_difference(*pair) for pair in zip(alone, joined, strict=True)]

        def finish(found: Sequence[str]) -> None:
            # Before judging, which may begin another run.
            self._is_running = False
            self._judge(samples, alone, found)

        if sum(one.size_bytes for one in samples) <= INLINE_BYTES:
            finish(compare())
            return
        self._is_running = True
        task = asyncio.get_running_loop().run_in_executor(None, compare)
        task.add_done_callback(lambda done: finish(done.result()))

    def _judge(
        self, samples: Sequence[RequestCopy], alone: Sequence[_Outputs], found: Sequence[str]
    ) -> None:
        """Decide what follows from the differences `found`, "" for answers that agree."""
        # A thread's comparison may end after the model was told to run alone, or to close.
        if self._is_over:
            return
        self._counts.comparison_count += len(samples)
        self._counts.disagreement_count += sum(map(bool, found))
        worst = next((number for number, text in enumerate(found) if text), None)
        if worst is not None:
            self._doubt(samples[worst], alone[worst], found[worst])
            return
        self._agreed += len(samples)
        self._largest = max(self._largest, sum(sample.rows for sample in samples))
        if self._agreed >= self._wanted and self._joining.state == "compared":
            self._join()

    def _join(self) -> None:
        most = self._largest
        # Copies of many megabytes, of which a joined model keeps none.
        self._pool, self._due = CopyPool(), None
        self._joining.state = "joined"
        self._joining.reason = (
            f"{self._why}, but {self._agreed} answers were the same alone and joined, in batches "
            f"of up to {most}"
        )
        self._scheduler.start_joining(AdaptiveTiming(most, len(self.instances)), most)
        log.info("model '%s': requests are joined: %s", self._plan.model, self._joining.reason)

    def _doubt(self, sample: RequestCopy, alone: _Outputs, text: str) -> None:
        """End joining, as answers to `sample` differ, and find out whether they always do."""
        # At once, and before the cause is known: until then, other clients might get mixed answers.
        self._joining.state = "alone"
        self._joining.reason = (
            f"joined with others, a request got another answer than alone: {text}"
        )
        self._scheduler.stop_joining()
        self._pool, self._due = CopyPool(), None

        def finish(outcome: Outcome) -> None:
            answer = outcome if isinstance(outcome, InferdError) else outcome[0]
            again = "" if isinstance(answer, InferdError) else difference(alone, answer.outputs)
            if again:
                self._run_alone(f"alone, it gave two answers to the same request: {again}")
            else:
                self._run_alone(self._joining.reason)

        self._begin([copied(sample.request)], finish)

    def _run_alone(self, reason: str) -> None:
        """Run each request alone from now on, and compare nothing any more."""
        self._stop_comparing()
        self._joining.state, self._joining.reason = "alone", reason
        self._scheduler.stop_joining()
        log.warning(
            "model '%s': its requests run alone from now on, never joined: %s",
            self._plan.model,
            reason,
        )

    def _stop_comparing(self) -> None:
        self._is_over = True
        self._pool, self._due = CopyPool(), None


class _Due(NamedTuple):
    """A comparison that is to be made when it can be paid."""

    kind: Hashable
    rows: int


def _difference(alone: _Outputs, joined: _Outputs) -> str:
    try:
        return difference(alone, joined)
    except InferdError as error:  # strings that are none
        return error.message


def sizes_up_to(most: int) -> Sequence[int]:
    """Return the sizes of joined runs that are to be compared: powers of two, 3, and `most`."""
    powers = [1 << bits for bits in range(1, most.bit_length()) if 1 << bits < most]
    return sorted({most, *powers, *([3] if most > 3 else [])})
