"""Goals as people write them, and what orders costs."""

import pytest

from inferd.errors import InvalidConfig
from inferd.tune.goal import Cost, Limit, read_goal


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("p99=20ms", (Limit("p99", 20.0),)),
        ("p50=500us, memory=2GB", (Limit("p50", 0.5), Limit("memory", 2e9))),
        ("memory=1.5GiB", (Limit("memory", 1.5 * 2**30),)),
        ("p95 = 0.25 s", (Limit("p95", 250.0),)),
        ("", ()),
    ],
)
def test_what_a_text_says(text, limits):
    found = read_goal(text).limits
    assert [one.what for one in found] == [one.what for one in limits]
    assert [one.most for one in found] == pytest.approx([one.most for one in limits])


@pytest.mark.parametrize(
    "text",
    ["p99", "p99=", "p99=20", "p98=20ms", "p99=-1ms", "p99=0ms", "memory=20ms", "p99=2GB", "x"],
)
def test_what_is_no_goal_is_refused_with_an_example(text):
    with pytest.raises(InvalidConfig, match="p99=20ms"):
        read_goal(text)


def test_a_limit_is_given_once():
    with pytest.raises(InvalidConfig, match="p99 twice"):
        read_goal("p99=20ms,p99=10ms")


def cost(per_s, p99_ms, memory=0.0):
    return Cost(per_s, {"p99": p99_ms}, memory)


def test_costs_are_ordered_by_whether_the_limits_hold_then_by_requests_a_second():
    goal = read_goal("p99=10ms,memory=1GB")
    most, fewer = cost(200, 9.9), cost(100, 1)
    slow, slower, large = cost(900, 11), cost(950, 12), cost(990, 1, 3e9)
    found = sorted([large, slower, fewer, slow, most], key=goal.rank)
    assert found == [most, fewer, slow, slower, large]


def test_without_limits_the_most_requests_are_best():
    assert min([cost(1, 1), cost(3, 99), cost(2, 0)], key=read_goal("").rank).per_s == 3
