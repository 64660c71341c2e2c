"""Sequences: those of a model version that live, with a slot or in the backlog, and their ends."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

from inferd.config.options.backends import NO_DELAY, DelayedStart
from inferd.core.request import InferRequest
from inferd.errors import InferdError, InvalidRequest
from inferd.schedulers.execution.job import twin
from inferd.schedulers.sequence_parts.instances import SequenceInstance, SequenceInstances
from inferd.schedulers.sequence_parts.live import LiveSequence
from inferd.schedulers.sequence_parts.tensors import SequenceTensors

# Ids that the server gives count down from here, far from those that clients use.
_LAST_ID = 2**64 - 1


class Sequences:
    """The sequences that are `live`, and of these the `backlog` of those without a slot.

    They take slots of `instances`, and end when no request has come for `idle_us`; `clock` tells
    the time in ns. With `iterates` a request needs no id, and is then a sequence of its own. None
    goes idle when the version `is_closing`, and no request goes on between rounds once that
    `is_over`.
    """

    def __init__(
        self,
        instances: SequenceInstances,
        tensors: SequenceTensors,
        idle_us: int,
        clock: Callable[[], int],
        *,
        iterates: bool,
    ) -> None:
        self._instances = instances
        self._tensors = tensors
        self._model = tensors.plan.model
        self._idle_us = idle_us
        self._clock = clock
        self._iterates = iterates
        self.live: dict[Hashable, LiveSequence] = {}
        self.backlog: OrderedDict[Hashable, LiveSequence] = OrderedDict()
        self.idle: OrderedDict[Hashable, int] = OrderedDict()
        """When each idle one ends, in ns, the soonest first."""
        self._own_count = 0  # sequences without a client-given id
        self.is_closing = False
        self.is_over = False

    def of(self, request: InferRequest) -> LiveSequence:
        """Return the sequence of `request`, new if it starts one. Raises InvalidRequest."""
        model, named = self._model, request.sequence
        if named is None and not self._iterates:
            raise InvalidRequest(
                f"inference request to model '{model}' must specify a non-zero or non-empty "
                f"correlation ID, which is the parameter sequence_id (TRTIS: correlation_id)"
            )
        # Triton's wording, since clients compare it.
        if request.batch_size != 1:
            raise InvalidRequest(
                f"inference request to model '{model}' must specify batch-size 1 due to "
                f"requirements of sequence batcher, it has batch size {request.batch_size}"
            )
        initial = self._tensors.states.initial
        if named is None:
            id = self._tensors.controls.id_of(_LAST_ID - self._own_count)
            self._own_count += 1
            return LiveSequence(id, initial, is_own=True)
        self._tensors.controls.check_id(named.id)
        sequence = self.live.get(named.id)
        if named.start:
            # A START on a live one goes behind what waits there.
            return sequence or LiveSequence(named.id, initial)
        if sequence is None or sequence.is_ended:
            raise InvalidRequest(
                f"inference request for sequence {named.id!r} to model '{model}' must specify the "
                f"START flag on the first request of the sequence (V2: sequence_start); no such "
                f"sequence runs: one ends with sequence_end, or when no request comes for "
                f"{self._idle_us} microseconds"
            )
        return sequence

    def note_request(self, sequence: LiveSequence) -> None:
        """Have `sequence` live, and not be idle."""
        if sequence.key not in self.live:
            self.live[sequence.key] = self.backlog[sequence.key] = sequence
        self.idle.pop(sequence.key, None)

    def settle(self, sequence: LiveSequence) -> None:
        """Make the next request of `sequence` ready, or mark the sequence idle, or remove it."""
        if sequence.running is not None:
            return
        if not sequence.waiting:
            if sequence.is_ended or sequence.slot is None or self.is_closing:
                self.remove(sequence)
            else:
                self.idle[sequence.key] = self._clock() + 1000 * self._idle_us
            return
        step = sequence.waiting[0]
        if sequence.slot is not None and not (step.answers is not None and step.answers.is_full):
            ready = self._instances.of(sequence).ready
            if sequence.row not in ready:
                self._tensors.add_to(step)
                ready[sequence.row] = step

    def refuse(self, sequence: LiveSequence, error: InferdError) -> None:
        """Refuse all waiting requests of `sequence` except one between rounds that may go on."""
        # A request between rounds has had effects, and its caller waits for the rest.
        going_on = [
            step for step in sequence.waiting if step.began_ns and step.done and not self.is_over
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

    def remove(self, sequence: LiveSequence) -> None:
        """Forget a sequence with no waiting or running request."""
        del self.live[sequence.key]
        self.backlog.pop(sequence.key, None)
        self._instances.unseat(sequence, may_dismiss=not self.is_closing)

    def end_idle(self, now_ns: int) -> None:
        """Forget those that have been idle for too long, or when closing, idle at all."""
        # Idle sequences would keep the close waiting for requests that are refused.
        while self.idle and (self.is_closing or next(iter(self.idle.values())) <= now_ns):
            self.remove(self.live[self.idle.popitem(last=False)[0]])

    def seat(self) -> None:
        """Give free slots to sequences in the backlog."""
        while self.backlog and self._instances.seat(next(iter(self.backlog.values()))):
            _, sequence = self.backlog.popitem(last=False)
            self.settle(sequence)

    def broken(self, sequence: LiveSequence, why: str) -> str:
        """Return the words for a sequence that ends because one of its requests `why`."""
        return f"sequence {sequence.id!r} of model '{self._model}' has ended: a request of it {why}"


class DelayedSequences:
    """The `instances` that run nothing until as many requests wait as `delayed_start` says."""

    def __init__(
        self,
        instances: list[SequenceInstance],
        sequences: Sequences,
        delayed_start: DelayedStart,
        *,
        are_rows: bool,
    ) -> None:
        self._instances = instances if delayed_start != NO_DELAY else []
        self._sequences = sequences
        self._delayed_start = delayed_start
        self._are_rows = are_rows

    def holds(self, instance: SequenceInstance) -> bool:
        """Return whether `instance` is to wait; once it need not, it never does again."""
        if instance not in self._instances:
            return False
        sequences, delayed_start = self._sequences, self._delayed_start
        waiting_count = len(instance.ready)
        if self._are_rows:
            seated = [one for one in sequences.live.values() if one.slot is not None]
            waiting_count = sum(len(sequence.waiting) for sequence in seated)
        backlog_count = sum(len(sequence.waiting) for sequence in sequences.backlog.values())
        are_enough = (
            waiting_count >= delayed_start.count and backlog_count >= delayed_start.backlog_count
        )
        if not are_enough and not sequences.is_closing:
            return True
        if self._are_rows:
            self._instances.clear()
        else:
            self._instances.remove(instance)
        return False
