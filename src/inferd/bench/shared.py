"""Requests through shared memory: inputs lie in it, and answers are written there."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from inferd.core.request import Span
from inferd.tensor.tensor import Tensor
from inferd.wire.shared_memory import span_parameters

if TYPE_CHECKING:
    from inferd.client.sync.client import SharedMemory

# As SharedRegion lays arrays out.
ALIGNED = 64
MOST_PLACES = 64
"""How many places for answers there are at most; more requests at a time share them."""

Places = Sequence[Mapping[str, Span]]


def size_of(inputs: Sequence[Sequence[Tensor]], outputs: Mapping[str, int], places: int) -> int:
    """Return how much memory the inputs take, and the outputs, each of so many bytes, in places."""
    sizes = [one.size_bytes for tensors in inputs for one in tensors]
    sizes += [size for size in outputs.values() for _ in range(places)]
    # A region of 0 bytes cannot be made.
    return max(ALIGNED, sum(-(-size // ALIGNED) * ALIGNED for size in sizes))


def placed_inputs(memory: "SharedMemory", inputs: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """Copy the inputs into `memory`; return tensors that say where they are."""
    return [[_placed(memory, one) for one in tensors] for tensors in inputs]


def _placed(memory: "SharedMemory", tensor: Tensor) -> Tensor:
    # Bytes, whatever the datatype: what matters is where they lie.
    array = memory.array(tensor.size_bytes, np.uint8)
    array[...] = np.frombuffer(tensor.view(), np.uint8)
    parameters = (tensor.parameters or {}) | span_parameters(memory.span_of(array))
    return Tensor(tensor.name, tensor.datatype, tensor.shape, array, parameters)


def places_in(memory: "SharedMemory", outputs: Mapping[str, int], count: int) -> Places:
    """Return places for the answers of `count` requests."""
    return [
        {name: memory.span_of(memory.array(size, np.uint8)) for name, size in outputs.items()}
        for _ in range(count)
    ]
