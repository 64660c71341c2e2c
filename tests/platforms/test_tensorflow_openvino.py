"""TensorFlow's files through OpenVINO, as they run where TensorFlow is not installed."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from inferd.backends.openvino.backend import OpenvinoBackend
from inferd.config.model import ModelConfig, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.engine.loading.lookup import backend_named
from inferd.errors import BackendFailed, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32 = DataType.FP32
NAMES = ("digits_savedmodel", "digits_graphdef")


@pytest.mark.parametrize("name", NAMES)
def test_the_digits_are_the_same(tmp_path, digits, example, name):
    example("to_tensorflow").export(tmp_path)
    [file] = (tmp_path / name / "1").iterdir()
    found = ModelFiles(tmp_path / name, 1, file.parent, file)
    outputs = ModelOutput("digit", DataType.INT64, (1,)), ModelOutput("probability", FP32, (10,))
    config = ModelConfig("m", max_batch_size=16, output=outputs)
    backend = OpenvinoBackend()
    instance = backend.open(found, backend.complete(found, config), Placement("m_0"))
    image = Tensor.from_numpy("image", digits.images(), FP32)
    [response] = instance.execute([InferRequest("m", inputs=[image])])
    expected = digits.classify(digits.images())
    got = {tensor.name: tensor.numpy() for tensor in response.outputs}
    assert got["digit"].tolist() == expected["digit"].tolist()
    np.testing.assert_allclose(got["probability"], expected["probability"], atol=2e-6)


def test_operations_on_strings_are_told(tmp_path):
    module = tf.Module()
    words = tf.TensorSpec([None], tf.string, name="x")
    module.call = tf.function(lambda x: {"y": tf.strings.upper(x)}, input_signature=[words])
    folder = tmp_path / "1" / "model.savedmodel"
    tf.saved_model.save(module, str(folder), signatures=module.call)
    with pytest.raises(BackendFailed, match="OpenVINO cannot read it"):
        OpenvinoBackend().complete(
            ModelFiles(tmp_path, 1, tmp_path / "1", folder), ModelConfig("m")
        )


def saved(folder, *functions):
    """A SavedModel whose signatures are `functions`; the first is serving_default."""
    module = tf.Module()
    rows = tf.TensorSpec([None, 2], tf.float32, name="x")
    signatures = {}
    for name, function in zip(("serving_default", "other"), functions, strict=False):
        module.call = signatures[name] = tf.function(
            function, input_signature=[rows], autograph=False
        )
    path = folder / "1" / "model.savedmodel"
    tf.saved_model.save(module, str(path), signatures=signatures)
    return ModelFiles(folder, 1, folder / "1", path)


def test_an_input_that_is_an_output_keeps_both_names(tmp_path):
    found = saved(tmp_path, lambda x: {"a": tf.identity(x), "much_longer": x, "twice": x * 2})
    backend = OpenvinoBackend()
    config = backend.complete(found, ModelConfig("m"))
    assert [one.name for one in config.input] == ["x"]
    assert sorted(one.name for one in config.output) == ["a", "much_longer", "twice"]
    rows = Tensor.from_numpy("x", np.ones((1, 2), np.float32), FP32)
    [response] = backend.open(found, config, Placement("m_0")).execute(
        [InferRequest("m", inputs=[rows])]
    )
    got = {tensor.name: tensor.numpy().tolist() for tensor in response.outputs}
    assert got == {"a": [[1, 1]], "much_longer": [[1, 1]], "twice": [[2, 2]]}


def test_another_signature_is_not_taken_for_the_one_that_runs(tmp_path):
    found = saved(tmp_path, lambda x: {"y": x * 2}, lambda x: {"y": x * 3})
    backend = OpenvinoBackend()
    assert backend.complete(found, ModelConfig("m")).output[0].name == "y"
    with pytest.raises(Unsupported, match="wants 'other'"):
        backend.complete(found, ModelConfig("m", parameters={"TF_SIGNATURE_DEF": "other"}))


def test_openvino_stands_in_where_tensorflow_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert type(backend_named("tensorflow_savedmodel")._in_server()) is OpenvinoBackend
