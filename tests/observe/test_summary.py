import math

import pytest
from fields import with_fields

from inferd.core.request import InferRequest
from inferd.observe.statistics import Duration
from inferd.observe.summary import STEP_S, WINDOW_S, Summary, SummaryCounts


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def test_without_durations_a_quantile_is_not_a_number():
    assert all(math.isnan(value) for value in Summary().quantiles([0.5, 0.999]))


@pytest.mark.parametrize("ns", [0, 1, 17, 31])
def test_short_durations_are_exact(ns):
    summary = Summary()
    summary.add(ns)
    assert summary.quantiles([0.5]) == [ns]


@pytest.mark.parametrize("ns", [32, 1000, 12_345, 10**9 + 7, 2**40 - 1, 2**64 - 1])
def test_a_quantile_is_off_by_three_percent_at_most(ns):
    summary = Summary()
    summary.add(ns)
    assert summary.quantiles([0.5]) == [pytest.approx(ns, rel=0.032)]


def test_quantiles_stand_where_their_share_of_the_durations_ends():
    summary = Summary()
    for us in range(1, 1001):
        summary.add(us * 1000)
    levels = [0.5, 0.9, 0.99, 0.999]
    assert summary.quantiles(levels) == [pytest.approx(level * 1e6, rel=0.032) for level in levels]


def test_what_is_older_than_the_window_is_forgotten():
    clock = Clock()
    summary = Summary(clock)
    summary.add(1_000)
    for _ in range(20):
        clock.now_s += STEP_S
        assert not math.isnan(summary.quantiles([0.5])[0]) or clock.now_s >= WINDOW_S
    assert math.isnan(summary.quantiles([0.5])[0])
    summary.add(9_000)
    assert summary.quantiles([0.01]) == [pytest.approx(9_000, rel=0.032)]


def test_what_was_added_since_a_look_long_ago_counts():
    clock = Clock()
    summary = Summary(clock)
    clock.now_s = 10 * WINDOW_S
    summary.add(1_000)
    assert summary.quantiles([0.5]) == [pytest.approx(1_000, rel=0.032)]


def test_looking_often_keeps_few_copies():
    clock = Clock()
    summary = Summary(clock)
    for _ in range(1000):
        clock.now_s += 0.5
        summary.quantiles([0.5])
    assert len(summary._copies) <= WINDOW_S / STEP_S + 2


def test_counts_with_summaries_count_as_others_do_and_have_all_five():
    counts = SummaryCounts()
    counts.add_success(
        with_fields(
            InferRequest("m"),
            queued_ns=10,
            started_ns=20,
            computing_ns=25,
            computed_ns=41,
            ended_ns=44,
        )
    )
    assert counts.statistics("m", "1").inference_stats.success == Duration(1, 34)
    found = [summary.quantiles([0.5])[0] for summary in counts.summaries]
    assert found == [pytest.approx(34, rel=0.032), 10, 5, 16, 3]


def test_the_quantiles_of_requests_hold_all_that_their_sum_does():
    counts = SummaryCounts()
    given = with_fields(InferRequest("m"), queued_ns=10, started_ns=20, ended_ns=24, answered_ns=41)
    counts.add_success(given)
    assert counts.summaries[0].quantiles([0.5]) == [31]
    buckets, sum_ns = counts.histograms()[0]
    assert (buckets[(31).bit_length()], sum_ns) == (1, 31)


def test_hits_and_misses_of_the_cache_have_summaries_of_their_own():
    counts = SummaryCounts()
    counts.add_success(with_fields(InferRequest("m"), queued_ns=500, ended_ns=520, shared=True))
    counts.add_cache_miss(9)
    request, queue, *phases = counts.summaries
    assert request.quantiles([0.5]) == [20]
    assert queue.quantiles([0.5]) == [0]
    assert all(math.isnan(phase.quantiles([0.5])[0]) for phase in phases)
    assert [one.quantiles([0.5]) for one in counts.cache_summaries] == [[20], [9]]
    assert counts.statistics("m", "1").inference_stats.cache_hit == Duration(1, 20)
