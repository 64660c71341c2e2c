"""What backends and instances promise, and what is taken of those that say nothing."""

from inferd.core.rows import UNKNOWN
from inferd.core.traits import InstanceTraits, Traits, traits_of


class Silent:
    """An instance that says nothing."""


class Telling:
    traits = InstanceTraits(is_bounded=False)


def test_a_backend_that_promises_nothing_is_run_in_threads_one_request_at_a_time():
    assert not any(getattr(Traits(), name) for name in Traits.__struct_fields__)


def test_an_instance_tells_its_traits_and_one_that_says_nothing_has_those_of_its_backend():
    assert traits_of(Telling()) is Telling.traits
    assert traits_of(Silent()) == InstanceTraits(True, False, None, UNKNOWN)
