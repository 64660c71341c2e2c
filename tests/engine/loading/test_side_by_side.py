"""Instances that are opened at once, and what becomes of the others when one fails."""

import threading

import pytest

from inferd.engine.loading.side_by_side import open_side_by_side

PATIENCE_S = 30


class Opener:
    """What opens an instance, itself; `wait` holds it up, a `failure` is raised."""

    def __init__(self, failure=None, wait=None):
        self.failure, self.wait = failure, wait
        self.was_begun = self.is_closed = False

    def __call__(self):
        self.was_begun = True
        if self.wait is not None:
            self.wait()
        if self.failure is not None:
            raise self.failure
        return self

    def close(self):
        self.is_closed = True


def test_as_many_are_opened_at_once_as_there_are_threads():
    met = threading.Barrier(3, timeout=PATIENCE_S)
    openers = [Opener(wait=met.wait) for _ in range(6)]
    assert open_side_by_side(openers, 3) == openers


def test_one_thread_opens_them_in_turn_and_without_threads_of_its_own():
    seen = []
    openers = [Opener(wait=lambda: seen.append(threading.current_thread())) for _ in range(3)]
    assert open_side_by_side(openers, 1) == openers
    assert seen == [threading.current_thread()] * 3
    assert open_side_by_side([], 4) == []


def test_when_one_fails_those_under_way_are_closed_and_no_more_are_begun():
    met = threading.Barrier(2, timeout=PATIENCE_S)
    failed = threading.Event()
    bad = Opener(ArithmeticError("no"), met.wait)
    good = Opener(wait=lambda: (met.wait(), failed.wait(0.05)))
    rest = [Opener() for _ in range(3)]
    with pytest.raises(ArithmeticError, match=r"^no$"):
        open_side_by_side([good, bad, *rest], 2)
    assert good.is_closed
    assert not any(one.was_begun and not one.is_closed for one in rest)


def test_of_several_failures_the_first_instance_is_told():
    met = threading.Barrier(2, timeout=PATIENCE_S)
    openers = [Opener(ArithmeticError(str(n)), met.wait) for n in range(2)]
    with pytest.raises(ArithmeticError, match=r"^0$"):
        open_side_by_side(openers, 2)
