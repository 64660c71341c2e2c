"""Decoupled models for tests: repeat answers once for each element, square n with n answers."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from inferd.config.model import (
    ModelConfig,
    ModelInput,
    ModelOutput,
    SequenceBatching,
    SequenceState,
)
from inferd.config.parameter import whole_number
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.request import InferRequest, InferResponse, Round
from inferd.core.traits import InstanceTraits, Traits
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest, Unavailable
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

_MOST = 2**31 - 1  # of nanoseconds, and of answers


class _DecoupledInstance:
    """One model, whose waits end when it is closed."""

    traits = InstanceTraits(is_bounded=False)

    def __init__(self, config: ModelConfig, version: int) -> None:
        self._model = config.name
        self._version = str(version)
        self._closed = threading.Event()

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute; any number of answers other than one needs `stream`, or rounds."""
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """End every wait; running requests fail as Unavailable."""
        self._closed.set()

    def _answer(self, request: InferRequest) -> InferResponse | InferdError:
        raise NotImplementedError

    def _wait(self, delay_s: float) -> None:
        if delay_s and self._closed.wait(delay_s):
            raise Unavailable(f"model '{self._model}' was unloaded while it waited")


class _DecoupledBackend:
    """Base of these backends: there is no model file. A model has certain inputs and outputs."""

    traits = Traits(is_concurrent=True)
    inputs: ClassVar[tuple[ModelInput, ...]]
    outputs: ClassVar[tuple[ModelOutput, ...]]
    instance: ClassVar[type[_DecoupledInstance]]

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; a configuration without tensors becomes a decoupled model's."""
        del files
        if not config.input and not config.output:
            config = replace(config, input=self.inputs, output=self.outputs, decoupled=True)
        self._check(config)
        return config

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline."""
        return OfflineReport(self.complete(files, config), is_complete=True)

    def open(
        self, files: ModelFiles, config: ModelConfig, placement: Placement
    ) -> _DecoupledInstance:
        """See Backend.open. Raises InvalidConfig for tensors other than the model's."""
        del placement
        self._check(config)
        return self.instance(config, files.version)

    def _check(self, config: ModelConfig) -> None:
        raise NotImplementedError


def _forms(tensors: Iterable[ModelInput | ModelOutput]) -> list[tuple[object, ...]]:
    return [(one.name, one.datatype, one.dims) for one in tensors]


