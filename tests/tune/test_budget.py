"""How long a search may take."""

import itertools

from inferd.tune.budget import TimeBudget


class Clock:
    """A clock that is turned by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def measured(budget, clock, *durations):
    """Return how many measurements, of these seconds, fit."""
    for count, seconds in enumerate(durations):
        if not budget.fits:
            return count
        with budget.measuring():
            clock.now += seconds
    return len(durations)


def test_measurements_begin_while_one_as_long_as_the_longest_fits():
    clock = Clock()
    assert measured(TimeBudget(20, clock), clock, *[5] * 9) == 4
    assert measured(TimeBudget(20, clock), clock, 5, 8, *[1] * 9) == 2
    assert measured(TimeBudget(20, clock), clock, 5, 6, *[1] * 9) == 6


def test_the_first_fits_always():
    clock = Clock()
    budget = TimeBudget(10, clock)
    clock.now += 11
    assert measured(budget, clock, 1, 1) == 1


def test_without_a_limit_all_fit():
    clock = Clock()
    assert measured(TimeBudget(None, clock), clock, *itertools.repeat(1000, 50)) == 50
