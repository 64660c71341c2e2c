"""Answers as a cache keeps them: one piece of memory each, from which outputs are read in place.

A piece is the length of its head (uint32, little-endian), the head (MessagePack), and the bytes of
each output, which begin at multiples of 16 bytes. Outputs are views of it, and it is never written
to again, so no answer shares memory with anything that a backend or a client may change.
"""

from math import prod

import msgspec
import numpy as np

from inferd.core.request import InferResponse
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
        msg = f"the head of a kept answer cannot be read: {error}"
        raise ValueError(msg) from error
    outputs = []
    for one in head.outputs:
        start += -start % _ALIGNMENT
        end = start + one.size_bytes
        data = whole[start:end]
        size = one.datatype.size_bytes
        # BYTES have no size of their own; what lies in them is checked by whoever reads them.
        is_whole = len(data) == (size * prod(one.shape) if size else one.size_bytes)
        if not is_whole or (one.shape and min(one.shape) < 0):
            msg = f"output '{one.name}' of a kept answer has {len(data)} bytes"
            raise ValueError(msg)
        outputs.append(Tensor(one.name, one.datatype, one.shape, data, one.parameters))
        start = end
    if start != len(whole):
        msg = f"a kept answer has {len(whole)} bytes, its head says {start}"
        raise ValueError(msg)
    return InferResponse("", "", outputs=outputs, parameters=head.parameters)
