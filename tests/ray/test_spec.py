import pytest
from simulated import group

from inferd.ray.spec import ScalingRule, replicas_for


def test_how_many_there_are_makes_no_other_revision():
    assert group(least=1).revision(0) == group(least=3, most=5, surge=2).revision(0)


@pytest.mark.parametrize(
    "other",
    [
        {"models": ("/other",)},
        {"arguments": ("--workers=2",)},
        {"environment": {"A": "b"}},
        {"cpus": 2.0},
        {"gpus": 1.0},
    ],
)
def test_what_a_replica_is_made_of_makes_another_revision(other):
    assert group(**other).revision(0) != group().revision(0)


def test_a_generation_makes_another_revision():
    assert group().revision(1) != group().revision(0)


def test_a_tenth_too_much_is_borne():
    assert [replicas_for(load, 2.0) for load in (0.0, 0.1, 2.0, 2.2, 2.3, 6.0)] == [
        0,
        1,
        1,
        1,
        2,
        3,
    ]


def test_a_number_without_bounds_is_fixed():
    assert ScalingRule(least=2, most=2).is_fixed
    assert not ScalingRule(least=0, most=1).is_fixed
