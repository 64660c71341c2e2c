"""TensorFlow's files through OpenVINO, as they run where TensorFlow is not installed."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from inferd.backends.openvino.backend import OpenvinoBackend
from inferd.config.model import ModelConfig, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.engine.lookup import backend_named
from inferd.errors import BackendFailed
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


def test_openvino_stands_in_where_tensorflow_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert type(backend_named("tensorflow_savedmodel")._in_server()) is OpenvinoBackend
