"""Dynamic batching: requests wait in one queue, and each free instance takes a batch of them.

Three independent parts decide: the queue, which request is next and which have waited too long;
the timing, how many of them form a batch and whether to wait for more; the plan, which requests may
run together. This module moves requests between them when a request arrives, an instance becomes
free or the timer goes off.

A request that finds none waiting runs at once, on the event loop if its model is quick, and then
costs nothing here: no future, no queue, no task. While all instances are busy requests pile up,
and that is what forms batches; a queue delay makes batches larger when requests are sparse.

Everything happens on the event loop, so there are no locks. Each instance is given one batch at a
time: the rest stays in the queue, where a batch can still grow and a request can be overtaken, time
out or be cancelled. After a batch on the event loop, other callbacks get a turn before the next.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from inferd.aio.promise import Promise
from inferd.aio.timer import PreciseTimer, Timer
from inferd.core.interfaces import Answer, Instance, Opened, Outcome
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError, Overloaded
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.execution.job import twin
from inferd.schedulers.queueing.policy import MAX_WAITING, unloading
from inferd.schedulers.queueing.queue import Done, RequestQueue, Waiting, tell
from inferd.schedulers.queueing.queueing import QueueingScheduler
from inferd.schedulers.queueing.timing import BatchTiming, ExecutionTime, FixedTiming


class DynamicScheduler(QueueingScheduler):
    """Runs the requests of one model version in batches.

    With `keeps_order`, answers are delivered in the order in which the requests arrived.
    """

    def __init__(
        self,
        execution: Execution,
        queue: RequestQueue,
        timing: BatchTiming,
        plan: BatchPlan,
        *,
        keeps_order: bool = False,
        timer: Callable[[Callable[[], None]], Timer] = PreciseTimer,
    ) -> None:
        super().__init__(timing, plan.max_batch_size, timer)
        self._plan = plan
        self._execution = execution
        self._queue = queue
        self._free_count = execution.instance_count
        self._order = _AnswerOrder() if keeps_order else None
        self._answer = tell if self._order is None else self._order.answer
        self._execution_time = ExecutionTime()
        self._until_look = timing.look_after
        self._is_soon = False  # the timer goes off after this turn of the event loop
        self._gathers = False  # a batch waits for more requests
        self._handed: list[Sequence[Waiting]] = []  # batches whose instance may wait for its turn
        self._runs_at_once = False  # a request that arrives now need not wait
        self._joins = True
        self._beside_count = 0  # executions that no client waits for
        self.may_be_prompt = execution.may_run_inline
        self._settle()

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count."""
        return self._queue.count

    def run_now(self, request: InferRequest) -> InferResponse | None:
        """See PromptScheduler.run_now."""
        if not self._runs_at_once:
            return None
        answers = self._execution.run_now((request,))
        if answers is None:
            return None
        [answer] = answers
        # Raised from here, its traceback would make a cycle of the frame and the error.
        if isinstance(answer, InferdError):
            try:
                raise answer
            finally:
                del answer, answers  # its traceback holds this frame, which holds the request
        self._until_look -= 1
        if not self._until_look:
            self._look(request)
        return answer

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run. Raises Unavailable; Overloaded when the queue is full."""
        if self._runs_at_once:
            answer = self.run_now(request)
            if answer is not None:
                return answer
        # The same as QueueingScheduler.run, inlined to save a nested coroutine.
        done: Done = Promise(loop=self._loop or self._own_loop())
        waiting = self._enqueue(request, done)
        try:
            response: InferResponse = await done
        except BaseException:
            self._leave(waiting)
            raise
        finally:
            del done
        return response

    @property
    def instances(self) -> Sequence[Instance]:
        """See Resizable.instances."""
        return self._execution.instances

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow."""
        self._execution.grow(instance)
        self._free_count += 1
        self._timing.resized(self._execution.instance_count)
        self._advance()

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink."""
        before = self._execution.instance_count
        self._execution.shrink(kind)
        # This may be negative while instances that are to leave still run.
        self._free_count += self._execution.instance_count - before
        self._timing.resized(self._execution.instance_count)
        self._settle()

    def stop_joining(self) -> bool:
        """Run each request alone from now on; return whether this is new.

        Not if the configuration says how many rows outputs have, or gives requests other shapes.
        """
        # There `join` also makes batch_input and cuts batch_output, which one request alone needs
        # as well.
        if self._plan.reshapes or not self._joins:
            return False
        self.run_alone()
        return True

    def run_alone(self) -> None:
        """Run each request alone from now on."""
        self._joins = False
        self._max_batch_size = 1  # for `hurry`, too
        self._timing = FixedTiming(1, (), 0)
        self._settle()

    def start_joining(self, timing: BatchTiming, most: int) -> None:
        """Join requests, all of which ran alone so far, up to `most` items, when `timing` says."""
        self._joins = True
        self._max_batch_size = most
        self._timing = timing
        self._until_look = timing.look_after
        # The new timing counts what starts and ends, so it has to know of what has started before.
        busy_count = self._execution.instance_count - self._free_count - self._beside_count
        for _ in range(busy_count):
            timing.started(1)
        self._settle()

    def run_beside(
        self, requests: Sequence[InferRequest], finish: Callable[[Outcome], None]
    ) -> None:
        """Run `requests`, for which no client waits, as one in the next free instance.

        They are not counted, and unknown to the timing. Raises Unavailable when closing.
        """
        if self._quiet is not None:
            raise unloading(self._plan.model)
        # Statistics and metrics are those of clients' requests.
        self._execution.begin(requests, partial(self._finish_beside, finish), is_counted=False)
        self._free_count -= 1  # less than none, if it waits for a running batch
        self._beside_count += 1

    def _finish_beside(self, finish: Callable[[Outcome], None], outcome: Outcome) -> None:
        self._free_count += 1
        self._beside_count -= 1
        if self._queue.size:
            self._advance()
        else:
            self._settle()
        finish(outcome)

    def _enqueue(self, request: InferRequest, done: Done) -> Waiting:
        if self._quiet is not None:
            raise unloading(self._plan.model)
        queue, timing, plan, order = self._queue, self._timing, self._plan, self._order
        waiting = Waiting(request, None, done)
        # Straight to a thread: nobody waits who would be overtaken, so the queue's bookkeeping is
        # saved.
        if self._runs_at_once and self._free_count > 0:
            timing.arrived(1)
            self._start_in_thread((waiting,), (request,))
            self._settle()
            return waiting
        if order is not None:
            order.check_room()
        if plan.has_kinds:
            waiting.kind = plan.kind(request)
        queue.add(waiting, self._clock())
        if order is not None:
            order.add(waiting)
        timing.arrived(queue.count)
        # One more request for the gathering batch changes nothing: the timer already set stands.
        is_one_more = self._gathers and waiting.kind is None and queue.size < timing.enough
        if is_one_more or self._is_soon or not self._free_count:
            self._runs_at_once = False
            if waiting.late_ns:
                self._timer.set(waiting.late_ns)
        else:
            self._advance()
        return waiting

    def _give_up(self, waiting: Waiting) -> None:
        # A queued request never runs; the answer to a running one is dropped.
        was_queued = self._queue.remove(waiting)
        if not was_queued:
            self._execution.cancel(waiting.request)
        if self._order is not None:
            self._order.remove(waiting)
        if was_queued and self._gathers:
            # Without it those that are left may be of a preferred size, which starts at once.
            self._advance()
        else:
            self._settle()

    def _refuse_waiting(self) -> None:
        for waiting in self._queue.take(self._queue.count):
            self._answer(waiting, unloading(self._plan.model))

    async def _close_executions(self, timeout_s: float) -> None:
        await self._execution.close(timeout_s)

    def _advance(self) -> None:
        queue, now_ns = self._queue, self._clock()
        # First, so that no batch is made of requests that are too late.
        for late in queue.expire(now_ns):
            self._answer(late, queue.too_late(late))
        due_ns = self._start_batches(now_ns)
        self._gathers = due_ns > now_ns
        late_ns = queue.next_late_ns()
        if self._handed:
            late_ns = min(
                filter(None, (late_ns, _expire_handed(self._handed, queue, self._answer, now_ns))),
                default=0,
            )
        if late_ns and not 0 < due_ns < late_ns:
            due_ns = late_ns
        # Due in this very moment: by the loop's next turn, in which requests that were read
        # meanwhile may have come.
        self._is_soon = 0 < due_ns <= now_ns
        if self._is_soon:
            self._timer.set_soon()
        elif due_ns:
            self._timer.set(due_ns)
        self._settle()

    def _settle(self) -> None:
        """Update the state derived from the queue and the instances after a change."""
        is_empty, quiet = not self._queue.size, self._quiet
        if quiet is None:
            # An instance that may wait for a turn (the rate limiter) is not sure to take it, so the
            # request stays where it can time out.
            may = self._order is None and not self._execution.has_turns
            self._runs_at_once = is_empty and may and self._timing.starts_at_once
            return
        self._runs_at_once = False
        is_quiet = is_empty and self._free_count == self._execution.instance_count
        if is_quiet and not quiet.done():
            quiet.set_result(None)

    def _start_batches(self, now_ns: int) -> int:
        """Give each free instance a batch; return when to look again, 0: at the next event."""
        queue = self._queue
        while self._free_count > 0 and queue.size:
            count, due_ns = self._timing.choose(queue, now_ns)
            if not count:
                return due_ns
            if self._start(queue.take(count)):
                return now_ns if queue.size else 0  # other callbacks get a turn first
        return 0

    def _start(self, batch: Sequence[Waiting]) -> bool:
        """Run a batch; return whether it ran here, on the event loop."""
        requests = [waiting.request for waiting in batch]
        try:
            answers = self._execution.run_now(requests)
        except InferdError as error:
            self._deliver(batch, error)
            return True
        if answers is None:
            self._start_in_thread(batch, requests)
            return False
        took_ns = requests[0].ended_ns - requests[0].started_ns
        self._timing.ran(len(requests), _size(requests), _known(took_ns, answers))
        self._deliver(batch, answers)
        return True

    def _start_in_thread(self, batch: Sequence[Waiting], requests: Sequence[InferRequest]) -> None:
        self._free_count -= 1
        if self._execution.has_turns:
            # They are in no queue any more, yet still wait: their timeouts are looked after here.
            self._handed.append(batch)
        self._timing.started(len(requests))
        finish = partial(self._finish, batch, requests)
        self._execution.begin(requests, finish, partial(_are_wanted, batch))

    def _finish(
        self, batch: Sequence[Waiting], requests: Sequence[InferRequest], outcome: Outcome
    ) -> None:
        first = requests[0]
        # Up to the end of the model's own work, where the backend tells it: sending the answer back
        # is not what a larger batch makes cheaper.
        wall_ns = (first.computed_ns or first.ended_ns) - first.started_ns
        took_ns = self._execution_time.took_ns(wall_ns, first.cpu_ns)
        self._free_count += 1
        if self._handed:
            self._handed = [one for one in self._handed if one is not batch]
        self._timing.ended(len(requests), _size(requests), _known(took_ns, outcome))
        if self._queue.size:
            self._advance()  # keep the instance busy first, then deliver its answers
        else:
            self._settle()
        self._deliver(batch, outcome)

    def _look(self, request: InferRequest) -> None:
        """Sample a request that ran at once: its time, and how many more come in this turn."""
        timing = self._timing
        timing.ran(1, request.batch_size, request.ended_ns - request.started_ns)
        self._settle()
        self._until_look = turn = timing.look_after
        size = request.batch_size
        # At the end of this turn: what was read together has run by then.
        self._own_loop().call_soon(self._look_back, timing, turn, size)

    def _look_back(self, timing: BatchTiming, turn: int, size: int) -> None:
        count = 1 + turn - self._until_look
        if count > 0:  # no other look has begun meanwhile
            timing.looked(count, count * size)
            self._settle()

    def _deliver(self, batch: Sequence[Waiting], outcome: Outcome) -> None:
        if isinstance(outcome, InferdError):
            # An exception that is raised for several callers would collect all their tracebacks.
            outcome = [outcome, *(twin(outcome) for _ in batch[1:])]
        for waiting, answer in zip(batch, outcome, strict=True):
            self._answer(waiting, answer)


def _expire_handed(
    handed: Sequence[Sequence[Waiting]],
    queue: RequestQueue,
    answer: Callable[[Waiting, Answer], None],
    now_ns: int,
) -> int:
    """Refuse requests that waited too long for a turn; return when the next is due, or 0."""
    next_ns = 0
    for batch in handed:
        if batch[0].request.started_ns:
            continue  # it runs
        for waiting in filter(queue.rejects, batch):
            if waiting.late_ns <= now_ns:
                answer(waiting, queue.too_late(waiting))
            elif not next_ns or waiting.late_ns < next_ns:
                next_ns = waiting.late_ns
    return next_ns


class _AnswerOrder:
    """Requests without an answer yet, and answers held back until earlier ones are given."""

    def __init__(self) -> None:
        # Removal from the middle, when a client leaves, takes no longer than from the front.
        self._pending: OrderedDict[int, tuple[Waiting, Answer | None]] = OrderedDict()

    def check_room(self) -> None:
        """Raise Overloaded when too many requests await their turn to be answered."""
        if len(self._pending) >= MAX_WAITING:
            msg = f"{MAX_WAITING} requests wait for the answers of those before; try again later"
            raise Overloaded(msg)

    def add(self, waiting: Waiting) -> None:
        """Add a request behind all others."""
        self._pending[waiting.number] = waiting, None

    def answer(self, waiting: Waiting, answer: Answer) -> None:
        """Give `answer` to its request once all earlier requests have theirs."""
        found = self._pending.get(waiting.number)
        if found is not None and found[1] is None:
            self._pending[waiting.number] = waiting, answer
            self._release()

    def remove(self, waiting: Waiting) -> None:
        """Forget a request, so that no later answer waits for it."""
        if self._pending.pop(waiting.number, None) is not None:
            self._release()

    def _release(self) -> None:
        while self._pending:
            waiting, answer = next(iter(self._pending.values()))
            if answer is None:
                return
            del self._pending[waiting.number]
            tell(waiting, answer)


def _are_wanted(batch: Sequence[Waiting]) -> bool:
    """Return whether any caller still waits for an answer of `batch`."""
    # One is enough: the others of the batch are computed along.
    return any(waiting.done is not None for waiting in batch)


def _known(took_ns: int, outcome: Outcome) -> int:
    """Return `took_ns`, or 0 for a failed execution, which may have ended before doing any work."""
    failed = isinstance(outcome, InferdError) or isinstance(outcome[0], InferdError)
    return 0 if failed else took_ns


def _size(requests: Sequence[InferRequest]) -> int:
    """Return the total number of items in `requests`."""
    return sum([request.batch_size for request in requests])