class RepeatInstance(_DecoupledInstance):
    """One repeat model."""

    def __init__(self, config: ModelConfig, version: int) -> None:
        super().__init__(config, version)
        self._is_decoupled = config.decoupled
        self._round_state = _round_state(config)

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream. Raises InvalidRequest, or Unavailable once closed."""
        inputs = {tensor.name: tensor.numpy() for tensor in request.inputs}
        elements = inputs["IN"]
        for index, delay_ms in enumerate(_delays(inputs)):
            self._wait(delay_ms / 1000)
            outputs = _outputs(elements, index)
            yield InferResponse(request.model, self._version, request.id, outputs, final=False)
        # After the last answer is out: Triton's repeat model keeps its instance busy this way.
        if "WAIT" in inputs:
            self._wait(int(inputs["WAIT"][0]) / 1000)

    def _answer(self, request: InferRequest) -> InferResponse | InferdError:
        if self._round_state is not None:
            return self._round(request, self._round_state)
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
            self._wait(_delays(inputs)[index] / 1000)
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


class RepeatBackend(_DecoupledBackend):
    """Runs models shaped like Triton's repeat backend.

    Inputs: IN, INT32 [n]: what to answer. DELAY, UINT32 [n]: milliseconds before each answer.
    WAIT, UINT32 [1]: milliseconds the instance stays busy after the last answer. Outputs of the
    n-th answer: OUT, INT32 [1]: the n-th element. IDX, UINT32 [1]: n, from 0. Without elements
    there are no answers. No answer is marked as final: as in Triton, the end follows separately.

    With `iterative_sequence` each answer is a round of its own, and a state, INT32 [1], counts the
    rounds. The model need not be decoupled then; if it is not, it answers in the last round.
    """

    inputs = (
        ModelInput("IN", DataType.INT32, (-1,)),
        ModelInput("DELAY", DataType.UINT32, (-1,), optional=True),
        ModelInput("WAIT", DataType.UINT32, (1,), optional=True),
    )
    outputs = (
        ModelOutput("OUT", DataType.INT32, (1,)),
        ModelOutput("IDX", DataType.UINT32, (1,)),
    )
    instance = RepeatInstance

    def _check(self, config: ModelConfig) -> None:
        _round_state(config)
        sequence = config.sequence_batching or SequenceBatching()
        # Controls and states are inputs that the server adds, under any names.
        added = {one.name for one in sequence.control_input}
        added |= {name for one in sequence.state for name in (one.input_name, one.output_name)}
        inputs = set(_forms(one for one in config.input if one.name not in added))
        outputs = set(_forms(one for one in config.output if one.name not in added))
        if (
            config.max_batch_size > 0
            or not set(_forms(self.inputs[:1])) <= inputs <= set(_forms(self.inputs))
            or outputs != set(_forms(self.outputs))
        ):
            raise InvalidConfig(
                f"model '{config.name}': a repeat model has max_batch_size 0, inputs IN INT32 "
                f"[-1], DELAY UINT32 [-1] and WAIT UINT32 [1] (the last two may be left out), "
                f"outputs OUT INT32 [1] and IDX UINT32 [1]"
            )


class SquareInstance(_DecoupledInstance):
    """One square model."""

    def __init__(self, config: ModelConfig, version: int) -> None:
        super().__init__(config, version)
        self._first_delay_ns = whole_number(config, "CUSTOM_INFER_DELAY_NS", 0, 0, _MOST)
        self._delay_ns = whole_number(config, "CUSTOM_OUTPUT_DELAY_NS", 0, 0, _MOST)
        self._fail_count = whole_number(config, "CUSTOM_FAIL_COUNT", 0, 0, _MOST)
        self._empty_count = whole_number(config, "CUSTOM_EMPTY_COUNT", 0, 0, _MOST)

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream. Raises InvalidRequest, or Unavailable once closed."""
        count = self._answer_count(request)
        [given] = request.inputs
        outputs = [Tensor("OUT", DataType.INT32, given.shape, given.data)]
        self._wait(self._first_delay_ns / 1e9)
        # Counted down, as failures and empty answers are the last ones.
        for left in range(count, 0, -1):
            self._wait(self._delay_ns / 1e9)
            yield self._nth(request, outputs, left)

    def _answer_count(self, request: InferRequest) -> int:
        [given] = request.inputs
        # With a batch dim, IN is [rows, 1]; without, [1]: both have the number of rows in front.
        if given.shape[0] != 1:
            raise InvalidRequest(f"input 'IN' has {given.shape[0]} rows, a square model takes one")
        return max(0, int(given.numpy().item()))

    def _nth(self, request: InferRequest, outputs: list[Tensor], left: int) -> InferResponse:
        """Return an answer that `left - 1` more follow."""
        answer = InferResponse(request.model, self._version, request.id, outputs, final=False)
        if left <= self._empty_count:
            answer.outputs = []
        elif left <= self._empty_count + self._fail_count:
            answer.outputs = []
            answer.error = BackendFailed(f"model '{self._model}' fails as it is configured to")
        return answer

    def _answer(self, request: InferRequest) -> InferResponse | InferdError:
        try:
            count = self._answer_count(request)
            if count != 1:
                return InvalidRequest(
                    f"input 'IN' asks for {count} answers, which need a stream; this call takes one"
                )
            [answer] = self.stream(request)
        except InferdError as error:
            return error
        if answer.error is not None:
            return answer.error
        # A stream's answers are never final, but the answer of a plain call has to be.
        answer.final = True
        return answer


class SquareBackend(_DecoupledBackend):
    """Runs models shaped like Triton's square backend.

    Input IN, INT32 [1]: the number of answers. Output OUT, INT32 [1]: that number, in each answer.
    No answer is marked as final: as in Triton, the end follows separately. Batches of several rows
    are refused.

    Parameters of the configuration, whole numbers, 0 by default: CUSTOM_INFER_DELAY_NS and
    CUSTOM_OUTPUT_DELAY_NS, nanoseconds before the first answer and before each; the last
    CUSTOM_EMPTY_COUNT answers have no output, and the CUSTOM_FAIL_COUNT before these are errors.
    """

    inputs = (ModelInput("IN", DataType.INT32, (1,)),)
    outputs = (ModelOutput("OUT", DataType.INT32, (1,)),)
    instance = SquareInstance

    def _check(self, config: ModelConfig) -> None:
        expected = _forms(self.inputs), _forms(self.outputs)
        if (_forms(config.input), _forms(config.output)) != expected:
            raise InvalidConfig(
                f"model '{config.name}': a square model has an input IN and an output OUT, "
                f"INT32 [1]"
            )
