"""V2 over JSON: decodes inference requests, encodes responses and errors."""

import functools
import math
from typing import Any, cast

import msgspec
import orjson

from inferd.aio.inline import (
    INLINE_ELEMENTS,
    INLINE_EXACT_BYTES,
    INLINE_JSON_BYTES,
    INLINE_STRING_BYTES,
    INLINE_STRINGS,
    NotFast,
)
from inferd.core.request import (
    UNSEQUENCED,
    InferRequest,
    InferResponse,
    Resolve,
    WantedOutput,
    wanted_of,
)
from inferd.errors import Code, InferdError, InvalidRequest
from inferd.memory.buffer import Buffer
from inferd.tensor.dtype import DATATYPES, DataType, datatype_named
from inferd.tensor.tensor import Parameters, Tensor
from inferd.wire.json import document as json_document
from inferd.wire.json.data import decode_data, decode_flat, encode_data
from inferd.wire.json.document import Document, Input, JsonObject, JsonReader, Output
from inferd.wire.shared_memory import (
    OFFSET,
    PARAMETERS,
    REGION,
    SIZE,
    decode_reference,
    no_regions,
    output_reference,
    place_output,
    read_input,
    take_spans,
)
from inferd.wire.v2.binary import Blobs, decode_raw_request
from inferd.wire.v2.rest.answer import JOIN_BYTES, KnownAnswer, is_repeatable
from inferd.wire.v2.rest.parameters import scalars, set_parameters
from inferd.wire.v2.rest.template import MOST_BYTES, Templates

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
    Code.TOO_LARGE: 413,
}
"""Reason -> HTTP status: Triton's classes; clients match on them."""

MAX_ERROR = 2000
"""Error texts are cut to about this length."""

MOST_ANSWERS = 512
"""For how many kinds of repeated requests the form of their answers is remembered."""

_HALVES = (DataType.FP16, DataType.BF16)
_UNSET = msgspec.UNSET


class JsonRules(msgspec.Struct, frozen=True):
    """The choices that the specifications leave to the server.

    `half_floats`: FP16 and BF16 are accepted and returned as JSON numbers, else refused.
    `non_finite`: how NaN and infinities are written, "tokens", "null" or "error".
    `max_json_bytes`: the longest JSON part, or raw body, that is read.
    """

    half_floats: bool
    non_finite: str
    max_json_bytes: int


