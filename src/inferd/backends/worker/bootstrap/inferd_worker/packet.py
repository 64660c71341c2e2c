"""Packets: what the server and a worker process tell each other over their socket.

One datagram is a header and, if it is small, its payload. A larger payload lies in a block of
the sender's arena, and the header says where. A payload is a JSON document, then from the next
multiple of ALIGN on the bytes of tensors, whose places the document gives relative to that.

Every document is an array. Its first element lists the blocks of the receiver's arena that the
sender needs no more.

A tensor is [name, datatype, shape, offset, size]. With a sixth element its bytes are not in this
packet but lie, from that offset on, in that block of the receiver's arena, which the sender has: of
CALL, and of RESULT, whose first element may list the block, too.

Numbers that differ from packet to packet lie in the header. So the document of a request is the
same text as that of another one like it, and each side keeps what it has read or written lately.
"""

from __future__ import annotations

import struct
from math import isfinite
from typing import Any, Final

HEADER: Final[struct.Struct] = struct.Struct("<BxxxIqQQQQ")
"""Kind; size of the document; offset of the block, or INLINE; size of the payload; three numbers.

The first is the batch of EXECUTE and RESULT, and the call of CALL and REPLY. The others are the
times of RESULT: when execute began and ended. The second of CALL is the request it is made for, 0
if that is not known.
"""

HEADER_SIZE: Final[int] = HEADER.size
NO_NUMBERS: Final[tuple[int, int, int]] = (0, 0, 0)

INLINE: Final = -1
INLINE_BYTES: Final = 16 << 10
"""The largest payload that goes over the socket itself: beyond this copying costs more."""

NO_BLOCK: Final = -1
"""Where a tensor lies that lies in the packet itself."""

MAX_PACKET: Final = HEADER.size + INLINE_BYTES
ALIGN: Final = 64

MAX_KEPT: Final = 256
KEPT_BYTES: Final = 1 << 10
"""So many documents are kept, none longer than that."""

# --- from the server ---

START: Final = 1
"""[released, settings]: the first packet."""

EXECUTE: Final = 2
"""[released, [request, ...], callers]; the last request has the batch's number, each before it one
less."""

RELEASE: Final = 3
"""[released]; both ways."""

CANCEL: Final = 4
"""[released, [request number, ...]]: nobody waits for their answers any more."""

CREDIT: Final = 5
"""[released, [[request number, count], ...]]: so many answers were taken."""

REPLY: Final = 6
"""[released, is last, what]: an answer to CALL or COMMAND."""

FINALIZE: Final = 7
"""[released]: end in order."""

ASK: Final = 8
"""[released]: does the model call itself ready?"""

# --- from the worker ---

READY: Final = 16
"""[released, what START asked for, whether the model has something to say to ASK, whether it
executes one batch after another]"""

FAILED: Final = 17
"""[released, code, message]: START could not be done."""

RESULT: Final = 18
"""[released, [answer, ...]]: this batch has been executed. An answer says how much the number of
its request is less than the batch's."""

ANSWER: Final = 19
"""[released, [answer, ...]]: answers outside of an execution, by the numbers of their requests."""

CALL: Final = 20
"""[released, request, is decoupled, callers]: run a request on another model."""

COMMAND: Final = 21
"""[released, call, verb, arguments]: something else the server shall do."""

HANG_UP: Final = 22
"""[released, call]: no more answers to that CALL are wanted."""

LOG: Final = 23
"""[released, level, text]"""

METRIC: Final = 24
"""[released, verb, arguments]"""

SAID: Final = 25
"""[released, whether it is ready]: the answer to ASK."""


def odd_numbers(parameters: dict[str, Any]) -> dict[str, str] | None:
    """Return the numbers that JSON has not, NaN and infinities, as texts; None without any.

    They travel apart from the other parameters of a request.
    """
    odd: dict[str, str] | None = None
    for name, value in parameters.items():
        if isinstance(value, float) and not isfinite(value):
            if odd is None:
                odd = {}
            odd[name] = str(value)
    return odd


def even_numbers(parameters: dict[str, Any] | None, odd: dict[str, str]) -> dict[str, Any]:
    """Return all parameters of a request again, `odd` among them."""
    return {**(parameters or {}), **{name: float(text) for name, text in odd.items()}}


def aligned(size: int) -> int:
    """Return the next multiple of ALIGN."""
    return (size + ALIGN - 1) & -ALIGN


def keep(known: dict[Any, Any], key: Any, value: Any, size: int) -> None:
    """Note `value` for `key`, a document of `size` bytes, unless it is long; forget others."""
    if size <= KEPT_BYTES:
        if len(known) >= MAX_KEPT:
            known.clear()
        known[key] = value
