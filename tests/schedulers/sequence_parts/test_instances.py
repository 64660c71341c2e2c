"""Instances of a model with sequences come and go, and sequences get their slots."""

import asyncio
from itertools import zip_longest

from inferd.core.interfaces import Opened
from inferd.schedulers.execution.execution import Execution
from inferd.schedulers.sequence_parts.instances import SequenceInstances
from inferd.schedulers.sequence_parts.live import LiveSequence


class Instance:
    """Does nothing, and knows whether it was closed."""

    is_closed = False

    def execute(self, requests):
        return requests

    def close(self):
        self.is_closed = True


def placed_on(instances, per_instance=1, kinds=()):
    opened = [Opened(one, one, kind=kind) for one, kind in zip_longest(instances, kinds)]
    executions = [Execution("m", [one], may_run_inline=False) for one in opened]
    return SequenceInstances(executions, per_instance, lambda _place: None)


def seated(places, id=1):
    sequence = LiveSequence(id, [])
    return sequence if places.seat(sequence) else None


def test_a_sequence_has_a_slot_until_it_gives_it_back():
    places = placed_on([Instance(), Instance()])
    first, second = seated(places, 1), seated(places, 2)
    assert seated(places, 3) is None
    assert [place.sequences for place in places.all()] == [{0: first}, {0: second}]
    assert places.of(second) is places.all()[1]
    places.unseat(first, may_dismiss=True)
    assert places.of(seated(places, 3)) is places.all()[0]


def test_a_sequence_without_a_slot_gives_none_back():
    places = placed_on([Instance()])
    places.unseat(LiveSequence(1, []), may_dismiss=True)
    assert seated(places)
    assert not seated(places)


def test_of_one_kind_the_instance_with_the_fewest_sequences_goes():
    async def go():
        places = placed_on([Instance(), Instance(), Instance()], kinds="abb")
        seated(places, 1)
        seated(places, 2)
        places.shrink("c")  # there is none
        places.shrink("b")
        await places.close(5)
        assert [place.is_leaving for place in places.all()] == [False, False]

    asyncio.run(go())


def test_an_instance_that_goes_is_closed_after_its_last_sequence():
    async def go():
        instances = [Instance(), Instance()]
        places = placed_on(instances)
        first, second = seated(places, 1), seated(places, 2)
        places.shrink()
        places.shrink()  # the other one stays: it is the only one
        assert [place.is_leaving for place in places.all()] == [True, False]
        places.unseat(first, may_dismiss=True)
        await places.close(5)
        assert [place.sequences for place in places.all()] == [{0: second}]
        assert [one.is_closed for one in instances] == [True, True]

    asyncio.run(go())


def test_an_instance_that_comes_has_slots_of_its_own():
    async def go():
        places = placed_on([Instance()])
        first = seated(places, 1)
        places.grow(Opened(Instance(), Instance()))
        second = seated(places, 2)
        assert places.of(first) is not places.of(second)
        await places.close(5)

    asyncio.run(go())


def test_one_that_comes_too_late_is_closed():
    async def go():
        late = Instance()
        places = placed_on([Instance()])
        places.dismiss(Opened(late, late))
        await asyncio.sleep(0)
        await places.close(5)
        assert late.is_closed
        assert len(places.all()) == 1

    asyncio.run(go())
