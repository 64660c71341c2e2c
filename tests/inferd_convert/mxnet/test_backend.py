import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import BackendContext, ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import InferdError, InvalidConfig, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd_convert.mxnet.backend import MxnetBackend, params_file

DATA = Path(__file__).parents[2] / "data" / "mxnet"
CPU = Placement("m_0")
CONFIG = ModelConfig("m")


@pytest.fixture
def lay(tmp_path):
    """lay(name) makes version 1 of a model of the files MXNet wrote."""

    def make(name):
        folder = tmp_path / "m" / "1"
        folder.mkdir(parents=True)
        for ending in ("-symbol.json", "-0000.params"):
            shutil.copy(DATA / f"{name}{ending}", folder / f"model{ending}")
        return ModelFiles(folder.parent, 1, folder, folder / "model-symbol.json")

    return make


def infer(files, config, **arrays):
    backend = MxnetBackend()
    config = backend.complete(files, config)
    instance = backend.open(files, config, CPU)
    inputs = [Tensor.from_numpy(one.name, arrays[one.name], one.datatype) for one in config.input]
    [answer] = instance.execute([InferRequest("m", inputs=inputs)])
    instance.close()
    return {output.name: output.numpy() for output in answer.outputs}


def test_a_model_without_configuration_is_completed_from_its_weights(lay):
    completed = MxnetBackend().complete(lay("cnn"), CONFIG)
    assert completed.max_batch_size == 4
    assert completed.input == (ModelInput("data", DataType.FP32, (3, -1, -1)),)
    assert completed.output == (ModelOutput("softmax", DataType.FP32, (10,)),)


def test_an_instance_answers_as_mxnet_did(lay):
    found = infer(lay("cnn"), CONFIG, data=np.load(DATA / "input.npy"))
    np.testing.assert_allclose(found["softmax"], np.load(DATA / "output.npy"), atol=1e-6)


def test_the_configuration_gives_types_and_dims_and_names(lay):
    inputs = tuple(ModelInput(f"INPUT{n}", DataType.INT32, (-1, 2)) for n in (0, 1))
    config = replace(
        CONFIG, input=inputs, output=(ModelOutput("OUTPUT1_output", DataType.INT32, (-1, 2)),)
    )
    a, b = np.int32([[1, 2**31 - 1]]), np.int32([[3, 1]])
    found = infer(lay("addsub"), config, INPUT0=a, INPUT1=b)
    assert found["OUTPUT1_output"].tolist() == [[-2, 2**31 - 2]]


def test_a_model_whose_dims_nothing_tells_says_what_to_do(lay):
    with pytest.raises(InvalidConfig, match=r"input 'INPUT0': config.pbtxt has to list it"):
        MxnetBackend().complete(lay("addsub"), CONFIG)


def test_the_file_of_parameters_belongs_to_the_symbol(tmp_path):
    symbol = tmp_path / "net-symbol.json"
    assert params_file(symbol).name == "net-0000.params"
    for name in ("net-0007.params", "net-0012.params", "net-best.params", "other-0099.params"):
        (tmp_path / name).touch()
    assert params_file(symbol).name == "net-0012.params"
    (tmp_path / "net-0000.params").touch()
    assert params_file(symbol).name == "net-0000.params"


def test_a_missing_file_of_parameters_is_named(lay):
    files = lay("cnn")
    (files.version_folder / "model-0000.params").unlink()
    with pytest.raises(InvalidConfig, match=r"no file '1/model-0000.params'"):
        MxnetBackend().complete(files, CONFIG)


@pytest.mark.parametrize("name", ["model-symbol.json", "model-0000.params"])
def test_a_file_of_another_format_is_refused_by_name(lay, name):
    files = lay("cnn")
    (files.version_folder / name).write_bytes(b"PK\x03\x04" + os.urandom(64))
    with pytest.raises(InvalidConfig, match=f"model 'm': '1/{name}' is no "):
        MxnetBackend().complete(files, CONFIG)


def test_an_operator_that_cannot_be_converted_is_named(lay):
    files = lay("cnn")
    symbol = files.file.read_text().replace('"op": "Activation"', '"op": "Custom"')
    files.file.write_text(symbol)
    text = r"'1/model-symbol.json', node 9 of 27 .'Custom' 'relu1'"
    with pytest.raises(Unsupported, match=text):
        MxnetBackend().complete(files, CONFIG)


def test_a_parameter_that_is_missing_becomes_an_input_that_nothing_tells(lay):
    files = lay("cnn")
    symbol = files.file.read_text().replace('"name": "fc_bias"', '"name": "lost"')
    files.file.write_text(symbol)
    with pytest.raises(InvalidConfig, match="dims of its input 'lost'"):
        MxnetBackend().complete(files, CONFIG)


CUSTOM = ModelConfig("m", input=(ModelInput("data", DataType.FP32, (2, 3, 16, 16)),))


def without_library():
    backend = MxnetBackend()
    backend.connect(BackendContext(settings={"library": "/nowhere/libmxnet.so"}))
    return backend


@pytest.mark.parametrize("value", ["true", "1"])
def test_the_library_is_asked_for_by_a_parameter(lay, value):
    config = replace(CUSTOM, parameters={"inferd_mxnet_native": value})
    with pytest.raises(Unsupported, match="parameter inferd_mxnet_native is set; MXNet's library"):
        without_library().complete(lay("cnn"), config)


def test_what_the_library_could_run_says_how_to_get_it(lay):
    files = lay("cnn")
    files.file.write_text(files.file.read_text().replace("Activation", "Custom"))
    with pytest.raises(Unsupported, match=r"'Custom' 'relu1'.*pip install --no-deps mxnet==1.9.1"):
        without_library().open(files, CUSTOM, CPU)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (replace(CUSTOM, output=()), "to list outputs and the inputs data; it lists the inputs da"),
        (replace(CUSTOM, input=()), "to list outputs and the inputs data; it lists the inputs non"),
        (
            replace(CUSTOM, output=(ModelOutput("softmax", DataType.BF16, (2, 10)),)),
            "MXNet's library has no BF16",
        ),
        (
            replace(CUSTOM, output=(ModelOutput("lost", DataType.FP32, (2, 10)),)),
            "the symbol has outputs softmax, no 'lost'",
        ),
        (
            replace(
                CUSTOM,
                input=(replace(CUSTOM.input[0], optional=True),),
                output=(ModelOutput("softmax", DataType.FP32, (2, 10)),),
            ),
            "'data' optional, but MXNet's library needs all",
        ),
    ],
)
def test_for_the_library_the_configuration_has_to_say_everything(lay, tmp_path, config, reason):
    library = tmp_path / "libmxnet.so"
    library.touch()
    backend = MxnetBackend()
    backend.connect(BackendContext(settings={"library": str(library)}))
    config = replace(config, parameters={"inferd_mxnet_native": "true"})
    with pytest.raises(InvalidConfig, match=reason):
        backend.complete(lay("cnn"), config)


def test_a_file_that_is_no_library_is_told_when_the_worker_starts(lay, tmp_path):
    library = tmp_path / "libmxnet.so"
    library.write_bytes(b"\x7fELF")
    backend = MxnetBackend()
    backend.connect(BackendContext(settings={"library": str(library)}))
    output = (ModelOutput("softmax", DataType.FP32, (2, 10)),)
    config = replace(CUSTOM, output=output, parameters={"inferd_mxnet_native": "true"})
    files = lay("cnn")
    with pytest.raises(InferdError, match="OSError"):
        backend.open(files, backend.complete(files, config), CPU)
