"""InferResult: the outputs of an inference by name, as arrays."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from inferd.core.request import InferResponse
from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import bf16_to_float32
from inferd.tensor.tensor import Parameters, Tensor


class RankedClass(NamedTuple):
    """One class of a classification: its index, and its `label`, "" if the model has none."""

    score: float
    number: int
    label: str


class InferResult(Mapping[str, Array]):
    """An answer: a mapping from the names of outputs to arrays.

    The arrays are views of what was received, BF16 aside, which becomes float32; BYTES are object
    arrays of `bytes`. `parameters` are those of the answer; `final` is false if more answers to
    the request follow.
    """

    __slots__ = ("_arrays", "_tensors", "final", "id", "model_name", "model_version", "parameters")

    def __init__(self, response: InferResponse) -> None:
        self.model_name = response.model
        self.model_version = response.version
        self.id = response.id
        self.final = response.final
        self.parameters: Parameters = response.parameters
        # By name, in the order of the answer.
        self._tensors = {tensor.name: tensor for tensor in response.outputs}
        self._arrays: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        """Return an output as an array."""
        # Decoded when asked for, and once: BYTES become objects, which is slow, and some outputs
        # are never looked at.
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays[name] = _array(self.tensor(name))
        return array

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the outputs, in the order of the answer."""
        return iter(self._tensors)

    def __len__(self) -> int:
        """Return how many outputs there are."""
        return len(self._tensors)

    def tensor(self, name: str) -> Tensor:
        """Return an output as it was received: datatype, shape, bytes, parameters."""
        try:
            return self._tensors[name]
        except KeyError:
            names = ", ".join(self._tensors) or "none"
            raise KeyError(f"the answer has no output '{name}'; its outputs: {names}") from None

    def strings(self, name: str) -> list[str]:
        """Return the elements of a BYTES output in row-major order.

        Raises UnicodeDecodeError, and InvalidRequest if the output is of another datatype.
        """
        tensor = self.tensor(name)
        # Numbers may look like lengths and texts.
        if tensor.datatype is not DataType.BYTES:
            raise InvalidRequest(f"output '{name}' is {tensor.datatype.value}: it has no texts")
        return [one.decode() for one in tensor.strings()]

    def classes(self, name: str) -> list[list[RankedClass]]:
        """Return the classes of an output that was requested as such, one list for each row.

        Raises InvalidRequest if it was not.
        """
        tensor = self.tensor(name)
        try:
            elements = [_class(one) for one in self.strings(name)]
        except (ValueError, InvalidRequest):
            msg = f"output '{name}' has no classes: they are asked for with classification=COUNT"
            raise InvalidRequest(msg) from None
        # Rows are as long as the last dim says; a scalar is one row.
        width = tensor.shape[-1] if tensor.shape else 1
        return [elements[at : at + width] for at in range(0, len(elements), width or 1)]

    def __repr__(self) -> str:
        """Show model, version, and what the outputs are."""
        outputs = ", ".join(
            f"{one.name}: {one.datatype.value}{list(one.shape)}" for one in self._tensors.values()
        )
        return f"<InferResult {self.model_name} {self.model_version} {{{outputs}}}>"


def _array(tensor: Tensor) -> Array:
    if tensor.datatype is DataType.BF16:
        # numpy has no BF16, and float32 holds each of its values.
        return bf16_to_float32(np.ndarray(tensor.shape, np.uint16, tensor.data))
    return tensor.numpy()


def _class(text: str) -> RankedClass:
    """Return what "SCORE:INDEX" or "SCORE:INDEX:LABEL" says (Classification extension)."""
    score, _, rest = text.partition(":")
    index, _, label = rest.partition(":")
    return RankedClass(float(score), int(index), label)
