"""The client side of the TensorRT Inference Server API: encodes requests, decodes answers.

A header names no datatypes, so a client needs the model's configuration, which is in the status.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from google.protobuf import json_format, text_format

from inferd.errors import InferdError, InvalidRequest, Refused
from inferd.memory.buffer import Buffer
from inferd.tensor.array import Array
from inferd.tensor.dtype import DATATYPES, DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.proto import encode, message_class, parse_answer
from inferd.wire.trtis.http import CODE_NAMES
from inferd.wire.trtis.infer import SUCCESS
from inferd.wire.trtis.status import PACKAGE

LATEST = -1


class Class(NamedTuple):
    """One of the classes of an output."""

    idx: int
    value: float
    label: str


class Inferred(msgspec.Struct):
    """An answer: raw outputs as arrays, and classes for each item of the batch, both by name."""

    model: str
    version: int
    id: int
    arrays: dict[str, Array]
    classes: dict[str, list[list[Class]]]


class Known(msgspec.Struct):
    """What a client must know of a model: whether it batches, and the datatypes of its tensors."""

    batches: bool
    inputs: dict[str, DataType]
    outputs: dict[str, DataType]


class ClientRequest(msgspec.Struct):
    """An inference request: its header, an InferRequestHeader, and the bytes of its inputs."""

    header: Any
    buffers: list[Buffer]

    @property
    def line(self) -> str:
        """The value of NV-InferRequest: ASCII on one line."""
        # A header of HTTP has one line.
        return text_format.MessageToString(self.header, as_one_line=True, as_utf8=False)


def ask(
    known: Known, inputs: Mapping[str, Array], outputs: Mapping[str, int], request_id: int = 0
) -> ClientRequest:
    """Return the request for `inputs`, whose first dim is the batch dim if the model batches.

    `outputs` maps the wanted outputs to a number of classes, 0 for the raw tensor. Raises
    InvalidRequest for an input that the model lacks, or of another datatype.
    """
    header = message_class(f"{PACKAGE}.InferRequestHeader")(batch_size=1, id=request_id)
    for name, count in outputs.items():
        header.output.add(name=name, cls={"count": count} if count else None)
    buffers: list[Buffer] = []
    for name, array in inputs.items():
        datatype = known.inputs.get(name)
        if datatype is None or (datatype is not DataType.BYTES and array.dtype != datatype.numpy):
            raise InvalidRequest(f"input '{name}' is {array.dtype}, the model takes {known.inputs}")
        view = Tensor.from_numpy(name, array, datatype).view()
        dims = array.shape
        if known.batches:
            header.batch_size, dims = array.shape[0], array.shape[1:]
        header.input.add(name=name, dims=dims, batch_byte_size=len(view))
        buffers.append(view)
    return ClientRequest(header, buffers)


def encode_infer_request(model: str, version: int, request: ClientRequest) -> bytes:
    """Return an InferRequest for gRPC."""
    return encode(
        f"{PACKAGE}.InferRequest",
        model_name=model,
        model_version=version,
        meta_data=request.header,
        raw_input=[bytes(buffer) for buffer in request.buffers],
    )


def encode_call(rpc: str, **fields: object) -> bytes:
    """Return the request message of a small call over gRPC."""
    return encode(f"{PACKAGE}.{rpc}Request", **fields)


def check_status_line(value: str | None) -> None:
    """Raise Refused when NV-Status reports a failure, InferdError when it cannot be read."""
    status = message_class(f"{PACKAGE}.RequestStatus")()
    try:
        text_format.Parse(value or "", status)
    except text_format.ParseError:
        status.Clear()
    _check(status)


def read_call(rpc: str, data: bytes) -> Any:
    """Decode the answer to a small call over gRPC. Raises Refused."""
    answer = parse_answer(f"{PACKAGE}.{rpc}Response", data)
    _check(answer.request_status)
    return answer


def status_fields(status: bytes) -> dict[str, object]:
    """Return a ServerStatus as dicts and lists, with protobuf's names; 64-bit numbers are text."""
    message = parse_answer(f"{PACKAGE}.ServerStatus", status)
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def known_model(status: bytes, model: str) -> Known:
    """Return what a ServerStatus says of a model. Raises InferdError when it has no such model."""
    models = parse_answer(f"{PACKAGE}.ServerStatus", status).model_status
    if model not in models:
        raise InferdError(f"the server tells nothing of model '{model}'")
    config = models[model].config
    return Known(config.max_batch_size > 0, _datatypes(config.input), _datatypes(config.output))


def read_body(known: Known, line: str, body: bytes) -> Inferred:
    """Decode an answer over HTTP: `line` is NV-InferResponse; `body` ends with a binary header."""
    header = message_class(f"{PACKAGE}.InferResponseHeader")()
    try:
        text_format.Parse(line, header)
    except text_format.ParseError as error:
        raise InferdError(f"the server's answer is malformed: {error}") from error
    raw, at = [], 0
    for output in header.output:
        size = output.raw.batch_byte_size if output.HasField("raw") else 0
        raw.append(body[at : at + size])
        at += size
    # Behind the tensors stands the header again, binary and with the classes that the line may
    # lack.
    return _inferred(known, parse_answer(f"{PACKAGE}.InferResponseHeader", body[at:]), raw)


def read_infer_response(known: Known, data: bytes) -> Inferred:
    """Decode an answer over gRPC. Raises Refused."""
    answer = read_call("Infer", data)
    return _inferred(known, answer.meta_data, answer.raw_output)


def _inferred(known: Known, header: Any, raw: Sequence[bytes]) -> Inferred:
    found = Inferred(header.model_name, header.model_version, header.id, {}, {})
    for output, data in zip(header.output, raw, strict=True):
        if not output.HasField("raw"):
            found.classes[output.name] = [
                [Class(one.idx, one.value, one.label) for one in each.cls]
                for each in output.batch_classes
            ]
            continue
        shape = tuple(output.raw.dims)
        if known.batches:
            shape = (header.batch_size, *shape)
        tensor = Tensor(output.name, known.outputs[output.name], shape, data)
        found.arrays[output.name] = tensor.numpy()
    return found


def _datatypes(rows: Any) -> dict[str, DataType]:
    # The enum is known by a field that has it, since the old schema nests it.
    names = message_class(f"{PACKAGE}.ModelInput").DESCRIPTOR.fields_by_name["data_type"].enum_type
    return {
        row.name: DATATYPES[names.values_by_number[row.data_type].name.removeprefix("TYPE_")]
        for row in rows
        if row.data_type
    }


def _check(status: Any) -> None:
    # 0 is protobuf's default: the server has not said anything.
    if not 0 < status.code < len(CODE_NAMES):
        raise InferdError("the server did not say what became of the request")
    if status.code != SUCCESS:
        raise Refused(CODE_NAMES[status.code], status.msg)
