"""Writes the digit classifier as a TensorFlow Lite file.

    python examples/platforms/to_litert.py FOLDER

FOLDER becomes a model repository: `inferd serve FOLDER`. The file lies beside this script, since
only TensorFlow can make one; `convert` did (`pip install tensorflow-cpu`).
"""

import shutil
import sys
from pathlib import Path

import digits

MODELS = ("digits_litert",)
FILE = Path(__file__).with_name("digits.tflite")


def export(repository: Path) -> None:
    """Write the model."""
    shutil.copy(FILE, digits.place(repository, MODELS[0], "model.tflite"))


def convert() -> None:
    """Write the file beside this script."""
    import tensorflow as tf

    numbers = digits.weights()

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8], tf.float32, name="image")])
    def classify(image: tf.Tensor) -> dict[str, tf.Tensor]:
        pixels = tf.reshape(image, [-1, 64]) / digits.PIXEL_MAX
        hidden = tf.nn.relu(pixels @ numbers["hidden_weights"] + numbers["hidden_bias"])
        scores = hidden @ numbers["score_weights"] + numbers["score_bias"]
        return {
            "digit": tf.argmax(scores, axis=1)[:, tf.newaxis],
            "probability": tf.nn.softmax(scores),
        }

    module = tf.Module()
    function = classify.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    FILE.write_bytes(converter.convert())


if __name__ == "__main__":
    convert() if sys.argv[1:] == ["--convert"] else export(Path(sys.argv[1]))
