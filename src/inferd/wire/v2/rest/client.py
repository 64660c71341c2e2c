"""The client side of V2 over JSON: encodes inference requests, decodes responses."""

from typing import Any

import msgspec
import orjson

from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import datatype_named
from inferd.wire.json import document as json_document
from inferd.wire.json.data import decode_data, encode_data
from inferd.wire.json.document import Shape
from inferd.wire.v2.binary import Blobs
from inferd.wire.v2.rest.parameters import reserved_parameters, scalars


def encode_infer_request(request: InferRequest, *, binary: bool) -> tuple[list[Any], int | None]:
    """Return `request` as buffers and the size of their JSON part (None: only JSON).

    `binary` sends every input by the binary extension, and asks for binary outputs unless
    `request` says otherwise. Raises InvalidRequest for values that JSON cannot express.
    """
    blobs: list[memoryview] = []
    inputs = []
    for tensor in request.inputs:
        entry: dict[str, Any] = {
            "name": tensor.name,
            "shape": tensor.shape,
            "datatype": tensor.datatype.value,
        }
        if tensor.parameters:
            entry["parameters"] = dict(tensor.parameters)
        if binary:
            blobs.append(tensor.view())
            entry.setdefault("parameters", {})["binary_data_size"] = tensor.size_bytes
        else:
            entry["data"] = orjson.Fragment(encode_data(tensor, "tokens"))
        inputs.append(entry)
    document: dict[str, Any] = {"inputs": inputs}
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
        msg = f"the request cannot be said in JSON: {error}"
        raise InvalidRequest(msg) from None
    return [head, *blobs], len(head) if binary else None


def _output_entry(wanted: WantedOutput, *, binary: bool) -> dict[str, Any]:
    parameters: dict[str, Any] = {"binary_data": binary if wanted.binary is None else wanted.binary}
    if wanted.top_k:
        parameters["classification"] = wanted.top_k
    return {"name": wanted.name, "parameters": parameters}


class _OutputDocument(msgspec.Struct):
    name: str
    shape: Shape
    datatype: str
    parameters: dict[str, Any] | None = None
    data: Any = msgspec.UNSET


class _ResponseDocument(msgspec.Struct):
    model_name: str
    outputs: list[_OutputDocument]
    model_version: str | None = None
    id: str | None = None
    parameters: dict[str, Any] | None = None


def decode_infer_response(body: memoryview, json_size: int) -> InferResponse:
    """Return the response in `body`, whose first `json_size` bytes are JSON.

    Raises InvalidRequest when it is malformed.
    """
    values = json_document.loads_exact(body[:json_size])
    try:
        document = msgspec.convert(values, _ResponseDocument)
    except msgspec.ValidationError as error:
        msg = f"not an inference response: {error}"
        raise InvalidRequest(msg) from None
    blobs = Blobs(body, json_size, model=document.model_name)
    outputs = []
    for one in document.outputs:
        datatype = datatype_named(one.datatype, one.name)
        parameters = one.parameters or {}
        size = parameters.get("binary_data_size")
        if size is None:
            tensor = decode_data(one.name, datatype, one.shape, one.data)
        else:
            tensor = blobs.take(one.name, datatype, one.shape, size)
        tensor.parameters = scalars(parameters)
        outputs.append(tensor)
    blobs.check_used_up()
    return InferResponse(
        document.model_name,
        document.model_version or "",
        document.id or "",
        outputs,
        scalars(document.parameters or {}) or {},
    )
