"""The generate extension: a flat JSON object in, flat JSON objects out, tensors by name.

Each member that has an input's name is that input, the others are parameters. A body that has an
array of `inputs`, or binary data behind its JSON, is an inference request instead, and is answered
like one.
"""

import contextlib
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import msgspec
import orjson

from inferd.aio.inline import INLINE_EXACT_BYTES, NotFast
from inferd.core.metadata import TensorMetadata
from inferd.core.request import InferRequest, InferResponse, Resolve
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor, fits
from inferd.wire.infer_codec import InferCodec
from inferd.wire.json.data import decode_data, decode_flat, encode_data, flatten
from inferd.wire.json.document import (
    MAX_EXACT_BYTES,
    Input,
    JsonObject,
    array_of,
    loads_exact,
    read_members,
)
from inferd.wire.shared_memory import no_regions
from inferd.wire.v2.rest.codec import JsonRules, V2Rest, is_long, no_halves, no_halves_in
from inferd.wire.v2.rest.parameters import RESERVED, parameter, set_parameters

EVENT_STREAM = b"text/event-stream; charset=utf-8"
"""The content type of a stream of events."""

NO_EVENT = b":\n\n"
"""A comment, which readers of an event stream ignore (HTML Standard, Server-sent events)."""

_ADVICE = "an inference request, which this call takes as well, may have its tensors as binary data"
_HALVES = (DataType.FP16, DataType.BF16)


class GenerateMessage:
    """The body of a generate call of a model that has `inputs`; `request` is what it asks for.

    With `is_v2` the body is an inference request, of which `json_size` bytes are JSON. Decoding
    sets it too when it finds one.
    """

    request: InferRequest

    def __init__(
        self,
        model: str,
        version: str,
        body: memoryview,
        inputs: Sequence[TensorMetadata],
        json_size: int,
        *,
        is_v2: bool,
    ) -> None:
        self.names = model, version
        self.body = body
        self.inputs = {one.name: one for one in inputs}
        self.json_size = json_size
        self.is_v2 = is_v2


