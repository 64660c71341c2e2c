"""Which latencies are the server's."""

import pytest

from inferd.bench.saturation import GeneratorUse, Trust, verdict


def judge(median_us, *, cpu, waited=0.0, count=10_000, processes=1, **more):
    return verdict(GeneratorUse(1.0, cpu, waited, count, **more), median_us, processes)


def test_a_generator_that_does_little_is_trusted():
    """500 requests of 2 ms, for each of which it needs 50 us."""
    found = judge(2000, cpu=0.025, count=500)
    assert found.trust is Trust.FULL and found.own_us == pytest.approx(50, rel=0.02)


def test_a_generator_at_its_limit_says_so_and_names_the_way_out():
    found = judge(1000, cpu=0.95, processes=2)
    assert found.trust is Trust.NONE and "at its limit (95% of a core)" in found.reason
    assert "--processes 4" in found.reason


def test_a_quick_server_is_not_measured_by_a_slow_generator():
    """One request at a time to a server of 12 us: 40 us of 60 are the generator's."""
    found = judge(60, cpu=0.5, count=12_500)
    assert found.trust is Trust.NONE and "too quick" in found.reason


def test_cores_that_the_server_takes_count_as_the_generators_own():
    found = judge(1000, cpu=0.3, waited=0.6)
    assert found.trust is Trust.NONE and "waited for a core for 60%" in found.reason
    own = [judge(1000, cpu=0.1, waited=waited).own_us for waited in (0, 0.1)]
    assert own[1] > 2 * own[0]


def test_answers_that_are_taken_together_have_all_waited_for_a_core():
    """1,600 answers in 100 runs, each of which began 5 ms late: that is in each latency."""
    found = judge(15_000, cpu=0.08, waited=0.5, count=1600, runs=100)
    assert found.own_us == pytest.approx(5000 + 50 * 17 / 2)
    assert found.trust is Trust.NONE and "waited for a core for 50%" in found.reason
    alone = judge(15_000, cpu=0.08, waited=0.0, count=1600, runs=1600)
    assert alone.own_us == pytest.approx(50) and alone.trust is Trust.FULL


def test_between_the_two_the_generators_part_is_said():
    found = judge(300, cpu=0.4)
    assert found.trust is Trust.NOTABLE and "53 µs" in found.reason


def test_late_requests_are_said():
    assert "10% of the requests were sent late" in judge(5000, cpu=0.1, late_share=0.1).reason
    assert judge(5000, cpu=0.1, late_share=0.01).trust is Trust.FULL


def test_without_answers_nothing_is_known():
    assert judge(0, cpu=0.1, count=0).trust is Trust.NONE
