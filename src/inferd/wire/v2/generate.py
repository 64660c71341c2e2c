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
from inferd.tensor.tensor import Tensor
from inferd.wire.json.data import decode_data, decode_flat, encode_data, flatten
from inferd.wire.json.document import MAX_EXACT_BYTES, Input, array_of, loads_exact, read_members
from inferd.wire.shared_memory import no_regions
from inferd.wire.v2.rest.codec import (
    JsonRules,
    V2Rest,
    encode_error,
    is_long,
    no_halves,
    no_halves_in,
)
from inferd.wire.v2.rest.parameters import RESERVED, parameter, set_parameters

EVENT_STREAM = b"text/event-stream; charset=utf-8"
"""The content type of a stream of events."""

NO_EVENT = b":\n\n"
"""A comment, which readers of an event stream ignore (HTML Standard, Server-sent events)."""

_ADVICE = "an inference request, which this call takes as well, may have its tensors as binary data"
_HALVES = (DataType.FP16, DataType.BF16)


class GenerateRequest(msgspec.Struct, gc=False):
    """The request in a generate body; `is_v2`: the body was an inference request."""

    request: InferRequest
    is_v2: bool


class V2Generate:
    """The codec of the generate calls.

    What may take long is refused as NotFast with `on_loop`, and then done without it, in a thread,
    one at a time. What takes seconds is refused without `may_be_slow`, too. `resolve` finds the
    shared memory a tensor refers to.
    """

    def __init__(self, rules: JsonRules, resolve: Resolve = no_regions) -> None:
        self._rules = rules
        self._rest = V2Rest(rules, resolve)

    def decode_request(
        self,
        model: str,
        version: str,
        body: memoryview,
        inputs: Sequence[TensorMetadata],
        *,
        on_loop: bool = False,
        may_be_slow: bool = True,
    ) -> GenerateRequest:
        """Return what `body`, which is JSON, asks of a model that has `inputs`.

        Raises as `decode_infer_request`.
        """
        size, limit = len(body), self._rules.max_json_bytes
        if size > limit:
            msg = (
                f"the body has {size} bytes of JSON, the limit is {limit} "
                f"(--http-max-input-size); {_ADVICE}"
            )
            raise InvalidRequest(msg)
        by_name = {one.name: one for one in inputs}
        if size > INLINE_EXACT_BYTES:
            if on_loop:
                raise NotFast
            with contextlib.suppress(NotFast):
                return self._read_long(model, version, body, by_name)
            _check_exact_size(size)
            if not may_be_slow:
                raise NotFast
        # Each member is a tensor or a parameter, so that one given twice has no meaning.
        values = loads_exact(body, once=True)
        if type(values) is not dict:
            msg = "the request body is JSON, but not an object"
            raise InvalidRequest(msg)
        if type(values.get("inputs")) is list and "inputs" not in by_name:
            return _answered_in_json(self._rest.request_of(model, version, values, on_loop=on_loop))
        return GenerateRequest(self._request(model, version, values, by_name), is_v2=False)

    def decode_infer_request(
        self,
        model: str,
        version: str,
        body: memoryview,
        json_size: int,
        *,
        on_loop: bool = False,
        may_be_slow: bool = True,
    ) -> GenerateRequest:
        """Return the inference request in `body`, whose first `json_size` bytes are JSON.

        Raises as V2Rest.decode_infer_request; NotFast, if `on_loop`, which comes first, for what
        should be done in a thread.
        """
        if on_loop:
            return _answered_in_json(
                self._rest.decode_infer_request(model, version, body, json_size)
            )
        with contextlib.suppress(NotFast):
            return _answered_in_json(self._rest.decode_large(model, version, body, json_size))
        if not may_be_slow:
            raise NotFast
        return _answered_in_json(self._rest.decode_slowly(model, version, body, json_size))

    def _read_long(
        self, model: str, version: str, body: memoryview, inputs: dict[str, TensorMetadata]
    ) -> GenerateRequest:
        """Return what a long body asks. Raises NotFast when it must be read exactly."""
        values = read_members(body)
        if type(values.get("inputs")) in (list, msgspec.Raw) and "inputs" not in inputs:
            del values  # a large one is read once more, by the reader made for it
            return _answered_in_json(self._rest.decode_large(model, version, body, len(body)))
        return GenerateRequest(self._request(model, version, values, inputs), is_v2=False)

    def _request(
        self, model: str, version: str, values: dict[str, Any], inputs: dict[str, TensorMetadata]
    ) -> InferRequest:
        request = InferRequest(model, version)
        parameters: dict[str, Any] = {}
        seen: set[str] = set()
        for key, value in _members(values, inputs):
            if key in seen:
                msg = f"'{key}' is given twice, in the request and in its parameters"
                raise InvalidRequest(msg)
            seen.add(key)
            if key in inputs:
                request.inputs.append(self._tensor(inputs[key], value))
            elif value is None:
                msg = (
                    f"parameter '{key}' has invalid type. It is null, expected a string, a number "
                    f"or a boolean"
                )
                raise InvalidRequest(msg)
            else:  # of a long array it is enough to know that it is one
                parameters[key] = [] if type(value) is msgspec.Raw else value
        # What is infer's own, such as priority, is here the model's: Triton hands it on.
        own = {key: parameters.pop(key) for key in list(parameters) if key.startswith(RESERVED)}
        set_parameters(request, own)
        request.parameters = {key: parameter(key, value) for key, value in parameters.items()}
        if "id" not in inputs and (identifier := values.get("id")) is not None:
            if type(identifier) is not str:
                msg = "the request's id must be a string"
                raise InvalidRequest(msg)
            request.id = identifier
        return request

    def _tensor(self, declared: TensorMetadata, value: Any) -> Tensor:
        name, datatype = declared.name, declared.datatype
        if datatype in _HALVES and not self._rules.half_floats:
            raise no_halves_in(name, datatype)
        if type(value) is msgspec.Raw:
            return _long_tensor(declared, value)
        elements = flatten(value) if type(value) is list else [value]
        return decode_data(name, datatype, _shape_for(declared, len(elements)), elements)

    def encode_response(
        self, generated: GenerateRequest, response: InferResponse, *, on_loop: bool = False
    ) -> bytes:
        """Return `response` as JSON text: outputs and parameters by name, in alphabetical order.

        An output of one element is that element, any other a flat array. Raises InvalidRequest
        when an output cannot be written as JSON; with `on_loop` also NotFast when that is long.
        """
        if generated.is_v2:
            buffers, _ = self._rest.encode_infer_response(
                generated.request, response, in_thread=not on_loop
            )
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
            fields[tensor.name] = self._text(tensor, on_loop=on_loop)
        members = (b"%b:%b" % (orjson.dumps(key), fields[key]) for key in sorted(fields))
        return b"{%b}" % b",".join(members)

    def _text(self, tensor: Tensor, *, on_loop: bool) -> bytes:
        if tensor.datatype in _HALVES and not self._rules.half_floats:
            raise no_halves(tensor)
        count = prod(tensor.shape)
        if on_loop and is_long(tensor, count):
            raise NotFast
        text = encode_data(tensor, self._rules.non_finite)
        return text[1:-1] if count == 1 else text


