"""Writes the model repositories the conformance tests load: `v2`, and `broken` beside it.

Run it from anywhere: `python conformance/repos/build.py`. The files it writes are committed, so
that the suite itself needs no onnx package.
"""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

HERE = Path(__file__).parent
DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "BF16", "FP32", "FP64", "BYTES",
)  # fmt: skip
PRINTED = [1.0, 1.1, 2.0, 2.1, 3.0, 3.1]
"""The output values the protocol's inference example prints."""


def write(path: Path, content: str | bytes) -> None:
    """Write one file of a repository, folders included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def model_bytes(graph: onnx.GraphProto) -> bytes:
    """Return `graph` as a checked ONNX file that old runtimes read, too."""
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="inferd"
    )
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def sum_and_difference() -> bytes:
    """Return OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, FP32 [batch, 4]."""
    shape = ["batch", 4]
    inputs = [helper.make_tensor_value_info(f"INPUT{i}", TensorProto.FLOAT, shape) for i in (0, 1)]
    outputs = [
        helper.make_tensor_value_info(f"OUTPUT{i}", TensorProto.FLOAT, shape) for i in (0, 1)
    ]
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    return model_bytes(helper.make_graph(nodes, "sum_and_difference", inputs, outputs))


def printed_example() -> bytes:
    """Return the model of the protocol's printed example: a constant that consumes its inputs."""
    inputs = [
        helper.make_tensor_value_info("input0", TensorProto.UINT32, [2, 2]),
        helper.make_tensor_value_info("input1", TensorProto.BOOL, [3]),
    ]
    outputs = [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [3, 2])]
    constants = [
        helper.make_tensor("printed", TensorProto.FLOAT, [3, 2], PRINTED),
        helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
    ]
    nodes = [
        helper.make_node("Cast", ["input0"], ["float0"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["input1"], ["float1"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["float0"], ["sum0"], keepdims=0),
        helper.make_node("ReduceSum", ["float1"], ["sum1"], keepdims=0),
        helper.make_node("Add", ["sum0", "sum1"], ["sum"]),
        helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
        helper.make_node("Add", ["printed", "nothing"], ["output0"]),
    ]
    return model_bytes(helper.make_graph(nodes, "printed_example", inputs, outputs, constants))


def flatten(dims: list[int]) -> bytes:
    """Return OUTPUT0 = the numbers of INPUT0 in a row, FP32 [batch, ...]."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
        for name, shape in (("INPUT0", dims), ("OUTPUT0", [12]))
    ]
    nodes = [helper.make_node("Flatten", ["INPUT0"], ["OUTPUT0"], axis=1)]
    return model_bytes(helper.make_graph(nodes, "flatten", ends[:1], ends[1:]))


def in_sequence(id_type: int) -> bytes:
    """Return OUTPUT = INPUT, STARTED = START and ID_SEEN = ID, of a model that runs sequences."""
    shape, number = ["batch", 1], TensorProto.INT32
    names = {"OUTPUT": ("INPUT", number), "STARTED": ("START", number), "ID_SEEN": ("ID", id_type)}
    inputs = [helper.make_tensor_value_info(*named, shape) for named in names.values()]
    outputs = [
        helper.make_tensor_value_info(name, kind, shape) for name, (_, kind) in names.items()
    ]
    nodes = [helper.make_node("Identity", [of], [name]) for name, (of, _) in names.items()]
    return model_bytes(helper.make_graph(nodes, "in_sequence", inputs, outputs))


def identity_config(inputs: list[tuple[str, str, str, str]]) -> str:
    """Return config.pbtxt of an identity model; a row is input, output, datatype, dims."""
    lines = ['backend: "identity"', "max_batch_size: 0"]
    for name, _, datatype, dims in inputs:
        optional = " optional: true" if len(inputs) > 1 else ""
        lines.append(
            f'input {{ name: "{name}" data_type: TYPE_{datatype} dims: [ {dims} ]{optional} }}'
        )
    for _, name, datatype, dims in inputs:
        lines.append(f'output {{ name: "{name}" data_type: TYPE_{datatype} dims: [ {dims} ] }}')
    return "\n".join(lines).replace("TYPE_BYTES", "TYPE_STRING") + "\n"


M_CONFIG = """\
backend: "onnxruntime"
max_batch_size: 8
version_policy { all { } }
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
input { name: "INPUT1" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" }
output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 4 ] }
"""
KEPT_CONFIG = """\
backend: "onnxruntime"
max_batch_size: 8
response_cache { enable: true }
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
input { name: "INPUT1" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 4 ] }
"""
MYMODEL_CONFIG = """\
platform: "onnxruntime_onnx"
max_batch_size: 0
version_policy { all { } }
input { name: "input0" data_type: TYPE_UINT32 dims: [ 2, 2 ] }
input { name: "input1" data_type: TYPE_BOOL dims: [ 3 ] }
output { name: "output0" data_type: TYPE_FP32 dims: [ 3, 2 ] }
"""
GEN_CONFIG = """\
backend: "identity"
max_batch_size: 0
input { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] }
"""
REPEAT_CONFIG = """\
backend: "repeat"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }
input { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] }
input { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] }
"""
"""Shaped as Triton's own repeat backend wants it."""
SEQUENCE_CONFIG = """\
backend: "onnxruntime"
max_batch_size: 4
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "STARTED" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "ID_SEEN" data_type: {id} dims: [ 1 ] }
sequence_batching {
  oldest { max_candidate_sequences: 64 }
  control_input {
    name: "START"
    control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }
  }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: {id} } }
}
"""
BROKEN_CONFIG = """\
backend: "onnxruntime"
max_batch_size: 0
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
"""

