"""Scope: what the values of an ONNX graph are: constants, inputs, types of elements, counts.

There is one for each graph, that of a subgraph within that of the graph around it.
"""

from collections.abc import Iterable, Sequence

from inferd.formats.onnx_graph import INT32, INT64, Constant, OnnxGraph, RowNode
from inferd.tensor.array import Array

FLOAT, UINT8, BOOL = 1, 2, 9
"""Some types of elements, as TensorProto.DataType numbers them."""


class Scope:
    """The values that nodes of a graph can name: their constants, element types, origins.

    `open_inputs` are the inputs that every request gives, which only the main graph has, as their
    `declared` dims: -1 where one is variable, None if they are not known. `around`
    is the scope of the graph that a subgraph is in. A function is `given` its inputs.
    """

    def __init__(self, around: "Scope | None" = None, given: Iterable[str] = ()) -> None:
        self._around = around
        self._constants: dict[str, Constant] = {}
        self._types: dict[str, int] = {}
        self._counts: set[str] = set()
        # A function may be called with anything, so the worst is assumed of its inputs.
        self._valued: set[str] = set(given)
        self._grown: set[str] = set(given)
        self._own: set[str] = set()
        self._producers: dict[str, RowNode] = {}
        self.declared: dict[str, tuple[int, ...] | None] = {}
        self.open_inputs: frozenset[str] = frozenset()

    def read(self, graph: OnnxGraph, *, is_main: bool = False) -> None:
        """Note what a graph declares."""
        inputs = [port.name for port in graph.inputs]
        self._own.update(graph.elements, inputs, graph.outputs, graph.constants)
        self._types.update((name, one) for name, one in graph.elements.items() if one)
        if is_main:
            self.declared = {port.name: port.dims for port in graph.inputs}
            self.open_inputs = frozenset(inputs) - graph.constants.keys()
        # Inputs of a subgraph are the state of a Loop or Scan, which may come from anywhere.
        self._valued.update(inputs)
        self._constants.update(graph.constants)
        for name in inputs:  # a request may override it
            self._constants.pop(name, None)

    def follow(self, node: RowNode) -> None:
        """Note what the outputs of `node` are."""
        types = _output_types(node, self)
        for name, element in zip(node.outputs, types, strict=False):
            # What the file declares in value_info counts more than what is followed here.
            if element:
                self._types.setdefault(name, element)
            self._own.add(name)
        self._producers.update(dict.fromkeys(node.outputs, node))
        self._follow_values(node)
        if node.domain:
            return
        if node.op == "Constant" and node.outputs:
            tensor = node.attributes.get("value")
            if isinstance(tensor, Constant):
                self._constants[node.outputs[0]] = tensor
        if node.op in _COUNTS or (node.op in _KEEPING and self.is_count(node.input(0))):
            self._counts.update(node.outputs[:1])

    def _of(self, name: str) -> "Scope":
        """Return the innermost scope that has a value of that name, the outermost if none has."""
        scope = self
        while name not in scope._own and scope._around is not None:
            scope = scope._around
        return scope

    def element(self, name: str) -> int:
        """Return the element type of a value, 0 if it is not known."""
        return self._of(name)._types.get(name, 0)

    def is_count(self, name: str) -> bool:
        """Return whether a value has counts, such as dims, which are never negative."""
        return name in self._of(name)._counts

    def is_valued(self, name: str) -> bool:
        """Return whether a value depends on the elements of inputs, not on their dims alone."""
        return name in self._of(name)._valued

    def _is_grown(self, name: str) -> bool:
        """Return whether the dims of a value depend on the elements of inputs."""
        return name in self._of(name)._grown

    def _follow_values(self, node: RowNode) -> None:
        has_graph = any(isinstance(one, OnnxGraph) for one in node.attributes.values())
        # What a subgraph captures is not among the node's inputs: it counts as depending on all.
        is_valued = has_graph or any(self.is_valued(name) for name in node.inputs)
        is_grown = has_graph or any(self._is_grown(name) for name in node.inputs)
        own = not node.domain
        if own and node.op in ("Shape", "Size"):
            # The dims of a tensor become values; their number, the rank, is fixed by the graph.
            is_valued, is_grown = is_grown, False
        elif own and node.op in _MAKING:
            is_grown = is_grown or any(
                self.is_valued(name) for name in node.inputs[_MAKING[node.op] :]
            )
        if is_valued:
            self._valued.update(node.outputs)
        if is_grown:
            self._grown.update(node.outputs)

    def constant(self, name: str) -> Array | None:
        """Return a constant of INT32 or INT64 that the file holds, None for anything else.

        Raises Malformed.
        """
        tensor = self._of(name)._constants.get(name)
        return None if tensor is None else tensor.integers()

    def producer(self, name: str) -> RowNode | None:
        """Return the node of this graph that makes a value, None for any other value."""
        return self._producers.get(name)

    def dims(self, name: str) -> tuple[int, ...] | None:
        """Return the dims of a constant, None for anything else."""
        tensor = self._of(name)._constants.get(name)
        return None if tensor is None else tensor.dims


