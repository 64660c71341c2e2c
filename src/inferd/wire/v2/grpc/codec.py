"""V2 inference over gRPC: converts ModelInfer messages to and from core types, on both sides.

Open Inference Protocol, ModelInferRequest and ModelInferResponse. Tensors travel raw: one entry of
raw contents per tensor, in order. Typed contents are read everywhere and written on demand.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple, cast

from inferd.aio.inline import INLINE_STRINGS, INLINE_TYPED_BYTES, NotFast
from inferd.core.request import UNSEQUENCED, InferRequest, InferResponse, Resolve, WantedOutput
from inferd.errors import InvalidRequest
from inferd.memory.buffer import Buffer
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Parameters, Tensor
from inferd.wire.infer_codec import InferCodec
from inferd.wire.proto import malformed, message_class, parse, serialized
from inferd.wire.proto.fields import (
    ID,
    MAX_FIELDS,
    MOST_CUT,
    Layout,
    Split,
    check_field_count,
    decode_text,
    encode_field,
    encode_varint,
    read_field,
    split_message,
    with_raw,
)
from inferd.wire.shared_memory import (
    OFFSET,
    REGION,
    SIZE,
    Reference,
    decode_reference,
    no_regions,
    placed_output,
    span_parameters,
)
from inferd.wire.template import Template
from inferd.wire.v2.grpc.contents import encode_contents, have_contents_fields
from inferd.wire.v2.grpc.parameters import (
    decode_parameter,
    encode_parameters,
    encode_reserved,
    take_parameters,
)
from inferd.wire.v2.grpc.tensors import (
    check_entries,
    check_no_contents,
    check_raw,
    described,
    has_contents,
    raw_tensors,
    typed_tensors,
)

_REQUEST = "inference.ModelInferRequest"
_RESPONSE = "inference.ModelInferResponse"
_OUTPUT = "inference.ModelInferResponse.InferOutputTensor"

# Field tags, all of the length-delimited wire type.
_NAME, _VERSION, _OUTPUTS = b"\x0a", b"\x12", b"\x2a"
_RAW_INPUT, _RAW_OUTPUT = b"\x3a", b"\x32"
_ERROR_MESSAGE, _INFER_RESPONSE = b"\x0a", b"\x12"  # of ModelStreamInferResponse

_REFERENCE = (REGION, OFFSET, SIZE)
_IN_REGION = REGION.encode()

_MOST_LAYOUTS = 20
"""For how many messages that differ only in id and data it is remembered where these are."""

_MAX_REMEMBERED_BYTES = 1024
"""Up to this size the part of a request without its data is remembered, not parsed each time."""


def decode_infer_request(
    data: Buffer, *, on_loop: bool = False, resolve: Resolve = no_regions
) -> InferRequest:
    """Return the request of a ModelInferRequest; its raw inputs are views into `data`.

    Its `binary_output` asks for a raw answer: true unless an input came as typed contents, or the
    parameter binary_data_output says otherwise. `resolve` finds the shared memory that tensors
    refer to. Raises InvalidRequest and the errors of `resolve`; with `on_loop` also NotFast for a
    message that should be decoded in a thread.
    """
    # The first field is the model's name: messages of other models are told apart before anything
    # is parsed.
    known = _known_layouts(len(data), bytes(data[2 : 2 + data[1]])) if len(data) > 2 else []
    # Compared as bytes: a message of the same length and model mostly differs in id and data alone.
    for layout, template in known:
        if (found := layout.cut(data)) is not None:
            request_id, raw = found
            request = template.read(raw)
            if request_id:
                request.id = decode_text(request_id)
            return request
    return _decode_anew(data, known, resolve, on_loop=on_loop)


def request_id(data: Buffer) -> str:
    """Return the id of a ModelInferRequest that may be malformed, "" if it cannot be found."""
    # Cut by hand, since a parser has just refused the message.
    split = split_message(data, _RAW_INPUT[0])
    return "" if split is None else split.id.decode(errors="replace")


def requested_model(data: Buffer) -> tuple[str, str]:
    """Return model and version of a ModelInferRequest that may be malformed.

    Each is "" if it cannot be found first in the message, where serializers put it.
    """
    view = memoryview(data)
    names = ["", ""]
    at = 0
    for place, tag in enumerate((_NAME, _VERSION)):
        field = read_field(view, at)
        if field is not None and field.tag == tag[0]:
            # It may be malformed, and is only for an error's text.
            names[place] = bytes(field.value).decode(errors="replace")
            at = field.end
    return names[0], names[1]


def encode_late_error(request: InferRequest, message: str, *, is_final: bool) -> list[Buffer]:
    """Return the ModelStreamInferResponse for an error of a model that ran, as buffers.

    It names the model and the version that the request asked for, and says whether more answers
    follow: clients count the requests whose last answer they have.
    """
    model = encode_field(_NAME, request.model.encode()) + _final(is_final)
    if request.version:
        model += encode_field(_VERSION, request.version.encode())
    return encode_stream_error(message, request.id, model)


def encode_stream_error(message: str, request_id: str, model: bytes = b"") -> list[Buffer]:
    """Return the ModelStreamInferResponse that reports a request's failure, as buffers.

    `model` holds the encoded fields that name the model, empty if it has not run.
    """
    answer = model
    if request_id:
        answer += encode_field(ID, request_id.encode())
    error = encode_field(_ERROR_MESSAGE, message.encode(errors="replace"))
    return [error + encode_field(_INFER_RESPONSE, answer)]


class V2Grpc(InferCodec):
    """The codec of ModelInfer and, with `encode_stream`, of ModelStreamInfer.

    With `typed_answers` a request that did not come raw is answered in typed contents, unless an
    output is FP16 or BF16, which have none: then all are raw, since a message holds only one of the
    two forms. `resolve` finds the shared memory that tensors refer to.
    """

    def __init__(self, resolve: Resolve = no_regions, *, typed_answers: bool = False) -> None:
        self._resolve = resolve
        self._typed_answers = typed_answers

    def decode(self, message: Any, call: Any) -> InferRequest:
        """See InferCodec; `message` is the bytes of a ModelInferRequest."""
        return decode_infer_request(message, on_loop=True, resolve=self._resolve)

    def decode_large(self, message: Any, call: Any, *, slowly: bool = False) -> InferRequest:
        """See InferCodec."""
        return decode_infer_request(message, resolve=self._resolve)

    def body_of(self, message: Any, call: Any) -> Any:
        """See InferCodec."""
        return message

    def model_of(self, message: object, call: object) -> tuple[str, str]:
        """See InferCodec."""
        return requested_model(cast("Buffer", message))

    def encode(
        self,
        request: InferRequest,
        response: InferResponse,
        message: Any = None,
        call: Any = None,
        *,
        in_thread: bool = False,
    ) -> list[Buffer]:
        """Return the ModelInferResponse to `request` as buffers to be sent in order.

        Outputs are raw, unless the answer is typed; their data are passed on as views, not copied.
        Raises InvalidRequest when the answer is larger than a gRPC message can be.
        """
        outputs = response.outputs
        head = _head(response.model, response.version)
        if request.id:
            head += encode_field(ID, request.id.encode())
        if response.parameters:
            if response.parameters is UNSEQUENCED:
                head += _unsequenced()
            else:
                head += _details(response.parameters)
        if self._typed_answers and not request.binary_output and have_contents_fields(outputs):
            return [
                head,
                *(encode_field(_OUTPUTS, _output(tensor, is_typed=True)) for tensor in outputs),
            ]
        # Without them the field is the same for each answer of this name, datatype and shape.
        for tensor in outputs:
            if tensor.parameters:
                head += encode_field(_OUTPUTS, _output(tensor, is_typed=False))
            else:
                head += _output_head(tensor.name, tensor.datatype, tensor.shape)
        return with_raw(head, _RAW_OUTPUT, outputs)

    def encode_stream(self, request: InferRequest, response: InferResponse) -> list[Buffer]:
        """Return the ModelStreamInferResponse with one answer to `request`, as buffers.

        Its parameter triton_final_response says whether it is the last one (Triton, decoupled
        models). Otherwise like `encode`.
        """
        buffers = self.encode(request, response)
        final = _final(response.final)
        size = sum(map(len, buffers)) + len(final)
        # Last: of a name that comes twice the last value counts, and a model may have given one.
        return [_INFER_RESPONSE + encode_varint(size), *buffers, final]


def encode_infer_request(request: InferRequest) -> list[Buffer]:
    """Return `request` as a ModelInferRequest, in buffers to be sent in order.

    Inputs are raw, their data passed on as views. Raises InvalidRequest when the request is larger
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
        if wanted.place is not None:
            encode_parameters(output.parameters, span_parameters(wanted.place))
        if wanted.top_k:
            output.parameters["classification"].int64_param = wanted.top_k
    # Those in shared memory have no raw entry.
    sent = [one for one in request.inputs if not (one.parameters and REGION in one.parameters)]
    return with_raw(message.SerializeToString(), _RAW_INPUT, sent)


