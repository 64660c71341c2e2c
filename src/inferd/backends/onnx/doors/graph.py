"""Graphs of ONNX files, read field by field: nodes, attributes, constants and element types.

Field numbers and element types are those of onnx.proto. What a graph's values are is told by a
Scope: one for each graph, that of a subgraph within that of the graph around it.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from inferd.convert.protobuf import BYTES, Malformed, fields, integer, text, varints, view

Array = np.ndarray[Any, Any]

GRAPH, OPSET, FUNCTION = 7, 8, 25  # of a ModelProto
NODE_OF = {GRAPH: 1, FUNCTION: 7}
INPUT, OUTPUT, NAME, OP, ATTRIBUTE, DOMAIN = 1, 2, 3, 4, 5, 7  # of a NodeProto
SUBGRAPHS = (6, 11)  # of an AttributeProto

FLOAT, UINT8, INT32, INT64, STRING, BOOL = 1, 2, 6, 7, 8, 9
"""Some element types of TensorProto."""

_OPSET_DOMAIN, _OPSET_VERSION = 1, 2  # of an OperatorSetIdProto
_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT, _VALUE_INFO = 5, 11, 12, 13  # of a GraphProto
_INT, _TEXT, _TENSOR, _INTS = 3, 4, 5, 8  # of an AttributeProto
_DIMS, _ELEMENT, _INT32_DATA, _INT64_DATA, _TENSOR_NAME, _RAW, _PLACE = 1, 2, 5, 7, 8, 9, 14
_FLOATS = 4  # of a TensorProto, one by one in some files
_DEFAULT_DOMAINS = ("", "ai.onnx")

_DTYPES: dict[int, Any] = {INT32: np.dtype("<i4"), INT64: np.dtype("<i8")}


class Node(NamedTuple):
    """An operator with the names of its inputs ("" for an omitted one) and outputs.

    The attributes are encoded; `domain` is "" for ONNX's own operators.
    """

    op: str
    domain: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, memoryview]

    def number(self, name: str, default: int) -> int:
        """Return an attribute with an integer, `default` if it is absent. Raises Malformed."""
        return _field(self.attributes.get(name), _INT, integer, default)  # type: ignore[no-any-return]

    def numbers(self, name: str) -> list[int]:
        """Return an attribute with integers, [] if it is absent. Raises Malformed."""
        attribute = self.attributes.get(name)
        if attribute is None:
            return []
        return [one for n, _, v in fields(attribute) if n == _INTS for one in varints(v)]

    def text(self, name: str) -> str:
        """Return an attribute with a text, "" if it is absent. Raises Malformed."""
        return _field(self.attributes.get(name), _TEXT, text, "")  # type: ignore[no-any-return]

    def tensor(self, name: str) -> memoryview | None:
        """Return the TensorProto of an attribute, None if it has none. Raises Malformed."""
        return _field(self.attributes.get(name), _TENSOR, view, None)  # type: ignore[no-any-return]

    def input(self, index: int) -> str:
        """Return the name of an input, "" if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def graphs(self) -> dict[str, memoryview]:
        """Return the graphs among the attributes, by the attribute's name. Raises Malformed."""
        found = {
            name: _field(one, SUBGRAPHS[0], view, None) for name, one in self.attributes.items()
        }
        return {name: graph for name, graph in found.items() if graph is not None}


def read_node(data: memoryview) -> Node:
    """Return what a NodeProto holds. Raises Malformed."""
    op = domain = ""
    inputs: list[str] = []
    outputs: list[str] = []
    attributes: dict[str, memoryview] = {}
    for number, kind, value in fields(data):
        if kind != BYTES:
            continue
        if number == INPUT:
            inputs.append(_name(value))
        elif number == OUTPUT:
            outputs.append(_name(value))
        elif number == OP:
            op = _name(value)
        elif number == DOMAIN:
            domain = _name(value)
        elif number == ATTRIBUTE:
            attributes[_field(value, 1, _name, "")] = value
    return Node(op, "" if domain in _DEFAULT_DOMAINS else domain, inputs, outputs, attributes)


def opset_of(model: memoryview) -> int:
    """Return the opset version of ONNX's own operators that a ModelProto imports."""
    version = 0
    for number, kind, value in fields(model):
        if number != OPSET or kind != BYTES:
            continue
        if _field(value, _OPSET_DOMAIN, _name, "") in _DEFAULT_DOMAINS:
            version = _field(value, _OPSET_VERSION, integer, 0)
    return version


def nodes_of(graph: memoryview, field: int = NODE_OF[GRAPH]) -> Iterator[Node]:
    """Yield the nodes of a GraphProto, whose nodes are in `field`. Raises Malformed."""
    for number, kind, value in fields(graph):
        if number == field and kind == BYTES:
            yield read_node(value)


