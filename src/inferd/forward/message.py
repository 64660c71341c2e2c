"""Messages: requests and answers as bytes between two processes of one server.

A message is a head in MessagePack and the bytes of its tensors, each padded to ALIGN. Both ends are
the same release of inferd, so its fields may change with any.
"""

from collections.abc import Sequence as Several
from typing import Any

import msgspec

from inferd.core.request import InferRequest, InferResponse, Sequence, WantedOutput
from inferd.errors import InferdError, InvalidRequest
from inferd.forward.failure import decode_failure, encode_failure
from inferd.forward.heads import (
    ForwardedAnswer,
    ForwardedRequest,
    RequestedTensors,
    TensorHead,
    Times,
    decode_answer_head,
    decode_request_head,
    decode_tensors,
    encode,
)
from inferd.memory.buffer import Buffer
from inferd.tensor.dtype import DATATYPES
from inferd.tensor.tensor import Tensor

ALIGN = 16
"""Where tensors begin, so that frameworks take them as they are."""

PADS = tuple(bytes(size) for size in range(ALIGN))

MOST_KNOWN, MOST_KNOWN_BYTES = 512, 4096
"""What is remembered of requests: of how many, and of how long ones."""


def encode_request(request: InferRequest, version: str, form: bytes) -> tuple[bytes, list[Buffer]]:
    """Return head and data of a request that was checked for `version` of its model.

    Raises InvalidRequest for what has no bytes.
    """
    inputs, parts = _packed(request.inputs)
    sequence = request.sequence
    try:
        # Encoded by itself, so that the owner can look it up by its bytes.
        tensors = encode((inputs, [output.name for output in request.outputs]))
        head = ForwardedRequest(
            request.model,
            version,
            form,
            msgspec.Raw(tensors),
            request.batch_size,
            request.id,
            request.parameters,
            None if sequence is None else (sequence.id, sequence.start, sequence.end),
            request.priority,
            request.timeout_us,
            request.callers,
            request.takes_errors,
            request.empty_final,
            request.arrived_ns,
        )
        return encode(head), parts
    # Lone surrogates and integers beyond 64 bits: Python has them, MessagePack does not.
    except (UnicodeEncodeError, OverflowError) as error:
        msg = f"the request cannot be passed on within the server: {error}"
        raise InvalidRequest(msg) from error


class Requests:
    """Decodes requests, and remembers what they said of their tensors."""

    def __init__(self) -> None:
        self._known: dict[bytes, RequestedTensors] = {}

    def decode(self, head: memoryview, data: memoryview) -> tuple[InferRequest, bytes]:
        """Return a request, whose tensors are views of `data`, and the form it was checked for.

        Raises ValueError or MsgspecError for what is no message.
        """
        found = decode_request_head(head)
        tensors = bytes(found.tensors)
        # Requests of a model nearly always say the same of their tensors.
        inputs, outputs = self._known.get(tensors) or self._learn(tensors)
        sequence = found.sequence
        request = InferRequest(
            found.model,
            found.version,
            found.id,
            _unpacked(inputs, data),
            [WantedOutput(name) for name in outputs],
            found.parameters,
            batch_size=found.batch_size,
        )
        request.priority = found.priority
        request.timeout_us = found.timeout_us
        request.sequence = None if sequence is None else Sequence(*sequence)
        request.empty_final = found.empty_final
        request.arrived_ns = found.arrived_ns
        request.callers = found.callers
        request.takes_errors = found.takes_errors
        # Equal bytes mean equal names, datatypes and shapes: such requests can be joined unchecked.
        request.batch_key = found.version, found.form, tensors
        return request, found.form

    def _learn(self, tensors: bytes) -> RequestedTensors:
        known = decode_tensors(tensors)
        if len(tensors) <= MOST_KNOWN_BYTES:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[tensors] = known
        return known


def encode_answer(request: InferRequest, response: InferResponse) -> tuple[bytes, list[Buffer]]:
    """Return head and data of an answer to `request`. Raises as `encode_request` does."""
    outputs, parts = _packed(response.outputs)
    error = response.error
    head = ForwardedAnswer(
        _times(request),
        outputs,
        None if error is None else encode_failure(error),
        request.shared,
        request.ran_again,
        response.parameters,
        response.final,
        response.id,
    )
    try:
        return encode(head), parts
    except (UnicodeEncodeError, OverflowError) as failure:
        msg = f"the answer cannot be passed on within the server: {failure}"
        raise InvalidRequest(msg) from failure


def encode_end(request: InferRequest, error: InferdError | None) -> bytes:
    """Return the head of what ends `request` without an answer."""
    failure = None if error is None else encode_failure(error)
    return encode(ForwardedAnswer(_times(request), [], failure, request.shared, request.ran_again))


def decode_answer(
    request: InferRequest, head: memoryview, data: memoryview
) -> tuple[InferResponse, InferdError | None]:
    """Return an answer to `request`, whose tensors are views of `data`, and its error, if any.

    The request gets the times of its run. The time in a queue, if it got into any, is counted from
    when it set out. Raises ValueError or MsgspecError for what is no message.
    """
    found = decode_answer_head(head)
    (
        queued_ns,
        request.started_ns,
        request.computing_ns,
        request.computed_ns,
        request.ended_ns,
        request.answered_ns,
        request.cpu_ns,
    ) = found.times
    # `queued_ns` stays that of the origin, on the clock that all processes share.
    if not (queued_ns or request.started_ns):
        request.queued_ns = 0
    request.shared, request.ran_again = found.shared, found.ran_again
    error = None if found.failure is None else decode_failure(found.failure)
    outputs = _unpacked(found.outputs, data)
    response = InferResponse(
        request.model, request.version, found.id, outputs, found.parameters, found.final, error
    )
    return response, error


def _times(request: InferRequest) -> Times:
    return (
        request.queued_ns,
        request.started_ns,
        request.computing_ns,
        request.computed_ns,
        request.ended_ns,
        request.answered_ns,
        request.cpu_ns,
    )


def _packed(tensors: Several[Tensor]) -> tuple[list[TensorHead], list[Any]]:
    heads: list[TensorHead] = []
    parts: list[Any] = []
    for tensor in tensors:
        data = tensor.packed()
        size = len(data)
        # The plain attribute: `value` is a property of enums, called for each tensor.
        heads.append((tensor.name, tensor.datatype._value_, tensor.shape, size, tensor.parameters))
        if size:
            parts.append(data)
            if size % ALIGN:
                parts.append(PADS[-size % ALIGN])
    return heads, parts


def _unpacked(heads: Several[TensorHead], data: memoryview) -> list[Tensor]:
    tensors = []
    at = 0
    for name, datatype, shape, size, parameters in heads:
        found = DATATYPES.get(datatype)
        if found is None or size < 0:
            raise ValueError(f"a tensor of datatype {datatype!r} and {size} bytes")
        tensors.append(Tensor(name, found, shape, data[at : at + size], parameters))
        at += size + -size % ALIGN
    if at != len(data):
        raise ValueError(f"tensors of {at} bytes in {len(data)}")
    return tensors
