"""The digit classifier of examples/digits/models as plain numbers, and as numpy computes it.

Each to_<framework>.py beside this file writes the same classifier for one framework.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

PIXEL_MAX = 16.0
MAX_BATCH_SIZE = 16

EXPORTERS = {
    "to_onnx": "onnxruntime",
    "to_pytorch": "torch",
    "to_tensorflow": "tensorflow",
    "to_openvino": "openvino",
    "to_litert": "ai_edge_litert",
    "to_caffe2": "onnxruntime",
    "to_mxnet": "onnxruntime",
}
"""Module beside this file -> the package it needs; those of the core are always there."""

Arrays = dict[str, np.ndarray]

TENSORS = """\
input { name: "image" data_type: TYPE_FP32 dims: [8, 8] }
output { name: "digit" data_type: TYPE_INT64 dims: [1] }
output { name: "probability" data_type: TYPE_FP32 dims: [10] }
"""

BATCHING = f"""\
max_batch_size: {MAX_BATCH_SIZE}
dynamic_batching {{ preferred_batch_size: [8] max_queue_delay_microseconds: 20000 }}
"""


def exporters() -> list[str]:
    """Return the modules that can export here."""
    return [name for name, package in EXPORTERS.items() if find_spec(package) is not None]


def weights() -> Arrays:
    """Return hidden_weights [64, 48], hidden_bias, score_weights [48, 10] and score_bias."""
    with np.load(Path(__file__).with_name("digits.npz")) as numbers:
        return {name: numbers[name] for name in numbers.files if name != "images"}


def images() -> np.ndarray:
    """Return 16 handwritten digits, float32 [16, 8, 8], each pixel 0 to 16."""
    with np.load(Path(__file__).with_name("digits.npz")) as numbers:
        return numbers["images"]


def classify(some: np.ndarray) -> Arrays:
    """Return `digit` and `probability` of images [n, 8, 8], computed in float64."""
    numbers = weights()
    pixels = some.reshape(len(some), 64).astype(np.float64) / PIXEL_MAX
    hidden = np.maximum(pixels @ numbers["hidden_weights"] + numbers["hidden_bias"], 0)
    scores = hidden @ numbers["score_weights"] + numbers["score_bias"]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    probability = powers / powers.sum(axis=1, keepdims=True)
    return {
        "digit": scores.argmax(axis=1)[:, None].astype(np.int64),
        "probability": probability.astype(np.float32),
    }


def place(repository: Path, name: str, filename: str, tensors: str = "") -> Path:
    """Make the folders of version 1 of a model, write its configuration, say where its file goes.

    `tensors` is what the file itself does not tell of inputs and outputs.
    """
    folder = repository / name / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(BATCHING + tensors)
    return folder / filename