def decode_infer_response(
    data: Buffer, places: Mapping[str, memoryview] | None = None
) -> InferResponse:
    """Return the answer in a ModelInferResponse; raw outputs are views into `data`.

    `places` is the shared memory of outputs that were requested there.

    Its `final` is the parameter triton_final_response, true without it. Raises InferdError when
    the server's answer is malformed.
    """
    try:
        if places:
            return _decode_placed_answer(data, places)
        split = split_message(data, _RAW_OUTPUT[0])
        if split is None or not split.raw:
            return _decode_typed_answer(data)
        found = _remembered_answer if len(split.rest) <= _MAX_REMEMBERED_BYTES else _answer_head
        head = found(split.rest)
        known = head.response
        check_entries(split.raw, [tensor for tensor, _ in head.outputs], known.model)
        outputs = [
            _with_data(tensor, count, data, known.model)
            for (tensor, count), data in zip(head.outputs, split.raw, strict=True)
        ]
        answer_id = decode_text(split.id)
    except InvalidRequest as error:
        raise malformed(error) from error
    # The remembered ones are shared.
    parameters = known.parameters.copy()
    return InferResponse(known.model, known.version, answer_id, outputs, parameters, known.final)


class _AnswerHead(NamedTuple):
    """What an answer says beside id and data: never change it.

    `outputs` are without data, each with its number of elements.
    """

    response: InferResponse
    outputs: list[tuple[Tensor, int]]