class V2Generate(InferCodec):
    """The codec of the generate calls, whose messages are GenerateMessages.

    `resolve` finds the shared memory a tensor refers to.
    """

    def __init__(self, rules: JsonRules, resolve: Resolve = no_regions) -> None:
        self._rules = rules
        self._rest = V2Rest(rules, resolve)

    def decode(self, message: GenerateMessage, call: Any) -> InferRequest:
        """See InferCodec."""
        body, limit = message.body, self._rules.max_json_bytes
        if message.is_v2:
            decode = self._rest.decode_infer_request
            return _answered_in_json(message, decode(*message.names, body, message.json_size))
        if len(body) > limit:
            raise InvalidRequest(
                f"the body has {len(body)} bytes of JSON, the limit is {limit} "
                f"(--http-max-input-size); {_ADVICE}"
            )
        if len(body) > INLINE_EXACT_BYTES:
            raise NotFast
        return self._read_exactly(message, on_loop=True)

    def decode_large(
        self, message: GenerateMessage, call: Any, *, slowly: bool = False
    ) -> InferRequest:
        """See InferCodec."""
        body = message.body
        if message.is_v2:
            decode = self._rest.decode_slowly if slowly else self._rest.decode_large
            return _answered_in_json(message, decode(*message.names, body, message.json_size))
        if slowly or len(body) <= INLINE_EXACT_BYTES:
            return self._read_exactly(message)
        with contextlib.suppress(NotFast):
            return self._read_long(message)
        if len(body) > MAX_EXACT_BYTES:
            raise InvalidRequest(
                f"the body has {len(body)} bytes and is not plain: it is malformed, has a member "
                f"twice, or holds NaN, infinities, whole numbers written as 1.0, or integers "
                f"beyond 64 bits. Only up to {MAX_EXACT_BYTES} bytes are read then; {_ADVICE}"
            )
        raise NotFast

    def body_of(self, message: GenerateMessage, call: Any) -> memoryview:
        """See InferCodec."""
        return message.body

    def _read_exactly(self, message: GenerateMessage, *, on_loop: bool = False) -> InferRequest:
        # Each member is a tensor or a parameter, so that one given twice has no meaning.
        values = loads_exact(message.body, once=True)
        if type(values) is not dict:
            raise InvalidRequest("the request body is JSON, but not an object")
        # A model may have an input of that name, which comes first.
        if type(values.get("inputs")) is list and "inputs" not in message.inputs:
            request = self._rest.request_of(*message.names, values, on_loop=on_loop)
            return _answered_in_json(message, request)
        return self._request(message, values)

    def _read_long(self, message: GenerateMessage) -> InferRequest:
        """Return what a long body asks. Raises NotFast when it must be read exactly."""
        body = message.body
        values = read_members(body)
        if type(values.get("inputs")) in (list, msgspec.Raw) and "inputs" not in message.inputs:
            del values  # a large one is read once more, by the reader made for it
            request = self._rest.decode_large(*message.names, body, len(body))
            return _answered_in_json(message, request)
        return self._request(message, values)

    def _request(self, message: GenerateMessage, values: JsonObject) -> InferRequest:
        request, inputs = InferRequest(*message.names), message.inputs
        parameters: JsonObject = {}
        seen: set[str] = set()
        for key, value in _members(values, inputs):
            if key in seen:
                msg = f"'{key}' is given twice, in the request and in its parameters"
                raise InvalidRequest(msg)
            seen.add(key)
            if key in inputs:
                request.inputs.append(self._tensor(inputs[key], value))
            elif value is None:
                raise InvalidRequest(
                    f"parameter '{key}' has invalid type. It is null, expected a string, a number "
                    f"or a boolean"
                )
            else:  # of a long array it is enough to know that it is one
                parameters[key] = [] if type(value) is msgspec.Raw else value
        # What is infer's own, such as priority, is here the model's: Triton hands it on.
        own = {key: parameters.pop(key) for key in list(parameters) if key.startswith(RESERVED)}
        set_parameters(request, own)
        request.parameters = {key: parameter(key, value) for key, value in parameters.items()}
        # As the model's input if it has one of this name, else the request's.
        if "id" not in inputs and (identifier := values.get("id")) is not None:
            if type(identifier) is not str:
                raise InvalidRequest("the request's id must be a string")
            request.id = identifier
        return request

    def _tensor(self, declared: TensorMetadata, value: Any) -> Tensor:
        name, datatype = declared.name, declared.datatype
        if datatype in _HALVES and not self._rules.half_floats:
            raise no_halves_in(name, datatype)
        if type(value) is msgspec.Raw:
            return _long_tensor(declared, value)
        if value is None:
            msg = f"input '{name}': element 0 is null; leave an input out that has no value"
            raise InvalidRequest(msg)
        elements = [value]
        nesting: tuple[int, ...] = (1,)
        if type(value) is list:
            elements, nesting = flatten(value), _nesting(name, value)
        return decode_data(name, datatype, _shape_for(declared, nesting), elements)

    def encode(
        self,
        request: InferRequest,
        response: InferResponse,
        message: GenerateMessage,
        call: Any,
        *,
        in_thread: bool = False,
    ) -> bytes:
        """Return `response` as JSON text: outputs and parameters by name, in alphabetical order.

        An output of one element is that element, any other a flat array. Raises InvalidRequest
        when an output cannot be written as JSON; unless `in_thread`, NotFast when that is long.
        """
        if message.is_v2:
            buffers, _ = self._rest.encode_infer_response(request, response, in_thread=in_thread)
            return b"".join(buffers)
        fields: dict[str, bytes] = {
            "model_name": orjson.dumps(response.model),
            "model_version": orjson.dumps(response.version),
        }
        if response.id:
            fields["id"] = orjson.dumps(response.id)
        for key, value in response.parameters.items():
            fields[key] = orjson.dumps(value)
        for tensor in response.outputs:
            fields[tensor.name] = self._text(tensor, in_thread=in_thread)
        # Alphabetical, so that equal answers are equal texts.
        members = (b"%b:%b" % (orjson.dumps(key), fields[key]) for key in sorted(fields))
        return b"{%b}" % b",".join(members)

    def _text(self, tensor: Tensor, *, in_thread: bool) -> bytes:
        if tensor.datatype in _HALVES and not self._rules.half_floats:
            raise no_halves(tensor)
        count = prod(tensor.shape)
        if not in_thread and is_long(tensor, count):
            raise NotFast
        text = encode_data(tensor, self._rules.non_finite)
        return text[1:-1] if count == 1 else text


