"""Sequence batching: the requests of a sequence run one after another, on one instance.

A sequence begins with a request marked as its start and lives until its end request has run, or
until no request has arrived for the idle time. While it lives it holds a slot of an instance; when
all slots are taken, new sequences wait for one in the backlog, first come, first served. The
first waiting request of each sequence with a slot is *ready*; a free instance takes several ready
requests, of different sequences, as a batch.

The two strategies differ in what a slot is. *Direct*: a row of the instance's batch, kept by the
sequence for life, so that a model can hold state by row. Rows in between that have no request get
a copy of another's, with controls that mark them as empty. *Oldest*: only a bound on how many
sequences take part; their requests are batched as in dynamic batching, and rows have no meaning.

A sequence must not lose a step unnoticed. So when a waiting request is cancelled or has waited
too long, all waiting requests of its sequence are refused, and the sequence ends. A running request
goes on when its caller leaves; its step counts. A model that fails leaves the sequence alive and
its state as it was before. A new START on a live sequence restarts it in its slot, behind what
waits there.

A *decoupled* model answers any number of times, as fast as its caller takes the answers. So it is
not run here: a caller is told when its instance is free, takes the answers from it directly, and
gives the instance back. An instance that works elsewhere may be free earlier: once it has taken a
request that it answers later, a request of another sequence gets its turn.

*Iterative*: a model handles a request in as many rounds as it likes, each batched with requests
of other sequences; between rounds the request waits again, ahead of others of its sequence. It
needs no id, and is then a sequence of its own. Once its caller has left there is no further round,
and the sequence ends. A decoupled model may answer in every round; no round runs while the reader
is far behind.

Two RequestQueues bound what waits and know the time limits, and serve only for that here: one for
sequences with a slot, one for the backlog, which thus cannot keep the former from going on.
Everything happens on the event loop. Each instance has an Execution of its own, which is what binds
sequences to it.
"""

from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Hashable
from collections.abc import Sequence as Several
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from inferd.aio.promise import Promise
from inferd.aio.timer import PreciseTimer, Timer
from inferd.config.options.delay import NO_DELAY, DelayedStart
from inferd.core.interfaces import Instance, Opened
from inferd.core.request import InferRequest, InferResponse, Round, Sequence
from inferd.errors import BackendFailed, Cancelled, InferdError, InvalidRequest, Unavailable
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.execution.job import Answer, Outcome, twin
from inferd.schedulers.queueing.policy import AT_ONCE, unloading
from inferd.schedulers.queueing.queue import Done, RequestQueue, Waiting, tell
from inferd.schedulers.queueing.queueing import QueueingScheduler
from inferd.schedulers.queueing.timing import FixedTiming
from inferd.schedulers.sequence_parts.instances import SequenceInstance, SequenceInstances
from inferd.schedulers.sequence_parts.live import LiveSequence, SequenceStep, UnreadAnswers
from inferd.schedulers.sequence_parts.tensors import SequenceTensors

# Ids that the server gives count down from here, far from those that clients use.
_LAST_ID = 2**64 - 1


class SequenceRules(NamedTuple):
    """How many slots an instance has, what a slot is, and when an idle sequence loses its own.

    With `are_rows` a slot is a row of the batch (the direct strategy). With `iterates` a request
    may take several rounds. Nothing runs until as many requests wait as `delayed_start` says: in
    sequences with a slot or, where slots are not rows, ready for one instance; and in the backlog.
    """

    per_instance: int
    are_rows: bool
    idle_us: int
    iterates: bool = False
    delayed_start: DelayedStart = NO_DELAY


