"""What is expected before anything is measured, in words."""

import pytest

from inferd.tune.expected import LATENCY, MEMORY, NAMES, RATE, Circumstances, Expected, effects_of
from inferd.tune.settings import BATCH, DELAY, INSTANCES, Knob, Space

SPACE = Space([Knob(INSTANCES, (1, 2)), Knob(BATCH, (1, 4, 16, 32)), Knob(DELAY, (0, 2000))])


@pytest.mark.parametrize("belief", [RATE, LATENCY, MEMORY])
def test_each_effect_has_a_size_and_an_error(belief):
    assert len(belief.effects) == len(belief.errors) == len(NAMES)
    assert min(belief.errors) > 0


def test_waiting_is_good_for_batches_that_are_filled_and_bad_for_others():
    for belief, sign in ((RATE, 1), (LATENCY, -1)):
        expected = Expected(SPACE, effects_of(SPACE, Circumstances(16, 2)), belief).mean
        at = {one: sign * mean for one, mean in zip(SPACE.candidates, expected, strict=True)}
        assert at[1, 16, 2000] > at[1, 16, 0] > at[1, 1, 0]
        assert at[1, 32, 2000] < at[1, 32, 0]


def test_more_instances_are_expected_to_need_more_memory():
    expected = Expected(SPACE, effects_of(SPACE, Circumstances(16, 2)), MEMORY).mean
    assert expected[SPACE.candidates.index((2, 1, 0))] > expected[0]