def _answer_head(rest: bytes) -> _AnswerHead:
    message = parse(_RESPONSE, rest)
    model = message.model_name
    for item in message.outputs:
        check_no_contents(item, model)
    outputs = [described(item, model) for item in message.outputs]
    return _AnswerHead(_response(message), outputs)


_remembered_answer = lru_cache(maxsize=64)(_answer_head)


def _with_data(tensor: Tensor, count: int, data: memoryview, model: str) -> Tensor:
    check_raw(data, tensor, count, model)
    parameters = tensor.parameters and tensor.parameters.copy()
    return Tensor(tensor.name, tensor.datatype, tensor.shape, data, parameters)


def _decode_typed_answer(data: Buffer) -> InferResponse:
    message = parse(_RESPONSE, bytes(data))
    response = _response(message)
    response.id = message.id
    if raw := message.raw_output_contents:
        response.outputs = raw_tensors(message.outputs, raw, response.model)
    else:
        response.outputs = typed_tensors(message.outputs, response.model)
    return response


def _decode_placed_answer(data: Buffer, places: Mapping[str, memoryview]) -> InferResponse:
    message = parse(_RESPONSE, bytes(data))
    response = _response(message)
    response.id = message.id
    raw = list(message.raw_output_contents)
    if len(raw) == len(message.outputs):  # those in shared memory have empty entries
        items = zip(message.outputs, raw, strict=True)
        raw = [one for item, one in items if item.name not in places]
    others = [item for item in message.outputs if item.name not in places]
    tensors = iter(raw_tensors(others, raw, response.model))
    for item in message.outputs:
        if item.name in places:
            tensor, _ = described(item, response.model)
            place = places[item.name]
            found = placed_output(tensor.name, tensor.datatype, tensor.shape, place)
        else:
            found = next(tensors)
        response.outputs.append(found)
    return response


def _response(message: Any) -> InferResponse:
    """Return what a ModelInferResponse says beside its id and its outputs."""
    parameters = {
        name: value
        # A parameter without a value says nothing, and is left out.
        for name, choice in message.parameters.items()
        if (value := decode_parameter(choice)) is not None
    }
    final = bool(parameters.pop("triton_final_response", True))
    return InferResponse(
        message.model_name, message.model_version, parameters=parameters, final=final
    )


