"""V2 inference over gRPC: ModelInfer's messages to and from core words, for server and client.

Open Inference Protocol, ModelInferRequest and ModelInferResponse. Tensors travel raw: one entry of
raw contents per tensor, in order. Typed contents are read everywhere and written on demand.
"""

from functools import lru_cache
from typing import Any

import msgspec

from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import Code, InferdError, InvalidRequest, Unsupported
from inferd.tensor.dtype import DataType, datatype_named
from inferd.tensor.strings import check_strings
from inferd.tensor.tensor import Tensor, element_count
from inferd.wire.proto import message_class, parse
from inferd.wire.v2_grpc_contents import decode_contents, encode_contents, has_contents_field
from inferd.wire.v2_grpc_parameters import (
    decode_parameter,
    encode_parameters,
    encode_reserved,
    take_parameters,
)

GRPC_STATUS = {
    Code.UNKNOWN: 2,
    Code.INTERNAL: 13,
    Code.NOT_FOUND: 5,
    Code.INVALID_ARG: 3,
    Code.UNAVAILABLE: 14,
    Code.UNSUPPORTED: 12,
    Code.ALREADY_EXISTS: 6,
    Code.CANCELLED: 1,
}
"""The gRPC status code (google.rpc.Code) of each reason."""

MAX_MESSAGE_BYTES = 2**31 - 1

_REQUEST = "inference.ModelInferRequest"
_RESPONSE = "inference.ModelInferResponse"
_OUTPUT = "inference.ModelInferResponse.InferOutputTensor"

# Field tags, all of the length-delimited wire type.
_NAME, _VERSION, _ID, _OUTPUTS = b"\x0a", b"\x12", b"\x1a", b"\x2a"
_RAW_INPUT, _RAW_OUTPUT = b"\x3a", b"\x32"

_MAX_RANK = 32
"""The most dims an array can have in every version of numpy we run with."""

_MAX_SPAN = 2**60
"""numpy measures arrays of any datatype in 63 bits, empty dims counted as 1."""

_SPLIT_FROM_BYTES = 16_384
"""From this size on raw contents are found by hand: cheaper than the copies a parser makes."""


def decode_infer_request(data: bytes) -> InferRequest:
    """Return the request of a ModelInferRequest; large raw inputs are views into `data`.

    `binary_output` says that the answer should be raw: true unless an input came as typed
    contents, or the parameter binary_data_output says otherwise. Raises InvalidRequest, and
    Unsupported for shared memory.
    """
    message, raw = _parse(_REQUEST, data, _RAW_INPUT)
    if raw:
        inputs, is_typed = _raw_tensors(message.inputs, raw), False
    else:
        inputs, is_typed = _typed_tensors(message.inputs), bool(message.inputs)
    request = InferRequest(
        message.model_name, message.model_version, message.id, inputs, binary_output=not is_typed
    )
    if message.outputs:
        request.outputs = [_wanted(output) for output in message.outputs]
    if message.parameters:
        take_parameters(request, message.parameters)
    return request


def encode_infer_response(
    request: InferRequest, response: InferResponse, *, mirror_typed: bool = False
) -> list[Any]:
    """Return the ModelInferResponse to `request` as buffers to be sent one after the other.

    Outputs are raw; their data are handed on as views, not copied. With `mirror_typed` a request
    that did not come raw is answered in typed contents, unless an output is FP16 or BF16, which
    have none: then all are raw, since a message holds the one form or the other. Raises
    InvalidRequest when the answer is larger than a gRPC message can be.
    """
    outputs = response.outputs
    head = _head(response.model, response.version)
    if request.id:
        head += _field(_ID, request.id.encode())
    if response.parameters:
        message = message_class(_RESPONSE)()
        encode_parameters(message.parameters, response.parameters)
        head += message.SerializeToString()
    if mirror_typed and not request.binary_output and _have_contents_fields(outputs):
        return [head, *(_field(_OUTPUTS, _output(tensor, is_typed=True)) for tensor in outputs)]
    for tensor in outputs:
        if tensor.parameters:
            head += _field(_OUTPUTS, _output(tensor, is_typed=False))
        else:
            head += _output_head(tensor.name, tensor.datatype, tensor.shape)
    return _with_raw(head, _RAW_OUTPUT, outputs)