PICTURE_CONFIG = """\
backend: "onnxruntime"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 format: FORMAT_{format} dims: [ {dims} ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 12 ] label_filename: "labels.txt" }
"""

LATE_CONFIG = """\
backend: "identity"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
dynamic_batching {
  max_queue_delay_microseconds: 5000000
  default_queue_policy {
    default_timeout_microseconds: 2000000
    allow_timeout_override: true
    max_queue_size: 1
  }
}
"""


def identity(folder: Path, inputs: list[tuple[str, str, str, str]]) -> None:
    """Write an identity model; its version folder holds nothing but a mark that keeps it in git."""
    write(folder / "config.pbtxt", identity_config(inputs))
    write(folder / "1" / ".keep", "")


def main() -> None:
    """Write both repositories."""
    v2 = HERE / "v2"
    write(v2 / "m" / "config.pbtxt", M_CONFIG)
    write(v2 / "m" / "labels.txt", "ant\nbee\nbird\n")
    for version in ("1", "3"):
        write(v2 / "m" / version / "model.onnx", sum_and_difference())
    write(v2 / "kept" / "config.pbtxt", KEPT_CONFIG)
    write(v2 / "kept" / "1" / "model.onnx", sum_and_difference())
    write(v2 / "mymodel" / "config.pbtxt", MYMODEL_CONFIG)
    for version in ("1", "2"):
        write(v2 / "mymodel" / version / "model.onnx", printed_example())
    identity(v2 / "all", [(f"IN_{name}", f"OUT_{name}", name, "-1") for name in DATATYPES])
    identity(v2 / "single", [("INPUT0", "OUTPUT0", "FP32", "-1")])
    identity(v2 / "text", [("INPUT0", "OUTPUT0", "BYTES", "1")])
    for name, config in (("gen", GEN_CONFIG), ("repeat", REPEAT_CONFIG)):
        write(v2 / name / "config.pbtxt", config)
        write(v2 / name / "1" / ".keep", "")
    for name, kind, id_type in (
        ("seq", "TYPE_UINT64", TensorProto.UINT64),
        ("seq_text", "TYPE_STRING", TensorProto.STRING),
    ):
        write(v2 / name / "config.pbtxt", SEQUENCE_CONFIG.replace("{id}", kind))
        write(v2 / name / "1" / "model.onnx", in_sequence(id_type))
    for name, dims in (("nchw", "3, 2, 2"), ("nhwc", "2, 2, 3")):
        config = PICTURE_CONFIG.replace("{format}", name.upper()).replace("{dims}", dims)
        write(v2 / name / "config.pbtxt", config)
        write(v2 / name / "labels.txt", "ant\nbee\n")
        write(v2 / name / "1" / "model.onnx", flatten([int(dim) for dim in dims.split(",")]))
    write(v2 / "late" / "config.pbtxt", LATE_CONFIG)
    write(v2 / "late" / "1" / ".keep", "")
    broken = HERE / "broken"
    write(broken / "broken" / "config.pbtxt", BROKEN_CONFIG)
    write(broken / "broken" / "1" / "model.onnx", b"this is no ONNX file")
    identity(broken / "single", [("INPUT0", "OUTPUT0", "FP32", "-1")])


if __name__ == "__main__":
    main()
