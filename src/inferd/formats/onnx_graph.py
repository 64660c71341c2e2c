"""Graph: what an ONNX file holds: operators, attributes, constants and types of elements.

Field numbers are those of onnx.proto. Weights are not read: of a constant there are its dims, and,
if it has few elements, the numbers in it, which may be axes or dims of others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from inferd.formats.protobuf import (
    Malformed,
    content,
    fields,
    float32,
    float32s,
    gathered,
    integer,
    text,
    varints,
    view,
)
from inferd.tensor.array import Array

MAX_DEPTH = 100
"""The nesting limit of graphs, the same as that of protobuf's own reader."""

GRAPH, FUNCTION, _OPSET = 7, 25, 8
"""Fields of a ModelProto."""

GRAPH_NODE, FUNCTION_NODE = 1, 7
"""The field with the operators of a graph, and of a function."""

INPUT, OUTPUT, NAME, ATTRIBUTE = 1, 2, 3, 5
"""Fields of a NodeProto."""

SUBGRAPH = 6
"""The field of an attribute with a graph."""

_FEW = 64
"""Constants of at most so many elements are read."""

_DTYPES = {1: "<f4", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}
"""TensorProto.DataType -> NumPy's, of the constants that are read."""

Number = int | float

_NOTHING = memoryview(b"")

INT32, INT64 = 6, 7
"""TensorProto.DataType of the integers that `Constant.integers` reads."""


@dataclass(slots=True)
class Constant:
    """A tensor in the file; `numbers` are its elements if they are few, None if not.

    `element` is the type of its elements, as TensorProto.DataType numbers them, 0 if it is not
    known; `data` is the encoded TensorProto.
    """

    dims: tuple[int, ...]
    numbers: tuple[Number, ...] | None = None
    element: int = 0
    data: memoryview = _NOTHING

    def integers(self) -> Array | None:
        """Return the INT32 or INT64 numbers; None if they are others, or elsewhere.

        Raises Malformed.
        """
        if self.element not in (INT32, INT64) or min(self.dims, default=0) < 0:
            return None
        array = _elements(self.data, self.element, prod(self.dims))
        return None if array is None else array.reshape(self.dims)


@dataclass(slots=True)
class RowNode:
    """One operator. ONNX's own domain is ""; attributes are numbers, texts, lists and graphs.

    An input that is left out is called "". An attribute of a function's body may be a Reference to
    one of the function. `data` is the encoded NodeProto.
    """

    op: str
    domain: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    data: memoryview = _NOTHING

    def input(self, index: int) -> str:
        """Return the name of an input, "" if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def number(self, name: str, default: int) -> int:
        """Return an attribute with an integer, `default` if it is absent."""
        value = self.attributes.get(name)
        return value if isinstance(value, int) else default

    def numbers(self, name: str) -> list[int]:
        """Return an attribute with integers, [] if it is absent."""
        values = self.attributes.get(name)
        return [one for one in values if isinstance(one, int)] if isinstance(values, list) else []

    def text(self, name: str) -> str:
        """Return an attribute with a text, "" if it is absent."""
        value = self.attributes.get(name)
        return value if isinstance(value, str) else ""

    def __str__(self) -> str:
        """Return operator and name, as they stand in error texts."""
        named = self.name or next(filter(None, self.outputs), "")
        return f"{self.op} '{named}'" if named else self.op


@dataclass(frozen=True, slots=True)
class Reference:
    """The value that the call of a function gives the attribute `name`."""

    name: str


@dataclass(slots=True)
class GraphInput:
    """A graph's input, or output: its dims, -1 where one is variable; None if they are not known.

    `element` is the type of its elements, 0 unless it is a tensor. One that is no tensor is a
    sequence, a map or an optional.
    """

    name: str
    dims: tuple[int, ...] | None
    first_dim: str = ""
    element: int = 0
    is_tensor: bool = True


@dataclass(slots=True)
class OnnxGraph:
    """Nodes in the order in which they run; `elements` are the types that values have.

    `given` are its outputs as they are declared, by the same names as `outputs`; `scalars` are its
    inputs and outputs that are declared without dims.
    """

    nodes: list[RowNode] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    inputs: list[GraphInput] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    given: list[GraphInput] = field(default_factory=list)
    elements: dict[str, int] = field(default_factory=dict)
    scalars: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Function:
    """A function of the model; `defaults` are attributes that a call may leave out."""

    inputs: list[str]
    outputs: list[str]
    nodes: list[RowNode]
    opsets: dict[str, int]
    defaults: dict[str, Any]


@dataclass(slots=True)
class OnnxFile:
    """A ModelProto; functions by domain and name, opset versions by domain.

    `size` is how many nodes its graphs and functions have.
    """

    graph: OnnxGraph
    opsets: dict[str, int]
    functions: dict[tuple[str, str], Function]
    size: int = 0


_NEWEST = 1000
"""The opset of ONNX's own operators in a file that names none: a runtime takes its newest."""