def encode_infer_request(request: InferRequest) -> list[Any]:
    """Return `request` as a ModelInferRequest in buffers to be sent one after the other.

    Inputs are raw, their data handed on as views. Raises InvalidRequest when the request is larger
    than a gRPC message can be, or a parameter is an integer of more than 64 bits.
    """
    message = message_class(_REQUEST)(
        model_name=request.model, model_version=request.version, id=request.id
    )
    encode_parameters(message.parameters, request.parameters)
    encode_reserved(message.parameters, request)
    for tensor in request.inputs:
        item = message.inputs.add(
            name=tensor.name, datatype=tensor.datatype.value, shape=tensor.shape
        )
        encode_parameters(item.parameters, tensor.parameters or {})
    for wanted in request.outputs:
        output = message.outputs.add(name=wanted.name)
        if wanted.top_k:
            output.parameters["classification"].int64_param = wanted.top_k
    return _with_raw(message.SerializeToString(), _RAW_INPUT, request.inputs)


def decode_infer_response(data: bytes) -> InferResponse:
    """Return the answer a ModelInferResponse holds, raw or typed; large outputs are views.

    `final` is what the parameter triton_final_response says, true without it. Raises InferdError
    when the server's answer is malformed.
    """
    try:
        message, raw = _parse(_RESPONSE, data, _RAW_OUTPUT)
        parameters = {
            name: value
            for name, choice in message.parameters.items()
            if (value := decode_parameter(choice)) is not None
        }
        final = bool(parameters.pop("triton_final_response", True))
        outputs = _raw_tensors(message.outputs, raw) if raw else _typed_tensors(message.outputs)
    except InvalidRequest as error:
        msg = f"the server's answer is malformed: {error.message}"
        raise InferdError(msg) from error
    return InferResponse(
        message.model_name, message.model_version, message.id, outputs, parameters, final
    )


# --- tensors ---


def _raw_tensors(items: Any, raw: Any) -> list[Tensor]:
    """Return a tensor for each item, the i-th with the i-th entry of raw contents."""
    if len(raw) != len(items):
        msg = f"raw contents have {len(raw)} entries for {len(items)} tensors, expected one each"
        raise InvalidRequest(msg)
    tensors = []
    for item, data in zip(items, raw, strict=True):
        tensor, count = _described(item)
        if item.HasField("contents"):
            msg = f"tensor '{tensor.name}' has typed contents beside raw contents, expected one"
            raise InvalidRequest(msg)
        check_raw(data, tensor.name, tensor.datatype, count)
        tensor.data = data
        tensors.append(tensor)
    return tensors


def _typed_tensors(items: Any) -> list[Tensor]:
    tensors = []
    for item in items:
        tensor, count = _described(item)
        if count and not item.HasField("contents"):
            msg = f"tensor '{tensor.name}' has no data, neither raw nor typed contents"
            raise InvalidRequest(msg)
        tensor.data = decode_contents(item.contents, tensor.name, tensor.datatype, count)
        tensors.append(tensor)
    return tensors


def _described(item: Any) -> tuple[Tensor, int]:
    """Return the tensor of `item`, its data still empty, and its number of elements."""
    name = item.name
    datatype = datatype_named(item.datatype, name)
    shape = tuple(item.shape)
    count = element_count(shape) if len(shape) <= _MAX_RANK else 0
    if count <= 0 or min(shape, default=0) < 0:
        _check_unusual_shape(name, shape)
    tensor = Tensor(name, datatype, shape, b"")
    if item.parameters:
        _check_no_shared_memory("input", name, item.parameters)
        tensor.parameters = {
            key: value
            for key, choice in item.parameters.items()
            if (value := decode_parameter(choice)) is not None
        }
    return tensor, count


def _check_unusual_shape(name: str, shape: tuple[int, ...]) -> None:
    """Check a shape that is empty, negative or too long, for what no array can have."""
    if len(shape) > _MAX_RANK:
        msg = f"tensor '{name}' has {len(shape)} dims, expected at most {_MAX_RANK}"
        raise InvalidRequest(msg)
    if min(shape) < 0:
        msg = f"tensor '{name}' has shape {list(shape)}; -1 belongs to metadata, expected sizes"
        raise InvalidRequest(msg)
    if element_count([dim or 1 for dim in shape]) > _MAX_SPAN:
        msg = f"tensor '{name}' has shape {list(shape)}, which no array can have"
        raise InvalidRequest(msg)


