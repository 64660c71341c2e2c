"""Sizes: the lengths of dims as products of numbers and letters, as far as a file tells.

The batch size is the letter B; any other letter is a length that is the same in all requests that
are joined. Products are all that reshapes need: what divides evenly is known to.
"""

from collections import Counter
from typing import NamedTuple

BATCH = "B"
"""The letter of the batch size."""

_MOST_LETTERS = 64


class Size(NamedTuple):
    """`number` times all `letters`, which are sorted and may repeat."""

    number: int
    letters: tuple[str, ...] = ()

    @property
    def has_batch(self) -> bool:
        """Whether it grows with the batch."""
        return BATCH in self.letters

    def __str__(self) -> str:
        """Return the size as a product."""
        return "*".join([str(self.number)] * (self.number != 1) + list(self.letters)) or "1"


ONE = Size(1)
B = Size(1, (BATCH,))

Sizes = tuple[Size, ...]


def times(*sizes: Size) -> Size:
    """Return the product of `sizes`. Raises OverflowError if it is one that no tensor has."""
    number = 1
    letters: list[str] = []
    for size in sizes:
        number *= size.number
        letters += size.letters
    # Chains of multiplications in a hostile file would double the product's length each time.
    if len(letters) > _MOST_LETTERS or abs(number) >= 1 << 63:
        msg = "a dim is the product of too many others"
        raise OverflowError(msg)
    # Zero times anything is the same zero, so that equal sizes compare equal.
    return Size(number, tuple(sorted(letters)) if number else ())


def over(size: Size, by: Size) -> Size | None:
    """Return `size` divided by `by`, None if it is not known to divide evenly."""
    if by.number == 0 or size.number % by.number:
        return None
    left = Counter(size.letters)
    left.subtract(by.letters)
    if any(count < 0 for count in left.values()):
        return None
    return Size(size.number // by.number, tuple(sorted(left.elements())))
