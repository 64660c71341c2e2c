"""What a client reads from a server: V2's answers over REST (R, JSON, FF, tensors) and gRPC (G)."""

from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.grpc.codec import V2Grpc
from inferd.wire.v2.grpc.codec import decode_infer_response as decode_grpc
from inferd.wire.v2.rest.client import decode_infer_response as decode_rest

_ANSWER = InferResponse("m", "1", "7", [Tensor("y", DataType.FP32, (1,), b"\0\0\x80?")])

SEEDS = [
    b'R{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[1.5]}]}',
    b'R{"model_name":"m","model_version":"1","id":"3","outputs":[{"name":"y","datatype":"FP32",'
    b'"shape":[1],"parameters":{"binary_data_size":4}}]}\xff\0\0\x80?',
    b'R{"model_name":"m","outputs":[{"name":"s","datatype":"BYTES","shape":[1],"data":["a"]}]}',
    b"G" + b"".join(map(bytes, V2Grpc().encode(InferRequest("m"), _ANSWER))),
    b"G" + b"".join(map(bytes, V2Grpc(typed_answers=True).encode(InferRequest("m"), _ANSWER))),
]


def target(data: bytes) -> bool:
    """Decode; return whether it is an answer. Its tensors have as many elements as they say."""
    kind, rest = data[:1], data[1:]
    try:
        if kind == b"G":
            answer = decode_grpc(rest)
        else:
            text, _, tensors = rest.partition(b"\xff")
            answer = decode_rest(memoryview(text + tensors), len(text))
    except InferdError:
        return False
    for output in answer.outputs:
        assert output.numpy().shape == output.shape
    return True
