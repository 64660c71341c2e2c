"""What comparisons may cost."""

import pytest

from inferd.schedulers.comparing.budget import MOST_RUN_NS, SAVED_NS, SHARE, ComparisonBudget

MS = 1_000_000


def earned(took_ns, count, rows=1):
    budget = ComparisonBudget()
    for _ in range(count):
        budget.earn(took_ns, rows)
    return budget


def test_before_any_request_has_run_nothing_is_allowed():
    budget = ComparisonBudget()
    assert not budget.has_some
    assert not budget.allows(1)


@pytest.mark.parametrize("rows", [1, 3])
def test_comparisons_get_their_share_of_what_requests_took(rows):
    budget = earned(MS, int(2 * rows / SHARE), rows)
    assert budget.allows(2 * rows * rows)
    assert not budget.allows(2 * rows * rows + 1)


def test_what_was_spent_is_earned_again_first():
    budget = earned(MS, 100)
    budget.spend(200 * MS)
    assert not budget.has_some
    for _ in range(1600):
        budget.earn(MS, 1)
    assert budget.has_some


def test_little_is_saved_up_but_enough_for_the_smallest_comparison():
    quick = earned(MS, 1_000_000)
    assert quick.allows(SAVED_NS // MS)
    assert not quick.allows(SAVED_NS // MS + 1)
    slow = earned(1000 * MS, 1000)
    assert slow.allows(4)
    assert not slow.allows(5)


def test_a_run_is_no_longer_than_a_second_unless_two_rows_are():
    assert earned(MS, 10).most_rows() == MOST_RUN_NS // MS
    assert earned(3000 * MS, 10).most_rows() == 2
    assert ComparisonBudget().most_rows() == 2


def test_an_execution_without_a_time_earns_nothing():
    budget = earned(0, 10)
    assert not budget.has_some
    assert budget.most_rows() == 2
