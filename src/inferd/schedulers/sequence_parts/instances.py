"""Lanes: the instances of a model with sequences, their slots, and the sequence in each slot."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from collections.abc import Sequence as Several
from functools import partial

from inferd.core.interfaces import Instance, Opened
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.sequence_parts.live import LiveSequence, Step
from inferd.schedulers.sequence_parts.slots import Slots


class Lane:
    """One instance, the sequences in its slots, and their ready requests, by slot.

    `turn_count` is how many callers have been told to take a decoupled model's answers.
    """

    __slots__ = (
        "execution",
        "is_busy",
        "is_held",
        "is_leaving",
        "ready",
        "sequences",
        "turn_count",
    )

    def __init__(self, execution: Execution, *, is_held: bool) -> None:
        self.execution = execution
        self.is_busy = False
        self.turn_count = 0
        self.is_leaving = False  # it gets no new sequences, and is closed after the last
        self.is_held = is_held
        self.sequences: dict[int, LiveSequence] = {}
        self.ready: OrderedDict[int, Step] = OrderedDict()


class Lanes:
    """The instances, by number; each has slots for `per_lane` sequences.

    `on_room` is called when one can take more while its requests still run (Execution.has_room).
    Instances may come and go: one that is to go gets no new sequences, and is closed when its last
    one is over.
    """

    def __init__(
        self,
        executions: Several[Execution],
        per_lane: int,
        on_room: Callable[[Lane], None],
        *,
        are_held: bool,
    ) -> None:
        self._on_room = on_room
        lanes = [self._lane(execution, is_held=are_held) for execution in executions]
        self._lanes = dict(enumerate(lanes))
        self._next_number = len(lanes)
        self._slots = Slots(len(lanes), per_lane)
        self._closing: set[asyncio.Task[None]] = set()

    def all(self) -> list[Lane]:
        """Return all lanes, including those that are leaving."""
        return list(self._lanes.values())

    @property
    def instances(self) -> list[Instance]:
        """The instances that may get sequences."""
        staying = [lane.execution for lane in self._lanes.values() if not lane.is_leaving]
        return [instance for execution in staying for instance in execution.instances]

    def some_execution(self) -> Execution:
        """Return the execution of any lane."""
        return next(iter(self._lanes.values())).execution

    def of(self, sequence: LiveSequence) -> Lane:
        """Return the lane of a sequence that has a slot."""
        assert sequence.slot is not None
        return self._lanes[sequence.slot.lane]

    def seat(self, sequence: LiveSequence) -> bool:
        """Give a sequence the lowest free slot; return whether there was one."""
        slot = self._slots.take()
        if slot is None:
            return False
        sequence.slot = slot
        self._lanes[slot.lane].sequences[slot.number] = sequence
        return True

    def unseat(self, sequence: LiveSequence, *, may_dismiss: bool) -> None:
        """Take back the slot of a sequence, if it has one."""
        slot = sequence.slot
        if slot is not None:
            del self._lanes[slot.lane].sequences[slot.number]
            self._slots.free(slot)
            if may_dismiss:
                self._dismiss_if_done(slot.lane)

    def grow(self, instance: Opened) -> None:
        """Add an instance."""
        number, self._next_number = self._next_number, self._next_number + 1
        execution = self.some_execution().beside(instance)
        self._lanes[number] = self._lane(execution, is_held=False)
        self._slots.open(number)

    def dismiss(self, instance: Opened) -> None:
        """Close an instance that came too late to be added."""
        self._close(self.some_execution().beside(instance))

    def shrink(self, kind: Hashable = None) -> None:
        """Let the instance of `kind` with the fewest sequences leave, unless it is the only one.

        None means any kind.
        """
        staying = [(len(o.sequences), n) for n, o in self._lanes.items() if not o.is_leaving]
        some = [one for one in staying if kind is None or self._is_of(one[1], kind)]
        if len(staying) > 1 and some:
            _, number = min(some)
            self._lanes[number].is_leaving = True
            self._slots.close(number)
            self._dismiss_if_done(number)

    def _lane(self, execution: Execution, *, is_held: bool) -> Lane:
        lane = Lane(execution, is_held=is_held)
        execution.on_room = partial(self._on_room, lane)
        return lane

    def _is_of(self, number: int, kind: Hashable) -> bool:
        return kind in self._lanes[number].execution.kinds.values()

    async def close(self, timeout_s: float) -> None:
        """Close all instances."""
        closes = [lane.execution.close(timeout_s) for lane in self._lanes.values()]
        await asyncio.gather(*closes, *self._closing)

    def _dismiss_if_done(self, number: int) -> None:
        lane = self._lanes[number]
        if lane.is_leaving and not lane.sequences:
            del self._lanes[number]
            self._close(lane.execution)

    def _close(self, execution: Execution) -> None:
        closing = asyncio.get_running_loop().create_task(execution.close(0))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
