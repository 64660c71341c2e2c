import itertools

import pytest

from inferd.forward.home import EVERYWHERE, Home

INSTANCES = list("abcde")


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", ["single", "spread"])
@pytest.mark.parametrize("first", [0, 1, 6])
def test_each_instance_is_in_one_process_and_its_owners_know_it(kind, first, count):
    first %= count
    homes = [Home(kind, first, number, count) for number in range(count)]
    for instances in ([], INSTANCES[:1], INSTANCES):
        own = [home.own(instances) for home in homes]
        assert sorted(itertools.chain(*own)) == instances
        owners = homes[0].owners(len(instances))
        assert list(owners) == [number for number in range(count) if own[number]] or not instances
        assert {home.owners(len(instances)) for home in homes} == {owners}


def test_spread_is_even_and_begins_with_the_first():
    homes = [Home("spread", 2, number, 3) for number in range(3)]
    assert [home.own(INSTANCES) for home in homes] == [["b", "e"], ["c"], ["a", "d"]]
    assert homes[0].owners(2) == (0, 2)


def test_copies_are_everywhere():
    homes = [Home("copy", 0, number, 3) for number in range(3)]
    assert [home.own(INSTANCES) for home in homes] == [INSTANCES] * 3
    assert homes[0].owners(1) == (0, 1, 2)


def test_requests_are_forwarded_where_a_process_may_lack_what_they_need():
    assert not EVERYWHERE.is_forwarded
    assert not Home("single", by_sequence=True).is_forwarded
    assert not Home("copy", count=2).is_forwarded
    assert Home("copy", count=2, by_sequence=True).is_forwarded
    assert Home("single", count=2).is_forwarded
    assert Home("spread", count=2).is_forwarded
