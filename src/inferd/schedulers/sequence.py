"""Sequence batching: the requests of a sequence run one after another, on one instance.

A sequence begins with a request that says so and lives until one that ends it has run, or until
nobody has sent it a request for the idle time. While it lives it holds a slot of an instance; when
all are taken, sequences that begin wait for one in the backlog, first come, first served. The
first waiting request of each sequence with a slot is *ready*; a free instance takes several that
are ready, of different sequences, as a batch.

The two strategies differ in what a slot is. *Direct*: a row of the instance's batch, kept by the
sequence for life, so that a model can hold state by row. Rows in between that have no request get
a copy of another's, with controls that say that nothing is there. *Oldest*: only a bound on how
many sequences take part; their requests are batched as dynamic batching does, and rows mean
nothing.

A sequence must not lose a step unnoticed. So when a request that waits is cancelled or has waited
too long, all that wait in its sequence are refused, and the sequence ends. One that runs goes on
when its caller leaves; its step counts. A model that fails leaves the sequence alive and its state
as it was before. A new START on a sequence that lives begins it anew in its slot, behind what
waits there.

What waits is bounded by two RequestQueues, which know the time limits, too, and are used for
nothing but that here: one for sequences that have a slot, one for those in the backlog, who thus
cannot keep the former from going on. Everything happens on the event loop. Each instance has an
Execution of its own, which is what binds sequences to it.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from copy import copy
from functools import partial
from typing import NamedTuple

from inferd.config.hold import NO_HOLD, Hold
from inferd.core.interfaces import Opened
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import Cancelled, InferdError, InvalidRequest, Unavailable
from inferd.schedulers.alarm import Alarm, Timer
from inferd.schedulers.batch import BatchPlan
from inferd.schedulers.controls import Controls
from inferd.schedulers.execution import Execution
from inferd.schedulers.job import Answer, Outcome, twin
from inferd.schedulers.pace import FixedPace
from inferd.schedulers.queue import RequestQueue, Waiting, tell
from inferd.schedulers.slots import Slot, Slots
from inferd.schedulers.states import States
from inferd.tensor.tensor import Tensor


class SlotRules(NamedTuple):
    """What slots are: how many an instance has, and when a sequence without requests loses its own.

    With `are_rows` a slot is a row of the batch (the direct strategy). Nothing runs before so many
    requests wait as `hold` says: in sequences with a slot, or, where these are no rows, ready for
    one instance; and in the backlog.
    """

    per_lane: int
    are_rows: bool
    idle_us: int
    hold: Hold = NO_HOLD


class ModelTensors(NamedTuple):
    """What a model's configuration says about the tensors of its requests."""

    plan: BatchPlan
    controls: Controls
    states: States


class _Live:
    """A sequence that lives: in the backlog while it has no `slot`, idle while nothing waits."""

    __slots__ = ("id", "is_ended", "running", "slot", "state", "waiting")

    def __init__(self, id: int | str, state: list[Tensor]) -> None:
        self.id = id
        self.slot: Slot | None = None
        self.waiting: deque[_Step] = deque()
        self.running: _Step | None = None
        self.is_ended = False  # by the last request that came
        self.state = state

    @property
    def row(self) -> int:
        """The row of the batch that its slot is."""
        assert self.slot is not None
        return self.slot.number


class _Step(Waiting, kw_only=True):
    """A request of `sequence`; `inputs` and `outputs` are its own, without the scheduler's."""

    sequence: _Live
    inputs: list[Tensor]
    outputs: list[WantedOutput]
    queue: RequestQueue


class _Lane:
    """One instance, the sequences in its slots, and their requests that are ready, by slot."""

    __slots__ = ("execution", "is_busy", "is_held", "is_leaving", "ready", "sequences")

    def __init__(self, execution: Execution, *, is_held: bool) -> None:
        self.execution = execution
        self.is_busy = False
        self.is_leaving = False  # it gets no new sequences, and is closed after the last
        self.is_held = is_held
        self.sequences: dict[int, _Live] = {}
        self.ready: OrderedDict[int, _Step] = OrderedDict()