def encode_event(text: bytes) -> bytes:
    """Return JSON `text` as one event of an event stream."""
    return b"data: %b\n\n" % text


def _answered_in_json(message: GenerateMessage, request: InferRequest) -> InferRequest:
    """Return the inference request that `message` is; its answers are JSON whatever it says."""
    message.is_v2 = True
    request.binary_output = False
    for wanted in request.outputs:
        wanted.binary = None
    return request


def _long_tensor(declared: TensorMetadata, raw: msgspec.Raw) -> Tensor:
    """Return the input that a long array is. Raises NotFast when it must be read exactly."""
    name, datatype = declared.name, declared.datatype
    array = array_of(raw)
    flat = decode_flat(Input(name, (-1,), datatype.value, data=array))
    tensor = flat or decode_data(name, datatype, (-1,), array)
    nesting = tensor.shape
    # Brackets in strings are counted too, which only makes it look more closely.
    if array is not raw and bytes(raw).count(b"[") > 1:  # perhaps in a string alone
        nesting = _nesting(name, array)
    tensor.shape = _shape_for(declared, nesting)
    return tensor


def _members(values: JsonObject, inputs: dict[str, TensorMetadata]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a body, with those of its `parameters` on the same level."""
    for key, value in values.items():
        if key != "parameters" or key in inputs:
            yield key, value
        elif type(value) is dict:
            yield from value.items()
        elif value is not None:
            msg = "Expected JSON object for keyword: 'parameters', it is something else"
            raise InvalidRequest(msg)


def _nesting(name: str, values: Any) -> tuple[int, ...]:
    """Return the shape that nested arrays spell, of Python's or simdjson's.

    Raises InvalidRequest if they are ragged: arrays side by side that differ in length or depth.
    """
    kind = type(values)
    shape: list[int] = []
    level = [values]
    # By levels and not by recursion, since the depth is the client's choice.
    while level:
        count = len(level[0])
        inner = [one for array in level for one in array if type(one) is kind]
        if any(len(array) != count for array in level) or len(inner) not in (0, len(level) * count):
            raise InvalidRequest(
                f"input '{name}': its arrays are ragged, expected those side by side to have the "
                f"same number of elements (found where {len(shape)} arrays are open)"
            )
        shape.append(count)
        level = inner
    return tuple(shape)


def _shape_for(declared: TensorMetadata, nesting: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an input whose elements are in arrays of the shape `nesting`.

    Nested arrays that fit, perhaps with dims of 1 before theirs, say it. Of a flat array, or where
    no more than one dim is variable, the number of elements does: the last variable dim takes the
    remaining factor, others are 1. Raises InvalidRequest when the elements do not fill the fixed
    dims, or the nesting is another than two variable dims could have.
    """
    name, shape = declared.name, list(declared.shape)
    if len(nesting) > 1:
        # Clients leave out the dims of 1 in front, the batch dim above all.
        spelt = (1,) * (len(shape) - len(nesting)) + nesting
        if fits(declared.shape, spelt):
            return spelt
        if shape.count(-1) > 1:
            raise InvalidRequest(
                f"The schema can not convert input '{name}' to tensor with proper shape: it is "
                f"{declared.datatype.value} {shape}, and its arrays have the shape {list(nesting)}"
            )
    count = prod(nesting)
    rest, left_over = divmod(count, prod(dim for dim in shape if dim != -1))
    last = max((index for index, dim in enumerate(shape) if dim == -1), default=None)
    if left_over or (last is None and rest != 1):
        raise InvalidRequest(
            f"The schema can not convert input '{name}' to tensor with proper shape: it "
            f"is {declared.datatype.value} {shape}, which {count} elements do not fill"
        )
    if last is not None:
        shape[last] = rest
    return tuple(1 if dim == -1 else dim for dim in shape)
