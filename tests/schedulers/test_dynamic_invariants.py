"""What holds for every run of a DynamicScheduler, whatever comes when."""

import asyncio
from dataclasses import dataclass, replace
from itertools import accumulate

import pytest
from fields import with_fields
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import SimulatedExecution, SimulatedTimer, passes, simulate

from inferd.config.model import DynamicBatching, ModelConfig, ModelInput, QueuePolicy
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import Unavailable
from inferd.schedulers.dynamic import DynamicScheduler
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.queueing.adaptive import FIRST_PATIENCE_NS, TRIAL_NS, AdaptiveTiming
from inferd.schedulers.queueing.queue import RequestQueue
from inferd.schedulers.queueing.timing import FixedTiming
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

US = 1000
MAX_WAIT_NS = FIRST_PATIENCE_NS
MOST = 4
INPUT = ModelInput("A", DataType.INT8, (-1,))


@dataclass
class Arrival:
    """A request, when it comes and when its client gives up; times in µs."""

    at: int
    size: int
    length: int
    priority: int
    timeout: int
    runs: int
    gives_up_after: int | None


arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.sampled_from([0, 0, 1, 2, 5, 9, 20]),
        size=st.sampled_from([1, 1, 2, MOST]),
        length=st.integers(1, 2),
        priority=st.integers(0, 3),
        timeout=st.integers(0, 12),
        runs=st.integers(0, 20),
        gives_up_after=st.none() | st.integers(0, 30),
    ),
    min_size=3,
    max_size=14,
)
policies = st.builds(
    QueuePolicy,
    timeout_action=st.sampled_from(["REJECT", "DELAY"]),
    default_timeout_microseconds=st.sampled_from([0, 5, 15]),
    allow_timeout_override=st.booleans(),
    max_queue_size=st.integers(0, 3),
)
configurations = st.builds(
    DynamicBatching,
    preferred_batch_size=st.sampled_from([(MOST,), (2,), (2, 3), (1, 4)]),
    max_queue_delay_microseconds=st.sampled_from([0, 0, 7]),
    priority_levels=st.sampled_from([0, 1, 2]),
    default_priority_level=st.just(1),
    default_queue_policy=policies,
    priority_queue_policy=st.dictionaries(st.integers(1, 2), policies),
    is_adaptive=st.booleans(),
)


def sound(batching):
    """Return `batching` as check_config would let it through."""
    return replace(
        batching,
        priority_queue_policy={
            level: policy
            for level, policy in batching.priority_queue_policy.items()
            if level <= batching.priority_levels
        },
    )


@dataclass(eq=False)
class Fate:
    """What became of one arrival; times in ns."""

    arrival: Arrival
    arrived: int = 0
    waiting_before: int = 0
    started: int | None = None
    ended: int | None = None
    outcome: str = ""


def pace_of(batching, instances):
    if not batching.is_adaptive:
        delay_us = batching.max_queue_delay_microseconds
        return FixedTiming(MOST, batching.preferred_batch_size, delay_us)
    timing = AdaptiveTiming(MOST, instances)
    timing.started(1)
    timing.ended(1, 1, 2 * TRIAL_NS)  # from now on it batches
    return timing


