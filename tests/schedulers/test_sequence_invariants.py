"""What holds for every run of a SequenceScheduler, whatever comes when."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fields import with_fields
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import MS, SimulatedExecution, SimulatedTimer, passes, simulate

from inferd.config.model import (
    Control,
    ControlInput,
    DynamicBatching,
    ModelConfig,
    ModelInput,
    QueuePolicy,
    SequenceBatching,
    SequenceState,
)
from inferd.core.request import InferRequest, InferResponse, Round, Sequence
from inferd.errors import Cancelled, InvalidRequest, Unavailable
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.queueing.queue import RequestQueue
from inferd.schedulers.queueing.timing import FixedTiming
from inferd.schedulers.sequence import SequenceRules, SequenceScheduler
from inferd.schedulers.sequence_parts.tensors import Controls, SequenceTensors, States
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

MOST = 3
IDLE_MS = 50
READY = ControlInput("READY", (Control("CONTROL_SEQUENCE_READY", int32_false_true=(0, 1)),))
STATE = SequenceState("STATE", "STATE_OUT", DataType.INT8, (1,))


@dataclass
class Arrival:
    """A request, when it comes and when its client gives up; times in ms."""

    at: int
    name: str
    start: bool
    end: bool
    length: int
    timeout: int
    runs: int
    gives_up_after: int | None
    rounds: int


arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.sampled_from([0, 0, 1, 2, 5, 9, 20, 60, 120]),
        name=st.sampled_from("ABCDE"),
        start=st.sampled_from([True, False, False]),
        end=st.sampled_from([True, False, False]),
        length=st.sampled_from([1, 1, 2]),
        timeout=st.sampled_from([0, 0, 3, 12]),
        runs=st.integers(0, 12),
        gives_up_after=st.none() | st.integers(0, 30),
        rounds=st.integers(1, 3),
    ),
    min_size=3,
    max_size=24,
)


@dataclass(frozen=True)
class Model:
    """How a model takes sequences."""

    are_rows: bool
    instance_count: int
    per_instance: int
    delay_ms: int
    max_queue_size: int
    iterates: bool


models = st.builds(
    Model,
    are_rows=st.booleans(),
    instance_count=st.integers(1, 3),
    per_instance=st.integers(1, MOST),
    delay_ms=st.sampled_from([0, 0, 4]),
    max_queue_size=st.sampled_from([0, 0, 2]),
    iterates=st.booleans(),
)


@dataclass(eq=False)
class Fate:
    """What became of one arrival; times in ns."""

    arrival: Arrival
    arrived: int = 0
    started: int | None = None
    ended: int | None = None
    place: tuple[int, int] | None = None
    step: int = 0
    round: int = 0
    outcome: str = ""


@dataclass
class World:
    """Clients of sequences, what they saw, and what must hold meanwhile."""

    model: Model
    arrivals: list[Arrival]
    arrived: list[Fate] = field(default_factory=list)
    ran: list[Fate] = field(default_factory=list)

    def run(self):
        self.fates = {str(number): Fate(one) for number, one in enumerate(self.arrivals)}
        simulate(self._serve)
        for fate in self.arrived:
            self._check_fate(fate)
        for name in "ABCDE":
            self._check_sequence([one for one in self.arrived if one.arrival.name == name])

    async def _serve(self):
        model, loop = self.model, asyncio.get_running_loop()
        self.now_ns = loop.now_ns
        batching = SequenceBatching(
            control_input=(READY,) if model.are_rows else (), state=(STATE,)
        )
        config = ModelConfig(
            "m",
            max_batch_size=MOST,
            input=(ModelInput("A", DataType.INT8, (-1,)),),
            sequence_batching=batching,
        )
        policy = QueuePolicy("REJECT", 1 << 62, True, model.max_queue_size)
        limits = DynamicBatching(default_queue_policy=policy)
        self.executions = [_Lane(self, number) for number in range(model.instance_count)]
        self.scheduler = SequenceScheduler(
            self.executions,
            (RequestQueue("m", limits), RequestQueue("m", limits)),
            FixedTiming(MOST, (), 1000 * model.delay_ms),
            SequenceTensors(BatchPlan(config), Controls(config), States(config, Path())),
            SequenceRules(model.per_instance, model.are_rows, 1000 * IDLE_MS, model.iterates),
            timer=SimulatedTimer,
        )
        loop.check_before_time_passes(self._check_nothing_is_held)
        await asyncio.gather(*(self._client(id, fate) for id, fate in self.fates.items()))
        await passes(2 * IDLE_MS)
        assert not self.scheduler._live
        assert not self.scheduler._sequences.backlog
        assert not self.scheduler._sequences.idle
        assert self.scheduler.pending_count == 0
        free = len(list(iter(self.scheduler._instances._slots.take, None)))
        assert free == model.instance_count * model.per_instance, "a slot is lost"
        await self.scheduler.close(1)

    async def _client(self, id, fate):
        arrival = fate.arrival
        if arrival.at:
            await passes(arrival.at)
        tensor = Tensor("A", DataType.INT8, (1, arrival.length), bytes(arrival.length))
        request = with_fields(
            InferRequest("m", id=id, inputs=[tensor]), timeout_us=1000 * arrival.timeout
        )
        request.sequence = Sequence(arrival.name, start=arrival.start, end=arrival.end)
        fate.arrived = self.now_ns()
        self.arrived.append(fate)
        wait_s = None if arrival.gives_up_after is None else arrival.gives_up_after / 1e3
        try:
            async with asyncio.timeout(wait_s):
                answer = await self.scheduler.run(request)
            assert answer.id == id
            fate.outcome = "answered"
        except TimeoutError:
            fate.outcome = "gave up"
        except InvalidRequest:
            fate.outcome = "unknown"
        except Cancelled:
            fate.outcome = "cancelled"
        except Unavailable as error:
            fate.outcome = "full" if "is full" in error.message else "late"
        fate.ended = self.now_ns()
        assert request.inputs == [tensor] or fate.outcome == "gave up"

    # --- what must hold ---

    def execute(self, instance, requests):
        """Check that this batch may be; return the answers, whose state counts the steps."""
        rows = []
        for number, request in enumerate(requests):
            inputs = {one.name: one for one in request.inputs}
            is_there = not self.model.are_rows or inputs["READY"].numpy()[0, 0]
            if is_there:
                rows.append(fate := self.fates[request.id])
                self._note_round(fate, (instance, number if self.model.are_rows else 0), inputs)
        assert len(rows) <= MOST
        assert len({fate.arrival.name for fate in rows}) == len(rows), "two of one sequence"
        assert len({fate.arrival.length for fate in rows}) == 1, "shapes differ"
        assert self.model.are_rows or len(rows) == len(requests)
        return [self._answer(self.fates[request.id]) for request in requests]

    def _note_round(self, fate, place, inputs):
        fate.round += 1
        step = inputs["STATE"].numpy()[0, 0] + 1
        if fate.round == 1:
            fate.started, fate.place = self.now_ns(), place
            self.ran.append(fate)
        else:
            assert self.model.iterates, "it ran before"
            assert fate.ended is None, "it goes on though nobody waits"
            assert (place, step) == (fate.place, fate.step + 1)
        assert fate.round <= self._rounds(fate)
        fate.step = step

    def _rounds(self, fate):
        return fate.arrival.rounds if self.model.iterates else 1

    def _answer(self, fate):
        state = Tensor("STATE_OUT", DataType.INT8, (1, 1), bytes([fate.step]))
        if fate.round < self._rounds(fate):
            return Round("m", "1", outputs=[state], again=True)
        id = next(id for id, one in self.fates.items() if one is fate)
        return InferResponse("m", "1", id, [state])

    def takes_ms(self, requests):
        return max(self.fates[request.id].arrival.runs for request in requests)

    def _check_nothing_is_held(self):
        scheduler, now_ns = self.scheduler, self.now_ns()
        taken = sum(len(instance.sequences) for instance in scheduler._instances.all())
        if scheduler._sequences.backlog:
            assert taken == self.model.instance_count * self.model.per_instance, "a slot is free"
        for instance, execution in zip(scheduler._instances.all(), self.executions, strict=True):
            assert instance.is_busy == bool(execution.running)
            if instance.ready and not instance.is_busy:
                steps = list(instance.ready.values())
                waited_ns = now_ns - min(one.request.queued_ns for one in steps)
                assert waited_ns < self.model.delay_ms * MS
                assert len(steps) < MOST
                assert len({step.request.inputs[0].shape for step in steps}) == 1

    def _check_fate(self, fate):
        arrival = fate.arrival
        if fate.outcome in ("unknown", "full"):
            assert (fate.started, fate.ended) == (None, fate.arrived)
        elif fate.outcome in ("late", "cancelled"):
            # Between two rounds it waits again, and ends with its sequence if a later one is late.
            assert fate.started is None or self._rounds(fate) > 1
        elif fate.outcome == "answered":
            assert fate.started is not None
            assert fate.round == self._rounds(fate)
            assert not arrival.timeout or fate.started < fate.arrived + MS * arrival.timeout
        else:
            assert fate.outcome == "gave up"

    def _check_sequence(self, fates):
        """Check the life of one sequence; a request that was refused is no part of it."""
        taken = [fate for fate in fates if fate.outcome not in ("unknown", "full")]
        ran = [fate for fate in self.ran if fate in taken]
        assert ran == [fate for fate in taken if fate in ran], "not in their order"
        before = None
        for fate in ran:
            if fate.arrival.start:
                assert fate.step == fate.round
            else:
                assert before is not None, "it began without a start"
                assert fate.step == before.step + fate.round, "a step is lost"
                assert fate.place == before.place, "it moved"
                assert not before.arrival.end, "it went on after its end"
            before = fate
        assert all(fate.arrival.start or fate is not taken[0] for fate in taken)


class _Lane(SimulatedExecution):
    def __init__(self, world, number):
        super().__init__(1, world.takes_ms)
        self.outcome = lambda requests: world.execute(number, requests)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(models, arrivals)
def test_in_a_few_runs(model, arrivals):
    World(model, arrivals).run()


@pytest.mark.slow
@pytest.mark.timeout(600)  # two thousand runs, on machines that do much else
@pytest.mark.parametrize("are_rows", [True, False])
@pytest.mark.parametrize("instance_count", [1, 2, 3])
@settings(max_examples=1700, deadline=None, derandomize=True)
@given(models, arrivals)
def test_in_ten_thousand_runs(instance_count, are_rows, model, arrivals):
    World(replace(model, instance_count=instance_count, are_rows=are_rows), arrivals).run()
