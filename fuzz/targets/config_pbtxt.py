"""config.pbtxt: what is read can be written and read again; its places are found."""

from inferd.config.pbtxt import decode_pbtxt, parse_pbtxt, to_json, to_pbtxt
from inferd.config.positions import Positions
from inferd.errors import InferdError

SEEDS = [
    b'name: "m"\nbackend: "onnxruntime"\nmax_batch_size: 8\n'
    b'input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] } ]\n'
    b'output { name: "y" data_type: TYPE_INT64 dims: 1 label_filename: "l.txt" }\n',
    b'platform: "ensemble" ensemble_scheduling { step { model_name: "a" model_version: -1\n'
    b'input_map { key: "A" value: "B" } output_map { key: "C" value: "D" } } }',
    b"dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }\n"
    b"instance_group [ { count: 2 kind: KIND_CPU } ] # words\n"
    b'parameters { key: "k" value: { string_value: "v\\n\\303\\251" } }',
    b'sequence_batching { oldest { max_candidate_sequences: 4 } control_input [ { name: "START"\n'
    b"control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ] }",
    b'version_policy: { specific { versions: [1, 2] } } model_warmup { name: "w" batch_size: 1 }',
]


def target(data: bytes) -> bool:
    """Read; return whether it is a configuration."""
    try:
        text = decode_pbtxt(data, "config.pbtxt")
    except InferdError:
        return False
    Positions(text)
    try:
        config = parse_pbtxt(text, "config.pbtxt")
    except InferdError:
        return False
    assert parse_pbtxt(to_pbtxt(config), "written") == config
    to_json(config)
    return True
