"""Models whose initialize loads others."""

import pytest

from inferd.backends.worker.commands import Loads
from inferd.errors import InvalidRequest


def refused(loads, model, wanted):
    with pytest.raises(InvalidRequest) as caught, loads.waiting(model, wanted):
        pass
    return caught.value.message


def test_models_may_wait_for_others():
    loads = Loads()
    with loads.waiting("a", "b"), loads.waiting("b", "c"), loads.waiting("a", "c"):
        pass


def test_who_has_what_it_waited_for_waits_no_more():
    loads = Loads()
    with loads.waiting("a", "b"):
        refused(loads, "b", "a")
    with loads.waiting("b", "a"):
        pass


def test_each_instance_of_a_model_waits_for_itself():
    loads = Loads()
    with loads.waiting("a", "b"):
        with loads.waiting("a", "b"):
            pass
        refused(loads, "b", "a")


def test_a_circle_is_named_from_the_one_that_would_close_it():
    loads = Loads()
    with loads.waiting("a", "x"), loads.waiting("a", "b"), loads.waiting("b", "c"):
        told = refused(loads, "c", "a")
    assert told.endswith("wait for each other: c -> a -> b -> c")
