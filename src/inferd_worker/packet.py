"""Packets: the protocol between the server and a worker process, over their socket.

A packet is a header and a payload. A small payload follows the header in the datagram, which may
hold several packets; a larger one lies in a block of the sender's arena, and the header says where.
A payload is a JSON document, then from the next multiple of ALIGN on the bytes of tensors, whose
offsets in the document count from there.

Every document is an array. Its first element lists the blocks of the receiver's arena that the
sender has released.

A tensor is [name, datatype, shape, offset, size]. With a sixth element its bytes are not in this
packet but at that offset in that block of the receiver's arena, which the sender holds: only in
CALL, and in RESULT, whose first element may list the block, too.

Numbers that differ from packet to packet are in the header. So similar requests have identical
documents, and each side caches those it has recently parsed or written.
"""

from __future__ import annotations

import struct
from math import isfinite
from typing import Any, Final

# The padding puts each number at a multiple of its size.
HEADER: Final[struct.Struct] = struct.Struct("<BxxxIqQQQQ")
"""Kind; size of the document; offset of the block, or INLINE; size of the payload; three numbers.

The first number is the batch of EXECUTE and RESULT, and the call of CALL, COMMAND, HANG_UP, REPLY,
and of CREDIT from the worker. The others are the times of RESULT: when execute began and ended. The
second one of CALL is the request it is made for, 0 if unknown.
"""

HEADER_SIZE: Final[int] = HEADER.size
NO_NUMBERS: Final[tuple[int, int, int]] = (0, 0, 0)

INLINE: Final = -1
INLINE_BYTES: Final = 16 << 10
"""The largest payload sent over the socket itself: beyond this, copying costs more."""

NO_BLOCK: Final = -1
"""The block of a tensor whose bytes are in the packet itself."""

ZEROS: Final = bytes(64)
"""The padding of tensors, up to multiples of ALIGN."""

MAX_DOCUMENT: Final = 16 << 20
"""The longest document of a worker: longer ones would hold up the server while it reads them."""

MAX_PACKET: Final = HEADER.size + INLINE_BYTES
ALIGN: Final = 64

MAX_CACHED: Final = 256
CACHED_BYTES: Final = 1 << 10
"""At most MAX_CACHED documents are cached, none longer than CACHED_BYTES."""

START: Final = 1
"""[released, settings]: the first packet."""

EXECUTE: Final = 2
"""[released, [request, ...], callers]; the batch's number is that of the last request; each one
before it has a number one less."""

RELEASE: Final = 3
"""[released]; both ways."""

CANCEL: Final = 4
"""[released, [request number, ...]]: their answers are no longer wanted."""

CREDIT: Final = 5
"""[released, [[request number, count], ...]]: this much of each window was consumed. From the
worker [released]: one more answer to a CALL was consumed."""

REPLY: Final = 6
"""[released, is last, what]: an answer to CALL or COMMAND."""

FINALIZE: Final = 7
"""[released]: finalize the model and exit."""

ASK: Final = 8
"""[released]: does the model call itself ready?"""

READY: Final = 16
"""[released, the result of START, whether the model can answer ASK, whether it executes one batch
after another]"""

FAILED: Final = 17
"""[released, message]: START failed."""

RESULT: Final = 18
"""[released, [answer, ...]]: this batch has been executed. The number in an answer is the batch's
minus its request's."""

ANSWER: Final = 19
"""[released, [answer, ...]]: answers outside an execution, with their requests' numbers."""

CALL: Final = 20
"""[released, request, is decoupled, callers]: run a request on another model."""

COMMAND: Final = 21
"""[released, verb, arguments]: have the server do something else."""

HANG_UP: Final = 22
"""[released]: no further answers to a CALL are wanted."""

LOG: Final = 23
"""[released, level, text]"""

METRIC: Final = 24
"""[released, metric number, verb, value]"""

SAID: Final = 25
"""[released, whether the model is ready]: the answer to ASK."""


class Payload:
    """Tensor bytes on their way into a packet."""

    __slots__ = ("parts", "size")

    def __init__(self) -> None:
        self.parts: list[Any] = []  # with padding up to multiples of ALIGN
        self.size = 0

    def add(self, data: Any) -> tuple[int, int]:
        """Add a buffer, flat if it is a memoryview; return its offset and size."""
        offset = self.size
        # The usual kinds first, whose length is their size.
        if type(data) is bytes or type(data) is memoryview:
            size = len(data)
        else:
            data = memoryview(data)
            size = data.nbytes
            # cast() refuses empty views, and others than flat bytes cannot be joined.
            if size and (data.format != "B" or data.ndim != 1):
                data = data.cast("B")
        if size:
            self.parts.append(data)
            missing = -size % ALIGN
            if missing:
                self.parts.append(ZEROS[:missing])
            self.size = offset + size + missing
        return offset, size


def whole_size(buffer: Any, size: int) -> int:
    """Return how many of the first `size` bytes of `buffer` are whole packets.

    For streams, which may end anywhere in a packet. Raises ValueError for a packet that is longer
    than MAX_PACKET.
    """
    end = 0
    while end + HEADER_SIZE <= size:
        _, _, offset, payload_size, *_ = HEADER.unpack_from(buffer, end)
        inline = payload_size if offset == INLINE else 0
        # Otherwise a stream would wait for more bytes than its buffer holds.
        if inline > INLINE_BYTES:
            raise ValueError(f"a packet of {inline} bytes")
        if end + HEADER_SIZE + inline > size:
            break
        end += HEADER_SIZE + inline
    return end


def odd_numbers(parameters: dict[str, Any]) -> dict[str, str] | None:
    """Return the numbers JSON cannot express, NaN and infinities, as texts; None without any.

    They travel separately from the other parameters of a request.
    """
    odd: dict[str, str] | None = None
    for name, value in parameters.items():
        if isinstance(value, float) and not isfinite(value):
            if odd is None:
                odd = {}
            odd[name] = str(value)
    return odd


def even_numbers(parameters: dict[str, Any] | None, odd: dict[str, str]) -> dict[str, Any]:
    """Return all parameters of a request, with those in `odd` restored."""
    return {**(parameters or {}), **{name: float(text) for name, text in odd.items()}}


def keep(known: dict[Any, Any], key: Any, value: Any, size: int) -> None:
    """Cache `value` for a document of `size` bytes, unless it is long; clear a full cache."""
    if size <= CACHED_BYTES:
        # All at once: that needs no record of what was used last, and documents in use come again.
        if len(known) >= MAX_CACHED:
            known.clear()
        known[key] = value
