"""IdentityBackend: each output repeats its input byte for byte, for tests and benchmarks."""

import threading
from collections.abc import Sequence

from inferd.compiled import mypyc_attr
from inferd.config.model import ModelConfig
from inferd.config.parameter import number
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError, InvalidConfig, Unavailable
from inferd.tensor.tensor import Tensor


@mypyc_attr(allow_interpreted_subclasses=True)
class IdentityBackend:
    """Runs models that return their inputs; there is no model file.

    Outputs OUTPUT<x> repeat inputs INPUT<x> if all tensors are named so, otherwise the n-th output
    repeats the n-th input. Parameters: `execute_delay_ms` is a delay in each execution,
    `creation_delay_sec` one when an instance is opened.
    """

    bounded = True
    concurrent = True

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; there is no file to complete from."""
        del files
        _pairs(config)
        return config

    def open(
        self, files: ModelFiles, config: ModelConfig, placement: Placement
    ) -> "IdentityInstance":
        """See Backend.open. Raises InvalidConfig if inputs and outputs do not pair up."""
        del placement
        pairs = _pairs(config)
        delay_s = number(config, "execute_delay_ms", threading.TIMEOUT_MAX) / 1000
        threading.Event().wait(number(config, "creation_delay_sec", threading.TIMEOUT_MAX))
        return IdentityInstance(pairs, files.version, delay_s)


class IdentityInstance:
    """One identity model: the answer holds the very buffers of the request.

    `bounded` is False for one with a delay, which would block the event loop.
    """

    def __init__(self, outputs_by_input: dict[str, str], version: int, delay_s: float) -> None:
        self.bounded = delay_s == 0
        self._outputs_by_input = outputs_by_input
        self._version = str(version)
        self._delay_s = delay_s
        self._closed = threading.Event()

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. One delay for all `requests`. Raises Unavailable when closed."""
        if self._delay_s and self._closed.wait(self._delay_s):
            msg = "the model was unloaded while it waited"
            raise Unavailable(msg)
        names = self._outputs_by_input
        return [
            InferResponse(
                request.model,
                self._version,
                request.id,
                [Tensor(names[t.name], t.datatype, t.shape, t.data) for t in request.inputs],
            )
            for request in requests
        ]

    def close(self) -> None:
        """End every wait."""
        self._closed.set()


def _pairs(config: ModelConfig) -> dict[str, str]:
    """Return input name -> output name. Raises InvalidConfig."""
    if len(config.input) != len(config.output):
        msg = (
            f"model '{config.name}': an identity model has as many outputs as inputs, "
            f"the configuration has {len(config.input)} inputs and {len(config.output)} outputs"
        )
        raise InvalidConfig(msg)
    outputs = {tensor.name: tensor for tensor in config.output}
    by_name = all(_twin(tensor.name) in outputs for tensor in config.input)
    pairs = {
        tensor.name: _twin(tensor.name) if by_name else config.output[index].name
        for index, tensor in enumerate(config.input)
    }
    for tensor in config.input:
        output = outputs[pairs[tensor.name]]
        if (tensor.datatype, tensor.dims) != (output.datatype, output.dims):
            msg = (
                f"model '{config.name}': output '{output.name}' is "
                f"{output.datatype.value} {list(output.dims)}, but the input it repeats, "
                f"'{tensor.name}', is {tensor.datatype.value} {list(tensor.dims)}"
            )
            raise InvalidConfig(msg)
    return pairs


def _twin(name: str) -> str:
    return "OUTPUT" + name.removeprefix("INPUT") if name.startswith("INPUT") else ""