_MAKING = {
    **dict.fromkeys(("AffineGrid", "CenterCropPad", "Col2Im", "Expand", "OneHot", "Pad"), 1),
    **dict.fromkeys(("MaxUnpool", "Resize", "Tile", "Upsample"), 1),
    **dict.fromkeys(("ConstantOfShape", "Range", "HannWindow", "HammingWindow"), 0),
    "BlackmanWindow": 0,
}
"""Operator whose inputs from that index on tell how much it makes."""

_COUNTS = ("Shape", "Size", "NonZero")
_KEEPING = ("Gather", "Slice", "Squeeze", "Unsqueeze", "Identity", "Reshape", "ReduceMin")
"""Operators that give counts, and those that give counts if they take some."""

_INDICES = (*_COUNTS, "ArgMax", "ArgMin", "NonMaxSuppression")
_TRUTHS = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "Not")
_FIXED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_INDICES, (INT64,)),
    **dict.fromkeys((*_TRUTHS, "IsNaN", "IsInf", "RegexFullMatch"), (BOOL,)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), (INT32,)),
    "DynamicQuantizeLinear": (UINT8, FLOAT, UINT8),
}
"""Operator -> the types of its outputs, whatever it takes."""

_LIKE_INPUT = {
    "CastLike": 1,
    "DequantizeLinear": 1,
    "OneHot": 2,
    "QuantizeLinear": 2,
    "Where": 1,
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), 7),
}
"""Operator -> the index of the input that has the type of its output, if not the first."""

_WINDOWS = ("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix")
_NAMED = {
    "Cast": ("to", 0),
    "Multinomial": ("dtype", INT32),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), ("dtype", FLOAT)),
    **dict.fromkeys(_WINDOWS, ("output_datatype", FLOAT)),
}
"""Operator -> the attribute with the type of its output, and what it is if that is absent."""

_MAYBE_NAMED = ("Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike")
_MORE = {"Dropout": BOOL, "MaxPool": INT64, "TopK": INT64, "Unique": INT64}
"""Operator -> the type of its outputs after the first."""

_BODIES = {"If": ("then_branch", 0), "Loop": ("body", 1), "Scan": ("body", 0)}
"""Operator -> its subgraph that declares what it gives, after how many outputs of other use."""

_OPAQUE = ("Sequence", "Optional", "SplitTo", "ConcatFrom", "ImageDecoder")


def _output_types(node: RowNode, scope: Scope) -> Sequence[int]:
    """Return the element types of a node's outputs, 0 for unknown ones."""
    op = node.op
    if node.domain or op.startswith(_OPAQUE):
        return []
    if op in _FIXED:
        return _FIXED[op]
    if op in _BODIES:
        name, skipped = _BODIES[op]
        body = node.attributes.get(name)
        if not isinstance(body, OnnxGraph):
            return []
        return [body.elements.get(one, 0) for one in body.outputs[skipped:]]
    if op in ("Constant", "ConstantOfShape"):
        return [_constant_type(node)]
    if op in _NAMED:
        return [node.number(*_NAMED[op])]
    first = scope.element(node.input(_LIKE_INPUT.get(op, 0)))
    if op in _MAYBE_NAMED:
        return [node.number("dtype", first)]
    return [first, *[_MORE.get(op, first)] * (len(node.outputs) - 1)]


def _constant_type(node: RowNode) -> int:
    tensor = node.attributes.get("value")
    if isinstance(tensor, Constant):
        return tensor.element
    if node.op == "ConstantOfShape" or "value_float" in node.attributes:
        return FLOAT
    if "value_floats" in node.attributes:
        return FLOAT
    return INT64 if {"value_int", "value_ints"} & node.attributes.keys() else 0