class SequenceScheduler:
    """Runs the sequences of one model version.

    `executions` have one instance each. `queues` bound what waits in sequences with a slot and in
    those without. `pace` says how many of the requests that are ready run.
    """

    def __init__(
        self,
        executions: Sequence[Execution],
        queues: tuple[RequestQueue, RequestQueue],
        pace: FixedPace,
        tensors: ModelTensors,
        rules: SlotRules,
        *,
        alarm: Callable[[Callable[[], None]], Timer] = Alarm,
    ) -> None:
        self._hold = hold = rules.hold
        lanes = [_Lane(execution, is_held=bool(hold)) for execution in executions]
        self._lanes = dict(enumerate(lanes))
        self._next_lane = len(lanes)
        self._closing: set[asyncio.Task[None]] = set()
        self._queues = self._seated_queue, self._backlog_queue = queues
        self._pace = pace
        self._plan, self._controls, self._states = tensors
        self._are_rows = rules.are_rows
        self._idle_ns = 1000 * rules.idle_us
        self._slots = Slots(len(executions), rules.per_lane)
        self._live: dict[int | str, _Live] = {}
        self._backlog: OrderedDict[int | str, _Live] = OrderedDict()
        self._idle: OrderedDict[int | str, int] = OrderedDict()  # when each ends, soonest first
        self._alarm = alarm(self._advance)
        self._clock = self._alarm.clock
        self._quiet: asyncio.Future[None] | None = None  # closing; done when nothing lives

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count."""
        return sum(map(len, self._queues))

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run.

        Raises InvalidRequest for a request that belongs to no sequence or to none that lives,
        Unavailable when too many wait or it has waited too long, Cancelled when another request
        of its sequence was given up.
        """
        step = self._enqueue(request)
        try:
            assert step.done is not None
            return await step.done
        finally:
            self._leave(step)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream; there is one answer."""
        yield await self.run(request)

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close. What waits runs, sequences get no further requests."""
        give_up_ns = self._clock() + int(timeout_s * 1e9)
        self._quiet = asyncio.get_running_loop().create_future()
        self._pace = FixedPace(self._plan.max_batch_size, (), 0)  # nobody else will come
        self._advance()
        await asyncio.wait((self._quiet,), timeout=timeout_s)
        if not self._quiet.done():
            self._quiet.set_result(None)
        for sequence in list(self._live.values()):
            self._end(sequence, self._unloading())
        self._alarm.close()
        left_s = max(0, give_up_ns - self._clock()) / 1e9
        closes = [lane.execution.close(left_s) for lane in self._lanes.values()]
        await asyncio.gather(*closes, *self._closing)

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow. Those in the backlog get its slots."""
        number, self._next_lane = self._next_lane, self._next_lane + 1
        execution = self._some_execution().beside(instance)
        lane = self._lanes[number] = _Lane(execution, is_held=False)
        self._slots.open(number)
        if self._quiet is None:
            self._advance()
        else:
            self._close_lane(lane)

    def shrink(self) -> None:
        """See Resizable.shrink. It is the instance with the fewest sequences; these go on there."""
        staying = [(len(o.sequences), n) for n, o in self._lanes.items() if not o.is_leaving]
        if len(staying) > 1 and self._quiet is None:
            _, number = min(staying)
            self._lanes[number].is_leaving = True
            self._slots.close(number)
            self._dismiss_if_done(number)

    # --- requests come and go ---

    def _enqueue(self, request: InferRequest) -> _Step:
        if self._quiet is not None:
            raise self._unloading()
        sequence = self._sequence_of(request)
        done = asyncio.get_running_loop().create_future()
        step = _Step(
            request,
            None,
            done,
            sequence=sequence,
            inputs=request.inputs,
            outputs=request.outputs,
            queue=self._backlog_queue if sequence.slot is None else self._seated_queue,
        )
        step.queue.add(step, self._clock())
        if sequence.id not in self._live:
            self._live[sequence.id] = self._backlog[sequence.id] = sequence
        self._idle.pop(sequence.id, None)
        assert request.sequence is not None
        sequence.is_ended = request.sequence.end
        sequence.waiting.append(step)
        self._settle(sequence)
        self._advance()
        return step

    def _sequence_of(self, request: InferRequest) -> _Live:
        """Return the sequence of `request`, a new one if it starts one. Raises InvalidRequest."""
        model, asked = self._plan.model, request.sequence
        if asked is None:
            msg = f"model '{model}' takes only requests with a sequence_id, not 0 and not empty"
            raise InvalidRequest(msg)
        if request.batch_size != 1:
            msg = (
                f"the batch size is {request.batch_size}, model '{model}' takes requests of "
                f"batch size 1, since they belong to sequences"
            )
            raise InvalidRequest(msg)
        self._controls.check_id(asked.id)
        sequence = self._live.get(asked.id)
        if asked.start:
            return sequence or _Live(asked.id, self._states.initial)
        if sequence is None or sequence.is_ended:
            msg = (
                f"model '{model}' knows no sequence {asked.id!r}: its first request must say "
                f"sequence_start; it ends with sequence_end, or when no request comes for "
                f"{self._idle_ns // 1000} microseconds"
            )
            raise InvalidRequest(msg)
        return sequence

    def _leave(self, step: _Step) -> None:
        """Forget a request whose caller waits no longer: it has its answer, or was cancelled."""
        done, step.done = step.done, None  # it may hold an error, whose traceback leads here
        if done is not None and done.done() and not done.cancelled():
            done.exception()  # seen, though its caller was cancelled in the same moment
            return
        sequence = step.sequence
        if step in sequence.waiting:
            self._end(sequence, Cancelled(self._broken(sequence, "was cancelled")))
            self._advance()

    def _broken(self, sequence: _Live, why: str) -> str:
        model = self._plan.model
        return f"sequence {sequence.id!r} of model '{model}' has ended: a request of it {why}"

    def _unloading(self) -> InferdError:
        return self._some_execution().unloading()

    def _some_execution(self) -> Execution:
        return next(iter(self._lanes.values())).execution

    def _dismiss_if_done(self, number: int) -> None:
        """Close an instance that leaves, when it has no sequence any more."""
        lane = self._lanes[number]
        if lane.is_leaving and not lane.sequences and self._quiet is None:
            del self._lanes[number]
            self._close_lane(lane)

    def _close_lane(self, lane: _Lane) -> None:
        closing = asyncio.get_running_loop().create_task(lane.execution.close(0))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    # --- the life of a sequence ---

    def _settle(self, sequence: _Live) -> None:
        """See to it that its next request is ready, or that it is idle, or over."""
        if sequence.running is not None:
            return
        if not sequence.waiting:
            if sequence.is_ended or sequence.slot is None or self._quiet is not None:
                self._remove(sequence)
            else:
                self._idle[sequence.id] = self._clock() + self._idle_ns
            return
        step = sequence.waiting[0]
        if sequence.slot is not None:
            ready = self._lanes[sequence.slot.lane].ready
            if sequence.row not in ready:
                self._dress(step)
                ready[sequence.row] = step

    def _end(self, sequence: _Live, error: InferdError) -> None:
        """Refuse all that wait in `sequence`; it ends when what runs has ended."""
        for step in sequence.waiting:
            step.queue.remove(step)
            if sequence.slot is not None:
                self._lanes[sequence.slot.lane].ready.pop(sequence.row, None)
            _undress(step)
            tell(step, twin(error))
        sequence.waiting.clear()
        sequence.is_ended = True
        self._settle(sequence)

    def _remove(self, sequence: _Live) -> None:
        """Forget a sequence of which nothing waits and nothing runs."""
        del self._live[sequence.id]
        self._backlog.pop(sequence.id, None)
        if sequence.slot is not None:
            del self._lanes[sequence.slot.lane].sequences[sequence.slot.number]
            self._slots.free(sequence.slot)
            self._dismiss_if_done(sequence.slot.lane)

    def _seat(self) -> None:
        """Give free slots to those in the backlog."""
        while self._backlog and (slot := self._slots.take()) is not None:
            _, sequence = self._backlog.popitem(last=False)
            sequence.slot = slot
            self._lanes[slot.lane].sequences[slot.number] = sequence
            self._settle(sequence)

    # --- time ---

    def _advance(self) -> None:
        """Do what can be done now, and set the alarm for what comes next."""
        is_closing = self._quiet is not None
        if self._quiet is not None and self._quiet.done():
            return
        now_ns = self._clock()
        for queue in self._queues:
            for late in queue.expire(now_ns):
                assert isinstance(late, _Step)
                self._expire(late)
        while self._idle and (is_closing or next(iter(self._idle.values())) <= now_ns):
            self._remove(self._live[self._idle.popitem(last=False)[0]])
        self._seat()
        due = [self._start_batch(lane, now_ns) for lane in list(self._lanes.values())]
        due += [queue.next_late_ns() for queue in self._queues]
        due += list(self._idle.values())[:1]
        due_ns = min(filter(None, due), default=0)
        if due_ns > now_ns:
            self._alarm.set(due_ns)
        elif due_ns:
            self._alarm.set_soon()
        if self._quiet is not None and not self._live:
            self._quiet.set_result(None)

    def _expire(self, late: _Step) -> None:
        sequence = late.sequence
        if late in sequence.waiting:
            tell(late, late.queue.too_late(late))
            self._end(sequence, Unavailable(self._broken(sequence, "has waited too long")))

    # --- batches ---

    def _start_batch(self, lane: _Lane, now_ns: int) -> int:
        """Let a free instance run what is ready; return when to look again, 0: when told."""
        if lane.is_busy or not lane.ready or (lane.is_held and not self._is_released(lane)):
            return 0
        count, due_ns = self._pace.choose(lane.ready.values(), now_ns)
        if not count:
            return due_ns
        steps = [lane.ready.popitem(last=False)[1] for _ in range(count)]
        for step in steps:
            step.queue.remove(step)
            step.sequence.waiting.popleft()
            step.sequence.running = step
        rows: list[_Step | None] = [*steps]
        if self._are_rows:
            by_row = {step.sequence.row: step for step in steps}
            rows = [by_row.get(row) for row in range(max(lane.sequences) + 1)]
        requests = [row.request if row is not None else self._filler(steps[0]) for row in rows]
        lane.is_busy = True
        try:
            answers = lane.execution.run_inline(requests)
        except InferdError as error:  # its traceback holds this frame, which must not hold it
            self._finish(lane, rows, error)
            return now_ns
        if answers is None:
            lane.execution.start(requests, partial(self._finish_in_thread, lane, rows))
            return 0
        self._finish(lane, rows, answers)
        return now_ns  # when others have had their turn: more may be ready, or a slot free

    def _is_released(self, lane: _Lane) -> bool:
        """Tell whether so many wait that what was held may run."""
        hold, backlog = self._hold, self._backlog.values()
        waiting_count = len(lane.ready)
        if self._are_rows:
            seated = [one for one in self._live.values() if one.slot is not None]
            waiting_count = sum(len(sequence.waiting) for sequence in seated)
        backlog_count = sum(len(sequence.waiting) for sequence in backlog)
        are_enough = waiting_count >= hold.count and backlog_count >= hold.backlog_count
        if self._quiet is None and not are_enough:
            return False
        for other in self._lanes.values() if self._are_rows else (lane,):
            other.is_held = False
        return True

    def _finish_in_thread(self, lane: _Lane, rows: list[_Step | None], outcome: Outcome) -> None:
        self._finish(lane, rows, outcome)
        self._advance()

    def _finish(self, lane: _Lane, rows: list[_Step | None], outcome: Outcome) -> None:
        lane.is_busy = False
        if isinstance(outcome, InferdError):
            outcome = [twin(outcome) for _ in rows]
        for step, answer in zip(rows, outcome, strict=True):
            if step is not None:
                _undress(step)
                step.sequence.running = None
                tell(step, self._keep(step.sequence, answer))
                self._settle(step.sequence)

    def _keep(self, sequence: _Live, answer: Answer) -> Answer:
        """Keep the state that comes with an answer; return what the caller gets."""
        if isinstance(answer, InferdError):
            return answer
        try:
            sequence.state = self._states.kept(answer)
        except InferdError as error:
            return error
        return answer

    # --- what the model sees ---

    def _dress(self, step: _Step) -> None:
        """Give a request the scheduler's inputs, and have it ask for the states that come."""
        request, sequence = step.request, step.sequence
        assert request.sequence is not None
        if request.sequence.start:
            sequence.state = self._states.initial
        request.inputs = [*step.inputs, *self._controls.of(request.sequence), *sequence.state]
        if request.outputs:
            named = {wanted.name for wanted in request.outputs}
            missing = [name for name in self._states.output_names if name not in named]
            request.outputs = [*request.outputs, *map(WantedOutput, missing)]
        step.kind = self._plan.kind(request)

    def _filler(self, step: _Step) -> InferRequest:
        """Return what stands in a row that has no request: a copy of `step`, said to be absent."""
        filler = copy(step.request)
        absent = self._controls.absent
        states = filler.inputs[len(step.inputs) + len(absent) :]
        filler.inputs = [*step.inputs, *absent, *states]
        filler.outputs = [WantedOutput(wanted.name) for wanted in filler.outputs]
        filler.spans = None  # nothing of it goes to the client's shared memory
        return filler


def _undress(step: _Step) -> None:
    """Give the caller its request back as it was."""
    step.request.inputs, step.request.outputs = step.inputs, step.outputs
