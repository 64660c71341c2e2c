"""SequenceTensors: the inputs that requests of a sequence get: controls, and states.

For each request a *control* says whether it starts its sequence, ends it, is present at all, or
which sequence it belongs to (Triton, Control Inputs). A client cannot send them.

A *state* is an output of the model that becomes an input of the sequence's next request (Triton,
Implicit State). The server keeps the bytes in between, so that a model without memory of its own,
such as an ONNX graph, can have state.
"""

from copy import copy
from math import prod
from pathlib import Path

import numpy as np

from inferd.config.model import (
    CONTROL_TYPES,
    Control,
    ControlInput,
    InitialState,
    ModelConfig,
    ModelInput,
    ModelOutput,
    SequenceState,
)
from inferd.config.rules.complaint import within
from inferd.core.interfaces import Answer
from inferd.core.request import InferRequest, InferResponse, Round, Sequence, WantedOutput
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.sequence_parts.live import LiveSequence, SequenceStep
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import decode_strings, encode_strings
from inferd.tensor.tensor import Tensor, fits

MAX_ID_BYTES = 128
"""The maximum length of a string id, in UTF-8 bytes."""

_CORRELATION_ID = "CONTROL_SEQUENCE_CORRID"


class Controls:
    """The control tensors of one model. Raises InvalidConfig for a control without a kind."""

    def __init__(self, config: ModelConfig) -> None:
        batching = config.sequence_batching
        self._model = config.name
        # With a batch dim, one value for each row.
        self._shape = (1, 1) if config.max_batch_size > 0 else (1,)
        self._pairs: dict[str, tuple[Tensor, Tensor]] = {}  # for false and for true, by kind
        self._id: ModelInput | None = None
        self.inputs: list[ModelInput] = []
        """The control tensors as inputs of the model, without the batch dim."""
        for number, one in enumerate(batching.control_input if batching is not None else ()):
            with within("sequence_batching", "control_input", number):
                self.inputs.append(self._add(one))
        self.absent = self._tensors(0, start=False, end=False, ready=False)
        """The control tensors for a row without a request."""

    def check_id(self, id: int | str) -> None:
        """Raise InvalidRequest for an id that is too long or of the wrong type for its control."""
        # Triton's limit.
        if isinstance(id, str) and len(id.encode()) > MAX_ID_BYTES:
            msg = f"the sequence_id has {len(id.encode())} bytes, expected {MAX_ID_BYTES} at most"
            raise InvalidRequest(msg)
        if self._id is None:
            return
        expected = str if self._id.datatype is DataType.BYTES else int
        if not isinstance(id, expected):
            given, kinds = type(id), {int: "a number", str: "a string"}
            datatype = DataType.BYTES if given is str else DataType.UINT64
            raise InvalidRequest(
                f"sequence batching control '{self._id.name}' data-type is '{datatype.value}', but "
                f"model '{self._model}' expects '{self._id.datatype.value}': the sequence_id is "
                f"{kinds[given]}, expected {kinds[expected]}"
            )

    def id_of(self, number: int) -> int | str:
        """Return `number` as an id of the type the control wants."""
        is_text = self._id is not None and self._id.datatype is DataType.BYTES
        return str(number) if is_text else number

    def of(self, sequence: Sequence) -> list[Tensor]:
        """Return the control tensors of a request, whose id has been checked."""
        return self._tensors(sequence.id, start=sequence.start, end=sequence.end, ready=True)

    def _tensors(self, id: int | str, *, start: bool, end: bool, ready: bool) -> list[Tensor]:
        values = {
            "CONTROL_SEQUENCE_START": start,
            "CONTROL_SEQUENCE_END": end,
            "CONTROL_SEQUENCE_READY": ready,
        }
        tensors = [pair[values[kind]] for kind, pair in self._pairs.items()]
        if self._id is not None:
            tensors.append(Tensor(self._id.name, self._id.datatype, self._shape, self._id_data(id)))
        return tensors

    def _id_data(self, id: int | str) -> bytes | bytearray:
        """Encode an id for its control; a number is truncated to the low bits that fit."""
        assert self._id is not None
        if self._id.datatype is DataType.BYTES:
            return encode_strings([id or "" if isinstance(id, str) else ""], self._id.name)
        size = self._id.datatype.size_bytes
        assert isinstance(id, int)
        # An id is a number of 64 bits, and the control may have 32.
        return (id & (1 << 8 * size) - 1).to_bytes(size, "little")

    def _add(self, one: ControlInput) -> ModelInput:
        if not one.control:
            msg = f"model '{self._model}': sequence_batching: control '{one.name}' has no kind"
            raise InvalidConfig(msg)
        [control] = one.control
        if control.kind == _CORRELATION_ID:
            assert control.datatype is not None
            self._id = ModelInput(one.name, control.datatype, (1,))
            return self._id
        datatype, values = _pair(control)
        false, true = (
            # Made once; each request gets the same tensor, which no model may write to.
            Tensor(one.name, datatype, self._shape, np.array([value], datatype.numpy))
            for value in values
        )
        self._pairs[control.kind] = false, true
        return ModelInput(one.name, datatype, (1,))


