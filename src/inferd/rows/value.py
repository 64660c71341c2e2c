"""Value: what is known of a tensor while the rows of a batch are followed through a graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from inferd.formats.onnx_graph import RowNode
from inferd.rows.size import ONE, Size, Sizes, times


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
            msg = "the number of dims of a tensor is not known"
            raise Unclear(msg)
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
        msg = f"{axis} is no dim of a tensor with {rank}"
        raise Unclear(msg)
    # Negative axes count from the end (ONNX, in all operators that have axes).
    return axis % rank


def mixes(node: RowNode, what: str) -> Mixed:
    """Return the error for an operator that does `what`."""
    return Mixed(f"{node} {what}")


def scaled(node: RowNode, what: str) -> Mixed:
    """Return the error for an operator whose scale is that of all rows."""
    return Mixed(f"{node} {what}", is_scale=True)


def along(node: RowNode, value: RowTensor, axes: Iterable[int]) -> None:
    """Raise Mixed if the operator works along the batch dim."""
    for axis in axes:
        if value.axis is not None and axis == value.axis:
            raise mixes(node, f"works along dim {axis}, the batch")


def side_by_side(rows: Sequence[RowTensor]) -> RowTensor:
    """Return the first of `rows`, which all have their rows in the same places along a dim.

    Raises Unclear if they have not.
    """
    if len({(value.outer, value.inner) for value in rows}) > 1:
        msg = "its inputs have their rows in different places"
        raise Unclear(msg)
    return rows[0]


def sizes_of(value: RowTensor | None) -> list[Size] | None:
    """Return the numbers in a tensor of lengths, None if one is not known."""
    if value is None or value.numbers is None:
        return None
    found = [number for number in value.numbers if isinstance(number, Size)]
    return found if len(found) == len(value.numbers) else None


def integers_of(value: RowTensor | None) -> list[int] | None:
    """Return the integers in a tensor, None if one is not known or grows with something."""
    sizes = sizes_of(value)
    if sizes is None or any(size.letters for size in sizes):
        return None
    return [size.number for size in sizes]


def given(values: Sequence[RowTensor | None], index: int) -> RowTensor | None:
    """Return an optional input."""
    return values[index] if index < len(values) else None


def needed(values: Sequence[RowTensor | None], index: int) -> RowTensor:
    """Return an input that is not optional. Raises Unclear if it is missing."""
    found = given(values, index)
    if found is None:
        msg = f"input {index} is missing"
        raise Unclear(msg)
    return found


def plain(node: RowNode, values: Iterable[RowTensor | None], what: str) -> None:
    """Raise Mixed unless all `values` are the same for all rows; `what` they are for `node`."""
    if any(value is not None and not value.is_plain for value in values):
        raise mixes(node, f"has {what} that depend on the rows")


def grid_of(value: RowTensor) -> Any:
    """Return the numbers in a tensor as an array of its shape, None if they are not known."""
    dims = [size.number for size in value.shape or ()]
    if value.numbers is None or value.shape is None or any(size.letters for size in value.shape):
        return None
    array = np.empty(len(value.numbers), object)
    for n, number in enumerate(value.numbers):  # tuples, which NumPy would take apart
        array[n] = number
    return array.reshape(dims) if array.size == prod(dims) else None


def shown(shape: Sizes) -> str:
    """Return a shape in words."""
    return f"[{', '.join(map(str, shape))}]"
