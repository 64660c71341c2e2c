"""RepeatBackend: a decoupled model that answers once for each input element, for tests."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inferd.config.model import (
    ModelConfig,
    ModelInput,
    ModelOutput,
    SequenceBatching,
    SequenceState,
)
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.request import InferRequest, InferResponse, Round
from inferd.core.traits import InstanceTraits, Traits
from inferd.errors import InferdError, InvalidConfig, InvalidRequest, Unavailable
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

_INPUTS = (
    ModelInput("IN", DataType.INT32, (-1,)),
    ModelInput("DELAY", DataType.UINT32, (-1,), optional=True),
    ModelInput("WAIT", DataType.UINT32, (1,), optional=True),
)
_OUTPUTS = (
    ModelOutput("OUT", DataType.INT32, (1,)),
    ModelOutput("IDX", DataType.UINT32, (1,)),
)


class RepeatBackend:
    """Runs models shaped like Triton's repeat backend; there is no model file.

    Inputs: IN, INT32 [n]: what to answer. DELAY, UINT32 [n]: milliseconds before each answer.
    WAIT, UINT32 [1]: milliseconds the instance stays busy after the last answer. Outputs of the
    n-th answer: OUT, INT32 [1]: the n-th element. IDX, UINT32 [1]: n, from 0. Without elements
    there are no answers. No answer is marked as final: as in Triton, the end follows separately.

    With `iterative_sequence` each answer is a round of its own, and a state, INT32 [1], counts the
    rounds. The model need not be decoupled then; if it is not, it answers in the last round.
    """

    traits = Traits(is_concurrent=True)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; a configuration without tensors becomes a decoupled model's."""
        del files
        if not config.input and not config.output:
            config = replace(config, input=_INPUTS, output=_OUTPUTS, decoupled=True)
        _check(config)
        return config

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline."""
        return OfflineReport(self.complete(files, config), is_complete=True)

    def open(
        self, files: ModelFiles, config: ModelConfig, placement: Placement
    ) -> "RepeatInstance":
        """See Backend.open. Raises InvalidConfig for tensors other than those above."""
        del placement
        _check(config)
        return RepeatInstance(config, files.version)


class RepeatInstance:
    """One repeat model."""

    traits = InstanceTraits(is_bounded=False)

    def __init__(self, config: ModelConfig, version: int) -> None:
        self._model = config.name
        self._version = str(version)
        self._is_decoupled = config.decoupled
        self._round_state = _round_state(config)
        self._closed = threading.Event()

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute; without rounds, several elements, or none, need `stream`."""
        if (state := self._round_state) is not None:
            return [self._round(request, state) for request in requests]
        return [self._answer(request) for request in requests]

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream. Raises InvalidRequest, or Unavailable once closed."""
        inputs = {tensor.name: tensor.numpy() for tensor in request.inputs}
        elements = inputs["IN"]
        for index, delay_ms in enumerate(_delays(inputs)):
            self._wait(delay_ms)
            outputs = _outputs(elements, index)
            yield InferResponse(request.model, self._version, request.id, outputs, final=False)
        # After the last answer is out: Triton's repeat model keeps its instance busy this way.
        if "WAIT" in inputs:
            self._wait(int(inputs["WAIT"][0]))

    def close(self) -> None:
        """End every wait; running requests fail as Unavailable."""
        self._closed.set()

    def _answer(self, request: InferRequest) -> InferResponse | InferdError:
        try:
            # Run to the end before it is judged: a plain call of a decoupled model is right if it
            # happens to give one answer.
            answers = list(self.stream(request))
        except InferdError as error:
            return error
        if len(answers) == 1:
            answers[0].final = True
            return answers[0]
        return InvalidRequest(
            f"input 'IN' has {len(answers)} elements, which need a stream; this call takes one"
        )

    def _round(self, request: InferRequest, state: SequenceState) -> InferResponse | InferdError:
        """Answer the next element; ask for another round unless it is the last."""
        inputs = {tensor.name: tensor.numpy() for tensor in request.inputs}
        elements, index = inputs["IN"], int(inputs[state.input_name][0])
        state_out = Tensor(state.output_name, DataType.INT32, (1,), np.array([index + 1], np.int32))
        # Only with no elements at all: otherwise the last one ended the sequence.
        if index >= len(elements):
            if self._is_decoupled:
                # A round without an answer and without another round: the end alone.
                return Round(request.model, self._version, outputs=[state_out])
            return InvalidRequest("input 'IN' has no elements, expected one at least")
        try:
            self._wait(_delays(inputs)[index])
        except InferdError as error:
            return error
        again = index + 1 < len(elements)
        outputs = _outputs(elements, index)
        if self._is_decoupled:
            answer = InferResponse(request.model, self._version, request.id, outputs, {}, not again)
            return Round(
                request.model, self._version, outputs=[state_out], answers=[answer], again=again
            )
        if again:
            # No answer of its own: a client of a model that is not
            # decoupled gets the last one alone.
            return Round(request.model, self._version, outputs=[state_out], again=True)
        return InferResponse(request.model, self._version, request.id, [*outputs, state_out])

    def _wait(self, delay_ms: int) -> None:
        if delay_ms and self._closed.wait(delay_ms / 1000):
            msg = f"model '{self._model}' was unloaded while it waited"
            raise Unavailable(msg)


def _delays(inputs: Mapping[str, Any]) -> list[int]:
    """Return the milliseconds before each answer. Raises InvalidRequest."""
    elements = inputs["IN"]
    delays = inputs.get("DELAY", np.zeros(len(elements), np.uint32))
    if len(delays) != len(elements):
        msg = f"input 'DELAY' has {len(delays)} elements, input 'IN' has {len(elements)}"
        raise InvalidRequest(msg)
    found: list[int] = delays.tolist()
    return found


def _outputs(elements: Any, index: int) -> list[Tensor]:
    return [
        Tensor("OUT", DataType.INT32, (1,), elements[index : index + 1]),
        Tensor("IDX", DataType.UINT32, (1,), np.array([index], np.uint32)),
    ]


def _round_state(config: ModelConfig) -> SequenceState | None:
    """Return the state that counts rounds, None if there are no rounds. Raises InvalidConfig."""
    sequence = config.sequence_batching
    if sequence is None or not sequence.iterative_sequence:
        return None
    if [(one.datatype, one.dims) for one in sequence.state] != [(DataType.INT32, (1,))]:
        msg = f"model '{config.name}': an iterative repeat model has one state, INT32 [1]"
        raise InvalidConfig(msg)
    return sequence.state[0]


def _check(config: ModelConfig) -> None:
    _round_state(config)
    sequence = config.sequence_batching or SequenceBatching()
    # Controls and states are inputs that the server adds, under any names.
    added = {one.name for one in sequence.control_input}
    added |= {name for one in sequence.state for name in (one.input_name, one.output_name)}
    inputs = {(one.name, one.datatype, one.dims) for one in config.input if one.name not in added}
    outputs = {(one.name, one.datatype, one.dims) for one in config.output if one.name not in added}
    if (
        config.max_batch_size > 0
        or not {(_INPUTS[0].name, _INPUTS[0].datatype, _INPUTS[0].dims)} <= inputs
        or not inputs <= {(tensor.name, tensor.datatype, tensor.dims) for tensor in _INPUTS}
        or outputs != {(tensor.name, tensor.datatype, tensor.dims) for tensor in _OUTPUTS}
    ):
        msg = (
            f"model '{config.name}': a repeat model has max_batch_size 0, inputs IN INT32 [-1], "
            f"DELAY UINT32 [-1] and WAIT UINT32 [1] (the last two may be left out), "
            f"outputs OUT INT32 [1] and IDX UINT32 [1]"
        )
        raise InvalidConfig(msg)
