"""Checks of a request's inputs that operators of ONNX Runtime lack, and would end the process for.

Each Check is made when a model loads, from what its graph does with an input.
"""

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from inferd.config.parameter_names import MOST_ELEMENTS
from inferd.tensor.array import Array

Arrays = Mapping[str, Array]
"""Name of an input, or of a constant, -> its elements."""


class Check(NamedTuple):
    """Compares inputs with what an operator can take; `inputs` are the names of those it reads.

    `complaint` returns what is wrong with the model's inputs, "" for nothing. With `is_of_batches`
    it can only be wrong with inputs whose first dims differ.
    """

    inputs: tuple[str, ...]
    complaint: Callable[[Arrays], str]
    is_of_batches: bool = False


def dims_check(
    name: str,
    operator: str,
    least_rank: int = 0,
    free: tuple[int, ...] = (),
    *,
    any_size: bool = False,
) -> Check:
    """Return a check of the dims that an operator needs: at least `least_rank`, and none of 0.

    Dims of 0 are allowed at the places `free`, and everywhere if `any_size`.
    """

    def complaint(arrays: Arrays) -> str:
        shape = arrays[name].shape
        rank = len(shape)
        if rank < least_rank:
            return (
                f"input '{name}' has shape {list(shape)}; {operator} takes at least {least_rank} "
                f"dims"
            )
        if any_size or 0 not in shape:
            return ""
        # Places count from the end if negative, as axes of ONNX do; ranks differ between requests.
        allowed = [place % rank for place in free if -rank <= place < rank]
        for place, dim in enumerate(shape):
            if not dim and place not in allowed:
                return (
                    f"input '{name}' has shape {list(shape)}; {operator} takes no dim {place} of 0"
                )
        return ""

    return Check((name,), complaint)


def least_dim_check(name: str, operator: str, place: int, least: int) -> Check:
    """Return a check of a dim's least size, for windows that an operator lays over it."""

    def complaint(arrays: Arrays) -> str:
        shape = arrays[name].shape
        if len(shape) <= place or shape[place] >= least:
            return ""
        return (
            f"input '{name}' has shape {list(shape)}; {operator} takes it "
            f"with at least {least} in dim {place}"
        )

    return Check((name,), complaint)


def joined_check(
    names: tuple[str, ...],
    operator: str,
    axis: int | None,
    others: Iterable[tuple[int, ...]] = (),
    *,
    is_of_batches: bool = False,
) -> Check:
    """Return a check of inputs that an operator puts side by side along `axis`, None for a new dim.

    ONNX Runtime does not compare what has no elements with the rest, and makes room for it all the
    same, which then shows whatever lay in memory there. `others` are shapes of constants.
    """
    fixed = tuple(others)

    def complaint(arrays: Arrays) -> str:
        shapes = [arrays[name].shape for name in names]
        sizes = [prod(shape) for shape in (*shapes, *fixed)]
        if all(sizes) or not any(sizes):
            return ""
        for name, shape in zip(names, shapes, strict=True):
            # A dim of 0 along the axis takes no room, so nothing is wrong.
            has_room = axis is None or (-len(shape) <= axis < len(shape) and shape[axis])
            if 0 in shape and has_room:
                return (
                    f"input '{name}' has shape {list(shape)}, which does not fit the others that "
                    f"{operator} puts it beside"
                )
        return ""

    return Check(names, complaint, is_of_batches)


def nonzero_check(name: str, operator: str) -> Check:
    """Return a check of a number that an operator divides by: it must not be 0."""

    def complaint(arrays: Arrays) -> str:
        zeros = np.argwhere(arrays[name] == 0)
        return f"input '{name}' is 0{_at(zeros[0])}; {operator} divides by it" if len(zeros) else ""

    return Check((name,), complaint)


