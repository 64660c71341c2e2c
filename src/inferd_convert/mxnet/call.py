"""MxnetCall: one node of an MXNet symbol during conversion, with its inputs and attributes."""

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from inferd.tensor.dtype import DATATYPES, DataType
from inferd_convert.call import OperatorCall
from inferd_convert.graph import Graph, Value
from inferd_convert.mxnet.params import TYPES
from inferd_convert.mxnet.symbol import SymbolNode

T = TypeVar("T")

_FLOATS = {"float16": DataType.FP16, "float32": DataType.FP32, "float64": DataType.FP64}
# What MXNet's Python and Scala front ends have written over the years.
_TRUE, _FALSE = ("True", "true", "1"), ("False", "false", "0", "None")


class MxnetCall(OperatorCall):
    """Reads text attributes, with MXNet's defaults; a wrong one raises InvalidConfig."""

    array = "an array"

    def __init__(self, graph: Graph, node: SymbolNode, inputs: Sequence[Value]) -> None:
        super().__init__(graph, node.place, inputs)
        self.op = node.op
        self._attributes = node.attributes

    def has(self, name: str) -> bool:
        """Return whether an attribute is given, and not None."""
        # Symbols have all values as texts, Python's None too.
        return self._attributes.get(name, "None") != "None"

    def is_none(self, name: str) -> bool:
        """Return whether an attribute is given as None."""
        return self._attributes.get(name) == "None"

    def word(self, name: str, default: str) -> str:
        """Return a text attribute."""
        return self._attributes[name] if self.has(name) else default

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean attribute."""
        text = self._attributes.get(name)
        if text is None:
            return default
        if text not in _TRUE + _FALSE:
            self._refuse_attribute(name, "True or False")
        return text in _TRUE

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer attribute."""
        return self._parsed(name, default, int, "a whole number")

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a float attribute."""
        return self._parsed(name, default, float, "a number")

    def integers(self, name: str) -> list[int]:
        """Return the integers of a tuple, or a single one as a list; empty if not given."""
        return [0 if one is None else one for one in self.optional_integers(name)]

    def optional_integers(self, name: str) -> list[int | None]:
        """Return the integers of a tuple that may contain None."""
        return self._parsed(name, [], _optional_integers, "a tuple of whole numbers")

    def element_type(self) -> DataType:
        """Return the attribute `dtype`, which is a name or MXNet's number."""
        name = self.word("dtype", "")
        datatype = _FLOATS.get(name) or DATATYPES.get(name.upper())
        if name.isdigit():
            datatype = TYPES.get(int(name))
        if datatype is None or datatype is DataType.BYTES:
            self.refuse(f"there is no element type '{name[:100]}' that could be converted")
        return datatype

    def is_whole(self, x: Value) -> bool:
        """Return whether `x` is known to have an integer type."""
        return x.datatype is not None and x.datatype.numpy.kind in "iu"

    def _parsed(self, name: str, default: T, parse: Callable[[str], T], expected: str) -> T:
        """Return what `parse` makes of an attribute, which is refused if that is a ValueError."""
        if not self.has(name):
            return default
        try:
            return parse(self._attributes[name])
        except ValueError:
            self._refuse_attribute(name, expected)

    def _refuse_attribute(self, name: str, expected: str) -> NoReturn:
        text = self._attributes[name][:100]
        self.refuse(f"its attribute '{name}' is '{text}', expected {expected}")


def _optional_integers(text: str) -> list[int | None]:
    # Python 2 wrote long integers as "3L".
    words = text.strip("()[] ").replace("L", "").split(",")
    return [None if word.strip() == "None" else int(word) for word in words if word.strip()]