class _MessageTemplate(Template):
    """The template of a message, but for its id and raw contents.

    `counts` are the elements of the inputs that have raw contents.
    """

    def __init__(
        self,
        pattern: InferRequest,
        counts: list[int],
        inputs: list[tuple[int, Reference]],
        outputs: list[tuple[int, Reference]],
    ) -> None:
        elsewhere = {index for index, _ in inputs}
        self.tensors = [one for at, one in enumerate(pattern.inputs) if at not in elsewhere]
        sizes = [
            count * one.datatype.size_bytes or -1
            for one, count in zip(self.tensors, counts, strict=True)
        ]
        super().__init__(pattern, sizes, inputs, outputs)
        self.counts = counts
        self.has_many_strings = any(
            size == -1 and count > INLINE_STRINGS for size, count in zip(sizes, counts, strict=True)
        )
        self._uses = 0

    def may_be_known(self, raw_count: int) -> bool:
        """Return whether to remember a layout too: from the second message on, up to a limit.

        With strings, each message may have a different length, so the number is limited. The raw
        contents must match the inputs, since a layout grows with their number.
        """
        self._uses += 1
        is_usual = not (self.inputs or self.outputs or self.has_many_strings)
        return is_usual and raw_count == len(self.counts) and 1 < self._uses <= _MOST_LAYOUTS

    def read(self, raw: list[memoryview]) -> InferRequest:
        """Return a new request with these raw contents. Raises InvalidRequest if they do not fit.

        It lacks what is in shared memory.
        """
        model = self.pattern.model
        if len(raw) != len(self.tensors):
            check_entries(raw, self.tensors, model)
        for index, size in enumerate(self.sizes):
            # -1 never equals a length, so BYTES are always checked.
            if len(raw[index]) != size:
                check_raw(raw[index], self.tensors[index], self.counts[index], model)
        data = cast("list[Buffer]", raw)  # which grows by what is not in the message
        for index, _ in self.inputs:
            data.insert(index, b"")
        return self.filled(data)


def _template(message: Any) -> _MessageTemplate:
    model = message.model_name
    found = [described(item, model) for item in message.inputs]
    here = [REGION not in item.parameters for item in message.inputs]
    for item in compress(message.inputs, here):
        check_no_contents(item, model)
    # What is in no region has its raw contents beside this message, or would not be read here.
    request = _named_request(message, is_raw=True)
    request.inputs = [tensor for tensor, _ in found]
    counts = [count for _, count in compress(found, here)]
    inputs, outputs = _references(message)
    return _MessageTemplate(request, counts, inputs, outputs)


@lru_cache(maxsize=512)
def _known_layouts(_size: int, _model: bytes) -> list[tuple[Layout, _MessageTemplate]]:
    """Return how to read messages of that length to that model: one entry, or none yet.

    The entry holds the layout of the parts that change, and the template for the rest.
    """
    return []


def _decode_anew(
    data: Buffer, known: list[tuple[Layout, _MessageTemplate]], resolve: Resolve, *, on_loop: bool
) -> InferRequest:
    """Return the request of a message of unknown layout."""
    split = split_message(data, _RAW_INPUT[0])
    template: _MessageTemplate | None
    if split is None or not split.raw:
        inline_bytes = 2 * MOST_CUT if split is None else INLINE_TYPED_BYTES
        if on_loop and len(data) > inline_bytes:
            raise NotFast
        template = _all_shared_template(split)
        if split is None or template is None:
            return _decode_whole(data, resolve, on_loop=on_loop)
    elif on_loop and len(split.rest) > INLINE_TYPED_BYTES:
        raise NotFast
    elif len(split.rest) <= _MAX_REMEMBERED_BYTES:
        template = _remembered_template(split.rest)
        if template.may_be_known(len(split.raw)):
            # In place: the list is what the cache holds.
            known[:] = [(Layout(data, split), template)]
    else:
        template = _template(parse(_REQUEST, split.rest))
    if on_loop and template.has_many_strings:
        raise NotFast
    request = template.read(split.raw)
    request.id = decode_text(split.id)
    if template.inputs or template.outputs:
        template.share(request, resolve, on_loop=on_loop)
    return request


@lru_cache(maxsize=256)
def _remembered_template(rest: bytes) -> _MessageTemplate:
    """Return the template of a message without id and raw contents.

    A client that repeats a call sends the same bytes except for these two.
    """
    template = _template(parse(_REQUEST, rest))
    # Requests with the same bytes here are alike for all that follows.
    template.pattern.batch_key = object()
    return template


def _all_shared_template(split: Split | None) -> _MessageTemplate | None:
    """Return the template of a message with all inputs in shared memory, None for others."""
    # A search for bytes before a parse.
    if split is None or len(split.rest) > _MAX_REMEMBERED_BYTES or _IN_REGION not in split.rest:
        return None
    return _remembered_shared_template(split.rest)


@lru_cache(maxsize=256)
def _remembered_shared_template(rest: bytes) -> _MessageTemplate | None:
    message = parse(_REQUEST, rest)
    is_all = all(REGION in item.parameters for item in message.inputs)
    return _template(message) if is_all else None


