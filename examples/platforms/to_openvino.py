"""Writes the digit classifier as OpenVINO IR.

    python examples/platforms/to_openvino.py FOLDER

FOLDER becomes a model repository: `inferd serve FOLDER`. Needs `pip install openvino`.
"""

import sys
from pathlib import Path

import digits
import numpy as np

MODELS = ("digits_openvino",)


def export(repository: Path) -> None:
    """Write the model."""
    import openvino
    from openvino import opset13 as op

    numbers = {name: op.constant(array) for name, array in digits.weights().items()}
    image = op.parameter([-1, 8, 8], np.float32, name="image")
    image.output(0).get_tensor().set_names({"image"})
    pixels = op.reshape(image, op.constant(np.array([-1, 64])), special_zero=False)
    scaled = op.divide(pixels, op.constant(np.float32(digits.PIXEL_MAX)))
    product = op.matmul(scaled, numbers["hidden_weights"], False, False)
    hidden = op.relu(op.add(product, numbers["hidden_bias"]))
    scores = op.matmul(hidden, numbers["score_weights"], False, False)
    scores = op.add(scores, numbers["score_bias"])
    best = op.topk(
        scores, op.constant(1), axis=1, mode="max", sort="value", index_element_type="i64"
    )
    probability = op.softmax(scores, 1)
    best.output(1).get_tensor().set_names({"digit"})
    probability.output(0).get_tensor().set_names({"probability"})
    model = openvino.Model([best.output(1), probability.output(0)], [image], "digits")
    file = digits.place(repository, MODELS[0], "model.xml")
    openvino.save_model(model, str(file), compress_to_fp16=False)


if __name__ == "__main__":
    export(Path(sys.argv[1]))
