"""Loads as people write them."""

import pytest

from inferd.bench.plan import Point
from inferd.bench.sweep import concurrencies, numbers, parts, rates, speeds, total_seconds
from inferd.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8", [8]),
        ("1,2, 9", [1, 2, 9]),
        ("1:64", [1, 2, 4, 8, 16, 32, 64]),
        ("3:10", [3, 6]),
        ("10:30:10", [10, 20, 30]),
        ("0.1:0.3:0.1", [0.1, 0.2, 0.3]),
        ("1:2,50", [1, 2, 50]),
        ("5:5", [5]),
    ],
)
def test_numbers_are_lists_and_ranges(text, found):
    assert numbers(text, "--rate") == pytest.approx(found)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1:", "5:1", "0", "-1", "0:5", "1:9:0", "1:2:3:4", "nan", "inf", "1:1000:1", "1e10"],
)
def test_what_is_none_is_refused_by_the_options_name(text):
    with pytest.raises(InvalidConfig, match="--rate"):
        numbers(text, "--rate")


def test_a_concurrency_is_whole():
    base = Point(seconds=2, warmup_s=1)
    assert [one.concurrency for one in concurrencies("1:4", base)] == [1, 2, 4]
    assert [one.rate for one in rates("0.5", base)] == [0.5]
    assert total_seconds(concurrencies("1:4", base)) == 9
    with pytest.raises(InvalidConfig, match="whole number"):
        concurrencies("1.5", base)


@pytest.mark.parametrize(("concurrency", "count"), [(1, 1), (2, 4), (7, 3), (64, 2)])
def test_processes_share_what_is_under_way(concurrency, count):
    shares = [one.concurrency for one in parts(Point(concurrency=concurrency), count)]
    assert sum(shares) == concurrency and max(shares) - min(shares) <= 1
    assert len(shares) == min(count, concurrency) and min(shares) > 0


def test_processes_share_a_rate_and_its_connections():
    found = parts(Point(rate=100, connections=9), 3)
    assert [(one.part, one.parts, one.connections) for one in found] == [
        (0, 3, 3),
        (1, 3, 3),
        (2, 3, 3),
    ]


def test_recorded_requests_are_sent_at_each_speed():
    slow, quick = speeds("1,4", [10.0, 10.5, 12.0], Point(connections=7))
    assert slow.offsets_s == quick.offsets_s == [0.0, 0.5, 2.0]
    assert (slow.speed, quick.speed) == (1, 4)
    assert (slow.name, quick.name) == ("1 x", "4 x")
    assert slow.seconds > 2 > quick.seconds > 0.5
    assert quick.rate > slow.rate > 1
    assert slow.connections == 7 and not slow.warmup_s


def test_without_times_there_is_no_speed():
    with pytest.raises(InvalidConfig, match="have no times; a payload log has them"):
        speeds("1", [], Point())
