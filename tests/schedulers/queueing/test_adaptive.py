import asyncio
import random
import statistics
from itertools import pairwise

import pytest
from simulation import MS, SimulatedExecution, SimulatedTimer, now_ms, passes, simulate

from inferd.config.model import DynamicBatching, ModelConfig, ModelInput
from inferd.core.request import InferRequest
from inferd.schedulers.dynamic import DynamicScheduler
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.execution.promotion import FIRST_RUNS
from inferd.schedulers.queueing.adaptive import (
    FIRST_LOOK,
    FIRST_PATIENCE_NS,
    FIRST_PROBE,
    HANDED_OVER_NS,
    LAST_LOOK,
    LASTING,
    MIN_WAIT_NS,
    QUEUED_NS,
    TRIAL_NS,
    TRIAL_RUNS,
    WORTH_NS,
    AdaptiveTiming,
    Costs,
)
from inferd.schedulers.queueing.queue import RequestQueue, Waiting
from inferd.schedulers.queueing.timing import FixedTiming
from inferd.tensor.dtype import DataType

MOST = 16
US = 1000

# --- what an item costs ---


@pytest.mark.parametrize(
    ("most", "size", "size_class", "largest"),
    [
        (16, 1, 0, 1),
        (16, 2, 1, 2),
        (16, 3, 2, 4),
        (16, 4, 2, 4),
        (16, 5, 3, 8),
        (16, 16, 4, 16),
        (16, 99, 4, 16),
        (12, 9, 4, 12),
        (2, 2, 1, 2),
        (1, 1, 0, 1),
    ],
)
def test_classes_are_the_powers_of_two(most, size, size_class, largest):
    costs = Costs(most)
    assert costs.class_of(size) == size_class
    assert costs.largest(size_class) == largest


def costs_of(**by_size):
    costs = Costs(MOST)
    for size, cost_ns in by_size.items():
        costs.note(int(size[1:]), cost_ns)
    return costs


@pytest.mark.parametrize(
    ("by_size", "best"),
    [
        ({}, 0),
        ({"n1": 100}, 0),
        ({"n1": 100, "n16": 1600}, 0),
        ({"n1": 100, "n16": 1455}, 0),  # a tenth does not make it worth while
        ({"n1": 100, "n16": 1440}, 4),
        ({"n1": 100, "n2": 100, "n4": 210, "n16": 900}, 1),
        ({"n1": 100, "n4": 500}, 0),
        ({"n8": 100}, 3),
    ],
)
def test_the_best_class_is_the_smallest_that_is_about_as_cheap_as_the_cheapest(by_size, best):
    assert costs_of(**by_size).best() == best


def test_the_first_runs_of_a_size_may_be_slow():
    costs = Costs(MOST)
    for cost_ns in (9000, 100, 200, 120):
        costs.note(1, cost_ns)
    costs.note(2, 400)  # 200 an item
    assert costs.best() == 0


def test_an_execution_that_was_interrupted_says_little():
    costs = costs_of(n1=100, n2=190)
    for cost_ns in (*[100] * 6, 5000, 5000):
        costs.note(1, cost_ns)
    assert costs.best() == 0


def test_costs_follow_what_changes():
    costs = costs_of(n1=100, n2=300)
    assert costs.best() == 0
    for _ in range(200):
        costs.note(1, 400)
    assert costs.best() == 1


def test_a_class_that_moves_to_another_place_is_measured_anew():
    costs = costs_of(n1=100, n2=150)
    for _ in range(9):
        costs.note(1, 100)
    assert costs.best() == 1
    costs.note(1, 50, on_loop=True)
    assert costs.best() == 0


def test_a_forgotten_class_is_unknown():
    costs = costs_of(n1=100, n4=200)
    assert costs.is_known(2)
    costs.forget(3)
    assert not costs.is_known(2)
    assert costs.best() == 0