def read_model(data: bytes | memoryview) -> OnnxFile:
    """Return the model in `data`. Raises Malformed."""
    reader = _Reader()
    readers = {GRAPH: reader.graph, _OPSET: _opset, FUNCTION: reader.function}
    found = gathered(memoryview(data), readers)
    functions: dict[tuple[str, str], Function] = {}
    for key, function in found[FUNCTION]:
        # Which one a runtime takes is not specified, and only one would have been looked at.
        if key in functions:
            raise Malformed(f"it has two functions '{key[1]}' of the domain '{key[0]}'")
        functions[key] = function
    # protobuf would merge the two messages, and what runs would be neither of those checked.
    if len(found[GRAPH]) > 1:
        raise Malformed(f"it has {len(found[GRAPH])} graphs")
    graph = _last(found[GRAPH], OnnxGraph())
    return OnnxFile(graph, {"": _NEWEST, **dict(found[_OPSET])}, functions, reader.size)


def has_external_data(data: bytes | memoryview) -> bool:
    """Tell whether tensors of a ModelProto are in other files, or whether that cannot be told."""
    try:
        return _is_elsewhere(memoryview(data), "model")
    # A file of nothing but graphs in graphs, thousands deep, is none that ONNX Runtime loads.
    except (Malformed, RecursionError):
        return True


# Message -> the fields that lead to its tensors, and the message in each.
_TO_TENSORS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse",
        23: "sparse",
    },
    "sparse": {1: "tensor", 2: "tensor"},
}


def _is_elsewhere(data: memoryview, kind: str) -> bool:
    if kind == "tensor":
        # external_data, or data_location that is not DEFAULT.
        every = fields(data, floats=4)
        return any(number == 13 or (number == 14 and bool(value)) for number, _, value in every)
    inside = _TO_TENSORS[kind]
    return any(
        _is_elsewhere(view(value), inside[number])
        for number, _, value in fields(data)
        if number in inside
    )


def _domain(name: str) -> str:
    # The two names of ONNX's own domain (onnx.proto, OperatorSetIdProto).
    return "" if name == "ai.onnx" else name


def _opset(value: Any) -> tuple[str, int]:
    found = gathered(view(value), {1: text, 2: integer})
    return _domain(_last(found[1], "")), _last(found[2], 0)


def _last(values: list[Any], missing: Any) -> Any:
    """Return the last of the values of a field, which is the one that counts."""
    return values[-1] if values else missing


class _Reader:
    """Reads the messages that lie in one another, and counts the nodes of all: `size`."""

    def __init__(self) -> None:
        self.size = 0
        self._depth = 0

    def graph(self, value: Any) -> OnnxGraph:
        """Read a GraphProto."""
        if self._depth >= MAX_DEPTH:
            raise Malformed(f"graphs lie in graphs, deeper than {MAX_DEPTH}")
        self._depth += 1
        ports = dict.fromkeys((11, 12, 13), _port)
        found = gathered(view(value), {GRAPH_NODE: self.node, 5: _tensor, 15: _sparse, **ports})
        self._depth -= 1
        inputs, outputs, inner = (found[number] for number in ports)
        elements = {name: constant.element for name, constant in found[5]}
        elements |= {one.name: one.element for one in (*inputs, *outputs, *inner) if one.element}
        return OnnxGraph(
            found[GRAPH_NODE],
            dict(found[5] + found[15]),
            inputs,
            [port.name for port in outputs],
            outputs,
            elements,
            {port.name for port in (*inputs, *outputs) if port.dims == ()},
        )

    def function(self, value: Any) -> tuple[tuple[str, str], Function]:
        """Read a FunctionProto; return its domain and name, too."""
        self._depth += 1
        read = {1: text, 4: _name, 5: _name, 9: _opset, 10: text, 11: self.attribute}
        found = gathered(view(value), {FUNCTION_NODE: self.node, **read})
        self._depth -= 1
        key = _domain(_last(found[10], "")), _last(found[1], "")
        nodes, opsets, defaults = found[FUNCTION_NODE], dict(found[9]), dict(found[11])
        return key, Function(found[4], found[5], nodes, opsets, defaults)

    def node(self, value: Any) -> RowNode:
        """Read a NodeProto."""
        self.size += 1
        data = view(value)
        names = dict.fromkeys((INPUT, OUTPUT, 4, 7), _name)
        found = gathered(data, {**names, NAME: text, ATTRIBUTE: self.attribute})
        name, op, domain = (_last(found[number], "") for number in (NAME, 4, 7))
        attributes = dict(found[ATTRIBUTE])
        if len(attributes) < len(found[ATTRIBUTE]):
            raise Malformed(f"an operator {op} has two attributes of one name")
        return RowNode(op, _domain(domain), name, found[INPUT], found[OUTPUT], attributes, data)

    def attribute(self, value: Any) -> tuple[str, Any]:
        """Read an AttributeProto; return its name and value."""
        single = {2: float32, 3: integer, 4: text, 5: _constant, SUBGRAPH: self.graph}
        several = {7: _floats, 8: varints, 9: _text}
        found = gathered(view(value), {1: _name, 20: integer, 21: text, **single, **several})
        name = _last(found[1], "")
        if len(found[SUBGRAPH]) > 1:
            raise Malformed(f"the attribute '{name}' has two graphs")
        # ref_attr_name: the value comes from the function's call, whatever else is written here.
        if found[21]:
            return name, Reference(found[21][-1])
        # Old files do not say which field counts, and some writers leave out one with a 0.
        kind = _FIELD_OF.get(_last(found[20], 0), 0)
        for number in (kind,) if kind in single else single:
            if found[number]:
                return name, found[number][-1]
        if kind in single:
            return name, _ZEROS.get(kind)
        return name, [one for number in several for some in found[number] for one in some]


