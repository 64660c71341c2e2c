"""V2 over JSON: inference requests and responses both ways, and the small calls."""

import functools
import math
from collections.abc import Sequence as SequenceOf
from decimal import Decimal
from typing import Any

import msgspec
import orjson

from inferd.core.metadata import ModelMetadata, ServerMetadata
from inferd.core.request import InferRequest, InferResponse, Resolve, Sequence, WantedOutput
from inferd.errors import Code, InferdError, InvalidRequest
from inferd.tensor.dtype import DATATYPES, DataType, datatype_named
from inferd.tensor.tensor import Parameters, Tensor
from inferd.wire import json_document
from inferd.wire.inline import (
    INLINE_ELEMENTS,
    INLINE_EXACT_BYTES,
    INLINE_JSON_BYTES,
    INLINE_STRING_BYTES,
    INLINE_STRINGS,
    NotFast,
)
from inferd.wire.json_data import decode_data, decode_flat, encode_data, json_text
from inferd.wire.json_document import Document, Input, JsonReader, Output, Shape
from inferd.wire.v2_binary import Blobs, decode_raw_request
from inferd.wire.v2_shared_memory import (
    OFFSET,
    PARAMETERS,
    REGION,
    SIZE,
    check_spans,
    decode_reference,
    no_regions,
    place_output,
    read_input,
)

HTTP_STATUS = {
    Code.UNKNOWN: 400,
    Code.INTERNAL: 500,
    Code.NOT_FOUND: 404,
    Code.INVALID_ARG: 400,
    Code.UNAVAILABLE: 503,
    Code.UNSUPPORTED: 501,
    Code.ALREADY_EXISTS: 400,
    Code.CANCELLED: 400,
    Code.RESTRICTED: 403,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
}
"""Reason -> HTTP status: Triton's classes; clients match on them."""

MAX_SHOWN = 200
"""Values of parameters in error texts are cut to this length."""

MAX_ERROR = 2000
"""Error texts are cut to about this length."""

_HALVES = (DataType.FP16, DataType.BF16)
_UNSET = msgspec.UNSET
_INT64 = range(-(2**63), 2**63)


class JsonRules(msgspec.Struct, frozen=True):
    """The choices the documents leave to the server.

    `half_floats`: FP16 and BF16 as JSON numbers are taken and given, else refused. `non_finite`:
    how NaN and infinities are written, "tokens", "null" or "error". `max_json_bytes`: the longest
    JSON part, or raw body, that is read.
    """

    half_floats: bool
    non_finite: str
    max_json_bytes: int


