"""How much a codec does on the event loop at once, and what it raises instead of doing more.

While the loop encodes or decodes, all other connections wait. From these sizes on a piece of work
takes longer than about 5 ms and belongs in a thread; what one call into C does there should stay
short as well, for it holds the interpreter lock.
"""

INLINE_JSON_BYTES = 512 << 10
"""The longest JSON text that is read on the loop, by the fast readers."""

INLINE_EXACT_BYTES = 64 << 10
"""The same for the exact reader, which is ten times slower."""

INLINE_ELEMENTS = 64 << 10
"""The most numbers that are written as JSON on the loop."""

INLINE_STRINGS = 8 << 10
"""The most elements of BYTES that are looked at on the loop, one by one."""

INLINE_STRING_BYTES = 1 << 20
"""The most bytes of BYTES that are written as JSON on the loop."""

INLINE_TYPED_BYTES = 256 << 10
"""The longest gRPC message with typed contents that is read on the loop."""

INLINE_CODED_BYTES = 16 << 10
"""The most bytes that are compressed on the loop; no longer ones are inflated there."""

INLINE_INFLATED_BYTES = 256 << 10
"""The most bytes that are inflated on the loop."""

PIECE = 64 << 10
"""The elements one call into C converts."""


class NotFast(Exception):
    """This takes more time than the event loop has, or more care than a fast reader takes."""
