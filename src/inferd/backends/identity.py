"""IdentityBackend: each output repeats its input byte for byte, for tests and benchmarks."""

import threading
from collections.abc import Sequence
from math import prod
from typing import ClassVar

from inferd.compiled import mypyc_attr
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.parameter import number
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits, Traits
from inferd.errors import BackendFailed, InferdError, InvalidConfig, Unavailable
from inferd.tensor.tensor import Tensor, reshaped

_EMPTY_STRING_BYTES = 4
"""A string of no bytes has its length in front."""


@mypyc_attr(allow_interpreted_subclasses=True)
class IdentityBackend:
    """Runs models that return their inputs; there is no model file.

    Outputs OUTPUT<x> repeat inputs INPUT<x> if all tensors are named so, otherwise the n-th output
    repeats the n-th input. Where an optional input is missing, the output is zeros, or empty
    strings, with 1 for variable dims (Triton's identity backend). Parameters: `execute_delay_ms` is
    a delay in each execution, `creation_delay_sec` one when an instance is opened.
    """

    traits: ClassVar[Traits] = Traits(is_bounded=True, is_concurrent=True)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; there is no file to complete from."""
        del files
        _pairs(config)
        return config

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline."""
        return OfflineReport(self.complete(files, config), is_complete=True)

    def open(
        self, files: ModelFiles, config: ModelConfig, placement: Placement
    ) -> "IdentityInstance":
        """See Backend.open. Raises InvalidConfig if inputs and outputs do not pair up."""
        del placement
        pairs = _pairs(config)
        delay_s = number(config, "execute_delay_ms", threading.TIMEOUT_MAX) / 1000
        threading.Event().wait(number(config, "creation_delay_sec", threading.TIMEOUT_MAX))
        return IdentityInstance(config, pairs, files.version, delay_s)


class IdentityInstance:
    """One identity model: the answer holds the very buffers of the request."""

    def __init__(
        self, config: ModelConfig, outputs_by_input: dict[str, str], version: int, delay_s: float
    ) -> None:
        self.traits = InstanceTraits(is_bounded=not delay_s)  # a delay would block the event loop
        self._outputs_by_input = outputs_by_input
        outputs = {one.name: one for one in config.output}
        self._fills = [one for one in config.input if one.optional]
        self._reshapes = [
            (one, outputs[outputs_by_input[one.name]])
            for one in config.input
            if one.dims != outputs[outputs_by_input[one.name]].dims
        ]
        self._has_batch = config.max_batch_size > 0
        self._version = str(version)
        self._delay_s = delay_s
        self._closed = threading.Event()

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. One delay for all `requests`. Raises Unavailable when closed."""
        # An Event instead of sleep(), so that unloading ends the delay.
        if self._delay_s and self._closed.wait(self._delay_s):
            raise Unavailable("the model was unloaded while it waited")
        names = self._outputs_by_input
        responses = [
            InferResponse(
                request.model,
                self._version,
                request.id,
                # The bytes are passed on as they are, without an array: what
                # this backend measures is the server.
                [Tensor(names[t.name], t.datatype, t.shape, t.data) for t in request.inputs],
            )
            for request in requests
        ]
        # Asked once for all: the usual model has neither, and is used
        # to measure what a request costs.
        if self._fills or self._reshapes:
            for request, response in zip(requests, responses, strict=True):
                self._complete(request, response)
        return responses

    def _complete(self, request: InferRequest, response: InferResponse) -> None:
        """Give outputs their own shapes, and add those whose optional inputs are missing."""
        tensors = {tensor.name: tensor for tensor in response.outputs}
        batch = (request.batch_size,) if self._has_batch else ()
        for one in self._fills:
            name = self._outputs_by_input[one.name]
            if name not in tensors:
                shape = batch + tuple(1 if dim == -1 else dim for dim in one.dims)
                size_bytes = prod(shape) * (one.datatype.size_bytes or _EMPTY_STRING_BYTES)
                tensors[name] = Tensor(name, one.datatype, shape, bytes(size_bytes))
        for given, wanted in self._reshapes:
            tensor = tensors.get(wanted.name)
            if tensor is not None:
                seen = reshaped(tensor.shape, given.dims, _seen(given))
                shape = reshaped(seen, _seen(wanted), wanted.dims)
                # A variable dim may have a length that does not divide into the other shape.
                if prod(shape) != prod(tensor.shape):
                    msg = f"input '{given.name}' of {list(tensor.shape)} cannot be {list(shape)}"
                    raise BackendFailed(msg)
                tensor.shape = shape
        response.outputs = list(tensors.values())

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
        raise InvalidConfig(msg, ("output",))
    outputs = {tensor.name: tensor for tensor in config.output}
    by_name = all(_twin(tensor.name) in outputs for tensor in config.input)
    pairs = {
        tensor.name: _twin(tensor.name) if by_name else config.output[index].name
        for index, tensor in enumerate(config.input)
    }
    for tensor in config.input:
        output = outputs[pairs[tensor.name]]
        if (tensor.datatype, _seen(tensor)) != (output.datatype, _seen(output)):
            msg = (
                f"model '{config.name}': output '{output.name}' is "
                f"{output.datatype.value} {list(_seen(output))}, but the input it repeats, "
                f"'{tensor.name}', is {tensor.datatype.value} {list(_seen(tensor))}"
            )
            raise InvalidConfig(msg, ("output", config.output.index(output)))
    return pairs


def _seen(tensor: ModelInput | ModelOutput) -> tuple[int, ...]:
    """Return the dims that a model sees: those of the reshape, if there is one."""
    return tensor.dims if tensor.reshape is None else tensor.reshape


def _twin(name: str) -> str:
    return "OUTPUT" + name.removeprefix("INPUT") if name.startswith("INPUT") else ""