def encode_event(text: bytes) -> bytes:
    """Return JSON `text` as one event of an event stream."""
    return b"data: %b\n\n" % text


def encode_error_event(message: str) -> bytes:
    """Return the event that reports a failure."""
    return encode_event(encode_error(message))


def _answered_in_json(request: InferRequest) -> GenerateRequest:
    """Return what an inference request asks, whose answers are JSON whatever it says."""
    request.binary_output = False
    for wanted in request.outputs:
        wanted.binary = None
    return GenerateRequest(request, is_v2=True)


def _check_exact_size(size: int) -> None:
    """Raise InvalidRequest for what is too long to be read by the letter."""
    if size > MAX_EXACT_BYTES:
        msg = (
            f"the body has {size} bytes and is not plain: it is malformed, has a member twice, or "
            f"holds NaN, infinities, whole numbers written as 1.0, or integers beyond 64 bits. "
            f"Only up to {MAX_EXACT_BYTES} bytes are read then; {_ADVICE}"
        )
        raise InvalidRequest(msg)


def _long_tensor(declared: TensorMetadata, raw: msgspec.Raw) -> Tensor:
    """Return the input that a long array is. Raises NotFast when it must be read exactly."""
    name, datatype = declared.name, declared.datatype
    array = array_of(raw)
    flat = decode_flat(Input(name, (-1,), datatype.value, data=array))
    tensor = flat or decode_data(name, datatype, (-1,), array)
    tensor.shape = _shape_for(declared, tensor.shape[0])
    return tensor


def _members(
    values: dict[str, Any], inputs: dict[str, TensorMetadata]
) -> Iterator[tuple[str, Any]]:
    """Yield the members of a body, with those of its `parameters` on the same level."""
    for key, value in values.items():
        if key != "parameters" or key in inputs:
            yield key, value
        elif type(value) is dict:
            yield from value.items()
        elif value is not None:
            msg = "'parameters' must be an object"
            raise InvalidRequest(msg)


def _shape_for(declared: TensorMetadata, count: int) -> tuple[int, ...]:
    """Return the shape of `count` elements: the last variable dim takes the remaining factor.

    Other variable dims are 1. Raises InvalidRequest when the elements do not fill the fixed dims.
    """
    shape = list(declared.shape)
    rest, left_over = divmod(count, prod(dim for dim in shape if dim != -1))
    last = max((index for index, dim in enumerate(shape) if dim == -1), default=None)
    if left_over or (last is None and rest != 1):
        msg = (
            f"The schema can not convert input '{declared.name}' to tensor with proper shape: it "
            f"is {declared.datatype.value} {shape}, which {count} elements do not fill"
        )
        raise InvalidRequest(msg)
    if last is not None:
        shape[last] = rest
    return tuple(1 if dim == -1 else dim for dim in shape)
