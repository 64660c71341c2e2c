"""What candidates are expected to cost, before and after others were measured."""

import numpy as np
import pytest

from inferd.tune.expected import NAMES, Belief, Expected
from inferd.tune.settings import INSTANCES, PROCESS, Knob, Space

SPACE = Space([Knob(INSTANCES, (1, 2, 3, 4, 6, 8)), Knob(PROCESS, ("server", "worker"))])
NONE = np.zeros((len(SPACE.candidates), len(NAMES)))
FLAT = Belief((0.0,) * len(NAMES), (0.0,) * len(NAMES), 0.3, 0.1, 0.1, 1.0, 0.01)
ROWS = np.arange(len(SPACE.candidates))


def test_what_was_measured_is_expected_again_and_neighbours_are_like_it():
    measured, values = np.array([0, 10]), np.array([3.0, 4.0])
    mean, error = Expected(SPACE, NONE, FLAT).after(measured, values, ROWS)
    assert mean[measured] == pytest.approx(values, abs=0.02)
    assert error[measured].max() < 0.05 < error[4]
    assert mean[0] < mean[2] < mean[8] < mean[10]


def test_an_effect_that_is_known_is_expected_where_nothing_was_measured():
    effects = NONE.copy()
    effects[:, 0] = [one[1] == "worker" for one in SPACE.candidates]
    sure = FLAT._replace(effects=(-0.5, *FLAT.effects[1:]))
    mean, _ = Expected(SPACE, effects, sure).after(np.array([0]), np.array([2.0]), ROWS)
    assert mean[1] == pytest.approx(1.5, abs=0.02)


def test_an_effect_of_unknown_size_is_learned_from_one_place_for_all():
    effects = NONE.copy()
    effects[:, 0] = [one[1] == "worker" for one in SPACE.candidates]
    unsure = FLAT._replace(errors=(1.0, *FLAT.errors[1:]))
    seen, values = np.array([0, 1]), np.array([2.0, 1.0])
    mean, _ = Expected(SPACE, effects, unsure).after(seen, values, ROWS)
    assert (mean[1::2] - mean[::2] < -0.5).all()


def test_surprises_make_everything_less_certain():
    expected, seen = Expected(SPACE, NONE, FLAT), np.array([0, 2, 4])
    _, calm = expected.after(seen, np.array([2.0, 2.0, 2.0]), ROWS)
    _, stormy = expected.after(seen, np.array([2.0, 5.0, 1.0]), ROWS)
    assert (stormy > calm).all()
