import asyncio
import threading
from queue import SimpleQueue

import pytest

from inferd.config.model import RateLimiter as Wanted
from inferd.config.model import RateLimiterResource
from inferd.core.interfaces import Opened, Placement
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InvalidConfig, Unavailable
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.execution.limiter import ResourceLimiter, limited

PATIENCE_S = 30


def place(device=0, priority=0, is_global=False, **resources):
    needs = (RateLimiterResource(name, is_global, count) for name, count in resources.items())
    return Placement("m_0", True, device, Wanted(tuple(needs), priority))


class Runs:
    """An instance whose executions are told of, and end when somebody says so."""

    def __init__(self):
        self.begun = SimpleQueue()
        self.may_end = SimpleQueue()
        self.is_closed = False

    def execute(self, requests):
        self.begun.put(requests)
        self.may_end.get(timeout=PATIENCE_S)
        return requests

    def close(self):
        self.is_closed = True


class World:
    """Instances under one limiter, each of which is asked to run in a thread of its own."""

    def __init__(self, limits=None):
        self.limiter = ResourceLimiter(limits or {})
        self.order = []
        self.threads = []

    def instance(self, where):
        inner = Runs()
        return inner, limited(inner, self.limiter.enter("m", where))

    def ask(self, name, instance, errors=None):
        """Start an execution, and return when it runs or waits."""
        before = len(self.limiter._waiting)

        def run():
            try:
                instance.execute([name])
            except Unavailable as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        self.threads.append(thread)
        inner = instance.inner
        while inner.begun.empty() and len(self.limiter._waiting) == before:
            threading.Event().wait(0.001)

    def join(self):
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def runs(inner):
    """Tell whether an execution has begun, and forget it."""
    if inner.begun.empty():
        return False
    inner.begun.get()
    return True


def ends(inner):
    inner.may_end.put(None)


def begins(inner):
    """Wait until an execution begins."""
    return inner.begun.get(timeout=PATIENCE_S)


def test_instances_that_need_the_same_wait_for_each_other():
    world = World()
    (one, first), (two, second) = (world.instance(place(R=1)) for _ in range(2))
    world.ask("a", first)
    world.ask("b", second)
    assert (runs(one), runs(two)) == (True, False)
    ends(one)
    assert begins(two) == ["b"]
    ends(two)
    world.join()


def test_what_is_not_limited_is_as_much_as_the_neediest_needs():
    world = World()
    large, whole = world.instance(place(R=4))
    halves = [world.instance(place(R=2)) for _ in range(3)]
    for _, instance in halves:
        world.ask("half", instance)
    assert [runs(inner) for inner, _ in halves] == [True, True, False]
    world.ask("whole", whole)
    ends(halves[0][0])
    begins(halves[2][0])
    for inner, _ in halves[1:]:
        ends(inner)
    begins(large)
    ends(large)
    world.join()


def test_a_limit_says_how_much_there_is_on_each_device_or_one():
    world = World({("R", None): 1, ("R", 1): 2})
    zero = [world.instance(place(0, R=1)) for _ in range(2)]
    one = [world.instance(place(1, R=1)) for _ in range(3)]
    for _, instance in zero + one:
        world.ask("x", instance)
    assert [runs(inner) for inner, _ in zero] == [True, False]
    assert [runs(inner) for inner, _ in one] == [True, True, False]
    for inner, _ in zero + one:
        ends(inner)
    world.join()


def test_a_global_resource_is_shared_by_all_devices():
    world = World()
    (one, first), (two, second) = (
        world.instance(place(device, is_global=True, R=1)) for device in (0, 1)
    )
    world.ask("a", first)
    world.ask("b", second)
    assert (runs(one), runs(two)) == (True, False)
    ends(one)
    ends(two)
    world.join()


def test_who_needs_something_else_does_not_wait():
    world = World()
    instances = [world.instance(place(**{name: 1})) for name in "RRS"]
    for _, instance in instances:
        world.ask("x", instance)
    assert [runs(inner) for inner, _ in instances] == [True, False, True]
    for inner, _ in instances:
        ends(inner)
    world.join()


def test_who_needs_much_is_not_overtaken_by_those_who_need_little_of_it():
    world = World()
    large, whole = world.instance(place(R=2))
    (one, first), (two, second) = (world.instance(place(R=1)) for _ in range(2))
    world.ask("a", first)
    world.ask("whole", whole)
    world.ask("b", second)
    assert (runs(one), runs(large), runs(two)) == (True, False, False)
    ends(one)
    begins(large)
    assert not runs(two)
    ends(large)
    begins(two)
    ends(two)
    world.join()


class Asker(threading.Thread):
    """Runs again and again under a claim, as long as `go` says so."""

    def __init__(self, claim, begun):
        super().__init__()
        self.claim, self.begun = claim, begun
        self.go = SimpleQueue()

    def run(self):
        is_to_go_on = True
        while is_to_go_on:
            with self.claim:
                self.begun.put(self)
                is_to_go_on = self.go.get(timeout=PATIENCE_S)


def test_a_run_of_priority_four_counts_four_times():
    limiter = ResourceLimiter({("R", None): 1})
    begun = SimpleQueue()
    askers = [Asker(limiter.enter("m", place(priority=p, R=1)), begun) for p in (1, 1, 4)]
    for asker in askers:
        asker.start()
    order = []
    for _ in range(40):
        order.append(begun.get(timeout=PATIENCE_S))
        while len(limiter._waiting) < 2:  # the other two ask, too
            threading.Event().wait(0.001)
        order[-1].go.put(True)
    for _ in askers:
        begun.get(timeout=PATIENCE_S).go.put(False)
    for asker in askers:
        asker.join(PATIENCE_S)
    assert order.count(askers[2]) < 0.5 * order.count(askers[0])


