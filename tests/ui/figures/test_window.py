import pytest

from inferd.observe.stats import Counts, Phases
from inferd.ui.figures.window import NOTHING, MinuteWindow, Sums, sums_of

NOW = 1_800_000_000


def sums(success):
    return Sums(success, success, 2 * success, 3 * success, 4 * success, 5 * success)


def test_the_rate_is_that_of_the_last_seconds():
    window = MinuteWindow(NOW)
    for second in range(1, 121):
        window.add(NOW + second, sums(100 * second), {7: 100})
        if second >= 10:
            assert window.rate(NOW + second) == pytest.approx(100, rel=0.11)
    assert window.rate(NOW + 135) == pytest.approx(0, abs=40)


def test_a_new_version_has_its_rate_at_once():
    window = MinuteWindow(NOW)
    window.add(NOW + 1, sums(50), {7: 50})
    assert window.rate(NOW + 1) == 50
    assert not window.is_empty


def test_only_the_last_minute_counts():
    window = MinuteWindow(NOW)
    window.add(NOW + 1, sums(1000), {9: 1000})
    for second in range(2, 60):
        window.move(NOW + second)
    assert (window.last_minute().success, window.durations) == (1000, {9: 1000})
    window.add(NOW + 60, sums(1001), {7: 1})
    for second in range(61, 70):
        window.move(NOW + second)
    assert window.last_minute() == Sums(1, 1, 2, 3, 4, 5)
    assert window.durations == {7: 1}
    for second in range(70, 130):
        window.move(NOW + second)
    assert window.is_empty
    assert (window.last_minute(), window.durations) == (NOTHING, {})


def test_a_window_that_nobody_moved_for_long_is_empty():
    window = MinuteWindow(NOW)
    window.add(NOW + 1, sums(10), {9: 10})
    assert window.move(NOW + 500)
    assert window.is_empty
    assert window.durations == {}
    window.add(NOW + 501, sums(13), {7: 3})
    assert (window.last_minute().success, window.durations) == (3, {7: 3})


def test_what_was_counted_before_is_not_of_the_last_minute():
    window = MinuteWindow(NOW, sums(1000))
    window.add(NOW + 1, sums(1001), {7: 1})
    assert window.last_minute().success == 1


def test_it_says_when_something_is_seen_otherwise():
    window = MinuteWindow(NOW)
    assert [window.move(NOW + second) for second in range(1, 12)].count(True) == 2


def test_sums_are_of_requests_that_ran_and_hits_are_only_successes():
    counts = Counts()
    for rows, count in ((counts.alone, 2), (counts.shared_requests, 3)):
        phases = rows[1] = Phases()
        phases.count = count
        phases.queue_ns, phases.input_ns, phases.infer_ns = 10, 20, 30
        phases.output_ns, phases.handover_ns = 40, 50
    counts.success_count = 9
    assert sums_of(counts) == Sums(9, 5, 20, 40, 60, 80, 100)
