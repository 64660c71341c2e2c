"""The client side of V2 over JSON: encodes inference requests, decodes responses."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from inferd.aio.inline import NotFast
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import InvalidRequest
from inferd.memory.buffer import Buffer
from inferd.tensor.dtype import datatype_named
from inferd.tensor.tensor import Tensor
from inferd.wire.json import document as json_document
from inferd.wire.json.data import decode_data, decode_flat, encode_data
from inferd.wire.json.document import JsonObject, Shape
from inferd.wire.shared_memory import REGION, placed_output, span_parameters
from inferd.wire.v2.binary import Blobs
from inferd.wire.v2.rest.parameters import reserved_parameters, scalars


def encode_infer_request(request: InferRequest, *, binary: bool) -> tuple[list[Buffer], int | None]:
    """Return `request` as buffers and the size of their JSON part (None: only JSON).

    `binary` sends every input by the binary extension, and asks for binary outputs unless
    `request` says otherwise. Raises InvalidRequest for values that JSON cannot express.
    """
    blobs: list[memoryview] = []
    inputs = []
    for tensor in request.inputs:
        entry: JsonObject = {
            "name": tensor.name,
            "shape": tensor.shape,
            "datatype": tensor.datatype.value,
        }
        if tensor.parameters:
            entry["parameters"] = dict(tensor.parameters)
        if tensor.parameters and REGION in tensor.parameters:
            pass  # its data are there
        elif binary:
            blobs.append(tensor.view())
            entry.setdefault("parameters", {})["binary_data_size"] = tensor.size_bytes
        else:
            entry["data"] = orjson.Fragment(encode_data(tensor, "tokens"))
        inputs.append(entry)
    document: JsonObject = {"inputs": inputs}
    if request.id:
        document["id"] = request.id
    parameters = request.parameters | reserved_parameters(request)
    if request.outputs:
        document["outputs"] = [_output_entry(one, binary=binary) for one in request.outputs]
    elif binary or request.binary_output:
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = parameters
    try:
        head = orjson.dumps(document)
    except TypeError as error:  # half a surrogate pair, an integer of more than 64 bits
        raise InvalidRequest(f"the request cannot be said in JSON: {error}") from None
    return [head, *blobs], len(head) if binary else None


def _output_entry(wanted: WantedOutput, *, binary: bool) -> dict[str, object]:
    parameters: dict[str, object]
    if wanted.place is not None:
        parameters = dict(span_parameters(wanted.place))
    else:
        parameters = {"binary_data": binary if wanted.binary is None else wanted.binary}
    if wanted.top_k:
        parameters["classification"] = wanted.top_k
    return {"name": wanted.name, "parameters": parameters}


class _Output(msgspec.Struct, gc=False):
    name: str
    shape: Shape
    datatype: str
    parameters: JsonObject | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Document(msgspec.Struct, gc=False):
    model_name: str
    outputs: list[_Output]
    model_version: str | None = None
    id: str | None = None
    parameters: JsonObject | None = None


class _ExactOutput(_Output, gc=False):
    data: Any = msgspec.UNSET


class _ExactDocument(_Document, gc=False):
    outputs: list[_ExactOutput]  # type: ignore[assignment]  # narrower, and never written to


_decode_fast = msgspec.json.Decoder(_Document).decode


def decode_infer_response(
    body: memoryview, json_size: int, places: Mapping[str, memoryview] | None = None
) -> InferResponse:
    """Return the response in `body`, whose first `json_size` bytes are JSON.

    `places` is the shared memory of outputs that were requested there.

    Raises InvalidRequest when it is malformed.
    """
    text = body[:json_size]
    try:
        document = _decode_fast(text)
        outputs = _outputs(document, body, json_size, places)
    # Whatever the fast reader does not take is read exactly, which also words the error.
    except (NotFast, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        values = json_document.loads_exact(text)
        try:
            document = msgspec.convert(values, _ExactDocument)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"not an inference response: {error}") from None
        outputs = _outputs(document, body, json_size, places)
    parameters = document.parameters
    return InferResponse(
        document.model_name,
        document.model_version or "",
        document.id or "",
        outputs,
        (scalars(parameters) or {}) if parameters else {},
    )


def _outputs(
    document: _Document,
    body: memoryview,
    json_size: int,
    places: Mapping[str, memoryview] | None,
) -> list[Tensor]:
    """Return the outputs. Raises InvalidRequest, NotFast for what is to be read exactly."""
    blobs = Blobs(body, json_size, model=document.model_name)
    outputs = []
    for one in document.outputs:
        parameters = one.parameters or {}
        size = parameters.get("binary_data_size")
        if places is not None and one.name in places:
            datatype = datatype_named(one.datatype, one.name)
            tensor = placed_output(one.name, datatype, one.shape, places[one.name])
        elif size is not None:
            datatype = datatype_named(one.datatype, one.name)
            tensor = blobs.take(one.name, datatype, one.shape, size)
        elif isinstance(one.data, msgspec.Raw):
            tensor = _from_text(one.name, one.datatype, one.shape, one.data)
        else:
            datatype = datatype_named(one.datatype, one.name)
            tensor = decode_data(one.name, datatype, one.shape, one.data)
        if len(parameters) > (size is not None):
            tensor.parameters = scalars(parameters)
        outputs.append(tensor)
    blobs.check_used_up()
    return outputs


def _from_text(name: str, datatype: str, shape: Shape, data: msgspec.Raw) -> Tensor:
    """Return the tensor whose elements are `data`. Raises NotFast, InvalidRequest."""
    if len(memoryview(data)) < json_document.LARGE_BYTES:
        flat = decode_flat(json_document.Input(name, shape, datatype, data=data))
        if flat is not None:
            return flat
    kind = datatype_named(datatype, name)
    return decode_data(name, kind, shape, json_document.array_of(data))
