import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import InvalidConfig, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd_convert.caffe2.backend import Caffe2Backend

DATA = Path(__file__).parents[2] / "data" / "caffe2"
CPU = Placement("cnn_0")
CONFIG = ModelConfig("cnn")
INPUT = ModelInput("data", DataType.FP32, (3, 32, 32))


@pytest.fixture
def files(tmp_path):
    """Version 1 of the network Caffe2 wrote."""
    folder = tmp_path / "cnn" / "1"
    folder.mkdir(parents=True)
    for name in ("model.netdef", "init_model.netdef"):
        shutil.copy(DATA / name, folder / name)
    return ModelFiles(folder.parent, 1, folder, folder / "model.netdef")


def test_a_model_without_configuration_is_completed_from_its_weights(files):
    completed = Caffe2Backend().complete(files, CONFIG)
    assert completed.max_batch_size == 4
    assert completed.input == (ModelInput("data", DataType.FP32, (3, -1, -1)),)
    assert completed.output == (ModelOutput("prob", DataType.FP32, (10,)),)


def test_the_configuration_gives_the_dims(files):
    completed = Caffe2Backend().complete(files, replace(CONFIG, input=(INPUT,), max_batch_size=8))
    assert completed.input == (INPUT,)
    assert completed.output == (ModelOutput("prob", DataType.FP32, (10,)),)


def test_an_instance_answers_as_caffe2_did(files):
    backend = Caffe2Backend()
    config = backend.complete(files, replace(CONFIG, input=(INPUT,), max_batch_size=8))
    instance = backend.open(files, config, CPU)
    given = Tensor.from_numpy("data", np.load(DATA / "input.npy"), DataType.FP32)
    [answer] = instance.execute([InferRequest("cnn", inputs=[given])])
    assert np.abs(answer.outputs[0].numpy() - np.load(DATA / "output.npy")).max() < 2e-5
    instance.close()


def test_instances_share_one_conversion(files):
    backend = Caffe2Backend()
    config = backend.complete(files, replace(CONFIG, input=(INPUT,), max_batch_size=8))
    first, second = (backend.open(files, config, CPU) for _ in range(2))
    assert first._loaded is second._loaded


def test_a_missing_file_of_weights_is_named(files):
    (files.version_folder / "init_model.netdef").unlink()
    with pytest.raises(InvalidConfig, match=r"no file '1/init_model.netdef'"):
        Caffe2Backend().complete(files, CONFIG)


def test_a_model_whose_dims_nothing_tells_says_what_to_do(files, netdef):
    (files.version_folder / "model.netdef").write_bytes(netdef("Relu", "x", "y"))
    with pytest.raises(InvalidConfig, match=r"input 'x': config.pbtxt has to list it"):
        Caffe2Backend().complete(files, CONFIG)


def test_an_input_the_net_has_not_is_named(files):
    wrong = replace(INPUT, name="image")
    with pytest.raises(InvalidConfig, match="has input 'image', the file has only 'data'"):
        Caffe2Backend().complete(files, replace(CONFIG, input=(wrong,)))


def test_an_operator_that_cannot_be_converted_is_named(files, netdef):
    (files.version_folder / "model.netdef").write_bytes(netdef("Int8Conv", "data", "y"))
    text = "model 'cnn': operators .*: '1/model.netdef', operator 1 of 1 .'Int8Conv' → 'y'.$"
    with pytest.raises(Unsupported, match=text):
        Caffe2Backend().complete(files, CONFIG)


@pytest.mark.parametrize("name", ["model.netdef", "init_model.netdef"])
def test_a_file_of_another_format_is_refused_by_name(files, name):
    (files.version_folder / name).write_bytes(b"PK\x03\x04" + os.urandom(64))
    with pytest.raises(InvalidConfig, match=f"model 'cnn': '1/{name}' is no Caffe2 net"):
        Caffe2Backend().complete(files, CONFIG)


def test_a_model_file_may_have_another_name(files):
    folder = files.version_folder
    for prefix in ("", "init_"):
        (folder / f"{prefix}model.netdef").rename(folder / f"{prefix}net.pb")
    moved = ModelFiles(files.folder, 1, folder, folder / "net.pb")
    assert Caffe2Backend().complete(moved, CONFIG).output[0].name == "prob"


@pytest.fixture
def netdef():
    """netdef(type, input, output) is a net of one operator."""

    def write(kind, reads, gives):
        parts = [(1, reads), (2, gives), (4, kind)]
        operator = b"".join(_field(number, text.encode()) for number, text in parts)
        return _field(2, operator) + _field(7, reads.encode()) + _field(8, gives.encode())

    return write


def _field(number, content):
    return bytes([number << 3 | 2, len(content)]) + content
