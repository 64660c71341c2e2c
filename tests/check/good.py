"""Repositories in which nothing is wrong; together their configurations have every field there is.

Each is a mapping of files, path -> content.
"""

import hashlib

from onnx import TensorProto, helper


def onnx_model(batch="n", kind=TensorProto.FLOAT, width=4):
    """Return an encoded model x[batch, width] -> y, whose rows do not depend on each other."""
    shape = [width] if batch is None else [batch, width]
    graph = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def sequence_model():
    """Return an encoded model with the controls and states of SEQUENCE."""

    def ports(**kinds):
        return [
            helper.make_tensor_value_info(name, kind, ["n", width])
            for name, (kind, width) in kinds.items()
        ]

    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["x"], ["y"]),
            helper.make_node("Identity", ["in"], ["out"]),
            helper.make_node("Identity", ["in2"], ["out2"]),
        ],
        "graph",
        ports(
            **{"x": (TensorProto.FLOAT, 2), "in": (TensorProto.FLOAT, 2)},
            in2=(TensorProto.INT32, 1),
            START=(TensorProto.INT32, 1),
            READY=(TensorProto.FLOAT, 1),
            END=(TensorProto.BOOL, 1),
            CORRID=(TensorProto.UINT64, 1),
        ),
        ports(
            y=(TensorProto.FLOAT, 2),
            out=(TensorProto.FLOAT, 2),
            out2=(TensorProto.INT32, 1),
        ),
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


MODEL_PY = """\
class TritonPythonModel:
    def execute(self, requests):
        return []
"""

LABELS = "cat\ndog\n"
SUM = hashlib.sha256(LABELS.encode()).hexdigest()

EVERYTHING = f"""\
# The fields that go together with dynamic batching.
name: "m"
backend: "identity"
max_batch_size: 8
input [
  {{
    name: "INPUT0"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, -1, 4 ]
    reshape {{ shape: [ 3, -1, 4 ] }}
    optional: true
    is_non_linear_format_io: false
  }},
  {{
    name: "INPUT1"
    data_type: TYPE_INT32
    dims: [ -1 ]
    allow_ragged_batch: true
  }}
]
output [
  {{
    name: "OUTPUT0"
    data_type: TYPE_FP32
    dims: [ 3, -1, 4 ]
    reshape {{ shape: [ 3, -1, 4 ] }}
    label_filename: "labels.txt"
    is_non_linear_format_io: false
  }},
  {{ name: "OUTPUT1" data_type: TYPE_INT32 dims: [ -1 ] }}
]
batch_input {{
  kind: BATCH_ELEMENT_COUNT
  target_name: [ "COUNT" ]
  data_type: TYPE_INT32
  source_input: [ "INPUT1" ]
}}
batch_output {{
  kind: BATCH_SCATTER_WITH_INPUT_SHAPE
  target_name: [ "OUTPUT1" ]
  source_input: [ "INPUT1" ]
}}
version_policy {{ latest {{ num_versions: 2 }} }}
dynamic_batching {{
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
  preserve_ordering: false
  priority_levels: 2
  default_priority_level: 1
  default_queue_policy {{
    timeout_action: REJECT
    default_timeout_microseconds: 1000
    allow_timeout_override: true
    max_queue_size: 16
  }}
  priority_queue_policy {{
    key: 2
    value {{
      timeout_action: DELAY
      default_timeout_microseconds: 2000
      allow_timeout_override: false
      max_queue_size: 8
    }}
  }}
}}
instance_group [
  {{
    name: "on_cpu"
    count: 1
    kind: KIND_CPU
    host_policy: "a"
    rate_limiter {{
      resources {{ name: "r" global: true count: 2 }}
      priority: 2
    }}
    passive: false
  }},
  {{ name: "on_gpu" count: 1 kind: KIND_GPU gpus: [ 0, 1 ] }}
]
optimization {{
  input_pinned_memory {{ enable: true }}
  output_pinned_memory {{ enable: false }}
}}
default_model_filename: "model.bin"
metric_tags {{ key: "team" value: "a" }}
parameters {{ key: "note" value {{ string_value: "a \\"note\\"" }} }}
model_warmup {{
  name: "zeros"
  batch_size: 1
  inputs {{ key: "INPUT1" value {{ data_type: TYPE_INT32 dims: [ 5 ] zero_data: true }} }}
  count: 2
}}
model_warmup {{
  name: "others"
  batch_size: 1
  inputs {{ key: "INPUT0" value {{ data_type: TYPE_FP32 dims: [ 3, 1, 4 ] random_data: true }} }}
  inputs {{ key: "INPUT1" value {{ data_type: TYPE_INT32 dims: [ 1 ] input_data_file: "one" }} }}
}}
model_operations {{ op_library_filename: [ "operators.so" ] }}
model_transaction_policy {{ decoupled: false }}
model_repository_agents {{
  agents {{ name: "checksum" parameters {{ key: "SHA256:labels.txt" value: "{SUM}" }} }}
}}
response_cache {{ enable: true }}
model_metrics {{
  metric_control {{
    metric_identifier {{ family: "nv_inference_first_response_histogram_ms" }}
    histogram_options {{ buckets: [ 1, 2.5, 10 ] }}
  }}
}}
"""