@pytest.mark.parametrize(
    ("by_size", "fixed"),
    [
        ({"n1": 1000 + 50, "n16": 1000 + 16 * 50}, 1000),
        ({"n2": 1000 + 100, "n16": 1000 + 16 * 50}, 1000),
        ({"n1": 100, "n16": 1600}, 0),
        ({"n1": 100, "n16": 160, "n8": 900}, 96),
        ({"n16": 1600}, 0),
        ({"n1": 100}, 100),  # who knows what 16 cost: all of it may be fixed
        ({}, 0),
    ],
)
def test_what_an_execution_costs_beside_its_items(by_size, fixed):
    assert costs_of(**by_size).fixed_ns(16) == pytest.approx(fixed, abs=2)


# --- clients of a model, in simulated time ---


class TimedExecution(SimulatedExecution):
    """Takes `takes_us(size)`, a few percent more or less.

    What takes up to `inline_us` runs on the event loop, after the first runs (see Execution).
    """

    def __init__(self, count, takes_us, inline_us):
        super().__init__(count)
        self.takes_us = takes_us
        self.inline_us = inline_us
        self.random = random.Random(5)
        self.sizes = []

    def run_now(self, requests):
        took_ns = self._time(requests)
        if self.takes_us(len(requests)) > self.inline_us or len(self.sizes) < FIRST_RUNS:
            return None
        loop = asyncio.get_running_loop()
        requests[0].started_ns = loop.now_ns()
        loop._selector_of_time.now_ns += took_ns
        requests[0].ended_ns = loop.now_ns()
        self.sizes.append(len(requests))
        return self._outcome_of(requests)

    def start(self, requests, finish, wanted=None):
        took_ns = self._time(requests)
        self.takes_ms = lambda _requests: took_ns / MS
        self.sizes.append(len(requests))
        super().start(requests, finish)

    def _time(self, requests):
        return round(self.takes_us(len(requests)) * US * self.random.uniform(0.95, 1.05))


