"""KServe's stock runtime for TensorFlow Serving, with a SavedModel as it has them."""

import sys
from pathlib import Path

import pytest
import tensorflow as tf
from stock_runtimes import STOCK, served


class Doubling(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def __call__(self, x):
        return {"y": 2 * x}


def test_tensorflow_servings_container_serves_versions_of_a_savedmodel(tmp_path):
    models, model = tmp_path / "models", Doubling()
    tf.saved_model.save(model, str(models / "1"), signatures=model.__call__)
    link = tmp_path / "tensorflow_model_server"
    link.symlink_to(Path(sys.executable).parent / "inferd")
    container = STOCK["kserve-tensorflow-serving"].filled(models)._replace(command=(str(link),))
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2]}
    found, said = served(container, {}, "iris", {"inputs": [tensor]})
    assert found == pytest.approx([3, 4])
    assert "tensorflow.serving over gRPC" in said
