"""Value: what is known of a tensor while the rows of a batch are followed through a graph.

The lengths of its dims are sizes: products of numbers and letters, as far as a file tells. The
batch size is the letter B; any other letter is a length that is the same in all requests that are
joined. Products are all that reshapes need: what divides evenly is known to.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

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
        raise OverflowError("a dim is the product of too many others")
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


class Mixed(Exception):
    """An operator mixes rows, or makes something of them that cannot be split again.

    `has_batch_dim` is false if that shows that the first dim is no batch dim. `is_scale`: rows are
    mixed in a scale of dynamic quantisation.
    """

    def __init__(self, reason: str, *, has_batch_dim: bool = True, is_scale: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.has_batch_dim = has_batch_dim
        self.is_scale = is_scale


class Unclear(Exception):
    """It is not known what an operator does with rows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def give_up(reason: str) -> NoReturn:
    """Raise Unclear."""
    raise Unclear(reason)


@dataclass(frozen=True, slots=True)
class RowTensor:
    """A tensor.

    `shape` is None if not even the rank is known. `axis` is the dim along which the rows lie, None
    if the tensor is the same for all of them. That dim has `outer` * B * `inner` elements: row b
    has those with index o * B * inner + b * inner + i. `numbers` are the elements of a small tensor
    that is no data but a length, an axis or the like; each is None if not known. `counts` says that
    elements depend on the number of rows. `sources` are the model's inputs whose rows these are.
    `is_place`: each row holds its own number in the batch, with others behind it if the last dim is
    longer than 1; nothing may be computed of it, but it finds the row.
    """

    shape: Sizes | None
    axis: int | None = None
    outer: Size = ONE
    inner: Size = ONE
    numbers: tuple[Size | float | None, ...] | None = None
    counts: bool = False
    sources: frozenset[str] = frozenset()
    is_place: bool = False

    @property
    def rank(self) -> int:
        """The number of dims. Raises Unclear if it is not known."""
        return len(self.dims)

    @property
    def dims(self) -> Sizes:
        """The shape. Raises Unclear if it is not known."""
        if self.shape is None:
            give_up("the number of dims of a tensor is not known")
        return self.shape

    @property
    def is_plain(self) -> bool:
        """Whether it is the same for all rows, and for any number of them."""
        return self.axis is None and not self.counts

    @property
    def before(self) -> Size:
        """The size of the parts that rows are in: a row has an element in each."""
        return times(*self.dims[: self._at], self.outer)

    @property
    def after(self) -> Size:
        """The number of elements of a row that lie one behind the other."""
        return times(self.inner, *self.dims[self._at + 1 :])

    @property
    def _at(self) -> int:
        assert self.axis is not None
        return self.axis

    def shaped(self, shape: Sizes | None, axis: int | None = None) -> "RowTensor":
        """Return a tensor computed of this one, with another shape; no longer known numbers."""
        return replace(self, shape=shape, axis=axis, numbers=None)

    def resized(self, dim: int, size: Size) -> "RowTensor":
        """Return a tensor computed of this one, one dim of which has another length."""
        return self.shaped((*self.dims[:dim], size, *self.dims[dim + 1 :]), self.axis)

    def widened(self, place: int, size: Size) -> "RowTensor":
        """Return a tensor computed of this one, with one more dim, at `place`."""
        dims = (*self.dims[:place], size, *self.dims[place:])
        return self.shaped(dims, None if self.axis is None else self.axis + (place <= self.axis))

    def narrowed(self, gone: Collection[int]) -> "RowTensor":
        """Return a tensor computed of this one, without dims other than the batch."""
        dims = tuple(size for n, size in enumerate(self.dims) if n not in gone)
        axis = self.axis
        return self.shaped(dims, None if axis is None else axis - sum(n < axis for n in {*gone}))

    def sizes(self) -> list[Size] | None:
        """Return the numbers in a tensor of lengths, None if one is not known."""
        found = [number for number in self.numbers or () if isinstance(number, Size)]
        return None if self.numbers is None or len(found) < len(self.numbers) else found

    def integers(self) -> list[int] | None:
        """Return the integers in a tensor, None if one is not known or grows with something."""
        sizes = self.sizes()
        if sizes is None or any(size.letters for size in sizes):
            return None
        return [size.number for size in sizes]

    def count(self) -> int | None:
        """Return how many elements a list has, None if that is not known."""
        dims = self.shape or ()
        return dims[0].number if dims and not any(size.letters for size in dims) else None

    def grid(self) -> Any:
        """Return the numbers as an array of the tensor's shape, None if they are not known."""
        if self.numbers is None or self.shape is None or any(one.letters for one in self.shape):
            return None
        array = np.empty(len(self.numbers), object)
        for n, number in enumerate(self.numbers):  # tuples, which NumPy would take apart
            array[n] = number
        dims = [size.number for size in self.shape]
        return array.reshape(dims) if array.size == prod(dims) else None

    def same(self) -> "RowTensor":
        """Return what has the same rows in the same places, but other elements."""
        return replace(self, numbers=None)


@dataclass(frozen=True, slots=True)
class LostTensor:
    """A tensor whose rows could not be followed, and why."""

    reason: str


def at(axis: object, rank: int) -> int:
    """Return a dim's index from the start. Raises Unclear if it is none."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        give_up(f"{axis} is no dim of a tensor with {rank}")
    # Negative axes count from the end (ONNX, in all operators that have axes).
    return axis % rank


def side_by_side(rows: Sequence[RowTensor]) -> RowTensor:
    """Return the first of `rows`, which all have their rows in the same places along a dim.

    Raises Unclear if they have not.
    """
    if len({(value.outer, value.inner) for value in rows}) > 1:
        give_up("its inputs have their rows in different places")
    return rows[0]


def shown(shape: Sizes) -> str:
    """Return a shape in words."""
    return f"[{', '.join(map(str, shape))}]"
