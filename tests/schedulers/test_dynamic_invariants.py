"""What holds for every run of a DynamicScheduler, whatever comes when."""

import asyncio
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import SimulatedAlarm, SimulatedExecution, passes, simulate

from inferd.config.model import DynamicBatching, ModelConfig, ModelInput, QueuePolicy
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import Unavailable
from inferd.schedulers.adaptive import TRIAL_NS, AdaptivePace
from inferd.schedulers.batch import BatchPlan
from inferd.schedulers.dynamic import DynamicScheduler
from inferd.schedulers.pace import FixedPace
from inferd.schedulers.queue import RequestQueue
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

US = 1000
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
    came: int = 0
    waiting_before: int = 0
    started: int | None = None
    ended: int | None = None
    outcome: str = ""


def pace_of(batching, instances):
    if not batching.is_adaptive:
        delay_us = batching.max_queue_delay_microseconds
        return FixedPace(MOST, batching.preferred_batch_size, delay_us)
    pace = AdaptivePace(MOST, instances)
    pace.started(1)
    pace.ended(1, 1, 2 * TRIAL_NS)  # from now on it batches
    return pace


class World:
    """Clients that send `arrivals` to a scheduler, what they saw, and what must hold meanwhile."""

    def __init__(self, batching, arrivals, instances, *, keeps_order=False):
        self.pace = pace_of(batching, instances)
        self.batching = batching
        self.delay_ns = US * batching.max_queue_delay_microseconds
        self.fates = {str(number): Fate(arrival) for number, arrival in enumerate(arrivals)}
        self.came = []
        self.answered = []
        self.batches = []
        self.instances = instances
        self.keeps_order = keeps_order

    def run(self):
        simulate(self._serve)
        return self

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
        return fate.came + US * limit if limit else None

    async def _serve(self):
        self.now_ns = asyncio.get_running_loop().now_ns
        execution = SimulatedExecution(self.instances, self._takes_ms)
        execution.outcome = self._execute
        batching = self.batching
        self.queue = RequestQueue("m", batching)
        self.scheduler = DynamicScheduler(
            execution,
            self.queue,
            self.pace,
            BatchPlan(ModelConfig("m", max_batch_size=MOST, input=(INPUT,))),
            keeps_order=self.keeps_order,
            alarm=SimulatedAlarm,
        )
        await asyncio.gather(*(self._client(id, fate) for id, fate in self.fates.items()))
        await passes(1)
        assert (self.queue.size, len(self.queue)) == (0, 0)
        assert self.scheduler._free_count == self.instances
        await self.scheduler.close(1)

    def _takes_ms(self, requests):
        return max(self.fates[request.id].arrival.runs for request in requests) / 1e3

    def _execute(self, requests):
        now_ns = self.now_ns()
        batch = [self.fates[request.id] for request in requests]
        self.batches.append(batch)
        for fate in batch:
            assert fate.started is None, "it ran before"
            fate.started = now_ns
        lowest = max(map(self.level_of, batch))
        for fate in self.came:
            if self._waits(fate, now_ns):
                assert self.level_of(fate) >= lowest, "one of higher priority still waits"
        return [InferResponse("m", "1", request.id) for request in requests]

    def _waits(self, fate, now_ns):
        """Tell whether it is in the queue: those that must leave it now are gone, or will be."""
        leaves = [self.deadline_of(fate)]
        if fate.arrival.gives_up_after is not None:
            leaves.append(fate.came + US * fate.arrival.gives_up_after)
        is_gone = fate.started is not None or fate.ended is not None
        return not is_gone and all(when is None or when > now_ns for when in leaves)

    async def _client(self, id, fate):
        arrival = fate.arrival
        if arrival.at:
            await passes(arrival.at / 1e3)
        shape = (arrival.size, arrival.length)
        tensor = Tensor("A", DataType.INT8, shape, bytes(arrival.size * arrival.length))
        request = InferRequest(
            "m",
            id=id,
            inputs=[tensor],
            batch_size=arrival.size,
            priority=arrival.priority,
            timeout_us=arrival.timeout,
        )
        self._come(fate)
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

    def _come(self, fate):
        fate.came = now_ns = self.now_ns()
        self.came.append(fate)
        level = self.queue._levels.get(self.level_of(fate))
        fate.waiting_before = len(level.in_time) + len(level.late) if level else 0
        if self.scheduler._free_count and not self.batching.is_adaptive:
            waits_since = min((one.request.queued_ns for one in self.queue), default=now_ns)
            assert now_ns - waits_since <= self.delay_ns, "an instance is free for no reason"


def every_request_has_one_fate_and_it_is_the_right_one(batching, arrivals, instances):
    world = World(sound(batching), arrivals, instances).run()
    for fate in world.fates.values():
        policy, deadline = world.policy_of(fate), world.deadline_of(fate)
        rejects = policy.timeout_action == "REJECT" and deadline is not None
        if fate.outcome == "full":
            assert fate.waiting_before == policy.max_queue_size > 0
            assert (fate.started, fate.ended) == (None, fate.came)
            continue
        assert not policy.max_queue_size or fate.waiting_before < policy.max_queue_size
        if fate.outcome == "late":
            assert rejects
            assert (fate.started, fate.ended) == (None, deadline)
        elif fate.outcome == "answered":
            assert fate.started is not None
            assert not rejects or fate.started < deadline
        else:
            assert fate.outcome == "gave up"
            assert fate.started is None or fate.started <= fate.ended


def every_batch_is_one_that_may_be(batching, arrivals, instances):
    world = World(sound(batching), arrivals, instances).run()
    for batch in world.batches:
        assert sum(fate.arrival.size for fate in batch) <= MOST
        assert len({fate.arrival.length for fate in batch}) == 1
    ran = [fate for batch in world.batches for fate in batch]
    assert len(ran) == len(set(ran))
    for level in (0, 1, 2):
        fates = [fate for fate in ran if world.level_of(fate) == level]
        if fates and world.policy_of(fates[0]).timeout_action == "REJECT":
            order = [world.came.index(fate) for fate in fates]
            assert order == sorted(order)


def answers_keep_the_order_when_asked(batching, arrivals, instances):
    in_order = replace(
        batching,
        priority_levels=0,
        priority_queue_policy={},
        default_queue_policy=replace(batching.default_queue_policy, timeout_action="REJECT"),
    )
    world = World(in_order, arrivals, instances, keeps_order=True).run()
    order = [world.came.index(fate) for fate in world.answered]
    assert order == sorted(order)


CLAIMS = (
    every_request_has_one_fate_and_it_is_the_right_one,
    every_batch_is_one_that_may_be,
    answers_keep_the_order_when_asked,
)


@pytest.mark.parametrize("claim", CLAIMS)
@settings(max_examples=15, deadline=None)
@given(configurations, arrivals, st.integers(1, 2))
def test_in_a_few_runs(claim, batching, arrivals, instances):
    claim(batching, arrivals, instances)


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS)
@settings(max_examples=400, deadline=None)
@given(configurations, arrivals, st.integers(1, 3))
def test_in_many_runs(claim, batching, arrivals, instances):
    claim(batching, arrivals, instances)
