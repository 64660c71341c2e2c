"""Trains a small digit classifier and writes it as the ONNX model that `make run` serves.

    pip install scikit-learn onnx
    python examples/digits/train.py

The data is scikit-learn's own set of 1,797
handwritten digits, 8x8 pixels of 0 to 16 each; the same versions give the same file.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

HERE = Path(__file__).parent
MODEL_FILE = HERE / "models" / "digits" / "1" / "model.onnx"
DIGIT_FILE = HERE / "digit.json"
PIXEL_MAX = 16.0


def onnx_model(classifier: MLPClassifier) -> onnx.ModelProto:
    """Return the network as ONNX: `image` FP32 [N, 8, 8] to `digit` INT64 and `probability`."""
    (hidden, scores), (hidden_bias, scores_bias) = classifier.coefs_, classifier.intercepts_
    constants = {
        "pixel_max": np.float32(PIXEL_MAX),
        "hidden_weights": hidden.astype(np.float32),
        "hidden_bias": hidden_bias.astype(np.float32),
        "score_weights": scores.astype(np.float32),
        "score_bias": scores_bias.astype(np.float32),
    }
    nodes = [
        helper.make_node("Flatten", ["image"], ["pixels"]),
        helper.make_node("Div", ["pixels", "pixel_max"], ["scaled"]),
        helper.make_node("Gemm", ["scaled", "hidden_weights", "hidden_bias"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "score_weights", "score_bias"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probability"], axis=1),
        helper.make_node("ArgMax", ["scores"], ["digit"], axis=1, keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 8, 8])],
        [
            helper.make_tensor_value_info("digit", TensorProto.INT64, ["N", 1]),
            helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["N", 10]),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(
        graph, producer_name="inferd", ir_version=8, opset_imports=[helper.make_opsetid("", 15)]
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def request_text(image: np.ndarray) -> str:
    """Return a V2 request for one 8x8 image, its rows under each other so that it can be seen."""
    rows = [json.dumps([int(pixel) for pixel in row]) for row in image]
    picture = ",\n      ".join(rows)
    return (
        '{\n  "inputs": [{\n    "name": "image", "datatype": "FP32", "shape": [1, 8, 8],\n'
        f'    "data": [[\n      {picture}\n    ]]\n  }}]\n}}\n'
    )


def main() -> None:
    """Train, report the accuracy on digits not trained on, and write model and sample digit."""
    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        digits.data, digits.target, test_size=0.25, random_state=0, stratify=digits.target
    )
    classifier = MLPClassifier(hidden_layer_sizes=(48,), max_iter=1500, alpha=1e-2, random_state=0)
    classifier.fit(train_x / PIXEL_MAX, train_y)
    accuracy = classifier.score(test_x / PIXEL_MAX, test_y)
    print(f"accuracy on {len(test_y)} digits not trained on: {accuracy:.1%}")

    MODEL_FILE.parent.mkdir(parents=True, exist_ok=True)
    MODEL_FILE.write_bytes(onnx_model(classifier).SerializeToString(deterministic=True))
    sample = int(np.flatnonzero(test_y == 3)[0])
    DIGIT_FILE.write_text(request_text(test_x[sample].reshape(8, 8)))
    print(f"wrote {MODEL_FILE.relative_to(HERE)} and {DIGIT_FILE.name}")


if __name__ == "__main__":
    main()
