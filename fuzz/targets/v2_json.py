"""V2's inference request as JSON with binary tensors after it, known from before or not.

The JSON ends at the first byte FF, which JSON has not; tensors follow. A codec that remembers
earlier requests must say the same as one that knows none.
"""

from inferd.aio.inline import NotFast
from inferd.errors import InferdError
from inferd.wire.v2.rest.codec import JsonRules, V2Rest

RULES = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=1 << 20)
KNOWING = V2Rest(RULES)

SAID = ("model", "version", "id", "outputs", "parameters", "binary_output", "raw", "has_top_k")
SAID += ("priority", "timeout_us", "sequence", "empty_final")
"""What a request says; the rest is of its way through the server."""

SEEDS = [
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1.5,-2e3]}]}',
    b'{"id":"7","model_name":"m","parameters":{"sequence_id":3,"priority":1,"timeout":9},'
    b'"inputs":[{"name":"x","datatype":"INT64","shape":[1,2],"data":[[1],[2]]}],'
    b'"outputs":[{"name":"y","parameters":{"classification":3}}]}',
    b'{"inputs":[{"name":"s","datatype":"BYTES","shape":[2],"data":["a","\\u00e9"]}]}',
    b'{"inputs":[{"name":"b","datatype":"BOOL","shape":[2],"data":[true,false]},'
    b'{"name":"h","datatype":"FP16","shape":[1],"data":[0.5]}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}],'
    b'"parameters":{"binary_data_output":true}}\xff\0\0\x80?',
    b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[NaN]},{"name":"s","shape":[1],'
    b'"datatype":"BYTES","parameters":{"content_type":"base64"},"data":["YQ=="]}]}',
    b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[4],"parameters":'
    b'{"shared_memory_region":"r","shared_memory_byte_size":4,"shared_memory_offset":0}}]}',
]


def target(data: bytes) -> bool:
    """Decode; return whether it is a request."""
    text, _, tensors = data.partition(b"\xff")
    body = memoryview(text + tensors)
    told = [_told(codec, body, len(text)) for codec in (KNOWING, KNOWING, V2Rest(RULES))]
    assert told[0] == told[1] == told[2], told
    return not isinstance(told[0], str)


def _told(codec: V2Rest, body: memoryview, size: int) -> object:
    try:
        request = codec.decode_infer_request("m", "", body, size)
    except NotFast:
        return "slow"
    except InferdError as error:
        return f"{error.code} {error.message}"
    inputs = [
        (one.name, one.datatype, one.shape, bytes(one.data), repr(one.parameters))
        for one in request.inputs
    ]
    fields = request.asdict()
    return inputs, [repr(fields[name]) for name in SAID]