def _pair(control: Control) -> tuple[DataType, tuple[float, ...]]:
    """Return the datatype and the two values of a control, which the configuration has checked."""
    return next(
        (datatype, values)
        for field, datatype in CONTROL_TYPES.items()
        if (values := getattr(control, field))
    )


FOLDER = "initial_state"
"""The folder inside a model's folder that holds the files of initial states."""


class States:
    """The states of one model, whose files are in `folder`.

    Raises InvalidConfig when the file of an initial state is missing, leads out of the folder, or
    has the wrong size or contents.
    """

    def __init__(self, config: ModelConfig, folder: Path) -> None:
        self._model = config.name
        self._states = _states(config)
        self._batch_dims = (1,) if config.max_batch_size > 0 else ()
        self._hidden = frozenset(output.name for output in hidden_outputs(config))
        self.output_names = [state.output_name for state in self._states]
        self.initial: list[Tensor] = []
        """The states that a sequence starts with."""
        for number, state in enumerate(self._states):
            with within("sequence_batching", "state", number):
                self.initial.append(self._first(state, folder))

    def taken_from(self, response: InferResponse) -> list[Tensor]:
        """Return the state inputs of the next request, copied; drop hidden states from `response`.

        They are copied because the outputs of a batch are views of one buffer, which would live as
        long as its slowest sequence, and because clients can write to outputs in shared memory.
        Raises BackendFailed when a state is missing or does not match the configuration.
        """
        given = {tensor.name: tensor for tensor in response.outputs}
        inputs = [self._next(state, given.get(state.output_name)) for state in self._states]
        if self._hidden:
            response.outputs = [one for one in response.outputs if one.name not in self._hidden]
        return inputs

    def _next(self, state: SequenceState, tensor: Tensor | None) -> Tensor:
        if tensor is None:
            raise self._failed(state, "is missing")
        inner = tensor.shape[len(self._batch_dims) :]
        if tensor.datatype is not state.datatype or not fits(state.dims, inner):
            raise self._failed(state, f"is {tensor.datatype.value} {list(tensor.shape)}")
        return Tensor(state.input_name, tensor.datatype, tensor.shape, bytes(tensor.view()))

    def _failed(self, state: SequenceState, what: str) -> InferdError:
        expected = f"{_datatype(state).value} {list(self._batch_dims + state.dims)}"
        return BackendFailed(
            f"model '{self._model}': state '{state.output_name}' {what}, expected {expected}"
        )

    def _first(self, state: SequenceState, folder: Path) -> Tensor:
        datatype = _datatype(state)
        initial = state.initial_state[0] if state.initial_state else InitialState(dims=state.dims)
        # Triton: a variable dim of an initial state is 1.
        dims = tuple(1 if dim == -1 else dim for dim in initial.dims)
        size_bytes = prod(dims) * (datatype.size_bytes or 4)  # 4 bytes encode an empty string
        data = bytes(size_bytes)
        if initial.data_file is not None:
            data = self._read(state, folder, initial.data_file, size_bytes)
            self._check_size(state, data, prod(dims), initial.data_file)
        return Tensor(state.input_name, datatype, self._batch_dims + dims, data)

    def _read(self, state: SequenceState, folder: Path, name: str, size_bytes: int) -> bytes:
        """Read the file; of one that is too long, return only one byte too many."""
        place = folder / FOLDER
        try:
            file = (place / name).resolve()
            # Links are followed first: a name that stays inside may be a link that does not.
            if not file.is_relative_to(folder.resolve()):
                raise self._bad_file(state, f"'{name}' leads out of the model's folder")
            if not file.is_file():  # opening a pipe, for instance, would wait for a writer
                raise self._bad_file(state, f"there is no file '{name}' in {FOLDER}")
            with file.open("rb") as source:
                is_text = state.datatype is DataType.BYTES
                # Strings have no size that could be known before.
                return source.read(-1 if is_text else size_bytes + 1)
        except (OSError, ValueError) as error:  # ValueError: a name no file can have
            raise self._bad_file(state, f"'{name}' cannot be read") from error

    def _check_size(self, state: SequenceState, data: bytes, count: int, name: str) -> None:
        if state.datatype is DataType.BYTES:
            try:
                got, unit = len(decode_strings(data, state.input_name)), "elements"
            except InferdError as error:
                raise self._bad_file(state, f"'{name}': {error.message}") from error
            expected = count
        else:
            got, expected, unit = len(data), count * _datatype(state).size_bytes, "bytes"
        if got != expected:
            more = "more" if got > expected else str(got)
            raise self._bad_file(state, f"'{name}' has {more}, expected {expected} {unit}")

    def _bad_file(self, state: SequenceState, why: str) -> InferdError:
        msg = (
            f"model '{self._model}': sequence_batching: initial_state of '{state.input_name}': "
            f"{why}"
        )
        return InvalidConfig(msg, ("initial_state", 0, "data_file"))


