"""How much a codec does on the event loop at once, and the exception it raises beyond that.

While the loop encodes or decodes, all other connections wait. Above these sizes work takes longer
than about 5 ms and belongs in a thread; even there each call into C should be short, because it
holds the GIL. What a list of all models makes long is done in groups of them, with a turn for
others after each.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

INLINE_JSON_BYTES = 512 << 10
"""The longest JSON text that the fast readers read on the loop."""

INLINE_EXACT_BYTES = 64 << 10
"""The same for the exact reader, which is ten times slower."""

INLINE_ELEMENTS = 64 << 10
"""The most numbers that are written as JSON on the loop."""

INLINE_STRINGS = 8 << 10
"""The most elements of BYTES that are examined on the loop, one by one."""

INLINE_STRING_BYTES = 1 << 20
"""The most bytes of BYTES that are written as JSON on the loop."""

INLINE_TYPED_BYTES = 256 << 10
"""The longest gRPC message with typed contents that is read on the loop."""

INLINE_CODED_BYTES = 16 << 10
"""The most bytes that are compressed on the loop; longer input is not inflated there either."""

INLINE_INFLATED_BYTES = 256 << 10
"""The most bytes that are inflated on the loop."""

PIECE = 64 << 10
"""How many elements one call into C converts."""


GROUP = 10
"""How many models are told of before others get a turn; each may take 100 µs."""


def groups(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield `items` in lists of at most GROUP; each item is asked for when its list is."""
    left = iter(items)
    # Lazily: each group sees what the models have counted by then.
    while group := list(islice(left, GROUP)):
        yield group


class NotFast(Exception):
    """The work takes too long for the event loop, or is not for a fast reader."""