def _decode_whole(data: Buffer, resolve: Resolve, *, on_loop: bool) -> InferRequest:
    """Return the request of a message with typed contents or an unusual layout."""
    if len(data) > MAX_FIELDS:  # each has a byte or more
        check_field_count(data)
    message = parse(_REQUEST, data)
    items = [item for item in message.inputs if REGION not in item.parameters]
    raw = message.raw_input_contents
    # Who sends neither form has only empty tensors, and can read raw answers like all clients.
    is_raw = bool(raw) or not any(item.HasField("contents") for item in items)
    request = _named_request(message, is_raw=is_raw)
    if raw:
        request.inputs = raw_tensors(items, raw, request.model)
    else:
        request.inputs = typed_tensors(items, request.model)
    inputs, outputs = _references(message)
    for index, _ in inputs:
        request.inputs.insert(index, described(message.inputs[index], request.model)[0])
    if inputs or outputs:
        Template(request, [], inputs, outputs).share(request, resolve, on_loop=on_loop)
    return request


def _named_request(message: Any, *, is_raw: bool) -> InferRequest:
    """Return the request of `message` without its inputs; `is_raw` says that none is typed."""
    request = InferRequest(
        message.model_name, message.model_version, message.id, binary_output=is_raw
    )
    request.outputs = [_wanted(output) for output in message.outputs]
    take_parameters(request, message.parameters)
    if any(REGION in output.parameters for output in message.outputs):
        request.binary_output = True  # typed contents exclude outputs in shared memory
    return request


def _wanted(item: Any) -> WantedOutput:
    """Return the wanted output of an InferRequestedOutputTensor; unknown parameters are ignored."""
    wanted = WantedOutput(item.name)
    if item.parameters and "classification" in item.parameters:
        choice = item.parameters["classification"]
        kind = choice.WhichOneof("parameter_choice")
        if kind != "int64_param":
            raise InvalidRequest(
                f"invalid value type for 'classification' parameter, expected int64_param: "
                f"that of output '{item.name}' has {kind or 'no value'}"
            )
        if choice.int64_param < 1:
            raise InvalidRequest(
                f"invalid value for 'classification' parameter, expected 1 or more: "
                f"that of output '{item.name}' is {choice.int64_param}"
            )
        wanted.top_k = choice.int64_param
    return wanted


def _references(message: Any) -> tuple[list[tuple[int, Reference]], list[tuple[int, Reference]]]:
    """Return index and reference of the inputs, and of the outputs, that are in shared memory.

    Raises InvalidRequest.
    """
    inputs, outputs = [], []
    for index, item in enumerate(message.inputs):
        if REGION in item.parameters:
            if has_contents(item):
                msg = f"tensor '{item.name}' has typed contents beside {REGION}, expected one"
                raise InvalidRequest(msg)
            inputs.append((index, _reference(f"input '{item.name}'", item)))
        elif item.parameters:
            _check_unplaced(item)
    for index, item in enumerate(message.outputs):
        if REGION in item.parameters:
            outputs.append((index, _reference(f"output '{item.name}'", item)))
        elif item.parameters:
            _check_unplaced(item)
    return inputs, outputs


def _check_unplaced(item: Any) -> None:
    """Check that `item`, which names no region, says no place in one. Raises InvalidRequest."""
    for name in (SIZE, OFFSET):
        if name in item.parameters:
            raise InvalidRequest(
                f"'{name}' can not be specified without '{REGION}' parameter for tensor "
                f"'{item.name}'"
            )


def _reference(what: str, item: Any) -> Reference:
    parameters = item.parameters
    given = [decode_parameter(parameters[k]) if k in parameters else None for k in _REFERENCE]
    return decode_reference(what, *given)


# The same few models and versions in each answer.
@lru_cache(maxsize=1024)
def _head(model: str, version: str) -> bytes:
    return encode_field(_NAME, model.encode()) + encode_field(_VERSION, version.encode())


def _details(parameters: Parameters) -> bytes:
    message = message_class(_RESPONSE)()
    encode_parameters(message.parameters, parameters)
    return serialized(message)


@lru_cache(maxsize=1)
def _unsequenced() -> bytes:
    return _details(UNSEQUENCED)


@lru_cache(maxsize=2)
def _final(final: bool) -> bytes:
    return _details({"triton_final_response": final})


@lru_cache(maxsize=1024)
def _output_head(name: str, datatype: DataType, shape: tuple[int, ...]) -> bytes:
    return encode_field(_OUTPUTS, _output(Tensor(name, datatype, shape, b""), is_typed=False))


def _output(tensor: Tensor, *, is_typed: bool) -> bytes:
    message = message_class(_OUTPUT)(
        name=tensor.name, datatype=tensor.datatype.value, shape=tensor.shape
    )
    encode_parameters(message.parameters, tensor.parameters or {})
    if is_typed:
        message.contents.SetInParent()
        encode_contents(message.contents, tensor)
    return serialized(message)
