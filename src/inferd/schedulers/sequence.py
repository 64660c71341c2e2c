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

from collections.abc import AsyncGenerator, Callable, Hashable
from collections.abc import Sequence as Several
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from inferd.aio.promise import Promise
from inferd.aio.timer import PreciseTimer, Timer
from inferd.config.options.backends import NO_DELAY, DelayedStart
from inferd.core.interfaces import Answer, Instance, Opened, Outcome
from inferd.core.request import InferRequest, InferResponse, Round, Sequence
from inferd.errors import BackendFailed, Cancelled, InferdError, Unavailable
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.execution.job import twin
from inferd.schedulers.queueing.policy import AT_ONCE, unloading
from inferd.schedulers.queueing.queue import Done, RequestQueue, Waiting, tell
from inferd.schedulers.queueing.queueing import QueueingScheduler
from inferd.schedulers.queueing.timing import FixedTiming
from inferd.schedulers.sequence_parts.instances import SequenceInstance, SequenceInstances
from inferd.schedulers.sequence_parts.live import LiveSequence, SequenceStep, UnreadAnswers
from inferd.schedulers.sequence_parts.sequences import DelayedSequences, Sequences
from inferd.schedulers.sequence_parts.tensors import SequenceTensors


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
        self._queues = self._seated_queue, self._backlog_queue = queues
        self._tensors = tensors
        self._are_rows = rules.are_rows and not self._gives_turns
        self._sequences = Sequences(
            self._instances, tensors, rules.idle_us, self._clock, iterates=rules.iterates
        )
        self._live = self._sequences.live
        self._delayed = DelayedSequences(
            self._instances.all(), self._sequences, rules.delayed_start, are_rows=self._are_rows
        )

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
                    self._sequences.settle(step.sequence)  # it may have waited for its reader
                    self._advance()
                yield answer
        finally:
            self._leave(step)

    def _refuse_waiting(self) -> None:
        assert self._quiet is not None
        if not self._quiet.done():
            self._quiet.set_result(None)
        self._sequences.is_over = True
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
        sequence = self._sequences.of(request)
        shown = request.sequence or Sequence(sequence.id, start=True)
        queue = self._backlog_queue if sequence.slot is None else self._seated_queue
        step = SequenceStep(request, done, sequence, shown, queue)
        if self._is_decoupled and self._iterates:
            step.answers = UnreadAnswers()
        # May refuse; until then nothing knows of a new sequence.
        queue.add(step, self._clock())
        self._sequences.note_request(sequence)
        sequence.is_ended = shown.end or request.sequence is None
        sequence.waiting.append(step)
        self._sequences.settle(sequence)
        self._advance()
        return step

    def _give_up(self, waiting: Waiting) -> None:
        assert isinstance(waiting, SequenceStep)
        sequence = waiting.sequence
        if waiting in sequence.waiting:
            self._end(sequence, Cancelled(self._sequences.broken(sequence, "was cancelled")))
            self._advance()
        else:
            for instance in self._instances.all():
                instance.execution.cancel(waiting.request)

    def _end(self, sequence: LiveSequence, error: InferdError) -> None:
        """Refuse all waiting requests of `sequence`; it ends when its running one has ended."""
        self._sequences.refuse(sequence, error)
        self._sequences.settle(sequence)

    def _advance(self) -> None:
        sequences = self._sequences
        if self._quiet is not None:
            sequences.is_closing = True
            # Closing has given up waiting: nothing starts any more.
            if self._quiet.done():
                return
        now_ns = self._clock()
        for queue in self._queues:
            for late in queue.expire(now_ns):
                assert isinstance(late, SequenceStep)
                self._expire(late)
        sequences.end_idle(now_ns)
        sequences.seat()
        due = [self._start_batch(instance, now_ns) for instance in self._instances.all()]
        due += [queue.next_late_ns() for queue in self._queues]
        # Soonest first, since the idle time is the same for all.
        due += list(sequences.idle.values())[:1]
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
            why = self._sequences.broken(sequence, "has waited too long")
            msg = f"timeout of the corresponding sequence has been expired: {why}"
            self._end(sequence, Unavailable(msg))

    def _start_batch(self, instance: SequenceInstance, now_ns: int) -> int:
        """Start a batch of ready requests on a free instance; return when to look again, or 0."""
        if instance.is_busy or not instance.ready or self._delayed.holds(instance):
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
        return self._execute(instance, instance.rows(steps) if self._are_rows else [*steps], now_ns)

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
                _note_round(instance, step, answer, is_alone=len(rows) == 1)
            if isinstance(answer, Round):
                self._end_round(step, answer)
            else:
                step.give(answer)
            self._sequences.settle(step.sequence)

    def _end_turn(self, step: SequenceStep) -> None:
        """Take back the instance from a request of a decoupled model."""
        sequence = step.sequence
        instance = self._instances.of(sequence)
        instance.turn_count -= 1
        instance.is_busy = instance.turn_count > 0 and not instance.execution.has_room
        self._tensors.remove_from(step)
        sequence.running = None
        self._sequences.settle(sequence)
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

    def _end_round(self, step: SequenceStep, round: Round) -> None:
        """Pass on the answers of a round, and queue the next one if the model wants it."""
        model = self._plan.model
        wrong = _wrong_round(round, model, iterates=self._iterates, is_decoupled=self._is_decoupled)
        if wrong is not None:
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
            step.give(unloading(model))
        elif step.done is None:
            self._sequences.refuse(
                sequence, Cancelled(self._sequences.broken(sequence, "was cancelled"))
            )
        else:
            step.shown = Sequence(sequence.id)
            # Ahead of the sequence's later requests: its step is not over.
            sequence.waiting.appendleft(step)


def _note_round(
    instance: SequenceInstance, step: SequenceStep, answer: Answer, *, is_alone: bool
) -> None:
    """Count one round of a request; the request's time spans all its rounds."""
    request = step.request
    if is_alone:
        instance.execution.count_round(request, failed=isinstance(answer, InferdError))
    step.began_ns = step.began_ns or request.started_ns
    # The next round has one of its own.
    request.started_ns, request.computing_ns = step.began_ns, 0


def _wrong_round(
    round: Round, model: str, *, iterates: bool, is_decoupled: bool
) -> InferdError | None:
    """Return an error for a round that the configuration of `model` does not allow, else None."""
    if not iterates:
        return BackendFailed(
            f"model '{model}' wants a request again, which its configuration does not allow: "
            f"sequence_batching has no iterative_sequence"
        )
    if not is_decoupled and (round.answers or not round.again):
        given = len(round.answers)
        return BackendFailed(
            f"model '{model}' gave {given} answers in one round, but it is not decoupled: "
            f"it gives one answer at the end"
        )
    return None