def size_check(name: str, operator: str, most: int, of: str = "", each: int = 1) -> Check:
    """Return a check of numbers that, multiplied, are how many elements an operator makes.

    They are `most`, or fewer. It makes as many for each element of the input `of`, unless that is
    "", and of a constant with `each` of them.
    """

    def complaint(arrays: Arrays) -> str:
        # Python's integers: a product of INT64 could wrap around to something small.
        numbers = [int(one) for one in arrays[name].reshape(-1)]
        # Negative ones mean "as it is" or are errors, which the operator itself refuses.
        total = prod(one for one in numbers if one > 0) * each
        if of:
            total *= arrays[of].size
        if total <= most or 0 in numbers:
            return ""
        return (
            f"input '{name}' is {numbers[:8]}; {operator} may make at most {most} elements, see "
            f"parameter {MOST_ELEMENTS}"
        )

    return Check((name, of) if of else (name,), complaint)


def range_check(names: tuple[str, str, str], operator: str, most: int, constants: Arrays) -> Check:
    """Return a check of a range from start to limit in steps of delta, which have these `names`.

    It has `most` elements, or fewer. `constants` has those of them that are no inputs.
    """

    def complaint(arrays: Arrays) -> str:
        values = {**constants, **arrays}
        ends = [values[name].reshape(-1) for name in names]
        if not all(len(one) for one in ends):
            return ""  # ONNX Runtime says so
        # Floats, for integers too: what rounding costs does not matter for a limit of millions.
        start, limit, delta = (float(one[0]) for one in ends)
        if not delta:
            return f"'{names[2]}' is 0; {operator} makes steps of it"
        # Written so that NaN passes: ONNX Runtime makes no elements of it.
        if not (limit - start) / delta > most:
            return ""
        return (
            f"'{names[0]}' is {start:g}, '{names[1]}' {limit:g} and '{names[2]}' {delta:g}; "
            f"{operator} may make at most {most} elements, see parameter {MOST_ELEMENTS}"
        )

    return Check(_without(names, constants), complaint)


def division_check(dividend: str, divisor: str, operator: str, constants: Arrays) -> Check:
    """Return a check of a division of integers, whose quotient must exist and fit.

    A side that is no input is a constant: `dividend` or `divisor` is its name all the same, and
    `constants` has it.
    """

    def side(name: str, array: Array, place: Array) -> str:
        """Return words for the element of `array` that is at `place` of the quotient."""
        # Undoes broadcasting, which aligns shapes at the end and repeats dims of 1.
        own = place[len(place) - array.ndim :] if array.ndim else place[:0]
        at = [0 if dim == 1 else int(one) for one, dim in zip(own, array.shape, strict=True)]
        kind = "constant" if name in constants else "input"
        return f"{kind} '{name}'{_at(at)}"

    def complaint(arrays: Arrays) -> str:
        values = {**constants, **arrays}
        a, b = values[dividend], values[divisor]
        # Nearly always enough, and cheap.
        if not a.size or (b.all() and not (b == -1).any()):
            return ""
        # -2**63 / -1 is 2**63, which the type cannot hold; x86's idiv then raises SIGFPE.
        lowest = np.iinfo(a.dtype).min
        try:
            left, right = np.broadcast_arrays(a, b)
        except ValueError:
            return ""  # ONNX Runtime says so
        # ONNX Runtime refuses a zero itself, but with other words than what is refused below.
        zeros = np.argwhere(right == 0)
        if len(zeros):
            return f"{side(divisor, b, zeros[0])} is 0; {operator} divides by it"
        over = np.argwhere((left == lowest) & (right == -1))
        if not len(over):
            return ""
        return (
            f"{side(dividend, a, over[0])} is {lowest}; {operator} divides it by -1 (of "
            f"{side(divisor, b, over[0])}), and {a.dtype} cannot hold the quotient"
        )

    return Check(_without((dividend, divisor), constants), complaint)


def _without(names: Iterable[str], constants: Arrays) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name not in constants)


def _at(place: Any) -> str:
    """Return " at [1, 2]" for a place in a tensor, "" for that of a scalar."""
    return f" at {[int(one) for one in place]}" if len(place) else ""