class V2Rest:
    """The codec of one server: slow work is refused with NotFast, then done in a thread.

    It holds parsers: each method is for one thread at a time. `resolve` finds the shared memory a
    tensor refers to.
    """

    def __init__(self, rules: JsonRules, resolve: Resolve = no_regions) -> None:
        self._rules = rules
        self._resolve = resolve
        self._refused_as_text = () if rules.half_floats else _HALVES
        # Two, because simdjson's parser holds a document and belongs to one thread.
        self._reader = JsonReader()
        self._large_reader = JsonReader()
        self._templates = Templates(self._describe, resolve)
        self._answers: dict[tuple[object, str, str], KnownAnswer] = {}

    def decode_infer_request(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest:
        """Return the request in `body`, whose first `json_size` bytes are JSON; tensors are views.

        Raises InvalidRequest, Unsupported for a feature this server does not have, or NotFast for
        a long request, which is for `decode_large`, in a thread.
        """
        # A raw body counts in full, since all of it is its input.
        if (json_size or len(body)) > self._rules.max_json_bytes:
            raise self._too_large(json_size, len(body))
        if json_size == 0:
            return decode_raw_request(model, version, body)
        if json_size > INLINE_JSON_BYTES:
            raise NotFast
        if json_size <= MOST_BYTES:
            text, data = bytes(body[:json_size]), body[json_size:]
            if (request := self._templates.request(model, version, text, data)) is not None:
                return request
        part = body if json_size == len(body) else body[:json_size]
        try:
            document = self._reader.read_fast(part)
            return self._request(model, version, document, Blobs(body, json_size, on_loop=True))
        except NotFast:
            if json_size > INLINE_EXACT_BYTES:
                raise
        # Short enough to be read exactly here.
        document = json_document.read_exact(part)
        return self._request(model, version, document, Blobs(body, json_size, on_loop=True))

    def decode_large(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest:
        """Decode what `decode_infer_request` refused with NotFast, in another thread.

        Raises the same errors; what raises NotFast here is for `decode_slowly`.
        """
        document = self._large_reader.read_fast(body[:json_size])
        return self._request(model, version, document, Blobs(body, json_size))

    def decode_slowly(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest:
        """Decode what `decode_large` refused, in a third thread: this takes seconds."""
        document = json_document.read_exact(body[:json_size])
        return self._request(model, version, document, Blobs(body, json_size))

    def request_of(
        self, model: str, version: str, values: Any, *, on_loop: bool = False
    ) -> InferRequest:
        """Return the request that JSON `values`, read by `json_document.loads_exact`, are.

        Raises as `decode_infer_request`; NotFast if `on_loop`. May be called in any thread.
        """
        document = json_document.document_of(values)
        # No binary part, so an input that names one is refused.
        return self._request(model, version, document, Blobs(memoryview(b""), 0, on_loop))

    def _too_large(self, json_size: int, body_size: int) -> InferdError:
        limit = f"the limit is {self._rules.max_json_bytes} (--http-max-input-size)"
        if json_size == 0:
            return InvalidRequest(f"the raw request has {body_size} bytes, {limit}")
        return InvalidRequest(
            f"the JSON part has {json_size} bytes, {limit}; send tensors as binary data"
        )

    def _request(self, model: str, version: str, document: Document, blobs: Blobs) -> InferRequest:
        blobs.model = model
        inputs = []
        for one in document.inputs:
            if parameters := one.parameters:
                inputs.append(self._described_input(one, parameters, blobs))
            else:
                # The most common form first; it says None for all others.
                inputs.append(decode_flat(one) or self._input(one, blobs))
        if blobs.offset != len(blobs.body):
            blobs.check_used_up()
        request = InferRequest(model, version, document.id or "", inputs)
        if document.outputs or document.parameters:
            self._describe(request, document, blobs)
        if blobs.spans is not None:
            take_spans(request, blobs.spans, on_loop=blobs.on_loop)
        return request

    def _describe(self, request: InferRequest, document: Document, blobs: Blobs) -> None:
        """Add the outputs and parameters of `document` to `request`."""
        if document.outputs:
            request.outputs = _wanted_outputs(document.outputs, blobs, self._resolve)
        if document.parameters:
            set_parameters(request, document.parameters)

    def _input(self, document: Input, blobs: Blobs) -> Tensor:
        """Return an input whose elements are in its `data`."""
        name, data = document.name, document.data
        datatype = DATATYPES.get(document.datatype) or datatype_named(document.datatype, name)
        if data is _UNSET:
            raise _no_data(name)
        if datatype in _HALVES:
            self._check_halves(name, datatype, data)
        if datatype is DataType.BYTES and blobs.on_loop and _is_large(data):
            raise NotFast
        return decode_data(name, datatype, document.shape, data)

    def _described_input(self, document: Input, parameters: JsonObject, blobs: Blobs) -> Tensor:
        """Return an input with parameters, which may say where else its elements are."""
        name, shape = document.name, document.shape
        datatype = DATATYPES.get(document.datatype) or datatype_named(document.datatype, name)
        size = parameters.get("binary_data_size")
        # The usual form of the binary extension, without the questions below.
        if size is not None and len(parameters) == 1 and document.data is _UNSET:
            return blobs.take(name, datatype, shape, size)
        region = parameters.get(REGION)
        if region is not None:
            if size is not None or document.data is not _UNSET:
                raise _two_sources(name)
            offset, region_size = parameters.get(OFFSET), parameters.get(SIZE)
            what = f"input '{name}'"
            reference = decode_reference(what, region, offset, region_size)
            span = blobs.add_span(self._resolve(*reference))
            tensor = Tensor(name, datatype, shape, b"")
            read_input(tensor, span, blobs.model, on_loop=blobs.on_loop)
            if offset is not None and len(parameters) == len(PARAMETERS):
                return tensor  # it has no other parameters
        elif size is None:
            tensor = self._input(document, blobs)
        elif document.data is not _UNSET:
            raise _two_sources(name)
        else:
            tensor = blobs.take(name, datatype, shape, size)
        tensor.parameters = scalars(parameters)
        return tensor

    def _check_halves(self, name: str, datatype: DataType, data: object) -> None:
        # A text is base64, which holds halves exactly.
        is_text = type(data) is str or (type(data) is msgspec.Raw and bytes(data)[:1] == b'"')
        if not self._rules.half_floats and not is_text:
            raise no_halves_in(name, datatype)

    def encode_infer_response(
        self, request: InferRequest, response: InferResponse, *, in_thread: bool = False
    ) -> tuple[list[Buffer], int | None]:
        """Return `response` as buffers to be written in order, and the size of their JSON part.

        The size is None when all of it is JSON (no binary bytes). Raises InvalidRequest when an
        output cannot be written as JSON, and NotFast, unless `in_thread`, when its JSON is long.
        """
        # Known answers belong to the loop.
        known = None if in_thread else self._known_answer(request, response)
        if known is not None:
            return known.encoded(response, self._rules.non_finite)
        head = _model_head(response.model, response.version)
        if response.id or response.parameters:
            head = _with_details(head, response)
        text = [head]
        blobs: list[Buffer] = []
        choices = _choices(request, response)
        for index, tensor in enumerate(response.outputs):
            choice = choices[index]
            parameters = tensor.parameters
            if choice.binary:
                blobs.append(data := tensor.packed())
                text.append(
                    _binary_details(tensor, len(data))
                    if parameters
                    else _binary_head(tensor.name, tensor.datatype, tensor.shape, len(data))
                )
                continue
            head = _output_head(tensor.name, tensor.datatype, tensor.shape)
            if parameters:
                head += _parameters(parameters)
            if choice.place is not None:  # the client has it already
                text += (head, b"},")
                continue
            if tensor.datatype in self._refused_as_text:
                raise no_halves(tensor)
            count = math.prod(tensor.shape)
            is_text = tensor.datatype is DataType.BYTES
            # Two comparisons before a call: most outputs are short.
            if not in_thread and (count > INLINE_STRINGS or is_text) and is_long(tensor, count):
                raise NotFast
            text += (head, b',"data":', encode_data(tensor, self._rules.non_finite), b"},")
        # The last comma, which JSON does not allow.
        text[-1] = text[-1].removesuffix(b",") + b"]}"
        # Without a binary byte the answer is JSON alone, and has no header that says where JSON
        # ends.
        if not blobs or not any(blobs):
            is_short = len(text) < 2 or len(text[-2]) < JOIN_BYTES
            return [b"".join(text)] if is_short else cast("list[Buffer]", text), None
        head = b"".join(text)
        return [head, *blobs], len(head)

    def _known_answer(self, request: InferRequest, response: InferResponse) -> KnownAnswer | None:
        """Return the known form of answers like `response`; None if unknown, and then learn it."""
        if request.batch_key is None:
            return None
        key = (request.batch_key, response.model, response.version)
        known = self._answers.get(key)
        if known is None:
            self._learn(key, request, response)
        elif known.fits(response):
            return known
        return None

    def _learn(
        self, key: tuple[object, str, str], request: InferRequest, response: InferResponse
    ) -> None:
        """Remember the form of answers like `response`, if they differ only in their numbers."""
        outputs = response.outputs
        choices = _choices(request, response)
        if not outputs or not all(map(is_repeatable, outputs, choices)):
            return
        head, parameters = _model_head(response.model, response.version), None
        if response.parameters is UNSEQUENCED:
            parameters = UNSEQUENCED
            head = head[: -len(_OUTPUTS)] + _parameters(parameters) + _OUTPUTS
        texts = [head]
        for index, tensor in enumerate(outputs):
            choice, datatype = choices[index], tensor.datatype
            if choice.place is not None:
                texts[-1] += _output_head(tensor.name, datatype, tensor.shape) + b"},"
                continue
            if datatype in self._refused_as_text and not choice.binary:
                return
            if choice.binary:
                size = datatype.size_bytes * math.prod(tensor.shape)
                texts[-1] += _binary_head(tensor.name, datatype, tensor.shape, size)
            else:
                texts[-1] += _output_head(tensor.name, datatype, tensor.shape) + b',"data":'
                texts.append(b"},")
        texts[-1] = texts[-1].removesuffix(b",") + b"]}"
        # All at once: an order by use would cost each request.
        if len(self._answers) >= MOST_ANSWERS:
            self._answers.clear()
        self._answers[key] = KnownAnswer(outputs, choices, texts, parameters)


def _is_large(data: Buffer) -> bool:
    return hasattr(data, "as_buffer") and len(data) > INLINE_STRINGS


_ONE_SOURCE = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'"
)


def _no_data(name: str) -> InferdError:
    return InvalidRequest(f"{_ONE_SOURCE}: input '{name}' has none of them")


def _two_sources(name: str) -> InferdError:
    return InvalidRequest(f"{_ONE_SOURCE}: input '{name}' has its data in two places")


def no_halves_in(name: str, datatype: DataType) -> InferdError:
    """Return the error for an input that this server does not take as JSON numbers."""
    return InvalidRequest(
        f"receiving {datatype.value} data via JSON is not supported. Please use the binary data "
        f"format for input '{name}'; JSON numbers of this datatype are turned off on this server"
    )


def no_halves(tensor: Tensor) -> InferdError:
    """Return the error for an output that this server does not write as JSON numbers."""
    return InvalidRequest(
        f"sending {tensor.datatype.value} data via JSON is not supported. Please use the binary "
        f"data format for output '{tensor.name}', with binary_data true; JSON numbers of this "
        f"datatype are turned off on this server"
    )


def _wanted_outputs(outputs: list[Output], blobs: Blobs, resolve: Resolve) -> list[WantedOutput]:
    wanted = []
    for one in outputs:
        parameters = one.parameters
        if parameters is None:
            wanted.append(WantedOutput(one.name))
            continue
        top_k = parameters.classification or 0
        if top_k < 0:
            msg = f"output '{one.name}': classification must be a count of classes, 0 or more"
            raise InvalidRequest(msg)
        output = WantedOutput(one.name, parameters.binary_data, top_k)
        wanted.append(output)
        if (reference := output_reference(one)) is not None:
            blobs.add_span(place_output(output, reference, resolve))
    return wanted


def is_long(tensor: Tensor, count: int) -> bool:
    """Return whether writing the `count` elements of `tensor` as JSON is too slow for the loop."""
    if tensor.datatype is DataType.BYTES:
        return count > INLINE_STRINGS or tensor.size_bytes > INLINE_STRING_BYTES
    return count > INLINE_ELEMENTS


def _with_details(head: bytes, response: InferResponse) -> bytes:
    """Add the id and the parameters of `response` to the head of its text."""
    if response.id:
        head = b'{"id":' + orjson.dumps(response.id) + b"," + head[1:]
    if response.parameters:
        head = head[: -len(_OUTPUTS)] + _parameters(response.parameters) + _OUTPUTS
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
    return b'{"name":%b,"datatype":"%b","shape":%b' % (
        orjson.dumps(name),
        datatype.value.encode(),
        orjson.dumps(shape),
    )


@functools.lru_cache(4096)
def _binary_head(name: str, datatype: DataType, shape: tuple[int, ...], size: int) -> bytes:
    head = _output_head(name, datatype, shape)
    return b'%b,"parameters":{"binary_data_size":%d}},' % (head, size)


def _binary_details(tensor: Tensor, size: int) -> bytes:
    head = _output_head(tensor.name, tensor.datatype, tensor.shape)
    return head + _parameters({**(tensor.parameters or {}), "binary_data_size": size}) + b"},"


def _choices(request: InferRequest, response: InferResponse) -> list[WantedOutput]:
    """Return the choice for each output of `response`, one for all if the request names none."""
    if request.outputs:
        return wanted_of(request, response)
    # One object for all: choices are only read.
    return [WantedOutput("", request.binary_output)] * len(response.outputs)


def _parameters(parameters: Parameters) -> bytes:
    return b',"parameters":' + orjson.dumps(parameters)


def encode_error(message: str) -> bytes:
    """Return the V2 error object; of a text longer than MAX_ERROR only both ends are kept."""
    if len(message) > MAX_ERROR:
        # Both ends: the beginning says what failed, the end mostly why.
        message = f"{message[: MAX_ERROR // 2]} ... {message[-MAX_ERROR // 2 :]}"
    return orjson.dumps({"error": message})
