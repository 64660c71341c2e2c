"""Packets: what the server and a worker process tell each other over their socket.

One datagram is a header and, if it is small, its payload. A larger payload lies in a block of
the sender's arena, and the header says where. A payload is a JSON document, then from the next
multiple of ALIGN on the bytes of tensors, whose places the document gives relative to that.

Every document is an array. Its first element lists the blocks of the receiver's arena that the
sender needs no more.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct("<BxxxIqQ")
"""Kind; size of the document; offset of the block, or INLINE; size of the payload."""

INLINE = -1
INLINE_BYTES = 16 << 10
"""The largest payload that goes over the socket itself: beyond this copying costs more."""

MAX_PACKET = HEADER.size + INLINE_BYTES
ALIGN = 64

# --- from the server ---

START = 1
"""[released, settings]: the first packet."""

EXECUTE = 2
"""[released, batch, [request, ...], callers]"""

RELEASE = 3
"""[released]; both ways."""

CANCEL = 4
"""[released, [request number, ...]]: nobody waits for their answers any more."""

CREDIT = 5
"""[released, [[request number, count], ...]]: so many answers were taken."""

REPLY = 6
"""[released, call, is last, what]: an answer to CALL or COMMAND."""

FINALIZE = 7
"""[released]: end in order."""

# --- from the worker ---

READY = 16
"""[released, what START asked for]"""

FAILED = 17
"""[released, code, message]: START could not be done."""

RESULT = 18
"""[released, batch, began ns, ended ns, [answer, ...]]: this batch has been executed."""

ANSWER = 19
"""[released, [answer, ...]]: answers outside of an execution."""

CALL = 20
"""[released, call, request, is decoupled, callers]: run a request on another model."""

COMMAND = 21
"""[released, call, verb, arguments]: something else the server shall do."""

HANG_UP = 22
"""[released, call]: no more answers to that CALL are wanted."""

LOG = 23
"""[released, level, text]"""

METRIC = 24
"""[released, verb, arguments]"""


def aligned(size: int) -> int:
    """Return the next multiple of ALIGN."""
    return (size + ALIGN - 1) & -ALIGN