def check_raw(data: Any, name: str, datatype: DataType, count: int) -> None:
    """Check that the buffer `data` holds exactly `count` elements of `datatype`.

    Raises InvalidRequest naming the tensor `name`.
    """
    if datatype is DataType.BYTES:
        check_strings(data, count, name)
    elif len(data) != count * datatype.size_bytes:
        msg = (
            f"tensor '{name}': shape and datatype {datatype.value} ask for "
            f"{count * datatype.size_bytes} bytes, raw contents hold {len(data)}"
        )
        raise InvalidRequest(msg)


def _wanted(item: Any) -> WantedOutput:
    """Return the wanted output of an InferRequestedOutputTensor; unknown parameters are ignored."""
    wanted = WantedOutput(item.name)
    if item.parameters:
        _check_no_shared_memory("output", item.name, item.parameters)
        if "classification" in item.parameters:
            choice = item.parameters["classification"]
            if choice.WhichOneof("parameter_choice") != "int64_param" or choice.int64_param < 1:
                msg = f"output '{item.name}': 'classification' must be an int64_param, 1 or more"
                raise InvalidRequest(msg)
            wanted.top_k = choice.int64_param
    return wanted


def _check_no_shared_memory(role: str, name: str, parameters: Any) -> None:
    if any(key.startswith("shared_memory_") for key in parameters):
        msg = f"{role} '{name}' refers to shared memory, which is not enabled on this server"
        raise Unsupported(msg)


# --- bytes ---


def _parse(name: str, data: bytes, raw_tag: bytes) -> tuple[Any, Any]:
    """Return the message without its raw contents, and these as a sequence of buffers."""
    if len(data) >= _SPLIT_FROM_BYTES:
        split = _split(data, raw_tag[0])
        if split is not None:
            return parse(name, split.rest), split.raw
    message = parse(name, data)
    return message, message.raw_input_contents if name is _REQUEST else message.raw_output_contents


class _Split(msgspec.Struct):
    rest: bytes
    raw: list[memoryview]


def _split(data: bytes, raw_tag: int) -> _Split | None:
    """Cut the raw contents out of a message: views of them, and the other fields joined.

    None when the message is not laid out as expected; a parser then says what is wrong with it.
    """
    view = memoryview(data)
    rest: list[memoryview] = []
    raw: list[memoryview] = []
    start, end = 0, len(data)
    while start < end:
        tag = data[start]
        # Every field of the messages is length-delimited (wire type 2) and has a one-byte tag.
        if tag & 0x87 != 2:
            return None
        size, at = _varint_at(data, start + 1)
        stop = at + size
        if stop > end:
            return None
        if tag == raw_tag:
            raw.append(view[at:stop])
        else:
            rest.append(view[start:stop])
        start = stop
    return _Split(b"".join(rest), raw)


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at `at` and where it ends; one cut short has a size no message has."""
    size = 0
    for shift, byte in enumerate(data[at : at + 5]):
        size |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return size, at + shift + 1
    return MAX_MESSAGE_BYTES + 1, at


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(tag: bytes, value: bytes) -> bytes:
    return tag + _varint(len(value)) + value


@lru_cache(maxsize=1024)
def _head(model: str, version: str) -> bytes:
    return _field(_NAME, model.encode()) + _field(_VERSION, version.encode())


@lru_cache(maxsize=1024)
def _output_head(name: str, datatype: DataType, shape: tuple[int, ...]) -> bytes:
    return _field(_OUTPUTS, _output(Tensor(name, datatype, shape, b""), is_typed=False))


def _output(tensor: Tensor, *, is_typed: bool) -> bytes:
    message = message_class(_OUTPUT)(
        name=tensor.name, datatype=tensor.datatype.value, shape=tensor.shape
    )
    encode_parameters(message.parameters, tensor.parameters or {})
    if is_typed:
        message.contents.SetInParent()
        encode_contents(message.contents, tensor)
    encoded: bytes = message.SerializeToString()
    return encoded


def _have_contents_fields(tensors: list[Tensor]) -> bool:
    return all(has_contents_field(tensor.datatype) for tensor in tensors)


def _with_raw(head: bytes, tag: bytes, tensors: list[Tensor]) -> list[Any]:
    """Return `head` followed by the data of `tensors`, each as a field `tag`."""
    buffers: list[Any] = []
    total = 0
    for tensor in tensors:
        data = tensor.view()
        size = len(data)
        head += tag + _varint(size)
        total += len(head) + size
        buffers += (head, data)
        head = b""
    if head:
        buffers.append(head)
    if total > MAX_MESSAGE_BYTES:
        msg = f"{total} bytes of tensors exceed the {MAX_MESSAGE_BYTES} a gRPC message can hold"
        raise InvalidRequest(msg)
    return buffers
