"""When requests are to be sent."""

import numpy as np
import pytest

from inferd.bench.arrivals import KINDS, arrivals, part_of, recorded


def test_a_constant_rate_has_even_gaps():
    times = arrivals("constant", 100, 2, 0)
    assert len(times) == 200 and set(np.diff(times)) == {10_000_000}


def test_a_poisson_process_has_exponential_gaps():
    times = arrivals("poisson", 1000, 20, 7)
    gaps = np.diff(times) / 1e9
    assert abs(len(times) - 20_000) < 5 * 20_000**0.5
    assert gaps.mean() == pytest.approx(0.001, rel=0.03)
    assert gaps.std() == pytest.approx(0.001, rel=0.05)  # as its mean: what exponential ones have
    assert times[-1] < 20e9


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_all_processes_are_the_whole(kind):
    times = arrivals(kind, 500, 1, 3)
    parts = [part_of(arrivals(kind, 500, 1, 3), part, 3) for part in range(3)]
    assert sorted(np.concatenate(parts)) == list(times)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_recorded_times_begin_at_once_and_may_be_sped_up():
    assert recorded([5, 5.5, 7], 1).tolist() == [0, 500_000_000, 2_000_000_000]
    assert recorded([5, 5.5, 7], 2).tolist() == [0, 250_000_000, 1_000_000_000]
