"""Messages: requests and answers as the documents of packets describe them."""

from collections.abc import Sequence
from math import prod
from typing import Any

from inferd.backends.worker.document import Answers, Described, DescribedAnswer, DescribedBatch
from inferd.backends.worker.failure import NotFoundFailure, UnknownFailure
from inferd.backends.worker.link import NO_LOANS, Loans
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import (
    AlreadyExists,
    BackendFailed,
    Cancelled,
    Code,
    InferdError,
    InvalidRequest,
    Unavailable,
    Unsupported,
)
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor, fits, reshaped
from inferd_worker.packet import ALIGN, ZEROS, Payload, odd_numbers

_Dims = tuple[int, ...]


class Reshapes:
    """The reshapes of one model: requests and answers have `dims`, the model sees `reshape`.

    A tensor with an unexpected shape is left alone.
    """

    def __init__(self, config: ModelConfig) -> None:
        self._lead = 1 if config.max_batch_size > 0 else 0
        self._inputs = {name: (dims, target) for name, dims, target in _reshapes(config.input)}
        self._outputs = {name: (target, dims) for name, dims, target in _reshapes(config.output)}

    def apply_to_inputs(self, inputs: list[tuple[Any, ...]]) -> None:
        """Give the inputs of a packet, each (name, datatype, shape, ...), the model's shapes."""
        for number, (name, datatype, shape, *place) in enumerate(inputs):
            if name in self._inputs:
                shape = self._reshaped(shape, *self._inputs[name])
                inputs[number] = name, datatype, shape, *place

    def apply_to_outputs(self, outputs: list[Tensor]) -> None:
        """Give outputs the shapes that clients expect."""
        for number, one in enumerate(outputs):
            if one.name in self._outputs:
                shape = self._reshaped(one.shape, *self._outputs[one.name])
                # A new one, over the same bytes: a reshape never changes their order.
                outputs[number] = Tensor(one.name, one.datatype, shape, one.data)

    def _reshaped(self, shape: _Dims, dims: _Dims, target: _Dims) -> _Dims:
        is_fitting = len(shape) >= self._lead and fits(dims, shape[self._lead :])
        return reshaped(shape, dims, target) if is_fitting else shape


def reshapes_of(config: ModelConfig) -> Reshapes | None:
    """Return the reshapes of a model; None if no tensor has one."""
    has_some = bool(_reshapes(config.input) or _reshapes(config.output))
    return Reshapes(config) if has_some else None


def _reshapes(tensors: Sequence[ModelInput | ModelOutput]) -> list[tuple[str, _Dims, _Dims]]:
    return [(one.name, one.dims, one.reshape) for one in tensors if one.reshape is not None]


Places = list[tuple[str, DataType, tuple[int, ...], int, int, int]]
"""For each tensor its name, datatype, shape, the begin and end of its bytes, and their block:
NO_BLOCK for the data of the packet. The end is 0 without any bytes."""

SEQUENCE_START, SEQUENCE_END = 1, 2


ERRORS: tuple[type[InferdError], ...] = (
    UnknownFailure,
    BackendFailed,
    NotFoundFailure,
    InvalidRequest,
    Unavailable,
    Unsupported,
    AlreadyExists,
    Cancelled,
)
"""Indexed by TritonError's codes."""

_NUMBERS = {kind.code: number for number, kind in enumerate(ERRORS)}


def code_of(error: InferdError) -> int:
    """Return the TritonError code of `error`."""
    return _NUMBERS.get(error.code, _NUMBERS[Code.INTERNAL])


def described(tensor: Tensor, payload: Payload) -> tuple[Any, ...]:
    """Return the packet's description of `tensor`, and add its bytes to `payload`."""
    offset, size = payload.add(tensor.packed())
    # _value_ and not value, which is a property in Python, and slower.
    return tensor.name, tensor.datatype._value_, tensor.shape, offset, size


def describe_request(
    request: InferRequest, payload: Payload, reshapes: Reshapes | None = None
) -> tuple[Any, ...]:
    """Return the packet's description of `request`; `reshapes` gives inputs the model's shapes."""
    more: tuple[Any, ...] | None = None
    sequence = request.sequence
    parameters = request.parameters or None
    odd = odd_numbers(parameters) if parameters is not None else None
    if sequence is not None or request.timeout_us or request.priority or odd:
        id: int | str = 0
        flags = 0
        if sequence is not None:
            id = sequence.id
            flags = SEQUENCE_START * sequence.start + SEQUENCE_END * sequence.end
        more = (id, flags, request.timeout_us, request.priority, odd)
    inputs = []
    parts, end = payload.parts, payload.size
    for tensor in request.inputs:  # `described`, inlined
        data = tensor.data
        if type(data) is not bytes:
            data = tensor.view()
        size = len(data)
        inputs.append((tensor.name, tensor.datatype._value_, tensor.shape, end, size))
        if size:
            parts.append(data)
            missing = -size % ALIGN
            if missing:
                parts.append(ZEROS[:missing])
            end += size + missing
    payload.size = end
    if reshapes is not None:
        reshapes.apply_to_inputs(inputs)
    outputs = [wanted.name for wanted in request.outputs] if request.outputs else None
    if odd and parameters is not None:
        parameters = {name: value for name, value in parameters.items() if name not in odd}
    return request.id, inputs, outputs, parameters, more


