"""Loads that are given up."""

import pytest

from inferd.core.load import Attempt
from inferd.engine.loading.attempts import Attempts


def test_giving_up_a_model_leaves_the_others():
    attempts = Attempts()
    ours, also, other = Attempt(), Attempt(), Attempt()
    with (
        attempts.running("m", ours),
        attempts.running("m", also),
        attempts.running("n", other),
    ):
        attempts.give_up("m")
        assert [one.is_wanted() for one in (ours, also, other)] == [False, False, True]
        attempts.give_up()
        assert not other.is_wanted()


def test_what_has_ended_is_not_given_up():
    attempts, attempt = Attempts(), Attempt()
    with pytest.raises(ZeroDivisionError), attempts.running("m", attempt):
        raise ZeroDivisionError
    attempts.give_up("m")
    attempts.give_up()
    assert attempt.is_wanted()


def test_a_model_that_loads_no_more_needs_no_place():
    attempts = Attempts()
    attempts.give_up("m")
    with attempts.running("m", Attempt()):
        pass
    assert not attempts._running
