"""Which versions run in workers because they crashed the server, and how loads are marked."""

import os

import pytest

from inferd.backends.identity import IdentityBackend
from inferd.backends.worker.hosting import HostedBackend
from inferd.config.model import ModelConfig
from inferd.engine.loading.homes import isolated, marked_load
from inferd.observe.crash.mark import ModelMarks
from inferd.observe.crash.record import CrashRecord, open_private, read_record

HOSTED = HostedBackend("inferd.backends.identity:IdentityBackend", ["numpy"], "server")


def config_of(**parameters):
    return ModelConfig("m", backend="onnxruntime", parameters=parameters)


def test_a_version_that_says_nothing_moves_into_a_worker(caplog):
    config = isolated(config_of(a="b"), 3, HOSTED)
    assert config == config_of(a="b", inferd_process="worker")
    assert HOSTED.is_in_worker(config)
    assert "model 'm' version 3: it runs in a worker, because the server crashed" in caplog.text


@pytest.mark.parametrize(
    ("config", "backend", "why"),
    [
        (config_of(inferd_process="server"), HOSTED, "says inferd_process server"),
        (config_of(), IdentityBackend(), "backend 'onnxruntime' has no workers"),
    ],
)
def test_what_cannot_move_stays_with_a_warning(caplog, config, backend, why):
    assert isolated(config, 3, backend) is None
    assert f"the server crashed twice while it ran; it stays there, because {why[:20]}" in (
        caplog.text.replace("its configuration ", "")
    )


def test_a_load_in_the_server_is_marked_and_one_in_a_worker_is_not(tmp_path):
    descriptor = open_private(tmp_path / "a.record")
    marks = ModelMarks(CrashRecord(descriptor), "m", "3")
    with marked_load(config_of(), HOSTED, marks):
        [run] = read_record(descriptor).runs
        assert (run.model, run.version, run.is_load) == ("m", "3", True)
    with marked_load(config_of(inferd_process="worker"), HOSTED, marks):
        assert not read_record(descriptor).runs
    with pytest.raises(OSError, match="no"), marked_load(config_of(), IdentityBackend(), marks):
        raise OSError("no")
    assert not read_record(descriptor).runs
    os.close(descriptor)
