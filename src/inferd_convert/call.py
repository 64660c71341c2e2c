"""OperatorCall: one operator of a source file while it is converted, with its inputs."""

from collections.abc import Callable, Sequence
from inspect import signature
from math import prod
from typing import Any, NoReturn

from inferd.errors import InvalidConfig, Unsupported
from inferd_convert.graph import Graph, Value

Converted = Value | tuple[Value | None, ...]
"""The outputs of an operator in order, None for one that is not available."""

Converter = Callable[..., Converted]
"""Takes the graph, the call, and as many required inputs as it has further parameters."""

# Half a gigabyte of FP64: a few bytes in the file may ask for any shape.
MAX_FILLED = 1 << 26
"""How many elements a model's files may ask for in all without containing them."""

_MAX_NAMED = 5


class OperatorCall:
    """An operator with its inputs; what reads its attributes is up to each format."""

    array = "a tensor"
    """What the format calls a value, for error texts."""

    def __init__(self, graph: Graph, place: str, inputs: Sequence[Value]) -> None:
        self.graph = graph
        self.inputs = tuple(inputs)
        self._place = place

    def input(self, index: int) -> Value:
        """Return a required input. Raises InvalidConfig if it is missing."""
        if index >= len(self.inputs):
            self.refuse(f"it has {len(self.inputs)} inputs, and needs {index + 1}")
        return self.inputs[index]

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer attribute of the format."""
        raise NotImplementedError

    def flag(self, name: str) -> bool:
        """Return a boolean attribute of the format, False if not given."""
        raise NotImplementedError

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a float attribute of the format."""
        raise NotImplementedError

    def axis(self, rank: int | None, default: int, name: str = "axis") -> int:
        """Return the attribute `name`, checked and made non-negative if `rank` is known."""
        return self.checked(self.integer(name, default), rank)

    def checked(self, axis: int, rank: int | None) -> int:
        """Return `axis`, checked and made non-negative if `rank` is known."""
        if rank is None:
            return axis
        if not -rank <= axis < rank:
            self.refuse(f"axis {axis} is not one of {self.array} of {rank} dims")
        return axis % rank

    def known_rank(self, value: Value) -> int:
        """Return the number of dims of an input. Raises Unsupported if it is not known."""
        if value.rank is None:
            self.cannot("the number of dims of its input is not known")
        return value.rank

    def count_filled(self, dims: Sequence[int]) -> None:
        """Count the elements of an array that the file asks for but does not contain.

        Raises InvalidConfig if they are too many.
        """
        # Counted in all: many small fills could take as much as a large one.
        self.graph.filled += prod(dims)
        if min(dims, default=0) < 0 or self.graph.filled > MAX_FILLED:
            self.refuse(f"its shape is {dims}: more than {MAX_FILLED} elements in all, or none")

    def refuse(self, reason: str) -> NoReturn:
        """Raise InvalidConfig saying why this operator cannot be converted, and its place."""
        raise InvalidConfig(f"{self._place}: {reason}")

    def refuse_if(self, wrong: object, reason: str) -> None:
        """Raise InvalidConfig saying `reason` if `wrong` is true."""
        if wrong:
            self.refuse(reason)

    def cannot_if(self, unsupported: object, reason: str) -> None:
        """Raise Unsupported saying `reason` if `unsupported` is true."""
        if unsupported:
            self.cannot(reason)

    def cannot(self, reason: str) -> NoReturn:
        """Raise Unsupported: the framework can do what this operator asks, the conversion not."""
        raise Unsupported(f"{self._place}: {reason}")


def node(op: str, **attributes: float | tuple[str, float]) -> Converter:
    """Return the converter of an operator of one input that is one ONNX node.

    Each of the node's attributes is a number with a default, and before it the name that the
    source file calls it by, if that is another.
    """

    def convert(graph: Graph, call: OperatorCall) -> Value:
        values: dict[str, Any] = {}
        for name, source in attributes.items():
            known, default = source if isinstance(source, tuple) else (name, source)
            values[name] = call.number(known, default)
        return graph.add(op, call.input(0), **values)

    return convert


def convert_call(converter: Converter, call: OperatorCall) -> tuple[Value | None, ...]:
    """Return the outputs of `converter` for `call`. Raises InvalidConfig if an input is missing."""
    # So that a converter names the inputs that it needs, and missing ones are refused in one place.
    count = len(signature(converter).parameters) - 2
    outputs = converter(call.graph, call, *(call.input(index) for index in range(count)))
    return (outputs,) if isinstance(outputs, Value) else outputs


def check_convertible(unknown: Sequence[Any]) -> None:
    """Raise Unsupported naming the places of the operators in `unknown`, if there are any."""
    if unknown:
        places = "; ".join(operator.place for operator in unknown[:_MAX_NAMED])
        more = f"; and {len(unknown) - _MAX_NAMED} more" if len(unknown) > _MAX_NAMED else ""
        raise Unsupported(f"operators that cannot be converted to ONNX: {places}{more}")
