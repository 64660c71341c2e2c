"""Inputs and places for answers in shared memory."""

import numpy as np

from inferd.bench.shared import ALIGNED, placed_inputs, places_in, size_of
from inferd.client.regions import SharedRegion
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

INPUTS = [[Tensor.from_numpy("x", np.array([at, 2], np.float32), DataType.FP32)] for at in range(3)]


class Memory:
    """What a client's SharedMemory gives, without a server."""

    def __init__(self, size):
        self.region = SharedRegion(size)

    def array(self, shape, dtype):
        return self.region.array(shape, dtype)

    def span_of(self, array):
        return self.region.span_of(array)


def test_all_of_it_fits_into_the_size_that_is_computed():
    sizes = {"y": 100, "z": 1}
    size = size_of(INPUTS, sizes, 4)
    assert size == 3 * ALIGNED + 4 * (2 * ALIGNED + ALIGNED)
    memory = Memory(size)
    try:
        placed = placed_inputs(memory, INPUTS)
        places = places_in(memory, sizes, 4)
    finally:
        memory.region.close()
    starts = [one.parameters["shared_memory_offset"] for [one] in placed]
    starts += [span.extent[1] for place in places for span in place.values()]
    assert len(set(starts)) == 3 + 8 and max(starts) < size
    assert [one.numpy().tolist() for [one] in placed] == [[0, 2], [1, 2], [2, 2]]
    assert placed[0][0].parameters["shared_memory_byte_size"] == 8


def test_nothing_takes_some_memory_too():
    assert size_of([[]], {}, 3) == ALIGNED
