"""Instances are opened only where there is room for them."""

import pytest

from inferd.backends.identity import IdentityBackend
from inferd.config.model import InstanceGroup, ModelConfig
from inferd.core.interfaces import Placement
from inferd.engine.loading.opening import Machine, open_all
from inferd.errors import Unavailable
from inferd.repository.layout import placements

ON_GPUS = InstanceGroup(name="g", kind="KIND_GPU", count=1, gpus=(0, 1))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({1: 0.7}, "of the memory of GPU 1 0.750 is in use, .* allows 0.7 for a load"),
        ({0: 0}, "GPU 0"),
    ],
)
def test_nothing_is_opened_on_a_gpu_that_is_fuller_than_its_limit(limits, words):
    opened = []
    machine = Machine({}, limits, [0.25, 0.75].__getitem__)
    config = ModelConfig("m", instance_group=(ON_GPUS,))
    places, _ = placements(config, 2)
    with pytest.raises(Unavailable, match=f"^model 'm': .*{words}"):
        open_all(config, IdentityBackend(), opened.append, (), machine, places)
    assert opened == []


def test_limits_that_are_not_reached_or_cannot_be_known_hold_nothing_up(caplog):
    places = [Placement("g_0", gpu=True, device_id=0), Placement("g_1", gpu=True, device_id=1)]
    config = ModelConfig("m")
    Machine({}, {0: 0.25, 5: 0.0}, [0.25, 0.75].__getitem__).check_room(config, places)
    Machine({}, {0: 0.0}, [0.25].__getitem__).check_room(config, [Placement("g_0")])
    assert caplog.records == []
    Machine({}, {1: 0.0}, lambda _: None).check_room(config, places)
    assert "GPU 1 does not tell" in caplog.text
