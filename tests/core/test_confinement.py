"""What --confine-workers and --worker-writable say; what it does is in test_confined.py."""

import pytest

from inferd import system
from inferd.core.confinement import Confinement, confinement_of
from inferd.errors import InvalidConfig

MISSING = system.missing_for_confinement()


def test_devices_of_gpus_are_written_where_a_model_is_on_one():
    assert Confinement().at("CPU") == Confinement()
    assert set(Confinement().at("GPU").writable) >= set(Confinement().writable)


def test_what_may_be_written_must_be_there_and_makes_no_sense_alone(tmp_path):
    with pytest.raises(InvalidConfig, match="is for processes that --confine-workers=on confines"):
        confinement_of(is_on=False, writable=("/tmp",))
    told = "there is no such file" if not MISSING else "needs Linux"
    with pytest.raises(InvalidConfig, match=told):
        confinement_of(is_on=True, writable=(str(tmp_path / "missing"),))