class World:
    """Clients that send `arrivals` to a scheduler, what they saw, and what must hold meanwhile."""

    def __init__(self, batching, arrivals, instances, *, keeps_order=False):
        self.timing = pace_of(batching, instances)
        self.batching = batching
        self.delay_ns = US * batching.max_queue_delay_microseconds
        self.fates = {str(number): Fate(arrival) for number, arrival in enumerate(arrivals)}
        self.arrived = []
        self.answered = []
        self.held_since = None  # an instance is free and somebody waits
        self.instances = instances
        self.keeps_order = keeps_order

    def run(self):
        simulate(self._serve)
        for fate in self.fates.values():
            self._check_fate(fate)
        if self.keeps_order:
            order = [self.arrived.index(fate) for fate in self.answered]
            assert order == sorted(order), "an answer came before that of an earlier request"

    # --- what the configuration says of a request ---

    def level_of(self, fate):
        levels = self.batching.priority_levels
        return fate.arrival.priority if 0 < fate.arrival.priority <= levels else min(levels, 1)

    def policy_of(self, fate):
        own = self.batching.priority_queue_policy.get(self.level_of(fate))
        return own or self.batching.default_queue_policy

    def deadline_of(self, fate):
        """When it is late, None for never."""
        policy, own = self.policy_of(fate), fate.arrival.timeout
        limit = policy.default_timeout_microseconds
        if policy.allow_timeout_override and 0 < own < limit:
            limit = own
        return fate.arrived + US * limit if limit else None

    def rejects(self, fate):
        return self.policy_of(fate).timeout_action == "REJECT"

    # --- what happens ---

    async def _serve(self):
        loop = asyncio.get_running_loop()
        self.now_ns = loop.now_ns
        execution = SimulatedExecution(self.instances, self._takes_ms)
        execution.outcome = self._execute
        self.queue = RequestQueue("m", self.batching)
        self.scheduler = DynamicScheduler(
            execution,
            self.queue,
            self.timing,
            BatchPlan(ModelConfig("m", max_batch_size=MOST, input=(INPUT,))),
            keeps_order=self.keeps_order,
            timer=SimulatedTimer,
        )
        loop.check_before_time_passes(self._check_nothing_is_held)
        await asyncio.gather(*(self._client(id, fate) for id, fate in self.fates.items()))
        await passes(1)
        assert (self.queue.size, self.queue.count) == (0, 0)
        assert self.scheduler._free_count == self.instances
        await self.scheduler.close(1)

    def _takes_ms(self, requests):
        return max(self.fates[request.id].arrival.runs for request in requests) / 1e3

    async def _client(self, id, fate):
        arrival = fate.arrival
        if arrival.at:
            await passes(arrival.at / 1e3)
        shape = (arrival.size, arrival.length)
        tensor = Tensor("A", DataType.INT8, shape, bytes(arrival.size * arrival.length))
        request = with_fields(
            InferRequest("m", id=id, inputs=[tensor], batch_size=arrival.size),
            priority=arrival.priority,
            timeout_us=arrival.timeout,
        )
        fate.arrived = self.now_ns()
        self.arrived.append(fate)
        level = self.queue._levels.get(self.level_of(fate))
        fate.waiting_before = len(level.in_time) + len(level.late) if level else 0
        wait_s = None if arrival.gives_up_after is None else arrival.gives_up_after / 1e6
        try:
            async with asyncio.timeout(wait_s):
                answer = await self.scheduler.run(request)
            assert answer.id == id
            fate.outcome = "answered"
            self.answered.append(fate)
        except TimeoutError:
            fate.outcome = "gave up"
        except Unavailable as error:
            fate.outcome = "full" if "is full" in error.message else "late"
        fate.ended = self.now_ns()

    # --- what must hold ---

    def _execute(self, requests):
        """Check that this batch may be, and is the beginning of what waits."""
        now_ns = self.now_ns()
        batch = [self.fates[request.id] for request in requests]
        assert sum(fate.arrival.size for fate in batch) <= MOST
        assert len({fate.arrival.length for fate in batch}) == 1, "shapes differ"
        assert all(fate.started is None for fate in batch), "one ran before"
        waits = [fate for fate in self.arrived if fate in batch or self._waits(fate, now_ns)]
        waits.sort(key=lambda fate: self._place(fate, now_ns))
        assert batch == waits[: len(batch)], "one was overtaken"
        self.held_since = None
        for fate in batch:
            fate.started = now_ns
        return [InferResponse("m", "1", request.id) for request in requests]

    def _waits(self, fate, now_ns):
        """Tell whether it is in the queue; one that leaves at this time may be gone."""
        deadline, patience = self.deadline_of(fate), fate.arrival.gives_up_after
        is_gone = fate.started is not None or fate.ended is not None
        is_late = deadline is not None and deadline <= now_ns and self.rejects(fate)
        gives_up = patience is not None and fate.arrived + US * patience <= now_ns
        return not (is_gone or is_late or gives_up)

    def _place(self, fate, now_ns):
        """Return what the queue sorts by: level, whether late, since when."""
        deadline, number = self.deadline_of(fate), self.arrived.index(fate)
        is_late = deadline is not None and deadline <= now_ns
        return self.level_of(fate), is_late, deadline if is_late else number, number

    def _check_nothing_is_held(self):
        """An instance is free and somebody waits: then the delay is not over, and more may join."""
        scheduler, waiting, now_ns = self.scheduler, list(self.queue), self.now_ns()
        running = scheduler._execution.running
        assert scheduler._free_count + running == self.instances
        if not waiting or not scheduler._free_count:
            self.held_since = None
            return
        if self.batching.is_adaptive:
            self.held_since = self.held_since or now_ns
            assert now_ns - self.held_since < MAX_WAIT_NS
            return
        assert now_ns - min(one.request.queued_ns for one in waiting) < self.delay_ns
        sizes = list(accumulate(one.request.batch_size for one in waiting))
        assert sizes[-1] < max(self.batching.preferred_batch_size)
        assert not set(sizes) & set(self.batching.preferred_batch_size)
        assert len({one.request.inputs[0].shape[1] for one in waiting}) == 1

    def _check_fate(self, fate):
        policy, deadline = self.policy_of(fate), self.deadline_of(fate)
        rejects = self.rejects(fate) and deadline is not None
        if fate.outcome == "full":
            assert fate.waiting_before == policy.max_queue_size > 0
            assert (fate.started, fate.ended) == (None, fate.arrived)
            return
        assert not policy.max_queue_size or fate.waiting_before < policy.max_queue_size
        if fate.outcome == "late":
            assert rejects
            assert fate.started is None
            assert fate.ended == deadline or (self.keeps_order and fate.ended > deadline)
        elif fate.outcome == "answered":
            assert fate.started is not None
            assert not rejects or fate.started < deadline
        else:
            assert fate.outcome == "gave up"
            assert fate.started is None or fate.started <= fate.ended


def every_request_has_its_due(batching, arrivals, instances):
    World(sound(batching), arrivals, instances).run()


def answers_keep_the_order_when_asked(batching, arrivals, instances):
    in_order = replace(
        batching,
        priority_levels=0,
        priority_queue_policy={},
        default_queue_policy=replace(batching.default_queue_policy, timeout_action="REJECT"),
    )
    World(in_order, arrivals, instances, keeps_order=True).run()


CLAIMS = (every_request_has_its_due, answers_keep_the_order_when_asked)


@pytest.mark.parametrize("claim", CLAIMS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(configurations, arrivals, st.integers(1, 2))
def test_in_a_few_runs(claim, batching, arrivals, instances):
    claim(batching, arrivals, instances)


@pytest.mark.slow
@pytest.mark.timeout(600)  # two thousand runs, on machines that do much else
@pytest.mark.parametrize(
    ("claim", "instances"),
    [(every_request_has_its_due, n) for n in (1, 2, 3)]
    + [(answers_keep_the_order_when_asked, n) for n in (2, 3)],
)
@settings(max_examples=2000, deadline=None, derandomize=True)
@given(configurations, arrivals)
def test_in_ten_thousand_runs(claim, instances, batching, arrivals):
    claim(batching, arrivals, instances)
