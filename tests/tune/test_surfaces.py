"""The search on recorded costs of real models: what it loses by measuring a tenth.

It is compared with an exhaustive search, which measures everything. Chance has its part in what
that finds best, as the same candidate measured again costs something else. So most models were
measured several times: both searches see half of the measurements, and what they have found is
compared by the other half.
"""

import itertools
import random
import statistics
from functools import cache

import pytest
from recorded import FOLDER, NAMES, run, surface_of

from inferd.tune.goal import Goal, Limit
from inferd.tune.search import Search


def goals(costs):
    """Return goals that all candidates hold, a tenth, a quarter, a half, ... of them."""
    slowest = sorted(cost.latency_ms["p99"] for cost in costs.values())
    memory = [cost.memory_bytes for cost in costs.values()]
    limits = [Limit("p99", slowest[int(len(slowest) * share)]) for share in (0.1, 0.25, 0.5, 0.75)]
    half = Limit("memory", (min(memory) + max(memory)) / 2)
    return [Goal(), *(Goal((one,)) for one in limits), Goal((half,)), Goal((limits[2], half))]


def losses(surface, seen, judge, starts, goals=goals):
    """Yield the requests a second that each search has lost, as shares; 1 if it holds no limit.

    The searches see costs, and others `judge` what was found.
    """
    for goal in goals(seen):
        best = min(seen, key=lambda one: goal.rank(seen[one]))
        if goal.worst(seen[best]) > 1:
            continue  # nothing holds both limits
        for start in starts:
            search = Search(surface.space, goal, start, surface.load)
            search.budget = len(surface.space.candidates) // 10
            trial = run(search, seen.get)
            assert len(search.trials) + len(search.failed) <= search.budget
            holds = goal.worst(trial.cost) <= 1
            yield 1 - judge[trial.candidate].per_s / judge[best].per_s if holds else 1.0


def no_goal(_costs):
    """Return the goal of those who want the most requests a second, and nothing else."""
    return [Goal()]


def starts_of(name, surface):
    """Return what was in force when the model was recorded, and three other candidates."""
    return [surface.start, *random.Random(name).sample(sorted(surface.costs, key=str), 3)]


@cache
def judged(name, goals=goals):
    """Return what the searches of a model have lost, in the eyes of the other measurements."""
    surface = surface_of(name)
    starts = starts_of(name, surface)
    ways = itertools.permutations(surface.halves, 2)
    return [one for seen, judge in ways for one in losses(surface, seen, judge, starts, goals)]


@cache
def plain(name):
    """Return what they have lost of the best of all means, whose luck they cannot have had."""
    surface = surface_of(name)
    return [*losses(surface, surface.costs, surface.costs, starts_of(name, surface))]


def within(lost):
    """Return the share of searches that have lost at most 5 %."""
    return sum(one <= 0.05 for one in lost) / len(lost)


@pytest.mark.parametrize("name", NAMES)
def test_a_surface_is_whole(name):
    surface = surface_of(name)
    assert surface.start in surface.space.candidates
    assert len(surface.costs) >= 0.9 * len(surface.space.candidates) >= 55
    assert (FOLDER / f"{name}.json").stat().st_size < 30_000


def test_searches_find_what_an_exhaustive_search_finds():
    lost = [one for name in NAMES for one in judged(name)]
    assert within(lost) >= 0.6
    assert statistics.median(lost) <= 0
    assert statistics.mean(lost) <= 0.05


def test_searches_without_a_goal_lose_less():
    lost = [one for name in NAMES for one in judged(name, no_goal)]
    assert within(lost) >= 0.65
    assert statistics.median(lost) <= 0
    assert statistics.mean(lost) <= 0.02


def test_searches_lose_little_even_of_what_chance_has_made_best():
    lost = [one for name in NAMES for one in plain(name)]
    assert within(lost) >= 0.5
    assert statistics.median(lost) <= 0.05
    assert statistics.mean(lost) <= 0.1