def test_who_comes_later_is_not_owed_what_others_ran_before():
    limiter = ResourceLimiter({})
    first = limiter.enter("m", place(R=1))
    for _ in range(5):
        with first:
            pass
    assert limiter.enter("m", place(R=1)).runs == first.runs == 5


def test_an_instance_that_is_closed_while_it_waits_gives_up():
    world = World()
    errors = []
    (one, first), (two, second) = (world.instance(place(R=1)) for _ in range(2))
    world.ask("a", first)
    world.ask("b", second, errors)
    second.close()
    world.threads[1].join(PATIENCE_S)
    assert [error.message for error in errors] == [
        "the model was unloaded while it waited for its resources"
    ]
    assert two.is_closed
    ends(one)
    world.join()
    world.ask("c", first)
    ends(one)
    world.join()


def test_what_failed_gives_back_what_it_took():
    limiter = ResourceLimiter({})

    class Failing(Runs):
        def execute(self, requests):
            msg = "boom"
            raise ValueError(msg)

    instance = limited(Failing(), limiter.enter("m", place(R=1)))
    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            instance.execute([])


def test_who_has_entered_its_turn_waits_no_second_time():
    limiter = ResourceLimiter({})
    instance = limited(inner := Runs(), limiter.enter("m", place(R=1)))
    ends(inner)
    with instance.turn:
        assert instance.turn.is_granted
        instance.execute([])
        assert instance.turn.is_granted
    assert not instance.turn.is_granted
    assert instance.turn.runs == 1


def test_a_stream_holds_its_resources_to_its_end():
    limiter = ResourceLimiter({})

    class Streaming(Runs):
        def stream(self, request):
            yield from request

    instance = limited(Streaming(), claim := limiter.enter("m", place(R=1)))
    stream = instance.stream([1, 2])
    assert next(stream) == 1
    assert claim.is_granted
    stream.close()
    assert not claim.is_granted
    assert list(instance.stream([3])) == [3]


def test_an_instance_that_may_wait_does_not_run_on_the_event_loop():
    instance = limited(Runs(), ResourceLimiter({}).enter("m", place(R=1)))
    assert not instance.traits.is_bounded and instance.traits.turn is instance.turn


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({("R", 0): 3}, 3),
        ({("R", 7): 3, ("R", 1): 2}, 3),
        ({("R", None): 2, ("R", 0): 3}, 2),
        ({("Q", 0): 2}, 1),
    ],
)
def test_of_the_limit_of_a_global_resource_the_device_does_not_matter(limits, count):
    world = World(limits)
    pairs = [world.instance(place(is_global=True, R=1)) for _ in range(4)]
    for _, instance in pairs:
        world.ask("x", instance)
    assert [runs(inner) for inner, _ in pairs].count(True) == count
    for inner, _ in pairs:
        ends(inner)
    world.join()


@pytest.mark.parametrize(
    ("limits", "wanted", "text"),
    [
        ({("R", None): 1}, place(R=2), "'R' is needed 2 times, --rate-limit-resource has 1 of it"),
        ({("R", 3): 1, ("R", None): 9}, place(3, R=2), "'R' is needed 2 times"),
        ({("R", 3): 1}, place(is_global=True, R=2), "'R' is needed 2 times"),
        ({}, place(is_global=True, S=1), "'S' is global in one place and belongs to a device in"),
        (
            {},
            Placement(
                "m_0",
                rate_limiter=Wanted(
                    (RateLimiterResource("R", False, 1), RateLimiterResource("R", True, 1))
                ),
            ),
            "'R' is global in one place",
        ),
    ],
)
def test_what_can_never_be_had_is_refused(limits, wanted, text):
    limiter = ResourceLimiter(limits)
    limiter.enter("other", place(S=1))
    with pytest.raises(InvalidConfig) as caught:
        limiter.enter("m", wanted)
    assert caught.value.message.startswith("model 'm', instance 'm_0': rate_limiter resource ")
    assert text in caught.value.message


def test_a_refused_instance_leaves_nothing():
    limiter = ResourceLimiter({("R", None): 1})
    with pytest.raises(InvalidConfig):
        limiter.enter("m", place(R=2))
    claim = limiter.enter("m", place(R=1))
    claim.leave()
    claim.leave()
    assert limiter._claims == []


def test_instances_with_much_to_do_take_turns_as_their_priorities_say():
    limiter = ResourceLimiter({("R", None): 1})
    order = []

    class Named(Runs):
        """One whose first run waits until another asks for its resource."""

        def __init__(self, name):
            super().__init__()
            self.name = name

        def execute(self, requests):
            while not order and not limiter._waiting:
                threading.Event().wait(0.001)
            order.append(self.name)
            return [InferResponse(self.name, "1") for _ in requests]

    async def test():
        executions = []
        for name, priority in (("often", 1), ("seldom", 3)):
            instance = limited(Named(name), limiter.enter(name, place(priority=priority, R=1)))
            executions.append(Execution(name, [Opened(instance, instance)], may_run_inline=False))
        await asyncio.gather(
            *(one.run((InferRequest("m"),)) for _ in range(9) for one in executions)
        )
        for one in executions:
            await one.close(PATIENCE_S)

    asyncio.run(test())
    # Who began did so before the other asked; then a run of the one counts three of the other's.
    began = order.index("seldom")
    expected = ["often"] * (3 - began) + ["seldom"] + ["often"] * 3 + ["seldom"]
    assert order[began + 1 :][: len(expected)] == expected
