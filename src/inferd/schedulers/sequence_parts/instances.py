"""SequenceInstances: the instances of a model, their slots, and the sequence in each slot."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from collections.abc import Sequence as Several
from functools import partial

from inferd.core.interfaces import Instance, Opened
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.sequence_parts.live import LiveSequence, SequenceStep, Slots


class SequenceInstance:
    """One instance, the sequences in its slots, and their ready requests, by slot.

    `turn_count` is how many callers have been told to take a decoupled model's answers.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.is_busy = False
        self.turn_count = 0
        self.is_leaving = False  # it gets no new sequences, and is closed after the last
        self.sequences: dict[int, LiveSequence] = {}
        self.ready: OrderedDict[int, SequenceStep] = OrderedDict()

    def rows(self, steps: list[SequenceStep]) -> list[SequenceStep | None]:
        """Return `steps` as rows of a batch, None for a row without a request."""
        by_row = {step.sequence.row: step for step in steps}
        # Up to the last row with a request: what the model keeps for the rows behind it, it keeps.
        return [by_row.get(row) for row in range(max(by_row) + 1)]


class SequenceInstances:
    """The instances, by number; each has slots for `per_instance` sequences.

    `on_room` is called when one can take more while its requests still run (Execution.has_room).
    Instances may come and go: one that is to go gets no new sequences, and is closed when its last
    one is over.
    """

    def __init__(
        self,
        executions: Several[Execution],
        per_instance: int,
        on_room: Callable[[SequenceInstance], None],
    ) -> None:
        self._on_room = on_room
        instances = [self._new(execution) for execution in executions]
        self._instances = dict(enumerate(instances))
        self._next_number = len(instances)
        self._slots = Slots(len(instances), per_instance)
        self._closing: set[asyncio.Task[None]] = set()

    def all(self) -> list[SequenceInstance]:
        """Return all instances, including those that are leaving."""
        return list(self._instances.values())

    @property
    def instances(self) -> list[Instance]:
        """The instances that may get sequences."""
        staying = [
            instance.execution for instance in self._instances.values() if not instance.is_leaving
        ]
        return [instance for execution in staying for instance in execution.instances]

    def some_execution(self) -> Execution:
        """Return the execution of any instance."""
        return next(iter(self._instances.values())).execution

    def of(self, sequence: LiveSequence) -> SequenceInstance:
        """Return the instance of a sequence that has a slot."""
        assert sequence.slot is not None
        return self._instances[sequence.slot.instance]

    def seat(self, sequence: LiveSequence) -> bool:
        """Give a sequence the lowest free slot; return whether there was one."""
        slot = self._slots.take()
        if slot is None:
            return False
        sequence.slot = slot
        self._instances[slot.instance].sequences[slot.number] = sequence
        return True

    def unseat(self, sequence: LiveSequence, *, may_dismiss: bool) -> None:
        """Take back the slot of a sequence, if it has one."""
        slot = sequence.slot
        if slot is not None:
            del self._instances[slot.instance].sequences[slot.number]
            self._slots.free(slot)
            if may_dismiss:
                self._dismiss_if_done(slot.instance)

    def grow(self, instance: Opened) -> None:
        """Add an instance."""
        number, self._next_number = self._next_number, self._next_number + 1
        execution = self.some_execution().beside(instance)
        self._instances[number] = self._new(execution)
        self._slots.open(number)

    def dismiss(self, instance: Opened) -> None:
        """Close an instance that came too late to be added."""
        self._close(self.some_execution().beside(instance))

    def shrink(self, kind: Hashable = None) -> None:
        """Let the instance of `kind` with the fewest sequences leave, unless it is the only one.

        None means any kind.
        """
        # Fewest sequences, then the lowest number: soonest empty.
        staying = {n: one for n, one in self._instances.items() if not one.is_leaving}
        some = [n for n, one in staying.items() if kind is None or kind in one.execution.kinds]
        if len(staying) > 1 and some:
            number = min(some, key=lambda n: len(staying[n].sequences))
            staying[number].is_leaving = True
            self._slots.close(number)
            self._dismiss_if_done(number)

    def _new(self, execution: Execution) -> SequenceInstance:
        instance = SequenceInstance(execution)
        execution.on_room = partial(self._on_room, instance)
        return instance

    async def close(self, timeout_s: float) -> None:
        """Close all instances."""
        closes = [instance.execution.close(timeout_s) for instance in self._instances.values()]
        await asyncio.gather(*closes, *self._closing)

    def _dismiss_if_done(self, number: int) -> None:
        instance = self._instances[number]
        if instance.is_leaving and not instance.sequences:
            del self._instances[number]
            self._close(instance.execution)

    def _close(self, execution: Execution) -> None:
        closing = asyncio.get_running_loop().create_task(execution.close(0))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
