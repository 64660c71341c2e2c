"""The search finds what measuring everything would find, by measuring a tenth."""

import pytest
from made_up import SPACE, START, costs_of
from recorded import run

from inferd.tune.goal import Cost, Goal, read_goal
from inferd.tune.search import LEAST_TRIALS, Search
from inferd.tune.settings import INSTANCES, Knob, Space

MODELS = range(100, 140)


def goals(costs):
    """Without limits, and with a latency that a quarter of the candidates hold."""
    ordered = sorted(cost.latency_ms["p99"] for cost in costs.values())
    return Goal(), read_goal(f"p99={ordered[len(ordered) // 4]:.4f}ms")


def test_a_tenth_of_the_candidates_is_enough():
    lost = []
    for seed in MODELS:
        costs = costs_of(seed)
        for goal in goals(costs):
            search = Search(SPACE, goal, START)
            best = run(search, costs.get)
            assert len(search.trials) <= len(SPACE.candidates) // 10
            all_best = min(costs.values(), key=goal.rank)
            assert goal.worst(best.cost) <= 1
            lost.append(all_best.per_s / best.cost.per_s - 1)
    assert sum(one <= 0.05 for one in lost) >= 0.9 * len(lost)
    assert sum(lost) / len(lost) < 0.02


def test_the_search_begins_with_what_is_in_force_and_measures_nothing_twice():
    costs = costs_of(1)
    proposed = []
    run(
        Search(SPACE, Goal(), (2, 1, 1, 2000, "worker")),
        lambda one: proposed.append(one) or costs[one],
    )
    assert proposed[0] == (2, 1, 1, 0, "worker")
    assert len(set(proposed)) == len(proposed) > LEAST_TRIALS


def test_candidates_that_cannot_be_measured_are_left_out():
    costs = costs_of(2)
    search = Search(SPACE, Goal(), START)
    best = run(search, lambda one: costs[one] if one[-1] == "worker" else None)
    assert best.candidate[-1] == "worker"
    assert START in search.failed


def test_if_none_can_be_measured_there_is_no_best():
    assert run(Search(SPACE, Goal(), START), lambda _one: None) is None


def test_if_no_limit_can_be_held_the_nearest_is_found():
    goal = read_goal("p99=1us")
    costs = costs_of(3)
    best = run(Search(SPACE, goal, START), costs.get)
    nearest = min(costs.values(), key=goal.worst)
    assert goal.worst(best.cost) <= 1.1 * goal.worst(nearest)


@pytest.mark.parametrize("count", [1, 3])
def test_a_small_space_is_measured_whole(count):
    space = Space([Knob(INSTANCES, tuple(range(1, count + 1)))])
    search = Search(space, Goal(), (1,))
    run(search, lambda one: Cost(float(one[0]), {"p99": 1.0}))
    assert len(search.trials) == count
    assert search.best.candidate == (count,)
