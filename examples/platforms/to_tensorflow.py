"""Writes the digit classifier as a SavedModel and as a frozen GraphDef.

    python examples/platforms/to_tensorflow.py FOLDER

FOLDER becomes a model repository: `inferd serve FOLDER`. Needs `pip install tensorflow-cpu`.
"""

import sys
from pathlib import Path

import digits

MODELS = ("digits_savedmodel", "digits_graphdef")


def export(repository: Path) -> None:
    """Write both models."""
    import tensorflow as tf

    numbers = digits.weights()
    image_spec = tf.TensorSpec([None, 8, 8], tf.float32, name="image")

    class Classifier(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.numbers = {name: tf.Variable(array) for name, array in numbers.items()}

        @tf.function(input_signature=[image_spec])
        def __call__(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
            return classify(self.numbers, image)

    def classify(values: dict[str, tf.Tensor], image: tf.Tensor) -> dict[str, tf.Tensor]:
        pixels = tf.reshape(image, [-1, 64]) / digits.PIXEL_MAX
        hidden = tf.nn.relu(pixels @ values["hidden_weights"] + values["hidden_bias"])
        scores = hidden @ values["score_weights"] + values["score_bias"]
        return {
            "digit": tf.argmax(scores, axis=1)[:, tf.newaxis],
            "probability": tf.nn.softmax(scores),
        }

    model = Classifier()
    folder = digits.place(repository, MODELS[0], "model.savedmodel")
    tf.saved_model.save(model, str(folder), signatures=model.__call__)

    with tf.Graph().as_default() as graph:
        image = tf.compat.v1.placeholder(tf.float32, [None, 8, 8], name="image")
        constants = {name: tf.constant(array) for name, array in numbers.items()}
        for name, tensor in classify(constants, image).items():
            tf.identity(tensor, name=name)
    file = digits.place(repository, MODELS[1], "model.graphdef", digits.TENSORS)
    file.write_bytes(graph.as_graph_def().SerializeToString())


if __name__ == "__main__":
    export(Path(sys.argv[1]))
