"""FaultyBackend: models that break in every possible way, to test the server around them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits, Traits
from inferd.errors import BackendFailed, Code, InferdError, InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Parameters, Tensor

Answers = list[InferResponse]


class FaultyBackend:
    """Runs models whose parameter `fault` says how they break; there is no model file.

    load: the instance cannot be opened. raise: an execution raises a foreign exception.
    raise_error, return_error: it raises or returns an InferdError whose code is the parameter
    `code`, one of Code's names, INTERNAL by default. too_few, too_many: there is one answer too few
    or too many. wrong_shape, wrong_datatype, wrong_name, missing_output: of the first output.
    hang: the execution ends when the instance's `released` is set, or at close.

    A request's own parameters `fault` and `code` override those of the configuration; a missing or
    empty one is no fault: every output is zeros (empty strings), with 1 for a variable dim. A
    decoupled model sends one sound answer first, then breaks.
    """

    traits = Traits(is_concurrent=True)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; the default tensors are INPUT0 and OUTPUT0, both FP32 [-1]."""
        del files
        if not config.input and not config.output:
            config = replace(
                config,
                input=(ModelInput("INPUT0", DataType.FP32, (-1,)),),
                output=(ModelOutput("OUTPUT0", DataType.FP32, (-1,)),),
            )
        return config

    def open(
        self, files: ModelFiles, config: ModelConfig, placement: Placement
    ) -> "FaultyInstance":
        """See Backend.open. Raises BackendFailed for `load`, InvalidConfig for bad parameters."""
        del placement
        fault = config.parameters.get("fault", "")
        if fault == "load":
            msg = f"model '{config.name}' fails to load, as its fault 'load' says"
            raise BackendFailed(msg)
        kind = DecoupledFaultyInstance if config.decoupled else FaultyInstance
        return kind(config, files.version)


class FaultyInstance:
    """One faulty model. Setting `released` ends hanging executions, now and in future."""

    traits = InstanceTraits(is_bounded=False)

    def __init__(self, config: ModelConfig, version: int) -> None:
        self.released = threading.Event()
        self._config = config
        self._version = str(version)
        self._faults: dict[str, Callable[[Answers], Answers]] = {
            "": lambda answers: answers,
            "raise": _raise,
            "too_few": lambda answers: answers[1:],
            "too_many": lambda answers: [*answers, answers[0]],
            "wrong_shape": _spoiling(_flip_shape),
            "wrong_datatype": _spoiling(_flip_datatype),
            "wrong_name": _spoiling(_rename),
            "missing_output": _spoiling(lambda outputs: outputs[1:]),
            "hang": self._hang,
        }
        own = config.parameters.get("fault", "")
        if own not in (*self._faults, "raise_error", "return_error"):
            msg = f"model '{config.name}': there is no fault '{own}'"
            raise InvalidConfig(msg)
        _code(config.parameters)

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute; the first request's fault applies to all of `requests`."""
        wanted = self._config.parameters | requests[0].parameters
        fault = str(wanted.get("fault", ""))
        if fault in ("raise_error", "return_error"):
            error = InferdError(f"model '{self._config.name}' fails on purpose")
            error.code = _code(wanted)
            if fault == "raise_error":
                raise error
            return [error for _ in requests]
        if fault not in self._faults:
            msg = f"model '{self._config.name}' has no fault '{fault}'"
            raise InvalidRequest(msg)
        return self._faults[fault]([self._sound(request) for request in requests])

    def close(self) -> None:
        """End hanging executions."""
        self.released.set()

    def _sound(self, request: InferRequest) -> InferResponse:
        batch = request.inputs[0].shape[:1] if self._config.max_batch_size > 0 else ()
        outputs = [_zeros(output, batch) for output in self._config.output]
        return InferResponse(request.model, self._version, request.id, outputs)

    def _hang(self, answers: Answers) -> Answers:
        self.released.wait()
        return answers


class DecoupledFaultyInstance(FaultyInstance):
    """One faulty model that breaks after its first answer."""

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream."""
        first = self._sound(request)
        first.final = False
        yield first
        for answer in self.execute((request,)):
            if isinstance(answer, InferdError):
                raise answer
            yield answer


def _code(parameters: Parameters | dict[str, str]) -> Code:
    name = str(parameters.get("code", "INTERNAL"))
    if name not in Code.__members__:
        msg = f"there is no error code '{name}', expected one of {', '.join(Code.__members__)}"
        raise InvalidConfig(msg)
    return Code[name]


def _zeros(output: ModelOutput, batch: tuple[int, ...]) -> Tensor:
    shape = batch + tuple(1 if dim == -1 else dim for dim in output.dims)
    element_bytes = output.datatype.size_bytes or 4  # an empty string is just its length
    return Tensor(output.name, output.datatype, shape, bytes(prod(shape) * element_bytes))


def _raise(_answers: Answers) -> Answers:
    msg = "on purpose"
    raise ArithmeticError(msg)


def _spoiling(spoil: Callable[[list[Tensor]], list[Tensor]]) -> Callable[[Answers], Answers]:
    """Return a fault that changes the outputs of every answer."""

    def spoil_all(answers: Answers) -> Answers:
        for answer in answers:
            answer.outputs = spoil(answer.outputs)
        return answers

    return spoil_all


def _flip_shape(outputs: list[Tensor]) -> list[Tensor]:
    outputs[0].shape = (1, *outputs[0].shape)
    return outputs


def _flip_datatype(outputs: list[Tensor]) -> list[Tensor]:
    is_int8 = outputs[0].datatype is DataType.INT8
    outputs[0].datatype = DataType.UINT8 if is_int8 else DataType.INT8
    outputs[0].data = bytes(prod(outputs[0].shape))
    return outputs


def _rename(outputs: list[Tensor]) -> list[Tensor]:
    outputs[0].name += "_wrong"
    return outputs
