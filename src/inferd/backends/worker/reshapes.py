"""Reshapes: the shapes that a model in a worker sees (Triton's ModelTensorReshape)."""

from collections.abc import Sequence
from typing import Any

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.tensor.tensor import Tensor, fits, reshaped

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
