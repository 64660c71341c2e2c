import random

import pytest

from inferd.observe.stats import FINE_BUCKETS, fine_bucket
from inferd.ui.figures.percentiles import ERROR, add_to, added, difference, percentiles, take_from


def counted(values):
    found = {}
    for value in values:
        add_to(found, {fine_bucket(value): 1})
    return found


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_those_of_the_durations_within_the_error(seed):
    drawn = random.Random(seed)
    values = sorted(int(drawn.lognormvariate(14, 2)) for _ in range(1000))
    for level, found in zip((0.5, 0.95, 0.99), percentiles(counted(values)), strict=True):
        exact = values[int(level * 1000) - 1]
        assert abs(found - exact) <= ERROR * exact + 1


def test_percentiles_of_one_duration_are_that_duration():
    for value in (0, 7, 10**3, 10**6, 10**9):
        for found in percentiles({fine_bucket(value): 1}):
            assert abs(found - value) <= ERROR * value


def test_there_are_none_of_nothing():
    assert percentiles({}) == [None, None, None]


def test_what_has_been_counted_in_between_is_found():
    before = [0] * FINE_BUCKETS
    after = before.copy()
    assert difference(after, before) == {}
    for bucket in (0, 30, 31, 200, FINE_BUCKETS - 1):
        before[bucket], after[bucket] = 5, 7
    assert difference(after, before) == {0: 2, 30: 2, 31: 2, 200: 2, FINE_BUCKETS - 1: 2}


def test_durations_are_added_and_taken_out_again():
    found = added([{1: 2, 3: 4}, {3: 1, 5: 1}])
    assert found == {1: 2, 3: 5, 5: 1}
    take_from(found, {1: 2, 3: 4})
    assert found == {3: 1, 5: 1}
