"""V2's ModelInferRequest, and what protobuf itself says of it."""

from google.protobuf.message import DecodeError

from inferd.core.request import InferRequest
from inferd.errors import InferdError
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.proto import message_class
from inferd.wire.v2.grpc.codec import decode_infer_request, encode_infer_request

MESSAGE = message_class("inference.ModelInferRequest")


def _seeds() -> list[bytes]:
    tensor = Tensor("x", DataType.FP32, (1, 2), bytes(8))
    raw = InferRequest("m", "1", "id", inputs=[tensor], parameters={"a": 1, "b": "c", "d": True})
    typed = MESSAGE(model_name="m")
    typed.inputs.add(name="x", datatype="INT64", shape=[2]).contents.int64_contents.extend([1, -2])
    typed.inputs.add(name="s", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"text")
    typed.outputs.add(name="y").parameters["classification"].int64_param = 2
    shared = MESSAGE(model_name="m", raw_input_contents=[])
    one = shared.inputs.add(name="x", datatype="FP32", shape=[1])
    one.parameters["shared_memory_region"].string_param = "r"
    one.parameters["shared_memory_byte_size"].int64_param = 4
    texts = MESSAGE(model_name="m", raw_input_contents=[b"\x01\0\0\0a"])
    texts.inputs.add(name="s", datatype="BYTES", shape=[1])
    messages = [one.SerializeToString() for one in (typed, shared, texts)]
    return [b"".join(map(bytes, encode_infer_request(raw))), *messages]


SEEDS = _seeds()


def target(data: bytes) -> bool:
    """Decode twice, since layouts are remembered; return whether it is a request."""
    first, second = _told(data), _told(data)
    assert first == second, (first, second)
    if isinstance(first, str):
        return "there is no shared memory here" in first
    try:
        message = MESSAGE.FromString(data)
    except DecodeError as error:
        raise AssertionError(first) from error
    model, version, request_id, inputs = first
    assert (model, version, request_id) == (message.model_name, message.model_version, message.id)
    assert [one[0] for one in inputs] == [one.name for one in message.inputs]
    if message.raw_input_contents:
        assert [one[3] for one in inputs] == list(message.raw_input_contents)
    return True


def _told(data: bytes) -> str | tuple[str, str, str, list[tuple[object, ...]]]:
    try:
        request = decode_infer_request(data)
    except InferdError as error:
        return f"{error.code} {error.message}"
    inputs: list[tuple[object, ...]] = [
        (one.name, one.datatype, one.shape, bytes(one.data), repr(one.parameters))
        for one in request.inputs
    ]
    return request.model, request.version, request.id, inputs
