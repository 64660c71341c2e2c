"""Percentiles and their intervals."""

import numpy as np
import pytest

from inferd.bench.figures import RESOLUTION, distribution, drift


def made(count, seed=0, rate=1000):
    random = np.random.default_rng(seed)
    latencies = (random.lognormal(0, 0.3, count) * 1e6).astype(np.int64)
    sent = (np.arange(count) * 1e9 / rate).astype(np.int64)
    return latencies, sent


def test_percentiles_are_those_of_the_latencies():
    latencies, sent = made(10_000)
    found = distribution(latencies, sent)
    assert found.count == 10_000
    for name in ("50", "90", "99", "99.9"):
        assert found.at(float(name)).value == np.quantile(latencies, float(name) / 100) / 1e3
    assert found.most_us == latencies.max() / 1e3 and found.mean_us == latencies.mean() / 1e3


def test_the_order_of_answers_is_of_no_matter():
    latencies, sent = made(5000)
    order = np.random.default_rng(1).permutation(5000)
    assert distribution(latencies, sent) == distribution(latencies[order], sent[order])


@pytest.mark.slow
def test_intervals_hold_the_true_value_about_as_often_as_they_say():
    """Of 60 measurements of one known distribution, 95 % are to hold it; 88 % is too few."""
    true = {one: np.exp(0.3 * z) * 1e3 for one, z in ((50, 0.0), (95, 1.6449), (99, 2.3263))}
    holding = dict.fromkeys(true, 0)
    for seed in range(60):
        found = distribution(*made(4000, seed))
        for one, value in true.items():
            low, high = found.at(one).low, found.at(one).high
            holding[one] += low * (1 - RESOLUTION) <= value <= high * (1 + RESOLUTION)
    assert min(holding.values()) >= 53


def test_slow_stretches_widen_the_interval():
    """A tenth of the requests are slow: spread evenly that is sure, in one stretch it is not."""
    latencies = np.full(10_000, 1_000_000)
    sent = np.arange(10_000) * 1_000_000
    even, stretch = latencies.copy(), latencies.copy()
    even[::10] = 5_000_000
    stretch[:1000] = 5_000_000
    sure, unsure = distribution(even, sent).at(90), distribution(stretch, sent).at(95)
    assert distribution(even, sent).at(95).error < 0.01 and sure.value > 0
    assert unsure.low < 1100 and unsure.high > 4900


def test_few_requests_tell_of_few_percentiles():
    assert list(distribution(*made(10)).percentiles) == ["p50"]
    assert list(distribution(*made(100)).percentiles) == ["p50", "p90", "p95"]
    assert "p99.9" in distribution(*made(2000)).percentiles
    assert distribution(*made(1)).at(50).value > 0
    assert distribution(*made(0)) is None


def test_a_curve_rises_to_the_slowest():
    found = distribution(*made(10_000))
    values = [value for _, value in found.curve]
    assert values == sorted(values) and values[-1] == pytest.approx(found.most_us, rel=1e-3)


def test_a_drift_is_by_how_much_the_second_half_is_slower():
    latencies, sent = made(1000)
    assert abs(drift(latencies, sent)) < 0.1
    latencies[500:] *= 2
    assert drift(latencies, sent) == pytest.approx(1, abs=0.2)
    assert drift(latencies[:10], sent[:10]) == 0
