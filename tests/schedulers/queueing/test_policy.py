import pytest
from fields import with_fields

from inferd.config.model import DynamicBatching, QueuePolicy
from inferd.core.request import InferRequest
from inferd.errors import Overloaded, Unavailable
from inferd.schedulers.queueing.policy import UNSET, Levels, full, timeout_us_of, too_late

DEFAULT = {"default_timeout_microseconds": 1000}
OVERRIDE = {"allow_timeout_override": True}


@pytest.mark.parametrize(
    ("policy", "own_us", "timeout_us"),
    [
        (UNSET, 0, 0),
        (UNSET, 1, 1),
        (UNSET, 2**64 - 1, 2**64 - 1),
        (QueuePolicy(), 5, 0),
        (QueuePolicy(**DEFAULT), 5, 1000),
        (QueuePolicy(**DEFAULT, **OVERRIDE), 0, 1000),
        (QueuePolicy(**DEFAULT, **OVERRIDE), 5, 5),
        (QueuePolicy(**DEFAULT, **OVERRIDE), 1001, 1000),
        (QueuePolicy(**OVERRIDE), 5, 0),  # as Triton: no default, nothing to override
    ],
)
def test_the_timeout_is_the_policys_or_a_shorter_one_it_allows(policy, own_us, timeout_us):
    assert timeout_us_of(policy, with_fields(InferRequest("m"), timeout_us=own_us)) == timeout_us


@pytest.mark.parametrize(
    ("priority", "level", "most"), [(0, 2, 20), (1, 1, 10), (2, 2, 20), (3, 3, 0), (4, 2, 20)]
)
def test_a_level_has_its_own_policy_and_what_names_none_is_of_the_default_level(
    priority, level, most
):
    levels = Levels(
        DynamicBatching(
            priority_levels=3,
            default_priority_level=2,
            default_queue_policy=QueuePolicy(),
            priority_queue_policy={n: QueuePolicy(max_queue_size=10 * n) for n in (1, 2)},
        )
    )
    assert levels.of(with_fields(InferRequest("m"), priority=priority)) == level
    assert levels.policy(level).max_queue_size == most


@pytest.mark.parametrize("batching", [None, DynamicBatching(), DynamicBatching((), 5)])
def test_without_levels_all_are_of_one(batching):
    levels = Levels(batching)
    assert levels.of(with_fields(InferRequest("m"), priority=7)) == 0
    assert levels.policy(0) is UNSET


def test_what_is_refused_says_why_and_only_a_full_queue_when_to_come_back():
    error = full("m", QueuePolicy(max_queue_size=7))
    assert isinstance(error, Overloaded) and "'m' is full: its max_queue_size is 7" in error.message
    assert "10000 requests wait" in full("m", QueuePolicy()).message
    late = too_late("m", 5)
    assert type(late) is Unavailable and "has waited for 5 microseconds" in late.message
