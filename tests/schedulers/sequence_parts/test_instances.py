"""Instances of a model with sequences come and go, and sequences get their slots."""

import asyncio

from inferd.core.interfaces import Opened
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.sequence_parts.instances import Lanes
from inferd.schedulers.sequence_parts.live import LiveSequence


class Instance:
    """Does nothing, and knows whether it was closed."""

    is_closed = False

    def execute(self, requests):
        return requests

    def close(self):
        self.is_closed = True


def lanes_of(instances, per_lane=1):
    executions = [Execution("m", [one], may_run_inline=False) for one in instances]
    return Lanes(executions, per_lane, lambda _lane: None, are_held=False)


def seated(lanes, id=1):
    sequence = LiveSequence(id, [])
    return sequence if lanes.seat(sequence) else None


def test_a_sequence_has_a_slot_until_it_gives_it_back():
    lanes = lanes_of([Instance(), Instance()])
    first, second = seated(lanes, 1), seated(lanes, 2)
    assert seated(lanes, 3) is None
    assert [lane.sequences for lane in lanes.all()] == [{0: first}, {0: second}]
    assert lanes.of(second) is lanes.all()[1]
    lanes.unseat(first, may_dismiss=True)
    assert lanes.of(seated(lanes, 3)) is lanes.all()[0]


def test_a_sequence_without_a_slot_gives_none_back():
    lanes = lanes_of([Instance()])
    lanes.unseat(LiveSequence(1, []), may_dismiss=True)
    assert seated(lanes)
    assert not seated(lanes)


def test_of_one_kind_the_instance_with_the_fewest_sequences_goes():
    async def go():
        instances = [Instance(), Instance(), Instance()]
        lanes = lanes_of(instances)
        for lane, instance, kind in zip(lanes.all(), instances, "abb", strict=True):
            lane.execution.kinds = {id(instance): kind}
        seated(lanes, 1)
        seated(lanes, 2)
        lanes.shrink("c")  # there is none
        lanes.shrink("b")
        await lanes.close(5)
        assert [lane.is_leaving for lane in lanes.all()] == [False, False]

    asyncio.run(go())


def test_an_instance_that_goes_is_closed_after_its_last_sequence():
    async def go():
        instances = [Instance(), Instance()]
        lanes = lanes_of(instances)
        first, second = seated(lanes, 1), seated(lanes, 2)
        lanes.shrink()
        lanes.shrink()  # the other one stays: it is the only one
        assert [lane.is_leaving for lane in lanes.all()] == [True, False]
        lanes.unseat(first, may_dismiss=True)
        await lanes.close(5)
        assert [lane.sequences for lane in lanes.all()] == [{0: second}]
        assert [one.is_closed for one in instances] == [True, True]

    asyncio.run(go())


def test_an_instance_that_comes_has_slots_of_its_own():
    async def go():
        lanes = lanes_of([Instance()])
        first = seated(lanes, 1)
        lanes.grow(Opened(Instance(), Instance()))
        second = seated(lanes, 2)
        assert lanes.of(first) is not lanes.of(second)
        await lanes.close(5)

    asyncio.run(go())


def test_one_that_comes_too_late_is_closed():
    async def go():
        late = Instance()
        lanes = lanes_of([Instance()])
        lanes.dismiss(Opened(late, late))
        await asyncio.sleep(0)
        await lanes.close(5)
        assert late.is_closed
        assert len(lanes.all()) == 1

    asyncio.run(go())
