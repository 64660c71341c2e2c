"""Graph: an ONNX model as far as the flow of its rows has to know it.

Field numbers are those of onnx.proto. Weights are not read: of a constant only its dims count, and,
if it has few elements, the numbers in it, which may be axes or dims of others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inferd.convert.protobuf import (
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

MAX_DEPTH = 100
"""The nesting limit of graphs, the same as that of protobuf's own reader."""

MAX_NODES = 200_000
"""A model with more is not followed."""

_FEW = 64
"""Constants of at most so many elements are read."""

_DTYPES = {1: "<f4", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}
"""TensorProto.DataType -> NumPy's, of the constants that are read."""

Number = int | float


@dataclass(slots=True)
class Constant:
    """A tensor in the file; `numbers` are its elements if they are few, None if not."""

    dims: tuple[int, ...]
    numbers: tuple[Number, ...] | None = None


@dataclass(slots=True)
class RowNode:
    """One operator. ONNX's own domain is ""; attributes are numbers, texts, lists and graphs.

    An attribute of a function's body may be a Reference to one of the function.
    """

    op: str
    domain: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]

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
    """A graph's input: its dims, -1 where one is variable; None if they are not known."""

    name: str
    dims: tuple[int, ...] | None
    first_dim: str = ""


@dataclass(slots=True)
class OnnxGraph:
    """Nodes in the order in which they run."""

    nodes: list[RowNode] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    inputs: list[GraphInput] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


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
    """A ModelProto; functions by domain and name, opset versions by domain."""

    graph: OnnxGraph
    opsets: dict[str, int]
    functions: dict[tuple[str, str], Function]


def read_model(data: bytes | memoryview) -> OnnxFile:
    """Return the model in `data`. Raises Malformed."""
    graph = OnnxGraph()
    opsets: dict[str, int] = {}
    functions: dict[tuple[str, str], Function] = {}
    left = [MAX_NODES]
    for number, _, value in fields(memoryview(data)):
        if number == 7:
            graph = _graph(view(value), 0, left)
        elif number == 8:
            opsets.update([_opset(value)])
        elif number == 25:
            key, function = _function(view(value), left)
            functions[key] = function
    return OnnxFile(graph, opsets, functions)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opset(value: Any) -> tuple[str, int]:
    domain, version = "", 0
    for number, _, one in fields(view(value)):
        if number == 1:
            domain = _domain(text(one))
        elif number == 2:
            version = integer(one)
    return domain, version


def _graph(data: memoryview, depth: int, left: list[int]) -> OnnxGraph:
    if depth >= MAX_DEPTH:
        msg = f"graphs lie in graphs, deeper than {MAX_DEPTH}"
        raise Malformed(msg)
    graph = OnnxGraph()
    for number, _, value in fields(data):
        if number == 1:
            graph.nodes.append(_node(view(value), depth, left))
        elif number == 5:
            name, constant = _tensor(view(value))
            graph.constants[name] = constant
        elif number == 11:
            graph.inputs.append(_port(view(value)))
        elif number == 12:
            graph.outputs.append(_port(view(value)).name)
        elif number == 15:  # of a sparse constant nothing but its being constant is known
            graph.constants[_sparse_name(view(value))] = Constant(())
    return graph


def _node(data: memoryview, depth: int, left: list[int]) -> RowNode:
    left[0] -= 1
    if left[0] < 0:
        msg = f"it has more than {MAX_NODES} operators"
        raise Malformed(msg)

    def attribute(value: Any) -> tuple[str, Any]:
        return _attribute(view(value), depth, left)

    found = gathered(data, {1: text, 2: text, 3: text, 4: text, 5: attribute, 7: text})
    name, op, domain = (_last(found[number], "") for number in (3, 4, 7))
    return RowNode(op, _domain(domain), name, found[1], found[2], dict(found[5]))


def _last(values: list[Any], missing: Any) -> Any:
    """Return the last of the values of a field, which is the one that counts."""
    return values[-1] if values else missing


def _attribute(data: memoryview, depth: int, left: list[int]) -> tuple[str, Any]:
    def graph(value: Any) -> OnnxGraph:
        return _graph(view(value), depth + 1, left)

    single = {2: float32, 3: integer, 4: text, 5: _constant, 6: graph, 21: _reference}
    several = {7: _floats, 8: varints, 9: _text}
    found = gathered(data, {1: text, **single, **several})
    name = _last(found[1], "")
    for number in single:
        if found[number]:
            return name, found[number][-1]
    return name, [one for number in several for some in found[number] for one in some]


def _constant(value: Any) -> Constant:
    return _tensor(view(value))[1]


def _reference(value: Any) -> Reference:
    return Reference(text(value))


def _floats(value: Any) -> list[float]:
    numbers: list[float] = float32s(value).tolist()
    return numbers


def _text(value: Any) -> list[str]:
    return [text(value)]


def _tensor(data: memoryview) -> tuple[str, Constant]:
    # 4, 5, 7 and 10 list floats, int32, int64 and doubles, 9 has bytes; with 14, all are elsewhere.
    found = gathered(
        data, {1: varints, 2: integer, 4: _some, 5: _some, 7: _some, 8: text, 9: view, 14: integer}
    )
    name, kind, raw = (_last(found[number], None) for number in (8, 2, 9))
    constant = Constant(tuple(dim for some in found[1] for dim in some))
    count = 1
    for dim in constant.dims:
        count *= dim
    if _last(found[14], 0) or count > _FEW or kind not in _DTYPES:
        return name or "", constant
    if raw is not None and len(raw) == count * np.dtype(_DTYPES[kind]).itemsize:
        constant.numbers = tuple(np.frombuffer(content(raw), _DTYPES[kind]).tolist())
    elif raw is None and kind in _LISTED:
        field, read = _LISTED[kind]
        listed = [number for some in found[field] for number in read(some)]
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
            port.name = text(value)
        elif number == 2:
            for kind, _, of_type in fields(view(value)):
                if kind == 1:  # a tensor; there are sequences, maps and optionals, too
                    _read_dims(port, view(of_type))
    return port


def _read_dims(port: GraphInput, tensor: memoryview) -> None:
    for number, _, shape in fields(tensor):
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
            dims.append(size if size >= 0 else -1)
            names.append(called)
        port.dims, port.first_dim = tuple(dims), names[0] if names else ""


def _function(data: memoryview, left: list[int]) -> tuple[tuple[str, str], Function]:
    name, domain = "", ""
    function = Function([], [], [], {}, {})
    for number, _, value in fields(data):
        if number == 1:
            name = text(value)
        elif number == 4:
            function.inputs.append(text(value))
        elif number == 5:
            function.outputs.append(text(value))
        elif number == 7:
            function.nodes.append(_node(view(value), 0, left))
        elif number == 9:
            function.opsets.update([_opset(value)])
        elif number == 10:
            domain = _domain(text(value))
        elif number == 11:
            attribute, found = _attribute(view(value), 0, left)
            function.defaults[attribute] = found
    return (domain, name), function


def bound(node: RowNode, given: Mapping[str, Any]) -> RowNode:
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
