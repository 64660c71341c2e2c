"""SquareBackend: a decoupled model that answers n with n answers, for tests."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.parameter import whole_number
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits, Traits
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest, Unavailable
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

_INPUT = ModelInput("IN", DataType.INT32, (1,))
_OUTPUT = ModelOutput("OUT", DataType.INT32, (1,))

_MOST = 2**31 - 1  # of nanoseconds, and of answers


class SquareBackend:
    """Runs models shaped like Triton's square backend; there is no model file.

    Input IN, INT32 [1]: the number of answers. Output OUT, INT32 [1]: that number, in each answer.
    No answer is marked as final: as in Triton, the end follows separately. Batches of several rows
    are refused.

    Parameters of the configuration, whole numbers, 0 by default: CUSTOM_INFER_DELAY_NS and
    CUSTOM_OUTPUT_DELAY_NS, nanoseconds before the first answer and before each; the last
    CUSTOM_EMPTY_COUNT answers have no output, and the CUSTOM_FAIL_COUNT before these are errors.
    """

    traits = Traits(is_concurrent=True)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; a configuration without tensors becomes a decoupled model's."""
        del files
        if not config.input and not config.output:
            config = replace(config, input=(_INPUT,), output=(_OUTPUT,), decoupled=True)
        _check(config)
        return config

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline."""
        return OfflineReport(self.complete(files, config), is_complete=True)

    def open(
        self, files: ModelFiles, config: ModelConfig, placement: Placement
    ) -> "SquareInstance":
        """See Backend.open. Raises InvalidConfig for tensors other than those above."""
        del placement
        _check(config)
        return SquareInstance(config, files.version)


class SquareInstance:
    """One square model."""

    traits = InstanceTraits(is_bounded=False)

    def __init__(self, config: ModelConfig, version: int) -> None:
        self._model = config.name
        self._version = str(version)
        self._first_delay_ns = whole_number(config, "CUSTOM_INFER_DELAY_NS", 0, 0, _MOST)
        self._delay_ns = whole_number(config, "CUSTOM_OUTPUT_DELAY_NS", 0, 0, _MOST)
        self._fail_count = whole_number(config, "CUSTOM_FAIL_COUNT", 0, 0, _MOST)
        self._empty_count = whole_number(config, "CUSTOM_EMPTY_COUNT", 0, 0, _MOST)
        self._closed = threading.Event()

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute; any number of answers other than one needs `stream`."""
        return [self._answer(request) for request in requests]

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream. Raises InvalidRequest, or Unavailable once closed."""
        count = self._answer_count(request)
        [given] = request.inputs
        outputs = [Tensor("OUT", DataType.INT32, given.shape, given.data)]
        self._wait(self._first_delay_ns)
        # Counted down, as failures and empty answers are the last ones.
        for left in range(count, 0, -1):
            self._wait(self._delay_ns)
            yield self._nth(request, outputs, left)

    def close(self) -> None:
        """End every wait; running requests fail as Unavailable."""
        self._closed.set()

    def _answer_count(self, request: InferRequest) -> int:
        [given] = request.inputs
        # With a batch dim, IN is [rows, 1]; without, [1]: both have the number of rows in front.
        if given.shape[0] != 1:
            msg = f"input 'IN' has {given.shape[0]} rows, a square model takes one"
            raise InvalidRequest(msg)
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

    def _wait(self, delay_ns: int) -> None:
        if delay_ns and self._closed.wait(delay_ns / 1e9):
            msg = f"model '{self._model}' was unloaded while it waited"
            raise Unavailable(msg)


def _check(config: ModelConfig) -> None:
    inputs = [(one.name, one.datatype, one.dims) for one in config.input]
    outputs = [(one.name, one.datatype, one.dims) for one in config.output]
    expected = [(_INPUT.name, DataType.INT32, (1,))], [(_OUTPUT.name, DataType.INT32, (1,))]
    if (inputs, outputs) != expected:
        msg = f"model '{config.name}': a square model has an input IN and an output OUT, INT32 [1]"
        raise InvalidConfig(msg)