def state_inputs(config: ModelConfig) -> list[ModelInput]:
    """Return the states as inputs of the model, without the batch dim."""
    return [ModelInput(one.input_name, _datatype(one), one.dims) for one in _states(config)]


def hidden_outputs(config: ModelConfig) -> list[ModelOutput]:
    """Return the outputs of the model that are only states, which clients do not see."""
    shown = {output.name for output in config.output}
    return [
        ModelOutput(one.output_name, _datatype(one), one.dims)
        for one in _states(config)
        if one.output_name not in shown
    ]


def _states(config: ModelConfig) -> tuple[SequenceState, ...]:
    return config.sequence_batching.state if config.sequence_batching is not None else ()


def _datatype(state: SequenceState) -> DataType:
    assert state.datatype is not None  # checked with the configuration
    return state.datatype


class SequenceTensors:
    """The tensors that a model's configuration adds to its requests."""

    def __init__(self, plan: BatchPlan, controls: Controls, states: States) -> None:
        self.plan = plan
        self.controls = controls
        self.states = states

    def add_to(self, step: SequenceStep) -> None:
        """Add the scheduler's inputs to a request, and the next states to its wanted outputs."""
        request, sequence = step.request, step.sequence
        if step.shown.start:
            sequence.state = self.states.initial
        request.sequence = step.shown
        request.batch_key = None  # it now differs from the requests it was like
        request.inputs = [*step.inputs, *self.controls.of(step.shown), *sequence.state]
        if request.outputs:
            named = {wanted.name for wanted in request.outputs}
            missing = [name for name in self.states.output_names if name not in named]
            request.outputs = [*request.outputs, *map(WantedOutput, missing)]
        step.kind = self.plan.kind(request)

    def remove_from(self, step: SequenceStep) -> None:
        """Restore the request to what the caller sent."""
        request = step.request
        request.inputs, request.outputs, request.sequence = step.inputs, step.outputs, step.sent

    def store_state(self, sequence: LiveSequence, answer: Answer) -> Answer:
        """Store the state in an answer; return the answer for the caller."""
        if isinstance(answer, InferdError):
            return answer
        try:
            states = [self.states.taken_from(one) for one in _with_states(answer)]
        except InferdError as error:
            return error
        if states:
            sequence.state = states[-1]
        return answer

    def filler(self, step: SequenceStep) -> InferRequest:
        """Return a filler for a row without a request: a copy of `step` marked as absent."""
        filler = copy(step.request)
        absent = self.controls.absent
        states = filler.inputs[len(step.inputs) + len(absent) :]
        # The client's inputs stay, since the model gets a full batch; what says that the row is
        # empty are the controls.
        filler.inputs = [*step.inputs, *absent, *states]
        filler.outputs = [WantedOutput(wanted.name) for wanted in filler.outputs]
        filler.sequence = None  # it must not be taken for another step of the sequence
        filler.spans = None  # none of it goes to the client's shared memory
        return filler


def _with_states(answer: InferResponse) -> list[InferResponse]:
    """Return what holds the states: an answer itself; if a round has no outputs, its answers.

    A model.py gives the states with its answers. Where it has none in a round, the states stay.
    """
    if not isinstance(answer, Round) or answer.outputs:
        return [answer]
    return [one for one in answer.answers if one.outputs]