def blocks_of(outputs: Sequence[Described]) -> set[int]:
    """Return the blocks of our own memory that a packet names."""
    return {one.block for one in outputs if one.block >= 0}


def places_of(tensors: Sequence[Described]) -> Places:
    """Return the place of each of `tensors`. Raises ValueError if one does not fit its shape."""
    places: Places = []
    for one in tensors:
        shape, offset, size = one.shape, one.offset, one.size
        element_bytes = one.datatype.size_bytes
        # BYTES elements have lengths of their own, so any size may be
        # right; the codec that reads them checks.
        is_odd = size != element_bytes * prod(shape) if element_bytes else size < 0
        if is_odd or offset < 0 or min(shape, default=0) < 0:
            raise ValueError(_misplaced(one.name, shape, offset, size))
        end = offset + size if size else 0
        places.append((one.name, one.datatype, shape, offset, end, one.block))
    return places


def placed(places: Places, data: Any, loans: Loans = NO_LOANS) -> list[Tensor]:
    """Return the tensors at `places`: views of `data`, or of the blocks that they name.

    Raises ValueError for bytes out of range.
    """
    tensors = []
    for name, datatype, shape, begin, end, block in places:
        # A block that was not lent has no bytes, and the check below refuses it.
        there = data if block < 0 else loans.get(block, b"")
        if end > len(there):
            raise ValueError(_misplaced(name, shape, begin, end - begin))
        tensors.append(Tensor(name, datatype, shape, there[begin:end] if end else b""))
    return tensors


def _misplaced(name: str, shape: tuple[int, ...], offset: int, size: int) -> str:
    return f"tensor '{name}' {list(shape)} has {size} bytes at {offset}"


class ResultReader:
    """The content of a RESULT, parsed once for all identical ones.

    `plain` holds the places of the outputs if there is one answer, with outputs and nothing else;
    otherwise it is None. `blocks` are the blocks of our memory that the RESULT names.
    """

    def __init__(self, result: Answers) -> None:
        self.released = result.released
        self.answers = result.answers
        self.plain: Places | None = None
        self.blocks = {
            block for answer in self.answers for block in blocks_of(answer.outputs or ())
        }
        if len(self.answers) != 1:
            return
        [answer] = self.answers
        outputs = answer.outputs
        is_more = answer.number or answer.parameters or answer.error is not None
        if outputs and not is_more and answer.is_final:
            self.plain = places_of(outputs)


def response_of(
    answer: DescribedAnswer,
    data: object,
    request: InferRequest,
    version: str,
    loans: Loans = NO_LOANS,
    reshapes: Reshapes | None = None,
) -> InferResponse | InferdError:
    """Return the worker's answer to `request`, its outputs in the shapes that clients see."""
    if answer.error is not None:
        code, text = answer.error
        # Codes come from the model's process, and may be any number.
        kind = ERRORS[code] if 0 <= code < len(ERRORS) else BackendFailed
        return kind(text)
    outputs = placed(places_of(answer.outputs or ()), data, loans)
    if reshapes is not None:
        reshapes.apply_to_outputs(outputs)
    return InferResponse(
        request.model,
        version,
        request.id,
        outputs,
        # Copied, since the content serves all identical packets, and what is
        # answered may be changed on its way.
        dict(answer.parameters) if answer.parameters else {},
        answer.is_final,
    )


class BatchReader:
    """The content of an EXECUTE, parsed once for all identical ones."""

    def __init__(self, batch: DescribedBatch) -> None:
        self.released = batch.released
        self._described = [(request, places_of(request.inputs)) for request in batch.requests]

    def requests(self, data: Any, model: str) -> list[InferRequest]:
        """Return the requests to `model`, their inputs views of the packet's data.

        Raises ValueError for inputs whose bytes are out of range.
        """
        requests = []
        for request, places in self._described:
            inputs = placed(places, data)
            wanted = [WantedOutput(name) for name in request.outputs] if request.outputs else []
            parameters = dict(request.parameters) if request.parameters else {}
            shape = inputs[0].shape if inputs else ()
            size = shape[0] if shape else 1  # where there is no batch dim, nobody asks for it
            requests.append(
                InferRequest(model, "", request.id, inputs, wanted, parameters, batch_size=size)
            )
        return requests


def described_answer(
    number: int,
    answer: InferResponse | InferdError,
    payload: Payload,
    *,
    ran_again: bool = False,
) -> tuple[object, ...]:
    """Return the packet's description of the answer to request `number`."""
    more = (True,) if ran_again else ()  # most documents are shorter, and many are the same
    if isinstance(answer, InferdError):
        return number, None, (code_of(answer), answer.message), None, True, 1, *more
    outputs = [described(tensor, payload) for tensor in answer.outputs]
    return number, outputs, None, answer.parameters or None, True, 1, *more
