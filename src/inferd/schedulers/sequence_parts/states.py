"""States: tensors passed from one request of a sequence to the next (Triton, Implicit State).

An output of the model becomes an input of the sequence's next request. The server keeps the bytes
in between, so that a model without memory of its own, such as an ONNX graph, can have state.
"""

from math import prod
from pathlib import Path

from inferd.config.model import InitialState, ModelConfig, ModelInput, ModelOutput, SequenceState
from inferd.config.rules.complaint import within
from inferd.core.request import InferResponse
from inferd.errors import BackendFailed, InferdError, InvalidConfig
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import decode_strings
from inferd.tensor.tensor import Tensor, fits

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
