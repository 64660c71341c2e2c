"""Writes the model repository of the bench, with the same bytes each time.

python bench/make_models.py DIR
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CONVNET_STAGES = [(16, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1)]
CONVNET_STAGES += [(64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]

IDENTITY_CONFIG = """name: "identity_fp32"
backend: "identity"
max_batch_size: 0
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
SIMPLE_CONFIG = """name: "simple"
platform: "onnxruntime_onnx"
max_batch_size: 8
input [
  { name: "INPUT0" data_type: TYPE_INT32 dims: [ 16 ] },
  { name: "INPUT1" data_type: TYPE_INT32 dims: [ 16 ] }
]
output [
  { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 16 ] },
  { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ] }
]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
CONVNET_CONFIG = """name: "convnet"
platform: "onnxruntime_onnx"
max_batch_size: 8
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1000 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
ONE_THREAD = """parameters { key: "intra_op_thread_count" value: { string_value: "1" } }
parameters { key: "inter_op_thread_count" value: { string_value: "1" } }
"""


def finish_model(graph: onnx.GraphProto) -> bytes:
    """Return the model of `graph`, checked, as file content."""
    model = helper.make_model(
        graph, producer_name="bench", ir_version=8, opset_imports=[helper.make_opsetid("", 15)]
    )
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def simple_model() -> bytes:
    """Return a model of the sum and difference of two INT32 [N, 16]: it costs next to nothing."""
    names = ["INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1"]
    infos = [helper.make_tensor_value_info(name, TensorProto.INT32, ["N", 16]) for name in names]
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    return finish_model(helper.make_graph(nodes, "simple", infos[:2], infos[2:]))


class ConvNet:
    """A small residual network with random weights, about 4 ms on one core."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(20240601)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def model(self) -> bytes:
        """Return the whole network, FP32 [N, 3, 224, 224] to [N, 1000], as file content."""
        x = self._add("Relu", self._convolve("INPUT", 3, 16, size=7, stride=2))
        x = self._add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        for inputs, outputs, stride in CONVNET_STAGES:
            x = self._block(x, inputs, outputs, stride)
        x = self._add("Flatten", self._add("GlobalAveragePool", x), axis=1)
        x = self._add("Gemm", x, self._weight(1000, 256, scale=0.06), self._weight(1000, scale=0))
        self._nodes[-1].attribute.append(helper.make_attribute("transB", 1))
        self._nodes.append(helper.make_node("Softmax", [x], ["OUTPUT"], axis=1))
        ends = [("INPUT", ["N", 3, 224, 224]), ("OUTPUT", ["N", 1000])]
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in ends]
        return finish_model(
            helper.make_graph(self._nodes, "convnet", infos[:1], infos[1:], self._weights)
        )

    def _add(self, operator: str, *inputs: str, **attributes: object) -> str:
        output = f"x{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def _weight(self, *shape: int, scale: float) -> str:
        name = f"w{len(self._weights)}"
        values = (self._random.standard_normal(shape) * scale).astype(np.float32)
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def _convolve(self, x: str, inputs: int, outputs: int, size: int, stride: int) -> str:
        he_scale = float(np.sqrt(2.0 / (inputs * size * size)))
        weights = self._weight(outputs, inputs, size, size, scale=he_scale)
        bias = self._weight(outputs, scale=0.01)
        kernel, pads = [size, size], [size // 2] * 4
        strides = [stride, stride]
        return self._add("Conv", x, weights, bias, kernel_shape=kernel, strides=strides, pads=pads)

    def _block(self, x: str, inputs: int, outputs: int, stride: int) -> str:
        first = self._add("Relu", self._convolve(x, inputs, outputs, 3, stride))
        second = self._convolve(first, outputs, outputs, 3, 1)
        same = inputs == outputs and stride == 1
        around = x if same else self._convolve(x, inputs, outputs, 1, stride)
        return self._add("Relu", self._add("Add", second, around))


def write_model(repository: Path, name: str, config: str, model: bytes | None) -> None:
    """Write one model folder; `model` is None if the backend needs no file."""
    version = repository / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(config)
    if model is not None:
        (version / "model.onnx").write_bytes(model)


def write_models(repository: Path) -> None:
    """Write `simple`, `identity_fp32`, `convnet` and `convnet_t1` (one thread) to `repository`."""
    convnet = ConvNet().model()
    one_thread = CONVNET_CONFIG.replace('"convnet"', '"convnet_t1"') + ONE_THREAD
    write_model(repository, "simple", SIMPLE_CONFIG, simple_model())
    write_model(repository, "identity_fp32", IDENTITY_CONFIG, None)
    write_model(repository, "convnet", CONVNET_CONFIG, convnet)
    write_model(repository, "convnet_t1", one_thread, convnet)


def write_twin(repository: Path, name: str, twin: str) -> None:
    """Write a copy of the model `name` under the name `twin`."""
    folder = repository / name
    file = folder / "1" / "model.onnx"
    config = (folder / "config.pbtxt").read_text().replace(f'name: "{name}"', f'name: "{twin}"')
    write_model(repository, twin, config, file.read_bytes() if file.exists() else None)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_models.py DIR")
    write_models(Path(sys.argv[1]))
