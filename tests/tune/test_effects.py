"""What is known of settings before anything is measured."""

import numpy as np
import pytest

from inferd.tune.expected import NAMES, Circumstances, effects_of
from inferd.tune.settings import BATCH, DELAY, INSTANCES, PROCESS, THREADS, Knob, Space

SPACE = Space(
    [
        Knob(INSTANCES, (1, 2, 4)),
        Knob(THREADS, (1, 2)),
        Knob(BATCH, (1, 4, 16, 32)),
        Knob(DELAY, (0, 2000)),
        Knob(PROCESS, ("server", "worker")),
    ]
)


def effects(space=SPACE, **settings):
    named = {INSTANCES: 1, THREADS: 1, BATCH: 1, DELAY: 0, PROCESS: "server"} | settings
    row = space.candidates.index(tuple(named[knob.name] for knob in space.knobs))
    return dict(zip(NAMES, effects_of(space, Circumstances(16, 2))[row], strict=True))


def named(found):
    return {name for name, value in found.items() if value}


def test_the_smallest_settings_have_no_effect():
    assert named(effects()) == set()


@pytest.mark.parametrize(("batch", "effect"), [(4, "part"), (16, "fills"), (32, "vain")])
def test_waiting_fills_a_batch_of_all_requests_a_part_of_them_or_none(batch, effect):
    waiting = effects(batch=batch, delay_us=2000)
    assert named(waiting) == {effect, "joined", "rows"}
    assert waiting[effect] == pytest.approx(1.0)
    assert named(effects(batch=batch)) == {"joined", "rows"}


def test_instances_share_the_requests_and_the_cores():
    assert named(effects(instances=4, threads=2)) == {"instances", "threads", "busy"}
    assert effects(instances=4, threads=2)["busy"] == 2
    assert effects(instances=4, batch=32)["rows"] == effects(instances=4, batch=4)["rows"] == 0.5


def test_settings_that_a_model_has_not_have_no_effect():
    space = Space([Knob(INSTANCES, (1, 2))])
    np.testing.assert_array_equal(effects_of(space, Circumstances(16, 2))[0], 0)
    assert named(effects(space, instances=2)) == {"instances"}
