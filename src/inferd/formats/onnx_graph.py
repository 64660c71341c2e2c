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
        if self.element not in (INT32, INT64):
            return None
        found = gathered(self.data, {5: varints, 7: varints, 9: content, 14: integer})
        if _last(found[14], 0):
            return None
        dtype = np.dtype(_DTYPES[self.element])
        raw: bytes | None = _last(found[9], None)
        if raw is None:
            listed = found[_LISTED[self.element][0]]
            array = np.array([one for some in listed for one in some], dtype)
        else:
            # Cut to whole elements; that there are too few shows in the comparison below.
            array = np.frombuffer(raw[: len(raw) // dtype.itemsize * dtype.itemsize], dtype)
        fits = array.size == prod(self.dims) and min(self.dims, default=0) >= 0
        return array.reshape(self.dims) if fits else None


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


def read_model(data: bytes | memoryview) -> OnnxFile:
    """Return the model in `data`. Raises Malformed."""
    count = [0]
    graphs: list[OnnxGraph] = []
    opsets: dict[str, int] = {}
    functions: dict[tuple[str, str], Function] = {}
    for number, _, value in fields(memoryview(data)):
        if number == GRAPH:
            graphs.append(_graph(view(value), 0, count))
        elif number == _OPSET:
            opsets.update([_opset(value)])
        elif number == FUNCTION:
            key, function = _function(view(value), count)
            # Which one a runtime takes is not specified, and only one would have been looked at.
            if key in functions:
                msg = f"it has two functions '{key[1]}' of the domain '{key[0]}'"
                raise Malformed(msg)
            functions[key] = function
    # protobuf would merge the two messages, and what runs would be neither of those checked.
    if len(graphs) > 1:
        msg = f"it has {len(graphs)} graphs"
        raise Malformed(msg)
    return OnnxFile(graphs[0] if graphs else OnnxGraph(), opsets, functions, count[0])


def _domain(name: str) -> str:
    # The two names of ONNX's own domain (onnx.proto, OperatorSetIdProto).
    return "" if name == "ai.onnx" else name


def _opset(value: Any) -> tuple[str, int]:
    domain, version = "", 0
    for number, _, one in fields(view(value)):
        if number == 1:
            domain = _domain(text(one))
        elif number == 2:
            version = integer(one)
    return domain, version


def _graph(data: memoryview, depth: int, count: list[int]) -> OnnxGraph:
    if depth >= MAX_DEPTH:
        msg = f"graphs lie in graphs, deeper than {MAX_DEPTH}"
        raise Malformed(msg)
    graph = OnnxGraph()
    for number, _, value in fields(data):
        if number == GRAPH_NODE:
            graph.nodes.append(_node(view(value), depth, count))
        elif number == 5:
            name, constant = _tensor(view(value))
            graph.constants[name] = constant
            graph.elements[name] = constant.element
        elif number in (11, 12, 13):
            _take_port(graph, number, _port(view(value)))
        elif number == 15:  # of a sparse constant nothing but its being constant is known
            graph.constants[_sparse_name(view(value))] = Constant(())
    return graph


def _take_port(graph: OnnxGraph, number: int, port: GraphInput) -> None:
    """Note an input, an output or another value of `graph`, as the field `number` says."""
    if port.element:
        graph.elements[port.name] = port.element
    if number == 11:
        graph.inputs.append(port)
    elif number == 12:
        graph.outputs.append(port.name)
        graph.given.append(port)
    if port.dims == () and number != 13:
        graph.scalars.add(port.name)


def _node(data: memoryview, depth: int, count: list[int]) -> RowNode:
    # A list of one, as all graphs of the file are counted together.
    count[0] += 1

    def attribute(value: Any) -> tuple[str, Any]:
        return _attribute(view(value), depth, count)

    found = gathered(
        data, {INPUT: _name, OUTPUT: _name, NAME: text, 4: _name, ATTRIBUTE: attribute, 7: _name}
    )
    name, op, domain = (_last(found[number], "") for number in (NAME, 4, 7))
    attributes = dict(found[ATTRIBUTE])
    if len(attributes) < len(found[ATTRIBUTE]):
        msg = f"an operator {op} has two attributes of one name"
        raise Malformed(msg)
    return RowNode(op, _domain(domain), name, found[INPUT], found[OUTPUT], attributes, data)


def _last(values: list[Any], missing: Any) -> Any:
    """Return the last of the values of a field, which is the one that counts."""
    return values[-1] if values else missing


def _attribute(data: memoryview, depth: int, count: list[int]) -> tuple[str, Any]:
    def graph(value: Any) -> OnnxGraph:
        return _graph(view(value), depth + 1, count)

    single = {2: float32, 3: integer, 4: text, 5: _constant, SUBGRAPH: graph, 21: _reference}
    several = {7: _floats, 8: varints, 9: _text}
    found = gathered(data, {1: _name, 20: integer, **single, **several})
    name = _last(found[1], "")
    if len(found[SUBGRAPH]) > 1:
        msg = f"the attribute '{name}' has two graphs"
        raise Malformed(msg)
    # ref_attr_name: the value comes from the function's call, whatever else is written here.
    if found[21]:
        return name, found[21][-1]
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
    return _tensor(view(value))[1]


def _reference(value: Any) -> Reference:
    return Reference(text(value))


def _name(value: Any) -> str:
    """Return a name, which must be UTF-8 so that it can be written again."""
    try:
        return content(value).decode()
    except UnicodeDecodeError as error:
        msg = "a tensor in it has a name that is no UTF-8"
        raise Malformed(msg) from error


def _floats(value: Any) -> list[float]:
    numbers: list[float] = float32s(value).tolist()
    return numbers


def _text(value: Any) -> list[str]:
    return [text(value)]


def _tensor(data: memoryview) -> tuple[str, Constant]:
    # 4, 5, 7 and 10 list floats, int32, int64 and doubles, 9 has bytes; with 14, all are elsewhere.
    read = {1: varints, 2: integer, 4: _some, 5: _some, 7: _some, 8: _name, 9: view, 14: integer}
    found = gathered(data, read, floats=4)
    name, kind, raw = (_last(found[number], None) for number in (8, 2, 9))
    dims = tuple(dim for some in found[1] for dim in some)
    constant = Constant(dims, element=kind or 0, data=data)
    count = prod(dims)
    # 14 is data_location: 1 means that the numbers are in another file.
    if _last(found[14], 0) or count > _FEW or kind not in _DTYPES:
        return name or "", constant
    if raw is not None and len(raw) == count * np.dtype(_DTYPES[kind]).itemsize:
        constant.numbers = tuple(np.frombuffer(content(raw), _DTYPES[kind]).tolist())
    elif raw is None and kind in _LISTED:
        field, numbers = _LISTED[kind]
        listed = [number for some in found[field] for number in numbers(some)]
        if len(listed) == count:
            constant.numbers = tuple(listed)
    return name or "", constant


_LISTED: dict[int, tuple[int, Callable[[Any], Any]]] = {
    1: (4, _floats),
    6: (5, varints),
    7: (7, varints),
    9: (5, varints),
}
"""TensorProto.DataType -> the field that lists the numbers, and how to read it."""


def _some(value: Any) -> Any:
    """Return a field that lists numbers, without those beyond what is read of a constant."""
    # A varint has ten bytes at most, so this holds all the numbers that are read.
    return value if isinstance(value, int) else value[: 10 * _FEW]


def _sparse_name(data: memoryview) -> str:
    for number, _, value in fields(data):
        if number == 1:
            return _tensor(view(value))[0]
    return ""


def _port(data: memoryview) -> GraphInput:
    port = GraphInput("", None)
    for number, _, value in fields(data):
        if number == 1:
            port.name = _name(value)
        elif number == 2:
            for kind, _, of_type in fields(view(value)):
                if kind == 1:
                    _read_tensor_type(port, view(of_type))
                # sequence_type, map_type and optional_type of a TypeProto.
                elif kind in (4, 5, 9):
                    port.is_tensor = False
    return port


def _read_tensor_type(port: GraphInput, tensor: memoryview) -> None:
    for number, _, shape in fields(tensor):
        if number == 1:
            port.element = integer(shape)
        if number != 2:
            continue
        dims, names = [], []
        for _, _, dim in fields(view(shape)):
            size, called = -1, ""
            for which, _, value in fields(view(dim)):
                if which == 1:
                    size = integer(value)
                elif which == 2:
                    called = text(value)
            # Some exporters write -1, or less, for a dim that may vary.
            dims.append(size if size >= 0 else -1)
            names.append(called)
        port.dims, port.first_dim = tuple(dims), names[0] if names else ""


def _function(data: memoryview, count: list[int]) -> tuple[tuple[str, str], Function]:
    name, domain = "", ""
    function = Function([], [], [], {}, {})
    for number, _, value in fields(data):
        if number == 1:
            name = text(value)
        elif number == 4:
            function.inputs.append(_name(value))
        elif number == 5:
            function.outputs.append(_name(value))
        elif number == FUNCTION_NODE:
            function.nodes.append(_node(view(value), 0, count))
        elif number == 9:
            function.opsets.update([_opset(value)])
        elif number == 10:
            domain = _domain(text(value))
        elif number == 11:
            attribute, found = _attribute(view(value), 0, count)
            function.defaults[attribute] = found
    return (domain, name), function


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