class World:
    """So many clients that ask, read their answer, and ask again `returns_us` later or so."""

    def __init__(self, takes_us, *, clients, instances=1, returns_us=300, inline_us=0, timing=None):
        self.execution_of = lambda: TimedExecution(instances, takes_us, inline_us)
        self.timing = timing or AdaptiveTiming(MOST, instances)
        self.clients = clients
        self.returns_us = returns_us
        self.random = random.Random(7)
        self.latencies = {}  # by client: (when, ms)

    def run(self, milliseconds):
        """Let that time pass, and judge the second half of it."""
        simulate(lambda: self._serve(milliseconds))
        half = milliseconds / 2
        late = [ms for each in self.latencies.values() for when, ms in each if when > half]
        self.per_s = len(late) / half * 1000
        self.mean_ms = statistics.mean(late)
        self.sizes = self.execution.sizes[len(self.execution.sizes) // 2 :]
        return self

    async def _serve(self, milliseconds):
        self.execution = self.execution_of()
        plan = BatchPlan(
            ModelConfig("m", max_batch_size=MOST, input=(ModelInput("A", DataType.INT8, (1,)),))
        )
        queue = RequestQueue("m", DynamicBatching())
        scheduler = DynamicScheduler(self.execution, queue, self.timing, plan, timer=SimulatedTimer)
        await asyncio.gather(
            *(self._ask(scheduler, number, milliseconds) for number in range(self.clients))
        )

    async def _ask(self, scheduler, number, until_ms):
        seen = self.latencies.setdefault(number, [])
        while now_ms() < self.until_ms(number, until_ms):
            await passes(self.random.uniform(0.5, 1.5) * self.returns_us / 1000)
            asked_ms = now_ms()
            await scheduler.run(InferRequest("m"))
            seen.append((asked_ms, now_ms() - asked_ms))

    def until_ms(self, _number, until_ms):
        """Until when a client asks."""
        return until_ms


def alone():
    """Each request by itself, as without a scheduler."""
    return FixedTiming(1, (), 0)


def linear(us):
    return lambda size: us * size


def constant(us):
    return lambda size: us


@pytest.mark.slow
def test_a_model_whose_time_grows_with_the_batch_answers_as_fast_as_one_by_one():
    own = World(linear(4000), clients=8).run(4000)
    usual = World(linear(4000), clients=8, timing=alone()).run(4000)
    assert own.per_s > 0.97 * usual.per_s
    assert own.mean_ms < 1.03 * usual.mean_ms


def test_a_model_whose_time_grows_with_the_batch_runs_requests_one_by_one_unless_they_never_end():
    often = World(linear(4000), clients=3, returns_us=8000).run(4000)
    assert statistics.mean(often.sizes) < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("instances", [1, 2])
def test_a_model_that_takes_as_long_for_many_gets_full_batches(instances):
    own = World(constant(4000), clients=16, instances=instances).run(1000)
    usual = World(constant(4000), clients=16, instances=instances, timing=alone()).run(1000)
    greedy = FixedTiming(MOST, (MOST,), 0)
    triton = World(constant(4000), clients=16, instances=instances, timing=greedy).run(1000)
    assert own.per_s > 6 * usual.per_s
    assert own.per_s > 1.2 * triton.per_s
    assert statistics.mean(own.sizes) > 0.8 * 16 / instances


@pytest.mark.slow
def test_a_small_gain_is_taken_when_more_wait_than_one_batch_takes():
    def takes_us(size):
        return 800 + 7900 * size if size <= 4 else 8100 * size

    crowd = World(takes_us, clients=16).run(10_000)
    usual = World(takes_us, clients=16, timing=alone()).run(10_000)
    assert crowd.per_s > 1.03 * usual.per_s
    assert statistics.mean(crowd.sizes) > 3
    assert max(crowd.sizes[100:]) <= 8  # a neighbour is tried now and then
    few = World(takes_us, clients=2).run(10_000)
    assert statistics.mean(few.sizes) < 1.2


def test_two_clients_are_served_as_a_pair_where_that_helps():
    own = World(constant(4000), clients=2).run(1000)
    usual = World(constant(4000), clients=2, timing=alone()).run(1000)
    assert own.per_s > 1.6 * usual.per_s


def test_clients_that_could_each_have_an_instance_wait_for_nobody():
    own = World(constant(4000), clients=2, instances=2).run(1000)
    assert own.mean_ms < 4.1
    assert set(own.sizes) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("takes_us", [linear(4000), constant(4000), constant(200), constant(5)])
@pytest.mark.parametrize("inline_us", [0, 1000])
def test_a_lone_client_is_served_as_if_nothing_were_batched(takes_us, inline_us):
    own = World(takes_us, clients=1, inline_us=inline_us).run(1000)
    usual = World(takes_us, clients=1, inline_us=inline_us, timing=alone()).run(1000)
    assert [ms for _, ms in own.latencies[0]] == [ms for _, ms in usual.latencies[0]]


@pytest.mark.slow
@pytest.mark.parametrize("takes_us", [constant(4000), lambda size: 2000 + 500 * size])
def test_who_stays_when_the_crowd_has_gone_soon_waits_for_nobody(takes_us):
    class Leaving(World):
        def until_ms(self, number, until_ms):
            return until_ms if number == 0 else until_ms / 4

    own = Leaving(takes_us, clients=16).run(2000)
    assert own.mean_ms < 1.05 * takes_us(1) / 1000
    after = [ms for when, ms in own.latencies[0] if when > 600]
    assert max(after) < 1.06 * takes_us(1) / 1000


@pytest.mark.slow
def test_a_crowd_that_comes_later_is_batched_then():
    class Coming(World):
        async def _ask(self, scheduler, number, until_ms):
            if number:
                await passes(until_ms / 4)
            await super()._ask(scheduler, number, until_ms)

    own = Coming(constant(4000), clients=16).run(2000)
    assert statistics.mean(own.sizes) > 12


@pytest.mark.slow
def test_a_quick_model_that_gains_is_batched_on_the_event_loop():
    own = World(constant(80), clients=16, inline_us=1000, returns_us=50).run(100)
    usual = World(constant(80), clients=16, inline_us=1000, returns_us=50, timing=alone()).run(100)
    assert own.per_s > 3 * usual.per_s


@pytest.mark.slow
@pytest.mark.parametrize(("takes_us", "milliseconds"), [(constant(5), 60), (linear(80), 400)])
def test_a_quick_model_that_does_not_gain_runs_each_request_at_once(takes_us, milliseconds):
    own = World(takes_us, clients=16, inline_us=10_000, returns_us=50).run(milliseconds)
    assert statistics.mean(own.sizes) < 1.1
    assert own.timing.starts_at_once


def test_requests_at_random_moments_do_not_wait_in_vain():
    class Random(World):
        async def _ask(self, scheduler, number, until_ms):
            seen = self.latencies.setdefault(number, [])
            tasks = []
            while now_ms() < until_ms:
                await passes(self.random.expovariate(1 / 12))
                tasks.append(asyncio.create_task(self._once(scheduler, seen)))
            await asyncio.gather(*tasks)

        async def _once(self, scheduler, seen):
            asked_ms = now_ms()
            await scheduler.run(InferRequest("m"))
            seen.append((asked_ms, now_ms() - asked_ms))

    own = Random(constant(4000), clients=1).run(10_000)
    usual = Random(constant(4000), clients=1, timing=FixedTiming(MOST, (MOST,), 0)).run(10_000)
    assert own.mean_ms < 1.05 * usual.mean_ms


# --- in its single steps ---


def queue_of(count, now_ns=0):
    queue = RequestQueue("m", DynamicBatching())
    for _ in range(count):
        queue.add(Waiting(InferRequest("m"), None, None), now_ns)
    return queue


def after_trial(**by_size):
    """A pace that has seen the trial, and batches of those sizes; n4=ns."""
    timing = AdaptiveTiming(MOST, 1)
    for _ in range(TRIAL_RUNS):
        timing.started(1)
        timing.ended(1, 1, TRIAL_NS)
    for size, took_ns in by_size.items():
        timing.started(int(size[1:]))
        timing.ended(int(size[1:]), int(size[1:]), took_ns)
    return timing


def test_while_requests_are_quick_the_first_ones_run_alone():
    timing = AdaptiveTiming(MOST, 1)
    for _ in range(TRIAL_RUNS):
        assert timing.choose(queue_of(5), 1) == (1, 0)
        assert timing.starts_at_once
        timing.started(1)
        timing.ended(1, 1, TRIAL_NS)
    assert timing.choose(queue_of(5), 1) == (5, 0)


def test_a_lone_client_of_large_requests_is_no_crowd():
    timing = after_trial()
    for _ in range(20):
        timing.arrived(1)
        assert timing.starts_at_once
        timing.started(1)
        timing.ended(1, 8, 8 * TRIAL_NS)
    timing.arrived(2)
    assert not timing.starts_at_once


def test_who_is_expected_has_as_many_items_as_requests_usually_have():
    timing = after_trial()
    for _ in range(40):
        timing.started(1)
        timing.ended(1, 8, 8 * TRIAL_NS)
    timing.arrived(2)  # eight items each, and what 16 cost is not known yet
    assert not timing.starts_at_once
    timing.started(2)
    timing.ended(2, 16, 16 * TRIAL_NS)  # now it is: they do not gain
    assert timing.starts_at_once


def test_one_slow_request_ends_the_trial():
    timing = AdaptiveTiming(MOST, 1)
    timing.started(1)
    timing.ended(1, 1, TRIAL_NS + 1)
    assert timing.choose(queue_of(5), 1) == (5, 0)


def test_a_failure_tells_nothing():
    timing = AdaptiveTiming(MOST, 1)
    for _ in range(TRIAL_RUNS):
        timing.started(1)
        timing.ended(1, 1, 0)
    assert timing.choose(queue_of(5), 1) == (1, 0)


@pytest.mark.parametrize(("took_ns", "at_once"), [(WORTH_NS - 1, True), (WORTH_NS, False)])
def test_a_tiny_model_is_never_queued(took_ns, at_once):
    timing = AdaptiveTiming(MOST, 1)
    for _ in range(TRIAL_RUNS):
        timing.ran(1, 1, took_ns)
    timing.arrived(9)
    assert timing.starts_at_once is at_once


def test_who_is_expected_is_waited_for_first_in_this_turn_then_half_the_fixed_cost():
    timing = after_trial(n4=TRIAL_NS)
    timing.arrived(4)
    queue = queue_of(1)
    assert timing.choose(queue, 100) == (0, 100)
    fixed = TRIAL_NS + HANDED_OVER_NS  # beside what each request costs
    count, due_ns = timing.choose(queue, 100)
    assert count == 0
    assert due_ns == pytest.approx(100 + fixed / 2, rel=0.05)
    assert timing.choose(queue_of(4), 200) == (4, 0)


def test_who_does_not_come_is_waited_for_half_as_long_the_next_time_and_not_for_ever():
    timing = AdaptiveTiming(MOST, 1)
    for size in (1, 8):
        timing.started(size)
        timing.ended(size, size, 8 * TRIAL_NS)
    waits = []
    for _ in range(6):
        timing.arrived(8)
        timing.choose(queue_of(1), 100)
        count, due_ns = timing.choose(queue_of(1), 100)
        waits.append(0 if count else due_ns - 100)
        if not count:
            assert timing.choose(queue_of(1), due_ns) == (1, 0)
    assert waits == [FIRST_PATIENCE_NS >> step for step in range(3)] + [0] * 3
    assert FIRST_PATIENCE_NS >> 3 < MIN_WAIT_NS


def test_free_instances_share_who_is_expected():
    timing = AdaptiveTiming(MOST, 4)
    timing.started(1)
    timing.ended(1, 1, 2 * TRIAL_NS)
    timing.arrived(8)
    assert timing.choose(queue_of(2), 1) == (2, 0)
    timing.started(2)
    timing.started(2)
    assert timing.choose(queue_of(1), 1) == (0, 1)  # of the four left, two each


def test_neighbours_of_the_best_size_are_tried_again_ever_more_rarely():
    timing = after_trial(n2=TRIAL_NS, n4=TRIAL_NS, n8=TRIAL_NS, n16=TRIAL_NS * 3)
    sizes = [timing.choose(queue_of(16), 1)[0] for _ in range(7 * FIRST_PROBE)]
    tried = [index for index, size in enumerate(sizes) if size != 8]
    assert {sizes[index] for index in tried} == {4, 16}
    assert len(tried) == 3
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == [2 * FIRST_PROBE, 4 * FIRST_PROBE]


@pytest.mark.parametrize(
    ("n8", "cheapest"),
    [
        pytest.param(8 * TRIAL_NS, 8, id="the handing over is shared by more"),
        pytest.param(8 * TRIAL_NS + TRIAL_NS // 5, 4, id="eight cost a little more each than four"),
    ],
)
def test_who_never_rests_takes_the_cheapest_size_and_after_a_rest_the_smallest_good_one(
    n8, cheapest
):
    # From two on an item costs about the same; a tenth does not make more than one worth while.
    timing = after_trial(n2=2 * TRIAL_NS, n4=4 * TRIAL_NS, n8=n8, n16=16 * TRIAL_NS)
    sizes = []
    for _ in range(LASTING + 2):
        timing.started(1)
        timing.arrived(16)
        sizes.append(timing.choose(queue_of(16), 1)[0])
        timing.ended(1, 1, 0)
    assert sizes[-1] == cheapest
    assert sizes[1] < cheapest
    timing.arrived(16)
    assert timing.choose(queue_of(16), 1)[0] == sizes[1]


def test_a_look_that_sees_several_has_them_batched_and_looks_get_rare():
    timing = AdaptiveTiming(MOST, 1)
    for _ in range(TRIAL_RUNS):
        timing.ran(1, 1, 2 * WORTH_NS)
    assert (timing.starts_at_once, timing.look_after) == (True, FIRST_LOOK)
    timing.looked(1, 1)
    assert (timing.starts_at_once, timing.look_after) == (True, 2 * FIRST_LOOK)
    timing.looked(5, 5)
    assert not timing.starts_at_once
    for _ in range(20):
        timing.looked(1, 1)
    assert timing.look_after == LAST_LOOK


def test_what_batches_on_the_loop_cost_holds_the_price_of_waiting():
    timing = AdaptiveTiming(MOST, 1)
    for _ in range(TRIAL_RUNS):
        timing.ran(1, 1, 2 * QUEUED_NS + WORTH_NS)
    timing.arrived(2)
    assert not timing.starts_at_once
    timing.ran(2, 2, 2 * WORTH_NS)  # half as long, but for the waiting
    assert not timing.starts_at_once
    for _ in range(99):
        timing.ran(2, 2, 2 * WORTH_NS + 4 * QUEUED_NS)
    assert timing.starts_at_once
