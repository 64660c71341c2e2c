"""When processes that end are started again; times are those of the test."""

import itertools

import pytest

from inferd.fleet.restarts import (
    FIRST_S,
    FORGIVEN_S,
    LONGEST_PAUSE_S,
    LONGEST_S,
    MOST_FAILURES,
    Restarts,
)


def wait_of(restarts, now, served_s):
    """Return how long slot 0 waits when it ends at `now`."""
    restarts.ended(0, now, served_s=served_s)
    wait_s = 0.0
    while not restarts.due(now + wait_s):
        wait_s += 0.05
    return wait_s


@pytest.mark.parametrize(("served_s", "longest_s"), [(None, LONGEST_S), (1.0, LONGEST_PAUSE_S)])
def test_the_wait_doubles_up_to_a_limit(served_s, longest_s):
    restarts = Restarts()
    waits = [wait_of(restarts, now, served_s) for now in range(0, 1000, 100)]
    assert waits[0] <= FIRST_S + 0.05
    assert all(later >= earlier for earlier, later in itertools.pairwise(waits))
    assert longest_s - 0.1 <= waits[-1] <= longest_s + 0.1
    assert restarts.count == 10


def test_a_process_that_served_long_is_forgiven():
    restarts = Restarts()
    for now in range(0, 500, 100):
        wait_of(restarts, now, 1.0)
    assert wait_of(restarts, 1000, FORGIVEN_S) <= FIRST_S + 0.05


def test_processes_that_never_start_are_hopeless_and_those_that_served_are_not():
    restarts = Restarts()
    for at in range(MOST_FAILURES):
        assert not restarts.is_hopeless(float(at))
        restarts.ended(0, float(at), served_s=None)
    assert restarts.is_hopeless(float(MOST_FAILURES))
    assert not restarts.is_hopeless(100.0)
    restarts.served()
    assert not restarts.is_hopeless(float(MOST_FAILURES))
    served = Restarts()
    for at in range(MOST_FAILURES):
        served.ended(0, float(at), served_s=0.5)
    assert not served.is_hopeless(float(MOST_FAILURES))
