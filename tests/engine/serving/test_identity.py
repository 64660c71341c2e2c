import os
import subprocess
import sys
from dataclasses import replace

import pytest

from inferd.config.model import InstanceGroup, ModelConfig, VersionPolicy
from inferd.engine.serving.identity import Identity, random_identity, shared_identity
from inferd.errors import Unavailable

CONFIG = ModelConfig("m", backend="identity")


def own(value=b"own"):
    return Identity("m", lambda: value)


def settled(identity):
    identity.settle()
    return identity


def test_what_nobody_asked_about_is_unknown():
    assert settled(Identity())() is None


def test_what_takes_long_is_found_out_once():
    calls = []
    identity = Identity("m", lambda: calls.append(1) or b"found")
    assert identity() is None
    assert settled(settled(identity))() == b"found"
    assert calls == [1]


def test_files_that_cannot_be_read_leave_it_unknown(caplog):
    def read():
        raise PermissionError(13, "Permission denied", "/a/path")

    assert settled(Identity("m", read))() is None
    assert caplog.messages == ["answers of model 'm' are not kept; its files: Permission denied"]


def test_files_that_changed_meanwhile_leave_it_unknown(caplog):
    assert settled(Identity("m", lambda: None))() is None
    assert "they changed while it was loaded" in caplog.text


def test_an_ensemble_is_what_serves_its_steps_now():
    steps = [settled(own(b"a")), settled(own(b"b"))]
    identity = settled(Identity("e", lambda: b"own", steps, lambda: steps))
    first = identity()
    assert first == identity()
    steps[1] = settled(own(b"c"))
    assert identity() not in (first, None)
    steps.reverse()
    assert len({first, identity()}) == 2


def test_an_ensemble_finds_out_about_its_steps():
    steps = [own(b"a")]
    identity = Identity("e", lambda: b"own", steps, lambda: steps)
    assert identity() is None
    assert settled(identity)() is not None


@pytest.mark.parametrize("steps", [[Identity()], [own()]])
def test_an_ensemble_with_a_step_that_is_unknown_is_unknown(steps):
    assert settled(Identity("e", lambda: b"own", [], lambda: steps))() is None


def test_an_ensemble_without_its_steps_is_unknown():
    def find():
        msg = "gone"
        raise Unavailable(msg)

    assert settled(Identity("e", lambda: b"own", [], find))() is None


def test_each_load_is_another():
    assert random_identity() != random_identity()


def test_the_same_configuration_and_files_are_the_same_model():
    assert shared_identity(CONFIG, 1, b"f") == shared_identity(replace(CONFIG), 1, b"f")
    many = replace(
        CONFIG,
        instance_group=(InstanceGroup("g", "KIND_CPU", 3),),
        version_policy=VersionPolicy(latest=2),
    )
    assert shared_identity(many, 1, b"f") == shared_identity(CONFIG, 1, b"f")


IN_A_PROCESS = """
from inferd.config.pbtxt import parse_pbtxt
from inferd.engine.serving.identity import shared_identity

text = 'name: "m" backend: "b" max_batch_size: 8 response_cache { enable: true }'
text += "".join('parameters { key: "%s" value { string_value: "x" } }' % key for key in "abcdef")
print(shared_identity(parse_pbtxt(text, "m"), 1, b"f").hex())
"""


def test_the_same_model_is_the_same_in_every_process():
    told = {
        subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1
    assert len(told.pop()) == 65


def test_another_name_version_file_or_setting_is_another_model():
    told = {
        shared_identity(CONFIG, 1, b"f"),
        shared_identity(CONFIG, 2, b"f"),
        shared_identity(CONFIG, 1, b"g"),
        shared_identity(replace(CONFIG, name="n"), 1, b"f"),
        shared_identity(replace(CONFIG, parameters={"a": "b"}), 1, b"f"),
    }
    assert len(told) == 5