class SequenceScheduler(QueueingScheduler):
    """Runs the sequences of one model version.

    A request raises InvalidRequest when it belongs to no live sequence, Unavailable when too many
    wait or it has waited too long, Cancelled when another request of its sequence was given up.
    `executions` have one instance each. `queues` bound what waits in sequences with a slot and in
    those without. `timing` decides how many of the ready requests run.
    """

    _timing: FixedTiming

    def __init__(
        self,
        executions: Several[Execution],
        queues: tuple[RequestQueue, RequestQueue],
        timing: FixedTiming,
        tensors: SequenceTensors,
        rules: SequenceRules,
        *,
        timer: Callable[[Callable[[], None]], Timer] = PreciseTimer,
    ) -> None:
        super().__init__(timing, tensors.plan.max_batch_size, timer)
        self._plan = tensors.plan
        self._iterates = rules.iterates
        self._is_decoupled = tensors.plan.is_decoupled
        self._gives_turns = self._is_decoupled and not rules.iterates
        self._instances = SequenceInstances(executions, rules.per_instance, self._note_room)
        self._delayed_start = delayed_start = rules.delayed_start
        self._delayed = self._instances.all() if delayed_start != NO_DELAY else []
        self._queues = self._seated_queue, self._backlog_queue = queues
        self._tensors = tensors
        self._are_rows = rules.are_rows and not self._gives_turns
        self._idle_ns = 1000 * rules.idle_us
        self._live: dict[Hashable, LiveSequence] = {}
        self._backlog: OrderedDict[Hashable, LiveSequence] = OrderedDict()
        self._idle: OrderedDict[Hashable, int] = OrderedDict()  # when each ends, soonest first
        self._own_count = 0  # sequences without a client-given id

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count."""
        return sum(queue.count for queue in self._queues)

    @property
    def sequence_count(self) -> int:
        """See SequenceKeeper.sequence_count."""
        return len(self._live)

    def has_sequence(self, id: int | str) -> bool:
        """See SequenceKeeper.has_sequence."""
        return id in self._live

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream."""
        if self._gives_turns:
            return self._turn(request)
        return self._rounds(request) if self._is_decoupled else super().stream(request)

    async def _turn(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Yield a decoupled model's answers once its instance is free for the request."""
        done: Done = Promise(loop=self._own_loop())
        step = self._enqueue(request, done)
        try:
            execution: Execution = await done
            # It has waited here; a second limit would count its time twice.
            async with aclosing(execution.stream(request, AT_ONCE)) as answers:
                async for answer in answers:
                    yield self._without_state(step, answer) if answer.outputs else answer
        finally:
            self._leave(step)
            # Only one that was given the instance has it to give back.
            if not done.cancelled() and done.exception() is None:
                self._end_turn(step)

    async def _rounds(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Yield a decoupled model's answers from all its rounds."""
        step = self._enqueue(request, Promise(loop=self._own_loop()))
        assert step.answers is not None
        try:
            while (answer := await step.answers.take()) is not None:
                if isinstance(answer, InferdError):
                    try:
                        raise answer
                    finally:
                        del answer  # its traceback holds this frame
                # It waits between rounds, maybe because its answers were unread.
                if step in step.sequence.waiting:
                    self._settle(step.sequence)  # it may have waited for its reader
                    self._advance()
                yield answer
        finally:
            self._leave(step)

    def _refuse_waiting(self) -> None:
        assert self._quiet is not None
        if not self._quiet.done():
            self._quiet.set_result(None)
        # Ending removes from the dict.
        for sequence in list(self._live.values()):
            self._end(sequence, unloading(self._plan.model))

    async def _close_executions(self, timeout_s: float) -> None:
        await self._instances.close(timeout_s)

    @property
    def instances(self) -> Several[Instance]:
        """See Resizable.instances."""
        return self._instances.instances

    def grow(self, instance: Opened) -> None:
        """See Resizable.grow. Sequences in the backlog get the new slots."""
        if self._quiet is None:
            self._instances.grow(instance)
            self._advance()
        else:
            self._instances.dismiss(instance)

    def shrink(self, kind: Hashable = None) -> None:
        """See Resizable.shrink. The instance with the fewest sequences goes, once they end."""
        if self._quiet is None:
            self._instances.shrink(kind)

    def _enqueue(self, request: InferRequest, done: Done) -> SequenceStep:
        if self._quiet is not None:
            raise unloading(self._plan.model)
        # Triton's zero id: no sequence.
        if request.sequence is not None and not request.sequence.id:
            request.sequence = None  # start and end flags without an id are no sequence
        sequence = self._sequence_of(request)
        shown = request.sequence or Sequence(sequence.id, start=True)
        queue = self._backlog_queue if sequence.slot is None else self._seated_queue
        step = SequenceStep(request, done, sequence, shown, queue)
        if self._is_decoupled and self._iterates:
            step.answers = UnreadAnswers()
        # May refuse; until then nothing knows of a new sequence.
        queue.add(step, self._clock())
        if sequence.key not in self._live:
            self._live[sequence.key] = self._backlog[sequence.key] = sequence
        self._idle.pop(sequence.key, None)
        sequence.is_ended = shown.end or request.sequence is None
        sequence.waiting.append(step)
        self._settle(sequence)
        self._advance()
        return step

    def _sequence_of(self, request: InferRequest) -> LiveSequence:
        """Return the sequence of `request`, new if it starts one. Raises InvalidRequest."""
        model, named = self._plan.model, request.sequence
        if named is None and not self._iterates:
            msg = (
                f"inference request to model '{model}' must specify a non-zero or non-empty "
                f"correlation ID, which is the parameter sequence_id (TRTIS: correlation_id)"
            )
            raise InvalidRequest(msg)
        # Triton's wording, since clients compare it.
        if request.batch_size != 1:
            msg = (
                f"inference request to model '{model}' must specify batch-size 1 due to "
                f"requirements of sequence batcher, it has batch size {request.batch_size}"
            )
            raise InvalidRequest(msg)
        initial = self._tensors.states.initial
        if named is None:
            id = self._tensors.controls.id_of(_LAST_ID - self._own_count)
            self._own_count += 1
            return LiveSequence(id, initial, is_own=True)
        self._tensors.controls.check_id(named.id)
        sequence = self._live.get(named.id)
        if named.start:
            # A START on a live one goes behind what waits there.
            return sequence or LiveSequence(named.id, initial)
        if sequence is None or sequence.is_ended:
            msg = (
                f"inference request for sequence {named.id!r} to model '{model}' must specify the "
                f"START flag on the first request of the sequence (V2: sequence_start); no such "
                f"sequence runs: one ends with sequence_end, or when no request comes for "
                f"{self._idle_ns // 1000} microseconds"
            )
            raise InvalidRequest(msg)
        return sequence

    def _give_up(self, waiting: Waiting) -> None:
        assert isinstance(waiting, SequenceStep)
        sequence = waiting.sequence
        if waiting in sequence.waiting:
            self._end(sequence, Cancelled(self._broken(sequence, "was cancelled")))
            self._advance()
        else:
            for instance in self._instances.all():
                instance.execution.cancel(waiting.request)

    def _broken(self, sequence: LiveSequence, why: str) -> str:
        model = self._plan.model
        return f"sequence {sequence.id!r} of model '{model}' has ended: a request of it {why}"

    def _settle(self, sequence: LiveSequence) -> None:
        """Make the next request of `sequence` ready, or mark the sequence idle, or remove it."""
        if sequence.running is not None:
            return
        if not sequence.waiting:
            if sequence.is_ended or sequence.slot is None or self._quiet is not None:
                self._remove(sequence)
            else:
                self._idle[sequence.key] = self._clock() + self._idle_ns
            return
        step = sequence.waiting[0]
        if sequence.slot is not None and not (step.answers is not None and step.answers.is_full):
            ready = self._instances.of(sequence).ready
            if sequence.row not in ready:
                self._tensors.add_to(step)
                ready[sequence.row] = step

    def _end(self, sequence: LiveSequence, error: InferdError) -> None:
        """Refuse all waiting requests of `sequence`; it ends when its running one has ended."""
        self._refuse(sequence, error)
        self._settle(sequence)

    def _refuse(self, sequence: LiveSequence, error: InferdError) -> None:
        """Refuse all waiting requests of `sequence` except one between rounds that may go on."""
        is_over = self._quiet is not None and self._quiet.done()
        going_on = [
            # A request between rounds has had effects, and its caller waits for the rest.
            step
            for step in sequence.waiting
            if step.began_ns and step.done and not is_over
        ]
        if sequence.slot is not None and not going_on:
            self._instances.of(sequence).ready.pop(sequence.row, None)
        for step in sequence.waiting:
            if step not in going_on:
                step.queue.remove(step)
                self._tensors.remove_from(step)
                step.give(twin(error))
        sequence.waiting = deque(going_on)
        sequence.is_ended = True

    def _remove(self, sequence: LiveSequence) -> None:
        """Forget a sequence with no waiting or running request."""
        del self._live[sequence.key]
        self._backlog.pop(sequence.key, None)
        self._instances.unseat(sequence, may_dismiss=self._quiet is None)

    def _seat(self) -> None:
        """Give free slots to sequences in the backlog."""
        while self._backlog and self._instances.seat(next(iter(self._backlog.values()))):
            _, sequence = self._backlog.popitem(last=False)
            self._settle(sequence)

    def _advance(self) -> None:
        is_closing = self._quiet is not None
        # Closing has given up waiting: nothing starts any more.
        if self._quiet is not None and self._quiet.done():
            return
        now_ns = self._clock()
        for queue in self._queues:
            for late in queue.expire(now_ns):
                assert isinstance(late, SequenceStep)
                self._expire(late)
        # Idle sequences would keep the close waiting for requests that are refused.
        while self._idle and (is_closing or next(iter(self._idle.values())) <= now_ns):
            self._remove(self._live[self._idle.popitem(last=False)[0]])
        self._seat()
        due = [self._start_batch(instance, now_ns) for instance in self._instances.all()]
        due += [queue.next_late_ns() for queue in self._queues]
        # Soonest first, since the idle time is the same for all.
        due += list(self._idle.values())[:1]
        due_ns = min(filter(None, due), default=0)
        if due_ns > now_ns:
            self._timer.set(due_ns)
        elif due_ns:
            self._timer.set_soon()
        if self._quiet is not None and not self._live:
            self._quiet.set_result(None)

    def _expire(self, late: SequenceStep) -> None:
        sequence = late.sequence
        if late in sequence.waiting:
            late.give(late.queue.too_late(late))
            why = self._broken(sequence, "has waited too long")
            msg = f"timeout of the corresponding sequence has been expired: {why}"
            self._end(sequence, Unavailable(msg))

    def _start_batch(self, instance: SequenceInstance, now_ns: int) -> int:
        """Start a batch of ready requests on a free instance; return when to look again, or 0."""
        if (
            instance.is_busy
            or not instance.ready
            or (instance in self._delayed and not self._is_released(instance))
        ):
            return 0
        count, due_ns = 1, 0
        ready = list(instance.ready.values())
        if self._are_rows and (kind := ready[0].kind) is not None:
            # Rows tell them apart, so requests like the oldest may join whoever stands between.
            ready = [step for step in ready if step.kind == kind] + [
                step for step in ready if step.kind != kind
            ]
        if not self._gives_turns:
            count, due_ns = self._timing.choose(ready, now_ns)
        if not count:
            return due_ns
        steps = ready[:count]
        for step in steps:
            del instance.ready[step.sequence.row]
            step.queue.remove(step)
            step.sequence.waiting.popleft()
            step.sequence.running = step
        instance.is_busy = True
        if self._gives_turns:
            [step] = steps
            instance.turn_count += 1
            tell(step, instance.execution)
            return 0
        return self._execute(instance, self._rows(instance, steps), now_ns)

    def _rows(
        self, instance: SequenceInstance, steps: list[SequenceStep]
    ) -> list[SequenceStep | None]:
        """Return `steps` as rows of a batch, None for a row without a request."""
        if not self._are_rows:
            return [*steps]
        by_row = {step.sequence.row: step for step in steps}
        # Up to the last row that a sequence holds: the model's state lies by row.
        return [by_row.get(row) for row in range(max(instance.sequences) + 1)]

    def _execute(
        self, instance: SequenceInstance, rows: list[SequenceStep | None], now_ns: int
    ) -> int:
        some = next(filter(None, rows))
        # A row that is missing would move all rows behind it.
        requests = [row.request if row else self._tensors.filler(some) for row in rows]
        try:
            answers = instance.execution.run_now(requests)
        except InferdError as error:  # its traceback holds this frame: keep no reference to it
            self._finish(instance, rows, error)
            return now_ns
        if answers is None:
            instance.execution.begin(requests, partial(self._finish_in_thread, instance, rows))
            return 0
        self._finish(instance, rows, answers)
        return now_ns  # after other callbacks' turn: more may be ready, or a slot free

    def _is_released(self, instance: SequenceInstance) -> bool:
        """Return whether enough requests wait for what was delayed to run."""
        delayed_start, backlog = self._delayed_start, self._backlog.values()
        waiting_count = len(instance.ready)
        if self._are_rows:
            seated = [one for one in self._live.values() if one.slot is not None]
            waiting_count = sum(len(sequence.waiting) for sequence in seated)
        backlog_count = sum(len(sequence.waiting) for sequence in backlog)
        are_enough = (
            waiting_count >= delayed_start.count and backlog_count >= delayed_start.backlog_count
        )
        if self._quiet is None and not are_enough:
            return False
        if self._are_rows:
            self._delayed.clear()
        else:
            self._delayed.remove(instance)
        return True

    def _finish_in_thread(
        self, instance: SequenceInstance, rows: list[SequenceStep | None], outcome: Outcome
    ) -> None:
        self._finish(instance, rows, outcome)
        self._advance()

    def _finish(
        self, instance: SequenceInstance, rows: list[SequenceStep | None], outcome: Outcome
    ) -> None:
        instance.is_busy = False
        if isinstance(outcome, InferdError):
            outcome = [twin(outcome) for _ in rows]
        for step, answer in zip(rows, outcome, strict=True):
            if step is None:
                continue
            # First: the answer is for the request as its client sent it.
            self._tensors.remove_from(step)
            step.sequence.running = None
            # Before the next step of the sequence is made ready, which takes it.
            answer = self._tensors.store_state(step.sequence, answer)
            if self._iterates:
                self._note_round(instance, step, answer, is_alone=len(rows) == 1)
            if isinstance(answer, Round):
                self._end_round(step, answer)
            else:
                step.give(answer)
            self._settle(step.sequence)

    def _end_turn(self, step: SequenceStep) -> None:
        """Take back the instance from a request of a decoupled model."""
        sequence = step.sequence
        instance = self._instances.of(sequence)
        instance.turn_count -= 1
        instance.is_busy = instance.turn_count > 0 and not instance.execution.has_room
        self._tensors.remove_from(step)
        sequence.running = None
        self._settle(sequence)
        self._advance()

    def _note_room(self, instance: SequenceInstance) -> None:
        if instance.is_busy and self._gives_turns:
            instance.is_busy = False
            self._advance()

    def _without_state(self, step: SequenceStep, answer: InferResponse) -> InferResponse:
        shown = self._tensors.store_state(step.sequence, answer)
        if isinstance(shown, InferdError):
            raise shown
        return shown

    def _note_round(
        self, instance: SequenceInstance, step: SequenceStep, answer: Answer, *, is_alone: bool
    ) -> None:
        """Count one round of a request; the request's time spans all its rounds."""
        request = step.request
        if is_alone:
            instance.execution.count_round(request, failed=isinstance(answer, InferdError))
        step.began_ns = step.began_ns or request.started_ns
        # The next round has one of its own.
        request.started_ns, request.computing_ns = step.began_ns, 0

    def _end_round(self, step: SequenceStep, round: Round) -> None:
        """Pass on the answers of a round, and queue the next one if the model wants it."""
        if (wrong := self._wrong(round)) is not None:
            step.give(wrong)
            return
        sequence, answers = step.sequence, step.answers
        if answers is not None:
            for answer in round.answers:
                answers.put(answer)
        if not round.again:
            tell(step, round)
            assert answers is not None
            answers.put(None)
        elif self._quiet is not None and self._quiet.done():
            step.give(unloading(self._plan.model))
        elif step.done is None:
            self._refuse(sequence, Cancelled(self._broken(sequence, "was cancelled")))
        else:
            step.shown = Sequence(sequence.id)
            # Ahead of the sequence's later requests: its step is not over.
            sequence.waiting.appendleft(step)

    def _wrong(self, round: Round) -> InferdError | None:
        """Return an error for a round that the configuration does not allow, else None."""
        model = self._plan.model
        if not self._iterates:
            return BackendFailed(
                f"model '{model}' wants a request again, which its configuration does not allow: "
                f"sequence_batching has no iterative_sequence"
            )
        if not self._is_decoupled and (round.answers or not round.again):
            given = len(round.answers)
            return BackendFailed(
                f"model '{model}' gave {given} answers in one round, but it is not decoupled: "
                f"it gives one answer at the end"
            )
        return None
