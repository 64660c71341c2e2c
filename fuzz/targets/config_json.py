"""A model's configuration as JSON, which clients send with loads: what is read can be written."""

from inferd.config.pbtxt import parse_json, parse_pbtxt, to_pbtxt
from inferd.errors import InferdError

SEEDS = [
    b'{"name":"m","backend":"onnxruntime","max_batch_size":8,'
    b'"input":[{"name":"x","data_type":"TYPE_FP32","dims":[3,"-1"]}]}',
    b'{"platform":"ensemble","ensemble_scheduling":{"step":[{"model_name":"a",'
    b'"input_map":{"A":"B"}}]},"parameters":{"k":{"string_value":"v"}}}',
    b'{"dynamic_batching":{"preferred_batch_size":[4],"priority_queue_policy":{"1":{}}},'
    b'"instance_group":[{"count":2,"kind":"kind_cpu"}],"optimization":{"priority":1}}',
]


def target(data: bytes) -> bool:
    """Read; return whether it is a configuration."""
    try:
        config = parse_json(data, "config")
    except InferdError:
        return False
    assert parse_pbtxt(to_pbtxt(config), "written") == config
    return True