_FIELD_OF = {1: 2, 2: 3, 3: 4, 4: 5, 5: SUBGRAPH, 6: 7, 7: 8, 8: 9}
"""AttributeProto.AttributeType -> the field with the value."""

_ZEROS = {2: 0.0, 3: 0, 4: ""}


def _constant(value: Any) -> Constant:
    return _tensor(value)[1]


def _name(value: Any) -> str:
    """Return a name, which must be UTF-8 so that it can be written again."""
    try:
        return content(value).decode()
    except UnicodeDecodeError as error:
        raise Malformed("a tensor in it has a name that is no UTF-8") from error


def _floats(value: Any) -> list[float]:
    numbers: list[float] = float32s(value).tolist()
    return numbers


def _text(value: Any) -> list[str]:
    return [text(value)]


def _tensor(value: Any) -> tuple[str, Constant]:
    data = view(value)
    found = gathered(data, {1: varints, 2: integer, 8: _name})
    dims = tuple(dim for some in found[1] for dim in some)
    constant = Constant(dims, element=_last(found[2], 0), data=data)
    if constant.element in _DTYPES and prod(dims) <= _FEW:
        array = _elements(data, constant.element, prod(dims))
        constant.numbers = None if array is None else tuple(array.tolist())
    return _last(found[8], ""), constant


def _elements(data: memoryview, element: int, count: int) -> Array | None:
    """Return the numbers of a TensorProto; None if there are not `count`, or they are elsewhere."""

    # A varint has ten bytes at most, so this holds all the numbers that are wanted.
    def some(value: Any) -> Any:
        return value if isinstance(value, int) else value[: 10 * max(count, 1)]

    found = gathered(data, {4: some, 5: some, 7: some, 9: view, 14: integer}, floats=4)
    # 14 is data_location: 1 means that the numbers are in another file.
    if _last(found[14], 0):
        return None
    dtype = np.dtype(_DTYPES[element])
    if found[9]:
        # Cut to whole elements; that there are too few shows in the comparison below.
        raw = found[9][-1]
        array = np.frombuffer(raw[: len(raw) // dtype.itemsize * dtype.itemsize], dtype)
    elif element in _LISTED:
        field, numbers = _LISTED[element]
        listed = [one for value in found[field] for one in numbers(value)]
        # In steps, as an INT32 may be written with more bits, which C cuts off.
        array = np.array(listed).astype(dtype)
    else:
        return None
    return array if array.size == count else None


_LISTED: dict[int, tuple[int, Callable[[Any], Any]]] = {
    1: (4, _floats),
    6: (5, varints),
    7: (7, varints),
    9: (5, varints),
}
"""TensorProto.DataType -> the field that lists the numbers, and how to read it."""


def _sparse(value: Any) -> tuple[str, Constant]:
    """Return the name of a sparse constant, of which nothing but its being constant is known."""
    values = gathered(view(value), {1: _tensor})[1]
    return values[0][0] if values else "", Constant(())


def _port(value: Any) -> GraphInput:
    found = gathered(view(value), {1: _name, 2: view})
    # 1 is a tensor_type; 4, 5 and 9 are sequence_type, map_type and optional_type of a TypeProto.
    kinds = gathered(_merged(found[2]), dict.fromkeys((1, 4, 5, 9), view))
    tensor = gathered(_merged(kinds[1]), {1: integer, 2: view})
    port = GraphInput(_last(found[1], ""), None, element=_last(tensor[1], 0))
    port.is_tensor = not (kinds[4] or kinds[5] or kinds[9])
    if tensor[2]:
        sides = gathered(tensor[2][-1], {1: _dim})[1]
        port.dims = tuple(size for size, _ in sides)
        port.first_dim = sides[0][1] if sides else ""
    return port


def _dim(value: Any) -> tuple[int, str]:
    found = gathered(view(value), {1: integer, 2: text})
    # Some exporters write -1, or less, for a dim that may vary.
    return max(_last(found[1], -1), -1), _last(found[2], "")


def _merged(messages: list[memoryview]) -> memoryview:
    """Return the parts of one message, which are one behind another in protobuf."""
    return memoryview(b"".join(messages))


def bound(node: RowNode, given: Mapping[str, object]) -> RowNode:
    """Return `node` of a function's body with the attributes of the call, `given`."""
    if not any(isinstance(one, Reference) for one in node.attributes.values()):
        return node
    attributes = {}
    for name, one in node.attributes.items():
        if not isinstance(one, Reference):
            attributes[name] = one
        elif one.name in given:
            attributes[name] = given[one.name]
    return RowNode(node.op, node.domain, node.name, node.inputs, node.outputs, attributes)
