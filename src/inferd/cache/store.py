"""Stores of the response cache: they keep answers, and each model version has a shelf in one.

A store keeps an answer as one piece of memory, from which outputs are read in place: the length of
its head (uint32, little-endian), the head (MessagePack), and the bytes of each output, which begin
at multiples of 16 bytes. Outputs are views of it, and it is never written to again, so no answer
shares memory with anything that a backend or a client may change.
"""

from collections.abc import Sequence
from math import prod
from typing import Protocol

import msgspec
import numpy as np

from inferd.core.request import InferResponse
from inferd.observe.family import Across, Family
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Parameters, Tensor

Packed = bytes | memoryview
"""An answer in the form a cache keeps; read-only."""

_ALIGNMENT = 16
_LENGTH_BYTES = 4


# As arrays: a name for each field would be longer than many answers.
class _PackedOutput(msgspec.Struct, array_like=True):
    name: str
    datatype: DataType
    shape: tuple[int, ...]
    size_bytes: int
    parameters: Parameters | None


class _AnswerHead(msgspec.Struct, array_like=True):
    outputs: list[_PackedOutput]
    parameters: Parameters


_DECODER = msgspec.msgpack.Decoder(_AnswerHead)


class CachedAnswer:
    """A response on its way into a cache. Nothing is copied before `packed` is called."""

    def __init__(self, response: InferResponse) -> None:
        views = [tensor.view() for tensor in response.outputs]
        outputs = [
            _PackedOutput(t.name, t.datatype, t.shape, len(view), t.parameters)
            for t, view in zip(response.outputs, views, strict=True)
        ]
        head = msgspec.msgpack.encode(_AnswerHead(outputs, response.parameters))
        self._parts: list[Packed] = [len(head).to_bytes(_LENGTH_BYTES, "little") + head]
        self.size_bytes = len(self._parts[0])
        for view in views:
            padding = -self.size_bytes % _ALIGNMENT
            self._parts += (bytes(padding), view)
            self.size_bytes += padding + len(view)

    def packed(self) -> Packed:
        """Return the whole answer as one piece, copied."""
        return b"".join(self._parts)

    def packed_in_thread(self) -> Packed:
        """Return the same, copied without holding the GIL. Raises MemoryError."""
        # np.copyto lets go of the interpreter; b"".join does not.
        packed = np.empty(self.size_bytes, np.uint8)
        start = 0
        for part in self._parts:
            end = start + len(part)
            np.copyto(packed[start:end], np.frombuffer(part, np.uint8))
            start = end
        return packed.data.toreadonly()


def unpacked(packed: Packed) -> InferResponse:
    """Return the answer in `piece`, with outputs that are views of it.

    Raises ValueError when `piece` is no answer: a shared cache may have been changed by others.
    """
    whole = memoryview(packed)
    start = _LENGTH_BYTES + int.from_bytes(whole[:_LENGTH_BYTES], "little")
    try:
        head = _DECODER.decode(whole[_LENGTH_BYTES:start])
    except msgspec.MsgspecError as error:
        raise ValueError(f"the head of a kept answer cannot be read: {error}") from error
    outputs = []
    for one in head.outputs:
        start += -start % _ALIGNMENT
        end = start + one.size_bytes
        data = whole[start:end]
        size = one.datatype.size_bytes
        # BYTES have no size of their own; what lies in them is checked by whoever reads them.
        is_whole = len(data) == (size * prod(one.shape) if size else one.size_bytes)
        if not is_whole or (one.shape and min(one.shape) < 0):
            raise ValueError(f"output '{one.name}' of a kept answer has {len(data)} bytes")
        outputs.append(Tensor(one.name, one.datatype, one.shape, data, one.parameters))
        start = end
    if start != len(whole):
        raise ValueError(f"a kept answer has {len(whole)} bytes, its head says {start}")
    return InferResponse("", "", outputs=outputs, parameters=head.parameters)


class CacheCounts:
    """The use of a store by all models together, in plain integers."""

    def __init__(self) -> None:
        self.hit_count = 0
        self.miss_count = 0
        self.lookup_ns = 0
        self.insertion_ns = 0

    def families(self) -> list[Family]:
        """Return the counts as metrics, with Triton's names, types and units."""
        values = (
            ("num_lookups", "How often an answer was looked for", self.hit_count + self.miss_count),
            ("num_hits", "How often it was there", self.hit_count),
            ("num_misses", "How often it was not", self.miss_count),
            ("lookup_duration", "Time of looking, in microseconds", self.lookup_ns // 1000),
            ("insertion_duration", "Time of keeping, in microseconds", self.insertion_ns // 1000),
        )
        return [cache_gauge(word, help, value, "count") for word, help, value in values]


class Shelf(Protocol):
    """The answers of one model version."""

    async def find(self, key: bytes) -> Packed | None:
        """Return the answer kept under `key`, None when there is none."""
        ...

    async def keep(self, key: bytes, packed: Packed) -> None:
        """Keep an answer, if there is room; it may be evicted at any time."""
        ...

    def clear(self) -> None:
        """Drop the answers of this version, which has ended."""
        ...


class Store(Protocol):
    """Where answers are kept; one per server. All methods are called on the event loop.

    Failures are logged by the store, and are as if there were no answer. `largest_bytes` is the
    size of the largest answer it has room for. A store that `is_shared` outlives this server and
    has answers of others: in it, versions that give the same answers need the same identity.
    """

    counts: CacheCounts
    largest_bytes: int
    is_shared: bool

    def shelf(self) -> Shelf:
        """Return an empty shelf."""
        ...

    def families(self) -> Sequence[Family]:
        """Return the store's fill level and use as metrics."""
        ...

    async def close(self) -> None:
        """Release what the store holds."""
        ...


def cache_gauge(word: str, help: str, value: float, across: Across) -> Family:
    """Return the metric nv_cache_`word`; all of them are gauges in Triton, even what is counted."""
    return Family(f"nv_cache_{word}", "gauge", f"Response cache: {help}", [("", value)], across)