class V2Rest:
    """The codec of one server: what may take long is refused as NotFast, then done in a thread.

    It holds parsers: each method is for one thread at a time. `resolve` finds the shared memory a
    tensor refers to.
    """

    def __init__(self, rules: JsonRules, resolve: Resolve = no_regions) -> None:
        self._rules = rules
        self._resolve = resolve
        self._reader = JsonReader()
        self._large_reader = JsonReader()

    def decode_infer_request(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest:
        """Return the request in `body`, whose first `json_size` bytes are JSON; tensors are views.

        Raises InvalidRequest, Unsupported for a feature this server does not have, or NotFast for
        what is long, and should be given to `decode_large`, in a thread.
        """
        if (json_size or len(body)) > self._rules.max_json_bytes:
            raise self._too_large(json_size, len(body))
        if json_size == 0:
            return decode_raw_request(model, version, body)
        if json_size > INLINE_JSON_BYTES:
            raise NotFast
        text = body[:json_size]
        try:
            document = self._reader.read_fast(text)
            return self._request(model, version, document, Blobs(body, json_size, on_loop=True))
        except NotFast:
            if json_size > INLINE_EXACT_BYTES:
                raise
        document = json_document.read_exact(text)
        return self._request(model, version, document, Blobs(body, json_size, on_loop=True))

    def decode_large(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest:
        """Return what `decode_infer_request` could not, in a thread beside it.

        Raises as that; NotFast is for `decode_slowly`.
        """
        document = self._large_reader.read_fast(body[:json_size])
        return self._request(model, version, document, Blobs(body, json_size))

    def decode_slowly(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest:
        """Return what `decode_large` could not, in a third thread: this takes seconds."""
        document = json_document.read_exact(body[:json_size])
        return self._request(model, version, document, Blobs(body, json_size))

    def request_of(self, model: str, version: str, values: Any) -> InferRequest:
        """Return the request that JSON `values`, read by `json_document.loads_exact`, are.

        Raises as `decode_infer_request`, but NotFast. May be called in any thread.
        """
        document = json_document.document_of(values)
        return self._request(model, version, document, Blobs(memoryview(b""), 0))

    def _too_large(self, json_size: int, body_size: int) -> InferdError:
        limit = f"the limit is {self._rules.max_json_bytes} (--http-max-input-size)"
        if json_size == 0:
            return InvalidRequest(f"the raw request has {body_size} bytes, {limit}")
        return InvalidRequest(
            f"the JSON part has {json_size} bytes, {limit}; send tensors as binary data"
        )

    def _request(self, model: str, version: str, document: Document, blobs: Blobs) -> InferRequest:
        inputs = []
        for one in document.inputs:
            flat = None if one.parameters else decode_flat(one)
            inputs.append(flat or self._input(one, blobs))
        if blobs.offset != blobs.end:
            blobs.check_used_up()
        request = InferRequest(model, version, document.id or "", inputs)
        if document.outputs:
            request.outputs = _wanted_outputs(document.outputs, blobs, self._resolve)
        if document.parameters:
            set_parameters(request, document.parameters)
        if blobs.spans is not None:
            check_spans(blobs.spans, request.outputs)
            request.spans = blobs.spans
        return request

    def _input(self, document: Input, blobs: Blobs) -> Tensor:
        name = document.name
        datatype = DATATYPES.get(document.datatype) or datatype_named(document.datatype, name)
        shape = document.shape
        parameters = document.parameters
        if not parameters:
            if document.data is _UNSET:
                raise _no_data(name)
            if datatype in _HALVES:
                self._check_halves(name, datatype, document.data)
            if datatype is DataType.BYTES and blobs.on_loop and _is_large(document.data):
                raise NotFast
            return decode_data(name, datatype, shape, document.data)
        size = parameters.get("binary_data_size")
        if parameters.get(REGION) is not None:
            if size is not None or document.data is not _UNSET:
                raise _two_sources(name)
            tensor = self._shared_input(Tensor(name, datatype, shape, b""), parameters, blobs)
        elif size is None:
            document.parameters = None
            tensor = self._input(document, blobs)
        elif document.data is not _UNSET:
            raise _two_sources(name)
        else:
            tensor = blobs.take(name, datatype, shape, size)
        if len(parameters) > 1 or size is None:
            tensor.parameters = _scalars(parameters)
        return tensor

    def _shared_input(self, tensor: Tensor, parameters: dict[str, Any], blobs: Blobs) -> Tensor:
        """Give `tensor` the shared memory that `parameters` name, and return it."""
        what = f"input '{tensor.name}'"
        given = (parameters[REGION], parameters.get(OFFSET), parameters.get(SIZE))
        span = blobs.add_span(self._resolve(*decode_reference(what, *given)))
        read_input(tensor, span, on_loop=blobs.on_loop)
        return tensor

    def _check_halves(self, name: str, datatype: DataType, data: Any) -> None:
        is_text = type(data) is str or (type(data) is msgspec.Raw and bytes(data)[:1] == b'"')
        if not self._rules.half_floats and not is_text:
            msg = (
                f"input '{name}': {datatype.value} as JSON numbers is turned off on this server; "
                f"send it as binary data"
            )
            raise InvalidRequest(msg)

    def encode_infer_response(
        self, request: InferRequest, response: InferResponse, *, in_thread: bool = False
    ) -> tuple[list[Any], int | None]:
        """Return `response` as buffers to be written in order, and the bytes of their JSON part.

        The second is None when nothing but JSON follows (no binary bytes). Raises InvalidRequest
        when an output cannot be said in JSON, and NotFast, unless `in_thread`, when that is long.
        """
        text = [_response_head(response)]
        blobs: list[memoryview] = []
        wanted = request.outputs
        for index, tensor in enumerate(response.outputs):
            text.append(_output_head(tensor.name, tensor.datatype, tensor.shape))
            if wanted[index].binary if wanted else request.binary_output:
                view = tensor.view()
                blobs.append(view)
                text.append(_binary_size(tensor.parameters, view.nbytes))
            elif wanted and wanted[index].place is not None:  # the client has it already
                text[-1] = text[-1][:-1]
                if tensor.parameters:
                    text.append(b',"parameters":%b' % orjson.dumps(tensor.parameters))
            else:
                if tensor.parameters:
                    text.append(b'"parameters":%b,' % orjson.dumps(tensor.parameters))
                if tensor.datatype in _HALVES and not self._rules.half_floats:
                    raise no_halves(tensor)
                count = math.prod(tensor.shape)
                is_text = tensor.datatype is DataType.BYTES
                if not in_thread and (count > INLINE_STRINGS or is_text) and is_long(tensor, count):
                    raise NotFast
                text.append(b'"data":')
                text.append(encode_data(tensor, self._rules.non_finite))
            text.append(b"},")
        text[-1] = text[-1].removesuffix(b",") + b"]}"
        if not any(blobs):
            return [b"".join(text)] if len(text) < 2 or len(text[-2]) < 65536 else text, None
        head = b"".join(text)
        return [head, *blobs], len(head)


# --- pieces of requests ---


def _is_large(data: Any) -> bool:
    return hasattr(data, "as_buffer") and len(data) > INLINE_STRINGS


def _no_data(name: str) -> InferdError:
    return InvalidRequest(
        f"input '{name}' has no data: expected 'data', or binary_data_size or "
        f"shared_memory_region in its parameters"
    )


def _two_sources(name: str) -> InferdError:
    return InvalidRequest(
        f"input '{name}' has its data in two places, "
        f"expected one of 'data', binary_data_size and shared_memory_region"
    )


def no_halves(tensor: Tensor) -> InferdError:
    """Return the error for an output that is not written as JSON numbers on this server."""
    return InvalidRequest(
        f"output '{tensor.name}': {tensor.datatype.value} as JSON numbers is turned off on this "
        f"server; ask for it with binary_data true"
    )


def _scalars(parameters: dict[str, Any]) -> Parameters | None:
    """Keep what a parameter may be; unknown names of any type are tolerated on tensors."""
    kept = {
        key: _parameter(key, value)
        for key, value in parameters.items()
        if key not in _NOT_CUSTOM and isinstance(value, bool | int | str | float | Decimal)
    }
    return kept or None


_NOT_CUSTOM = PARAMETERS | {"binary_data_size"}


def _wanted_outputs(outputs: list[Output], blobs: Blobs, resolve: Resolve) -> list[WantedOutput]:
    wanted = []
    for one in outputs:
        asked = one.parameters
        if asked is None:
            wanted.append(WantedOutput(one.name))
            continue
        top_k = asked.classification or 0
        if top_k < 0:
            msg = f"output '{one.name}': classification must be a count of classes, 0 or more"
            raise InvalidRequest(msg)
        output = WantedOutput(one.name, asked.binary_data, top_k)
        wanted.append(output)
        if (region := asked.shared_memory_region) is not None:
            given = (region, asked.shared_memory_offset, asked.shared_memory_byte_size)
            reference = decode_reference(f"output '{one.name}'", *given)
            blobs.add_span(place_output(output, reference, resolve))
    return wanted


def set_parameters(request: InferRequest, parameters: dict[str, Any]) -> None:
    """Move request parameters where they belong. V2 extensions: sequence, schedule policy, binary.

    Raises InvalidRequest naming the parameter and what it must be.
    """
    kept: Parameters = {}
    for key, value in parameters.items():
        if value is None:
            continue
        if check := _RESERVED.get(key):
            check(request, key, value)
        elif key.startswith("triton_"):
            msg = f"parameter '{key}': names that begin with 'triton_' are reserved"
            raise InvalidRequest(msg)
        else:
            kept[key] = _parameter(key, value)
    request.parameters = kept
    if request.sequence and not request.sequence.id:
        request.sequence = None  # Triton: id 0, or none, is no sequence


def _parameter(key: str, value: Any) -> bool | int | str | float:
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "an array"
        msg = f"parameter '{key}' is {kind}, expected a string, a number or a boolean"
        raise InvalidRequest(msg)
    if isinstance(value, bool | str | float):
        return value
    if type(value) is int and value in _INT64:
        return value
    try:
        wide = float(value)
    except OverflowError:
        wide = math.inf
    if math.isinf(wide):
        msg = f"parameter '{key}' is beyond double precision"
        raise InvalidRequest(msg)
    return wide


def _set_binary_output(request: InferRequest, key: str, value: Any) -> None:
    request.binary_output = _boolean(key, value)


def _set_priority(request: InferRequest, key: str, value: Any) -> None:
    request.priority = _unsigned(key, value)


def _set_timeout(request: InferRequest, key: str, value: Any) -> None:
    request.timeout_us = _unsigned(key, value)


def _set_empty_final(request: InferRequest, key: str, value: Any) -> None:
    request.empty_final = _boolean(key, value)


def _set_sequence(request: InferRequest, key: str, value: Any) -> None:
    sequence = request.sequence or Sequence(0)
    if key == "sequence_id":
        sequence.id = value if type(value) is str else _unsigned(key, value, " or a string")
    elif key == "sequence_start":
        sequence.start = _boolean(key, value)
    else:
        sequence.end = _boolean(key, value)
    request.sequence = sequence


_RESERVED = {
    "binary_data_output": _set_binary_output,
    "priority": _set_priority,
    "timeout": _set_timeout,
    "sequence_id": _set_sequence,
    "sequence_start": _set_sequence,
    "sequence_end": _set_sequence,
    "triton_enable_empty_final_response": _set_empty_final,
}


def _boolean(key: str, value: Any) -> bool:
    if type(value) is not bool:
        msg = f"parameter '{key}' is {json_text(value)[:MAX_SHOWN]}, expected true or false"
        raise InvalidRequest(msg)
    return value


def _unsigned(key: str, value: Any, also: str = "") -> int:
    if type(value) is not int or not 0 <= value < 2**64:
        msg = (
            f"parameter '{key}' is {json_text(value)[:MAX_SHOWN]}, "
            f"expected a whole number from 0 to 2^64 - 1{also}"
        )
        raise InvalidRequest(msg)
    return value


# --- pieces of responses ---


def is_long(tensor: Tensor, count: int) -> bool:
    """Tell whether the `count` elements of `tensor` are too many for the event loop, as JSON."""
    if tensor.datatype is DataType.BYTES:
        return count > INLINE_STRINGS or tensor.size_bytes > INLINE_STRING_BYTES
    return count > INLINE_ELEMENTS


def _response_head(response: InferResponse) -> bytes:
    head = _model_head(response.model, response.version)
    if response.id:
        head = b'{"id":' + orjson.dumps(response.id) + b"," + head[1:]
    if response.parameters:
        head = (
            head[: -len(_OUTPUTS)]
            + b',"parameters":'
            + orjson.dumps(response.parameters)
            + _OUTPUTS
        )
    return head


_OUTPUTS = b',"outputs":['


@functools.lru_cache(1024)
def _model_head(model: str, version: str) -> bytes:
    return b'{"model_name":%b,"model_version":%b%b' % (
        orjson.dumps(model),
        orjson.dumps(version),
        _OUTPUTS,
    )


@functools.lru_cache(4096)
def _output_head(name: str, datatype: DataType, shape: tuple[int, ...]) -> bytes:
    return b'{"name":%b,"datatype":"%b","shape":%b,' % (
        orjson.dumps(name),
        datatype.value.encode(),
        orjson.dumps(shape),
    )


def _binary_size(parameters: Parameters | None, size: int) -> bytes:
    if parameters:
        return b'"parameters":%b' % orjson.dumps({**parameters, "binary_data_size": size})
    return b'"parameters":{"binary_data_size":%d}' % size


# --- the small calls ---


def encode_error(message: str) -> bytes:
    """Return the V2 error object; of a text beyond MAX_ERROR, which names made long, both ends."""
    if len(message) > MAX_ERROR:
        message = f"{message[: MAX_ERROR // 2]} ... {message[-MAX_ERROR // 2 :]}"
    return orjson.dumps({"error": message})


def encode_live(*, live: bool) -> bytes:
    """Return $live_server_response."""
    return orjson.dumps({"live": live})


def encode_ready(*, ready: bool, error: str = "") -> bytes:
    """Return the server ready body: both spellings the specs print, so every client is content."""
    body: dict[str, Any] = {"live": ready, "ready": ready}
    if error:
        body["error"] = error
    return orjson.dumps(body)


def encode_model_ready(name: str, *, ready: bool, error: str = "") -> bytes:
    """Return $ready_model_response, with an error text when not ready."""
    body: dict[str, Any] = {"name": name, "ready": ready}
    if error:
        body["error"] = error
    return orjson.dumps(body)


def encode_server_metadata(metadata: ServerMetadata) -> bytes:
    """Return $metadata_server_response."""
    return msgspec.json.encode(metadata)


def encode_model_names(names: SequenceOf[str]) -> bytes:
    """Return the list of models, in the shape KServe gives it."""
    return orjson.dumps({"models": names})


def encode_model_metadata(metadata: ModelMetadata) -> bytes:
    """Return $metadata_model_response."""
    return msgspec.json.encode(metadata)


def decode_model_metadata(body: bytes) -> ModelMetadata:
    """Return the metadata a server answered with. Raises InvalidRequest."""
    try:
        return msgspec.json.decode(body, type=ModelMetadata)
    except msgspec.MsgspecError as error:
        msg = f"not model metadata: {error}"
        raise InvalidRequest(msg) from None


# --- the client's side ---


def encode_infer_request(request: InferRequest, *, binary: bool) -> tuple[list[Any], int | None]:
    """Return `request` as buffers and the size of their JSON part (None: only JSON).

    `binary` sends every input by the binary extension, and asks for binary outputs where
    `request` does not say otherwise. Raises InvalidRequest for what JSON cannot say.
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
    parameters = request.parameters | _reserved_parameters(request)
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
    asked: dict[str, Any] = {"binary_data": binary if wanted.binary is None else wanted.binary}
    if wanted.top_k:
        asked["classification"] = wanted.top_k
    return {"name": wanted.name, "parameters": asked}


def _reserved_parameters(request: InferRequest) -> Parameters:
    """Return the fields of `request` that travel as parameters; the other way is _RESERVED."""
    parameters: Parameters = {}
    if request.priority:
        parameters["priority"] = request.priority
    if request.timeout_us:
        parameters["timeout"] = request.timeout_us
    if sequence := request.sequence:
        parameters["sequence_id"] = sequence.id
        parameters["sequence_start"] = sequence.start
        parameters["sequence_end"] = sequence.end
    return parameters


class _OutputDocument(msgspec.Struct):
    name: str
    shape: Shape
    datatype: str
    parameters: dict[str, Any] | None = None
    data: Any = _UNSET


class _ResponseDocument(msgspec.Struct):
    model_name: str
    outputs: list[_OutputDocument]
    model_version: str | None = None
    id: str | None = None
    parameters: dict[str, Any] | None = None


def decode_infer_response(body: memoryview, json_size: int) -> InferResponse:
    """Return the response in `body`, whose first `json_size` bytes are JSON.

    Raises InvalidRequest when it is not one.
    """
    values = json_document.loads_exact(body[:json_size])
    try:
        document = msgspec.convert(values, _ResponseDocument)
    except msgspec.ValidationError as error:
        msg = f"not an inference response: {error}"
        raise InvalidRequest(msg) from None
    blobs = Blobs(body, json_size)
    outputs = []
    for one in document.outputs:
        datatype = datatype_named(one.datatype, one.name)
        parameters = one.parameters or {}
        size = parameters.get("binary_data_size")
        if size is None:
            tensor = decode_data(one.name, datatype, one.shape, one.data)
        else:
            tensor = blobs.take(one.name, datatype, one.shape, size)
        tensor.parameters = _scalars(parameters)
        outputs.append(tensor)
    blobs.check_used_up()
    return InferResponse(
        document.model_name,
        document.model_version or "",
        document.id or "",
        outputs,
        _scalars(document.parameters or {}) or {},
    )
