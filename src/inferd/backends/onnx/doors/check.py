"""Checks of a request's inputs that operators of ONNX Runtime lack, and would end the process for.

Each Check is made when a model loads, from what its graph does with an input.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from inferd.config.parameter_names import MOST_ELEMENTS
from inferd.tensor.array import Array


class Check(Protocol):
    """Compares inputs with what an operator can take; `inputs` are the names of those it reads."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that are compared."""

    def complaint(self, arrays: Mapping[str, Array]) -> str:
        """Return what is wrong with the model's inputs, "" for nothing."""


class DimsCheck(NamedTuple):
    """The dims that an operator needs: at least `least_rank`, and none of 0.

    Dims of 0 are allowed at the places `free`, and everywhere if `any_size`.
    """

    name: str
    operator: str
    least_rank: int = 0
    free: tuple[int, ...] = ()
    any_size: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """See Check.inputs."""
        return (self.name,)

    def complaint(self, arrays: Mapping[str, Array]) -> str:
        """See Check.complaint."""
        shape = arrays[self.name].shape
        rank = len(shape)
        if rank < self.least_rank:
            return (
                f"input '{self.name}' has shape {list(shape)}; "
                f"{self.operator} takes at least {self.least_rank} dims"
            )
        if self.any_size or 0 not in shape:
            return ""
        # Places count from the end if negative, as axes of ONNX do; ranks differ between requests.
        free = [place % rank for place in self.free if -rank <= place < rank]
        for place, dim in enumerate(shape):
            if not dim and place not in free:
                return (
                    f"input '{self.name}' has shape {list(shape)}; "
                    f"{self.operator} takes no dim {place} of 0"
                )
        return ""


class LeastDimCheck(NamedTuple):
    """A dim that must have a least size, for windows that an operator lays over it."""

    name: str
    operator: str
    place: int
    least: int

    @property
    def inputs(self) -> tuple[str, ...]:
        """See Check.inputs."""
        return (self.name,)

    def complaint(self, arrays: Mapping[str, Array]) -> str:
        """See Check.complaint."""
        shape = arrays[self.name].shape
        if len(shape) <= self.place or shape[self.place] >= self.least:
            return ""
        return (
            f"input '{self.name}' has shape {list(shape)}; {self.operator} takes it "
            f"with at least {self.least} in dim {self.place}"
        )


class NonzeroCheck(NamedTuple):
    """A number that an operator divides by: it must not be 0."""

    name: str
    operator: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """See Check.inputs."""
        return (self.name,)

    def complaint(self, arrays: Mapping[str, Array]) -> str:
        """See Check.complaint."""
        zeros = np.argwhere(arrays[self.name] == 0)
        if not len(zeros):
            return ""
        return f"input '{self.name}' is 0{_at(zeros[0])}; {self.operator} divides by it"


class SizeCheck(NamedTuple):
    """Numbers that, multiplied, are how many elements an operator makes: `most`, or fewer.

    It makes as many for each element of the input `of`, unless that is "", and of a constant with
    `each` of them.
    """

    name: str
    operator: str
    most: int
    of: str = ""
    each: int = 1

    @property
    def inputs(self) -> tuple[str, ...]:
        """See Check.inputs."""
        return (self.name, self.of) if self.of else (self.name,)

    def complaint(self, arrays: Mapping[str, Array]) -> str:
        """See Check.complaint."""
        # Python's integers: a product of INT64 could wrap around to something small.
        numbers = [int(one) for one in arrays[self.name].reshape(-1)]
        # Negative ones mean "as it is" or are errors, which the operator itself refuses.
        total = prod(one for one in numbers if one > 0) * self.each
        if self.of:
            total *= arrays[self.of].size
        if total <= self.most or 0 in numbers:
            return ""
        return (
            f"input '{self.name}' is {numbers[:8]}; {self.operator} may make at most {self.most} "
            f"elements, see parameter {MOST_ELEMENTS}"
        )


class RangeCheck(NamedTuple):
    """A range from `start` to `limit` in steps of `delta`, of `most` elements or fewer.

    `constants` has those of them that are no inputs.
    """

    start: str
    limit: str
    delta: str
    operator: str
    most: int
    constants: Mapping[str, Array]

    @property
    def inputs(self) -> tuple[str, ...]:
        """See Check.inputs."""
        names = dict.fromkeys((self.start, self.limit, self.delta))
        return tuple(name for name in names if name not in self.constants)

    def complaint(self, arrays: Mapping[str, Array]) -> str:
        """See Check.complaint."""
        values = {**self.constants, **arrays}
        ends = [values[name].reshape(-1) for name in (self.start, self.limit, self.delta)]
        if not all(len(one) for one in ends):
            return ""  # ONNX Runtime says so
        # Floats, for integers too: what rounding costs does not matter for a limit of millions.
        start, limit, delta = (float(one[0]) for one in ends)
        if not delta:
            return f"'{self.delta}' is 0; {self.operator} makes steps of it"
        # Written so that NaN passes: ONNX Runtime makes no elements of it.
        if not (limit - start) / delta > self.most:
            return ""
        return (
            f"'{self.start}' is {start:g}, '{self.limit}' {limit:g} and '{self.delta}' {delta:g}; "
            f"{self.operator} may make at most {self.most} elements, see parameter {MOST_ELEMENTS}"
        )


class DivisionCheck(NamedTuple):
    """A division of integers, whose quotient must exist and fit.

    A side that is no input is a constant: `dividend` or `divisor` is its name all the same, and
    `constants` has it.
    """

    dividend: str
    divisor: str
    operator: str
    constants: Mapping[str, Array]

    @property
    def inputs(self) -> tuple[str, ...]:
        """See Check.inputs."""
        sides = dict.fromkeys((self.dividend, self.divisor))
        return tuple(name for name in sides if name not in self.constants)

    def complaint(self, arrays: Mapping[str, Array]) -> str:
        """See Check.complaint."""
        values = {**self.constants, **arrays}
        a, b = values[self.dividend], values[self.divisor]
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
            return f"{self._side(self.divisor, b, zeros[0])} is 0; {self.operator} divides by it"
        over = np.argwhere((left == lowest) & (right == -1))
        if not len(over):
            return ""
        large, minus = (
            self._side(name, array, over[0])
            for name, array in ((self.dividend, a), (self.divisor, b))
        )
        return (
            f"{large} is {lowest}; {self.operator} divides it by -1 (of {minus}), "
            f"and {a.dtype} cannot hold the quotient"
        )

    def _side(self, name: str, array: Array, place: Array) -> str:
        """Return words for the element of `array` that is at `place` of the quotient."""
        # Undoes broadcasting, which aligns shapes at the end and repeats dims of 1.
        own = place[len(place) - array.ndim :] if array.ndim else place[:0]
        at = [0 if dim == 1 else int(one) for one, dim in zip(own, array.shape, strict=True)]
        kind = "constant" if name in self.constants else "input"
        return f"{kind} '{name}'{_at(at)}"


def _at(place: Any) -> str:
    """Return " at [1, 2]" for a place in a tensor, "" for that of a scalar."""
    return f" at {[int(one) for one in place]}" if len(place) else ""