IDLE = """\
# Fields that have no effect in inferd, or not on this model.
name: "i"
backend: "identity"
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
instance_group { secondary_devices { kind: KIND_NVDLA device_id: 0 } }
optimization {
  graph { level: 1 }
  priority: PRIORITY_MAX
  cuda {
    graphs: true
    busy_wait_events: true
    output_copy_stream: true
    graph_spec {
      batch_size: 4
      input { key: "INPUT0" value { dim: [ 3, 2, 4 ] } }
      graph_lower_bound {
        batch_size: 1
        input { key: "INPUT0" value { dim: [ 3, 1, 4 ] } }
      }
    }
  }
  execution_accelerators {
    gpu_execution_accelerator {
      name: "tensorrt"
      parameters { key: "precision_mode" value: "FP16" }
    }
    cpu_execution_accelerator {
      name: "openvino"
      parameters { key: "num_threads" value: "2" }
    }
  }
  input_pinned_memory { enable: true }
  output_pinned_memory { enable: false }
  gather_kernel_buffer_threshold: 4
  eager_batching: true
}
cc_model_filenames { key: "7.5" value: "model_75.bin" }
"""

SEQUENCE = """\
name: "s"
backend: "onnxruntime"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
version_policy { specific { versions: [ 1, 3 ] } }
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  control_input [
    {
      name: "START"
      control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }
    },
    { name: "READY" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } },
    { name: "END" control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } },
    { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  ]
  direct { max_queue_delay_microseconds: 10 minimum_slot_utilization: 0.5 }
  state [
    {
      input_name: "in"
      output_name: "out"
      data_type: TYPE_FP32
      dims: [ 2 ]
      use_same_buffer_for_input_output: true
      use_growable_memory: false
      initial_state { name: "zeros" data_type: TYPE_FP32 dims: [ 2 ] zero_data: true }
    },
    {
      input_name: "in2"
      output_name: "out2"
      data_type: TYPE_INT32
      dims: [ 1 ]
      initial_state { name: "file" data_type: TYPE_INT32 dims: [ 1 ] data_file: "one" }
    }
  ]
  iterative_sequence: false
}
"""

OLDEST = """\
name: "o"
backend: "identity"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
version_policy { all { } }
sequence_batching {
  oldest {
    max_candidate_sequences: 16
    preferred_batch_size: [ 2, 4 ]
    max_queue_delay_microseconds: 10
    preserve_ordering: true
  }
}
"""

ONNX = """\
name: "n"
platform: "onnxruntime_onnx"
max_batch_size: 16
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" }
"""

ENSEMBLE = """\
name: "e"
platform: "ensemble"
max_batch_size: 8
input { name: "A" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "C" data_type: TYPE_FP32 dims: [ 4 ] }
ensemble_scheduling {
  step [
    {
      model_name: "n"
      model_version: -1
      model_namespace: ""
      input_map { key: "x" value: "A" }
      output_map { key: "y" value: "B" }
    },
    {
      model_name: "n"
      model_version: 1
      input_map { key: "x" value: "B" }
      output_map { key: "y" value: "C" }
    }
  ]
  max_inflight_requests: 4
}
"""

PLAN = """\
name: "t"
platform: "tensorrt_plan"
max_batch_size: 1
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] is_shape_tensor: false }
input { name: "shape" data_type: TYPE_INT32 dims: [ 2 ] is_shape_tensor: true }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] is_shape_tensor: true }
instance_group { count: 1 kind: KIND_GPU profile: [ "0" ] }
"""

PYTHON = """\
name: "p"
backend: "python"
runtime: ""
max_batch_size: 0
input { name: "x" data_type: TYPE_STRING dims: [ -1 ] }
output { name: "y" data_type: TYPE_STRING dims: [ -1 ] }
"""

ONE = b"\x01\0\0\0"

EVERYTHING_FILES = {
    "m/config.pbtxt": EVERYTHING,
    "m/labels.txt": LABELS,
    "m/warmup/one": ONE,
    "m/1/model.bin": "x",
}
SEQUENCE_FILES = {
    "s/config.pbtxt": SEQUENCE,
    "s/initial_state/one": ONE,
    "s/1/model.onnx": sequence_model(),
    "s/3/model.onnx": sequence_model(),
}
ONNX_FILES = {
    "n/config.pbtxt": ONNX,
    "n/labels.txt": LABELS,
    "n/1/model.onnx": onnx_model(),
}
BASES = {
    "everything": EVERYTHING_FILES,
    "sequence": SEQUENCE_FILES,
    "oldest": {"o/config.pbtxt": OLDEST, "o/1/x": ""},
    "onnx": ONNX_FILES,
    "ensemble": {"e/config.pbtxt": ENSEMBLE, "e/1/x": "", **ONNX_FILES},
    "plan": {"t/config.pbtxt": PLAN, "t/1/model.plan": "x"},
    "idle": {"i/config.pbtxt": IDLE, "i/1/x": ""},
    "python": {"p/config.pbtxt": PYTHON, "p/1/model.py": MODEL_PY},
}
"""Good repositories by name; the first file of each is the configuration that is broken."""