class Scope:
    """The values that nodes of a graph can name: their constants, element types, origins.

    `open_inputs` are the inputs that every request gives, which only the main graph has. `around`
    is the scope of the graph that a subgraph is in.
    """

    def __init__(self, around: "Scope | None" = None) -> None:
        self._around = around
        self._constants: dict[str, memoryview] = {}
        self._types: dict[str, int] = {}
        self._counts: set[str] = set()
        self._own: set[str] = set()
        self.open_inputs: frozenset[str] = frozenset()

    def read(self, graph: memoryview, *, is_main: bool = False) -> None:
        """Note what a GraphProto declares. Raises Malformed."""
        inputs: list[str] = []
        for number, kind, value in fields(graph):
            if kind != BYTES:
                continue
            if number == _INITIALIZER:
                name = _field(value, _TENSOR_NAME, _name, "", _FLOATS)
                self._constants[name] = value
                self._add(name, _field(value, _ELEMENT, integer, 0, _FLOATS))
            elif number in (_GRAPH_INPUT, _GRAPH_OUTPUT, _VALUE_INFO):
                name, element = _value_info(value)
                self._add(name, element)
                if number == _GRAPH_INPUT:
                    inputs.append(name)
        if is_main:
            self.open_inputs = frozenset(inputs) - self._constants.keys()
        for name in inputs:  # a request may override it
            self._constants.pop(name, None)

    def follow(self, node: Node) -> None:
        """Note what the outputs of `node` are. Raises Malformed."""
        types = _output_types(node, self)
        for name, element in zip(node.outputs, types, strict=False):
            if name not in self._types:
                self._add(name, element)
            self._own.add(name)
        if node.domain:
            return
        if node.op == "Constant" and node.outputs:
            tensor = node.tensor("value")
            if tensor is not None:
                self._constants[node.outputs[0]] = tensor
        if node.op in _COUNTS or (node.op in _KEEPING and self.is_count(node.input(0))):
            self._counts.update(node.outputs[:1])

    def element(self, name: str) -> int:
        """Return the element type of a value, 0 if it is not known."""
        if name in self._own or self._around is None:
            return self._types.get(name, 0)
        return self._around.element(name)

    def is_count(self, name: str) -> bool:
        """Return whether a value has counts, such as dims, which are never negative."""
        if name in self._own or self._around is None:
            return name in self._counts
        return self._around.is_count(name)

    def constant(self, name: str) -> Array | None:
        """Return a constant of INT32 or INT64 that the file holds, None for anything else."""
        if name not in self._own and self._around is not None:
            return self._around.constant(name)
        tensor = self._constants.get(name)
        return None if tensor is None else _integers(tensor)

    def rank(self, name: str) -> int | None:
        """Return the number of dims of a constant, None for anything else."""
        if name not in self._own and self._around is not None:
            return self._around.rank(name)
        tensor = self._constants.get(name)
        return None if tensor is None else len(_dims(tensor))

    def _add(self, name: str, element: int) -> None:
        self._own.add(name)
        if element:
            self._types[name] = element


# --- element types ---

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


def _output_types(node: Node, scope: Scope) -> Sequence[int]:
    """Return the element types of a node's outputs, 0 for unknown ones. Raises Malformed."""
    op = node.op
    if node.domain or op.startswith(_OPAQUE):
        return []
    if op in _FIXED:
        return _FIXED[op]
    if op in _BODIES:
        name, skipped = _BODIES[op]
        body = node.graphs().get(name)
        return [] if body is None else _declared_outputs(body)[skipped:]
    if op in ("Constant", "ConstantOfShape"):
        return [_constant_type(node)]
    if op in _NAMED:
        return [node.number(*_NAMED[op])]
    first = scope.element(node.input(_LIKE_INPUT.get(op, 0)))
    if op in _MAYBE_NAMED:
        return [node.number("dtype", first)]
    return [first, *[_MORE.get(op, first)] * (len(node.outputs) - 1)]


def _constant_type(node: Node) -> int:
    tensor = node.tensor("value")
    if tensor is not None:
        return _field(tensor, _ELEMENT, integer, 0)  # type: ignore[no-any-return]
    if node.op == "ConstantOfShape" or "value_float" in node.attributes:
        return FLOAT
    if "value_floats" in node.attributes:
        return FLOAT
    return INT64 if {"value_int", "value_ints"} & node.attributes.keys() else 0


def _declared_outputs(graph: memoryview) -> list[int]:
    outputs = [v for n, kind, v in fields(graph) if n == _GRAPH_OUTPUT and kind == BYTES]
    return [_value_info(one)[1] for one in outputs]


def _value_info(data: memoryview) -> tuple[str, int]:
    """Return the name and element type of a ValueInfoProto, 0 unless it is a tensor's."""
    name = _field(data, 1, _name, "")
    whole = _field(data, 2, view, None)
    tensor = None if whole is None else _field(whole, 1, view, None)
    return name, 0 if tensor is None else _field(tensor, 1, integer, 0)


# --- tensors ---


def _dims(tensor: memoryview) -> list[int]:
    return [one for n, _, v in fields(tensor, _FLOATS) if n == _DIMS for one in varints(v)]


def _integers(tensor: memoryview) -> Array | None:
    """Return the INT32 or INT64 numbers of a TensorProto; None if they are others, or elsewhere."""
    dtype = _DTYPES.get(_field(tensor, _ELEMENT, integer, 0, _FLOATS))
    numbers: list[int] = []
    raw = None
    for number, _, value in fields(tensor, _FLOATS):
        if number == _PLACE and integer(value):
            return None  # in another file
        if number == _RAW:
            raw = view(value)
        elif number in (_INT32_DATA, _INT64_DATA):
            numbers += varints(value)
    if dtype is None:
        return None
    array = np.array(numbers, dtype)
    if raw is not None:
        array = np.frombuffer(raw[: len(raw) // dtype.itemsize * dtype.itemsize], dtype)
    dims = _dims(tensor)
    return array.reshape(dims) if array.size == prod(dims) else None


def _field(data: memoryview | None, number: int, read: Any, default: Any, floats: int = 0) -> Any:
    """Return what `read` makes of the last field `number`, `default` if there is none.

    `floats` is as for `fields`.
    """
    found = default
    for one, _, value in fields(data, floats) if data is not None else ():
        if one == number:
            found = read(value)
    return found


def _name(value: Any) -> str:
    try:
        return bytes(view(value)).decode()
    except UnicodeDecodeError as error:
        msg = "a tensor in it has a name that is no UTF-8"
        raise Malformed(msg) from error
