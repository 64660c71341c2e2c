"""Models for real servers: small ones, of each kind that the page shows in its own way."""

import shutil
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples/digits/models/digits"

SHOUT = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
            if b"fail" in texts.ravel().tolist():
                error = pb_utils.TritonError("it was told to <b>fail</b>")
                answers.append(pb_utils.InferenceResponse(error=error))
                continue
            loud = np.array([text.upper() for text in texts.ravel()], object).reshape(texts.shape)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("loud", loud)]))
        return answers
"""
WORDS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            [text] = pb_utils.get_input_tensor_by_name(request, "text").as_numpy().ravel()
            sender = request.get_response_sender()
            for word in text.split():
                tensor = pb_utils.Tensor("word", np.array([word + b" "], object))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
PYTHON = """
backend: "python"
input  {{ name: "text" data_type: TYPE_STRING dims: [ 1 ] }}
output {{ name: "{output}" data_type: TYPE_STRING dims: [ 1 ] }}
{more}
"""
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input  { name: "x" data_type: TYPE_FP32 dims: [ 8, 8 ] }
output { name: "digit" data_type: TYPE_INT64 dims: [ 1 ] }
output { name: "probability" data_type: TYPE_FP32 dims: [ 10 ] }
ensemble_scheduling {
  step {
    model_name: "same" model_version: -1
    input_map { key: "x" value: "x" }
    output_map { key: "y" value: "pixels" }
  }
  step {
    model_name: "digits" model_version: -1
    input_map { key: "image" value: "pixels" }
    output_map { key: "digit" value: "digit" }
    output_map { key: "probability" value: "probability" }
  }
}
"""
LABELLED = """
output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" }
"""


def identity(folder, name, dtype, shape, version=1):
    """Write a model that gives what it takes."""
    place = folder / name / str(version)
    place.mkdir(parents=True)
    node = helper.make_node("Identity", ["x"], ["y"])
    tensors = [helper.make_tensor_value_info(one, dtype, shape) for one in "xy"]
    graph = helper.make_graph([node], "g", tensors[:1], tensors[1:])
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    save(model, place / "model.onnx")
    return folder / name


def python_model(folder, name, text, output, more=""):
    """Write a model in Python that takes one text."""
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "1/model.py").write_text(text)
    (folder / name / "config.pbtxt").write_text(PYTHON.format(output=output, more=more))


def write_models(folder):
    """Write all of them; return the folder."""
    folder.mkdir(exist_ok=True)
    shutil.copytree(DIGITS, folder / "digits")
    identity(folder, "same", TensorProto.FLOAT, ["n", 8, 8])
    identity(folder, "whole", TensorProto.INT64, [2])
    identity(folder, "colours", TensorProto.UINT8, [3, 16, 24])
    classes = identity(folder, "classes", TensorProto.FLOAT, [4])
    (classes / "config.pbtxt").write_text(LABELLED)
    (classes / "labels.txt").write_text("cat\ndog\n<i>bird</i>\nfish\n")
    python_model(folder, "shout", SHOUT, "loud")
    python_model(folder, "words", WORDS, "word", "model_transaction_policy { decoupled: true }")
    (folder / "digits_of_two" / "1").mkdir(parents=True)
    (folder / "digits_of_two" / "config.pbtxt").write_text(ENSEMBLE)
    (folder / "broken" / "1").mkdir(parents=True)
    (folder / "broken/1/model.onnx").write_bytes(b"no model at all")
    return folder


def write_many(folder, count):
    """Write `count` models that give what they take."""
    first = identity(folder, "tiny_0000", TensorProto.FLOAT, [4])
    for number in range(1, count):
        shutil.copytree(first, folder / f"tiny_{number:04}")
    return folder


def picture(width=24, height=16):
    """An RGB picture with a gradient in each channel, as an array [height, width, 3]."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 10, y * 15, np.full_like(x, 77)], -1).astype(np.uint8)
