"""Caffe2Call: one operator of a Caffe2 net during conversion, with its inputs and arguments."""

import math
from collections.abc import Sequence
from typing import NoReturn

from inferd.tensor.dtype import DataType
from inferd_convert.caffe2.netdef import NetArgument, Operator
from inferd_convert.call import OperatorCall
from inferd_convert.graph import Graph, Value

_NAMED = {
    "FLOAT": (1, DataType.FP32),
    "INT32": (2, DataType.INT32),
    "STRING": (4, DataType.BYTES),
    "BOOL": (5, DataType.BOOL),
    "UINT8": (6, DataType.UINT8),
    "INT8": (7, DataType.INT8),
    "UINT16": (8, DataType.UINT16),
    "INT16": (9, DataType.INT16),
    "INT64": (10, DataType.INT64),
    "FLOAT16": (12, DataType.FP16),
    "DOUBLE": (13, DataType.FP64),
}
_NUMBERED = dict(_NAMED.values())
"""Caffe2's own numbers and names of element types."""


class Caffe2Call(OperatorCall):
    """Reads arguments, with Caffe2's defaults; a wrong one raises InvalidConfig with the place.

    Integers are accepted as floats, and whole floats as integers.
    """

    def __init__(self, graph: Graph, operator: Operator, inputs: Sequence[Value]) -> None:
        super().__init__(graph, operator.place, inputs)
        self.type = operator.type
        self.output_count = len(operator.outputs)
        self._arguments = operator.arguments

    def has(self, *names: str) -> bool:
        """Return whether all of these arguments are given."""
        return all(name in self._arguments for name in names)

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer argument."""
        argument = self._arguments.get(name)
        if argument is None:
            return default
        # proto2 tells a field that is absent from one that is 0.
        number = argument.i if argument.i is not None else argument.f
        if number is None or not math.isfinite(number) or number % 1:
            self._refuse_argument(name, "a whole number")
        return int(number)

    def flag(self, name: str) -> bool:
        """Return a boolean argument, False if not given."""
        # caffe2.proto has no booleans: arguments are integers.
        return self.integer(name) != 0

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a float argument."""
        argument = self._arguments.get(name)
        if argument is None:
            return default
        # Exporters write 1 where 1.0 is meant.
        number = argument.f if argument.f is not None else argument.i
        if number is None:
            self._refuse_argument(name, "a number")
        return float(number)

    def word(self, name: str, default: str) -> str:
        """Return a text argument."""
        argument = self._arguments.get(name)
        if argument is None:
            return default
        if argument.s is None:
            self._refuse_argument(name, "a text")
        # bytes in proto2, so not everything in it need be text; error messages may show it.
        return argument.s.decode("utf-8", "backslashreplace")

    def integers(self, name: str) -> list[int]:
        """Return a list of integers, empty if the argument is not given."""
        argument = self._arguments.get(name)
        if argument is None:
            return []
        if argument.ints:
            return argument.ints
        numbers = argument.floats.tolist()
        if not numbers and argument.i is not None:
            return [argument.i]
        if any(number % 1 for number in numbers):
            self._refuse_argument(name, "whole numbers")
        return [int(number) for number in numbers]

    def argument(self, name: str) -> NetArgument:
        """Return an argument unchanged, or an empty one if not given."""
        return self._arguments.get(name, NetArgument())

    def element_type(self, kind: int | str) -> DataType:
        """Return the datatype that Caffe2 calls `kind`, a number or a name in any case."""
        if isinstance(kind, str):
            kind = _NAMED.get(kind.upper(), (-1,))[0]
        if kind not in _NUMBERED:
            self.refuse(f"there is no element type {kind} that could be converted")
        return _NUMBERED[kind]

    @property
    def is_nhwc(self) -> bool:
        """Whether the channels are the last dim, not the one after the batch."""
        order = self.word("order", "NCHW").upper()
        if order not in ("NCHW", "NHWC"):
            self._refuse_argument("order", "NCHW or NHWC")
        return order == "NHWC"

    def axes(self, x: Value) -> list[int]:
        """Return the argument `axes` of a reduction of `x`, in order, empty for all dims."""
        return sorted({self.checked(axis, x.rank) for axis in self.integers("axes")})

    @property
    def keeps_dims(self) -> bool:
        """Whether a reduction leaves dims of 1, by default it does."""
        return self.integer("keepdims", 1) != 0

    def channel_axis(self) -> int:
        """Return the argument `axis`, by default the axis of the channels."""
        return self.integer("axis") if self.has("axis") else 3 if self.is_nhwc else 1

    def _refuse_argument(self, name: str, expected: str) -> NoReturn:
        self.refuse(f"its argument '{name}' should be {expected}")
