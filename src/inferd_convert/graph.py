"""Graph: an ONNX graph that a converter builds operator by operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inferd.errors import InvalidConfig
from inferd.formats.onnx_model import Attribute, OnnxNode, OnnxPort, encode_model, onnx_type
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

END = 2**63 - 1
"""Where a slice ends that takes all that follows."""

_SAME = -1
# Large constants are seldom equal, and comparing them would cost a pass over all weights.
_SMALL = 1024

_BROADCAST = frozenset(
    (
        *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        *("Max", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Where", "Xor"),
    )
)
_GIVE_BOOL = frozenset(
    (
        *("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual"),
        *("Not", "Or", "Xor"),
    )
)
_HAVE_OWN_TYPE = frozenset(
    (
        *("ArgMax", "ArgMin", "Cast", "ConstantOfShape", "DequantizeLinear", "EyeLike", "If"),
        *("Loop", "NonMaxSuppression", "NonZero", "OneHot", "QuantizeLinear", "Range", "Scan"),
        *("Shape", "Size", "TopK", "Unique", "Where"),
    )
)
"""Operators with an output that need not have the type of their first input."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of `graph`. `rank` is None if known only at run time; constants have an `array`.

    `datatype` is None if unknown. The operators +, -, * and / add a node to the graph; a number
    becomes a scalar of the other operand's type.
    """

    graph: "Graph"
    name: str
    rank: int | None
    array: Array | None = None
    datatype: DataType | None = None

    @property
    def is_bool(self) -> bool:
        """Whether it is known to be BOOL, which some operators do not accept."""
        return self.datatype is DataType.BOOL

    @property
    def size(self) -> int | None:
        """The number of elements of a constant, None for other values."""
        return None if self.array is None else self.array.size

    def rank_with(self, count: int) -> int | None:
        """Return the number of dims with `count` more of them, None if unknown."""
        return None if self.rank is None else self.rank + count

    def __add__(self, other: "Value | float") -> "Value":
        """Return the sum."""
        return self.graph.add("Add", self, self.graph.operand(other, self))

    def __sub__(self, other: "Value | float") -> "Value":
        """Return the difference."""
        return self.graph.add("Sub", self, self.graph.operand(other, self))

    def __rsub__(self, other: float) -> "Value":
        """Return the difference of a number and this."""
        return self.graph.add("Sub", self.graph.operand(other, self), self)

    def __mul__(self, other: "Value | float") -> "Value":
        """Return the product."""
        return self.graph.add("Mul", self, self.graph.operand(other, self))

    def __truediv__(self, other: "Value | float") -> "Value":
        """Return the quotient, rounded towards 0 for integers."""
        return self.graph.add("Div", self, self.graph.operand(other, self))


def wider_rank(a: Value, b: Value) -> int | None:
    """Return the number of dims of `a` and `b` broadcast, None if unknown."""
    return None if a.rank is None or b.rank is None else max(a.rank, b.rank)


class Graph:
    """Collects nodes and constants. It names values itself, so a blob may be written twice.

    `place` says which operator of the source file is being converted; nodes are named after it.
    `filled` counts the elements of constants that the file asks for but does not contain.
    """

    def __init__(self) -> None:
        self.place = ""
        self.filled = 0
        self._nodes: list[OnnxNode] = []
        self._constants: dict[str, Array] = {}
        self._inputs: list[OnnxPort] = []
        self._small: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def input(self, port: OnnxPort) -> Value:
        """Add an input of the model and return its value."""
        self._inputs.append(port)
        rank = None if port.shape is None else len(port.shape)
        return Value(self, port.name, rank, datatype=port.datatype)

    def constant(self, array: Array) -> Value:
        """Return a constant; equal small constants are shared."""
        # Without the bytes if it is large, and then not looked up.
        key = (array.dtype.str, array.shape, b"")
        is_small = array.nbytes <= _SMALL and array.dtype != object
        if is_small:
            key = (*key[:2], array.tobytes())
            if key in self._small:
                return self._small[key]
        name = f"constant:{len(self._constants)}"
        datatype = None if array.dtype == object else datatype_of(array.dtype)
        value = Value(self, name, array.ndim, array, datatype)
        self._constants[value.name] = array
        if is_small:
            self._small[key] = value
        return value

    def ints(self, *numbers: int) -> Value:
        """Return a constant INT64 vector, such as a shape or axes. Raises InvalidConfig."""
        try:
            return self.constant(np.array(numbers, np.int64))
        except OverflowError as error:
            msg = f"{self.place}: {list(numbers)} are numbers of more than 64 bits"
            raise InvalidConfig(msg) from error

    def whole(self, number: int) -> Value:
        """Return a constant INT64 scalar."""
        return self.constant(np.array(number, np.int64))

    def real(self, number: float) -> Value:
        """Return a constant FP32 scalar."""
        # A number beyond FP32 becomes infinite, as in the framework, whose arguments are FP32.
        with np.errstate(over="ignore"):
            return self.constant(np.array(number, np.float32))

    def like(self, value: Value, number: float) -> Value:
        """Return `number` as a scalar of the same type as `value`."""
        if value.datatype is DataType.FP32:
            return self.real(number)
        # An integer constant is cast exactly to every type; a float one is not to INT64.
        is_whole = abs(number) < 2**63 and number % 1 == 0
        scalar = np.array(int(number), np.int64) if is_whole else np.array(number, np.float64)
        # The type may only be known at run time.
        return self.add("CastLike", self.constant(scalar), value)

    def operand(self, operand: Value | float, other: Value) -> Value:
        """Return `operand`, a number as a scalar of the same type as `other`."""
        return operand if isinstance(operand, Value) else self.like(other, operand)

    def add(
        self,
        op: str,
        *inputs: Value | None,
        rank: int | None = _SAME,
        **attributes: Attribute | None,
    ) -> Value:
        """Return the only output of a new node; by default it has the rank of the first input.

        Of operands that are broadcast, the one with more dims should be first. An input or
        attribute that is None is omitted.
        """
        return self.add_several(1, op, *inputs, rank=rank, **attributes)[0]

    def add_several(
        self,
        count: int,
        op: str,
        *inputs: Value | None,
        rank: int | None = _SAME,
        **attributes: Attribute | None,
    ) -> tuple[Value, ...]:
        """Return the first `count` outputs of a new node, all of the same rank."""
        if rank == _SAME:
            rank = _rank_of(op, inputs)
        while inputs and inputs[-1] is None:  # a trailing "" would still count as an input
            inputs = inputs[:-1]
        number = len(self._nodes)
        datatype = _type_of(op, inputs)
        outputs = tuple(
            Value(self, f"{op}:{number}.{index}", rank, datatype=datatype) for index in range(count)
        )
        self._nodes.append(
            OnnxNode(
                op,
                tuple(value.name if value else "" for value in inputs),
                tuple(value.name for value in outputs),
                {name: value for name, value in attributes.items() if value is not None},
                # Unique, as ONNX Runtime requires, and in its error texts
                # it names the source's operator.
                f"{self.place} #{number}",
            )
        )
        return outputs

    def shape(self, value: Value, start: int = 0, end: int | None = None) -> Value:
        """Return dims `start` to `end` of `value` as an INT64 vector; negative from the end."""
        return self.add("Shape", value, rank=1, start=start, end=end)

    def join(self, *vectors: Value) -> Value:
        """Return the concatenation of vectors."""
        return vectors[0] if len(vectors) == 1 else self.add("Concat", *vectors, axis=0)

    def reshape(self, value: Value, shape: Value, rank: int | None = None) -> Value:
        """Return `value` reshaped to `shape`, where 0 means a dim of size 0."""
        if shape.array is not None:
            rank = shape.array.size
        # Frameworks have no "0 copies a dim" where a shape is computed, and an empty batch is a 0.
        return self.add("Reshape", value, shape, rank=rank, allowzero=1)

    def length(self, value: Value, axis: int) -> Value:
        """Return the size of one dim of `value` as an INT64 vector."""
        # After -1 comes the end, not dim 0.
        return self.shape(value, axis, axis + 1 if axis != -1 else None)

    def slice(self, value: Value, axis: int, start: int, end: int = END) -> Value:
        """Return the elements `start` to `end` of `value` along `axis`; negative from the end."""
        return self.add("Slice", value, self.ints(start), self.ints(end), self.ints(axis))

    def reduce(
        self, op: str, value: Value, axes: Sequence[int] = (), *, keep: bool = False
    ) -> Value:
        """Return `value` reduced by `op` over `axes`, by default all; `keep` leaves dims of 1."""
        rank = value.rank
        if not keep and rank is not None:
            rank = rank - len(axes) if axes else 0
        chosen = self.ints(*axes) if axes else None
        return self.add(op, value, chosen, rank=rank, keepdims=int(keep))

    def scalar(self, value: Value) -> Value:
        """Return `value`, which has one element, without dims."""
        return self.reshape(value, self.ints())

    def squeeze(self, value: Value, *axes: int) -> Value:
        """Return `value` without the dims `axes`, which are of size 1."""
        return self.add("Squeeze", value, self.ints(*axes), rank=value.rank_with(-len(axes)))

    def swap_last(self, value: Value) -> Value:
        """Return `value` with its last two dims swapped; a run fails if it has only one."""
        if value.rank is None or value.rank < 2:
            # Works for any rank, but is slower than a Transpose, whose perm must list all dims.
            return self.add("Einsum", value, equation="...ij->...ji")
        rank = value.rank
        return self.transpose(value, (*range(rank - 2), rank - 1, rank - 2))

    def flatten(self, value: Value, axis: int) -> Value:
        """Return `value` with two dims: those before `axis` merged, and the others merged."""
        if value.rank == 2 and axis in (1, -1):
            return value
        return self.add("Flatten", value, rank=2, axis=axis)

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """Return `value` with its dims in the order of `perm`; a constant stays a constant."""
        if list(perm) == sorted(perm):
            return value
        # Done here once, rather than with each request.
        if value.array is not None and value.array.ndim == len(perm):
            return self.constant(np.ascontiguousarray(value.array.transpose(perm)))
        return self.add("Transpose", value, rank=len(perm), perm=tuple(perm))

    def unsqueeze(self, value: Value, axes: Sequence[int]) -> Value:
        """Return `value` with a dim of 1 at each of `axes`, which count dims of the result."""
        if not axes:
            return value
        if value.array is not None:
            try:
                return self.constant(np.expand_dims(value.array, tuple(axes)))
            except (ValueError, OverflowError) as error:
                msg = f"{self.place}: a constant has no such dims: {error}"
                raise InvalidConfig(msg) from error
        return self.add("Unsqueeze", value, self.ints(*axes), rank=value.rank_with(len(axes)))

    def cast(self, value: Value, datatype: DataType) -> Value:
        """Return `value` converted to `datatype`."""
        made = self.add("Cast", value, to=onnx_type(datatype))
        return replace(made, datatype=datatype)

    def encode(self, outputs: Mapping[str, Value]) -> bytes:
        """Return the model that computes `outputs`, without unneeded nodes and constants."""
        nodes = self._needed({value.name for value in outputs.values()})
        made = {name for node in nodes for name in node.outputs}
        names: dict[str, str] = {}
        copies: list[OnnxNode] = []
        for name, value in outputs.items():
            if value.name in made and value.name not in names:
                names[value.name] = name
            elif value.name != name:  # else it is an input of the model, under its own name
                source = names.get(value.name, value.name)
                # An output must be made by a node, once: an input, a constant
                # or the same value twice is not.
                copies.append(OnnxNode("Identity", (source,), (name,), {}, f"output '{name}'"))
        nodes = [
            node._replace(
                inputs=tuple(names.get(name, name) for name in node.inputs),
                outputs=tuple(names.get(name, name) for name in node.outputs),
            )
            for node in nodes
        ]
        nodes += copies
        used = {name for node in nodes for name in node.inputs}
        constants = {name: array for name, array in self._constants.items() if name in used}
        return encode_model(
            nodes, constants, self._inputs, [OnnxPort(name, None, None) for name in outputs]
        )

    def _needed(self, wanted: set[str]) -> list[OnnxNode]:
        needed = []
        # Backwards: a node is needed if one behind it is.
        for node in reversed(self._nodes):
            if wanted.intersection(node.outputs):
                wanted.update(node.inputs)
                needed.append(node)
        return needed[::-1]


def _rank_of(op: str, inputs: Sequence[Value | None]) -> int | None:
    """Return the rank of the outputs of `op`, as far as its inputs determine it."""
    ranks = [None if value is None else value.rank for value in inputs] or [None]
    if op not in _BROADCAST:
        return ranks[0]
    known = [rank for rank in ranks if rank is not None]
    return max(known) if len(known) == len(ranks) else ranks[0] or None


def _type_of(op: str, inputs: Sequence[Value | None]) -> DataType | None:
    """Return the type of the outputs of `op` if its inputs determine it."""
    if op in _GIVE_BOOL:
        return DataType.BOOL
    place = 1 if op in ("CastLike", "Where") else 0
    source = inputs[place] if len(inputs) > place else None
    if source is None or (op in _HAVE_OWN_TYPE and op != "Where"):
        return None
    return source.datatype
