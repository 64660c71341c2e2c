"""Guard: shuts the doors of an ONNX model as it loads, and rewrites it in memory if it has to.

A door is an operator that ends the process of ONNX Runtime for some operands (door.py). All others
are left as they are; a model without a computed operand of a door is not rewritten at all.

InstanceNormalization is one that reads out of bounds if images have no pixels. A model with it is
changed to give it images of one dim, through a Reshape that fails if there is nothing to reshape;
the results are the same. Field numbers are those of onnx.proto.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inferd.backends.onnx.doors.check import Check
from inferd.backends.onnx.doors.door import DOORS, shut
from inferd.backends.onnx.doors.scope import Scope
from inferd.backends.onnx.doors.shutting import Shutting
from inferd.errors import InvalidConfig
from inferd.formats import onnx_graph
from inferd.formats.onnx_graph import OnnxFile, OnnxGraph, RowNode, read_model
from inferd.formats.onnx_model import Chunks, OnnxNode, encode_node, onnx_type
from inferd.formats.protobuf import BYTES, Malformed, any_field, bytes_field, fields, text_field
from inferd.tensor.dtype import DataType

_log = logging.getLogger(__name__)

GUARDED = "InstanceNormalization"

MOST = 1 << 28
"""The elements that an operator may make of a request's values: 2 GiB of INT64, as many bytes as a
gRPC message has at most."""

_FIRST_OPSET = 7
"""ONNX Runtime has few operators of older opsets, and not those inserted here."""

Rewrite = Callable[[int, memoryview], Chunks]


class Guarded(NamedTuple):
    """A model whose doors are shut: `content` is None if its file runs as it is.

    `checks` are for the inputs of each request. `model` is what the file holds, None if it cannot
    be read. How long a run takes is bounded by the dims of the inputs if `is_bounded`.
    """

    content: bytes | None
    checks: tuple[Check, ...] = ()
    model: OnnxFile | None = None
    is_bounded: bool = True


def guarded(file: Path, most: int = MOST) -> Guarded:
    """Return what shuts the doors of the model in `file`. Raises InvalidConfig as `guard` does."""
    # mmap refuses an empty file with a text of its own; ONNX Runtime's is about the model.
    if not file.stat().st_size:
        return Guarded(None)
    with file.open("rb") as opened:
        # Mapped, because weights are skipped and most of a large file is then never read.
        content = mmap(opened.fileno(), 0, access=ACCESS_READ)
    return guard(memoryview(content), file.name, most)


def guard(data: memoryview, name: str, most: int = MOST) -> Guarded:
    """Return what shuts the doors of an encoded ModelProto, which errors call `name`.

    An operator may make `most` elements of a request's values.
    Models of an opset before 7 are left as they are. Raises InvalidConfig for a model that can
    never run, and for one that has doors and cannot be parsed.
    """
    try:
        model = read_model(data)
        if model.opsets.get("", 0) < _FIRST_OPSET:
            return Guarded(None, model=model)
        walk = _Walk(model, most)
    except Malformed as error:
        # Names stand in the file as they are: without any door among them it cannot do harm, and
        # our reader may simply not know something that ONNX Runtime does.
        whole = bytes(data)
        if not any(one.encode() in whole for one in (GUARDED, *(op for _, op in DOORS))):
            return Guarded(None)  # ONNX Runtime says what is wrong
        raise InvalidConfig(f"'{name}' is no ONNX model: {error}") from error
    if walk.refusal:
        raise InvalidConfig(f"'{name}' cannot run: {walk.refusal}")
    for left in walk.left:
        _log.warning(
            "'%s': %s; those that do not fit would end the process, so that the parameter "
            'inferd_process should be "worker"',
            name,
            left,
        )
    # A file that needs no change runs from its path, so that its weights stay mapped.
    content = _Rewriting(walk.shut).model(model, data) if walk.is_changed else None
    return Guarded(content, tuple(walk.checks), model, walk.is_bounded)


class _Walk:
    """Goes through a model's graphs, and finds what shuts the doors on the way.

    `shut` is by the id of a node that has to be rewritten. Raises Malformed.
    """

    def __init__(self, model: OnnxFile, most: int) -> None:
        self.is_bounded = True
        self._most = most
        self.checks: list[Check] = []
        self.refusal = ""
        self.left: list[str] = []
        self.shut: dict[int, Shutting] = {}
        self.is_changed = False
        self._opset = model.opsets[""]
        self._graph(model.graph, Scope(), is_main=True)
        # Followed once, apart from their calls: nothing is known of what they are given.
        for function in model.functions.values():
            self._opset = function.opsets.get("", self._opset)
            if self._opset >= _FIRST_OPSET:
                self._nodes(function.nodes, Scope(given=function.inputs))

    def _graph(self, graph: OnnxGraph, scope: Scope, *, is_main: bool = False) -> None:
        scope.read(graph, is_main=is_main)
        self._nodes(graph.nodes, scope)

    def _nodes(self, nodes: list[RowNode], scope: Scope) -> None:
        for node in nodes:
            if _is_normalization(node):
                self.is_changed = True
            else:
                self._node(node, scope)
            # After the node is shut: its own outputs are no operands of it, and the format wants
            # nodes in the order in which values are made (onnx.proto, GraphProto.node).
            scope.follow(node)

    def _node(self, node: RowNode, scope: Scope) -> None:
        done = shut(node, scope, self._opset, self._most)
        if done is not None:
            self.refusal = self.refusal or done.refusal
            self.is_bounded = self.is_bounded and done.is_bounded
            self.checks += done.checks
            self.left += [done.left] if done.left else []
            if done.renamed:
                self.is_changed = True
                self.shut[id(node)] = done
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                self._graph(value, Scope(scope))


def _is_normalization(node: RowNode) -> bool:
    return node.op == GUARDED and not node.domain and bool(node.inputs and node.outputs)


class _Rewriting:
    """Writes a model with nodes before those in `shut`, which take what these give."""

    def __init__(self, shut: Mapping[int, Shutting]) -> None:
        self._shut = shut

    def model(self, model: OnnxFile, data: memoryview) -> bytes:
        # Read from the same bytes in the same order, so the n-th field is the n-th function.
        functions = iter(model.functions.values())

        def function(number: int, value: memoryview) -> Chunks:
            nodes = iter(next(functions).nodes)
            return bytes_field(number, *self._nodes(onnx_graph.FUNCTION_NODE, nodes, value))

        def graph(number: int, value: memoryview) -> Chunks:
            return self._graph(model.graph, number, value)

        return b"".join(_rewritten(data, {onnx_graph.GRAPH: graph, onnx_graph.FUNCTION: function}))

    def _graph(self, graph: OnnxGraph, number: int, data: memoryview) -> Chunks:
        return bytes_field(number, *self._nodes(onnx_graph.GRAPH_NODE, iter(graph.nodes), data))

    def _nodes(self, field: int, nodes: Iterator[RowNode], data: memoryview) -> Chunks:
        """Rewrite a graph or function, whose `nodes` are in that field, in this order."""
        return _rewritten(data, {field: lambda number, _: self._node(next(nodes), number)})

    def _node(self, node: RowNode, number: int) -> Chunks:
        if _is_normalization(node):
            return _normalization(number, node)
        rewrites: dict[int, Rewrite] = {}
        if any(isinstance(one, OnnxGraph) for one in node.attributes.values()):
            rewrites[onnx_graph.ATTRIBUTE] = self._attributes(node)
        done = self._shut.get(id(node))
        if done is None:
            return bytes_field(number, *_rewritten(node.data, rewrites))
        rewrites[onnx_graph.INPUT] = _renamed(done.renamed)
        content = _rewritten(node.data, rewrites)
        if done.called:
            content.append(text_field(onnx_graph.NAME, done.called))  # the last one counts
        before = [encode_node(one) for one in done.before]
        return [chunk for one in (*before, content) for chunk in bytes_field(number, *one)]

    def _attributes(self, node: RowNode) -> Rewrite:
        """Return a Rewrite of the attributes of `node`, in order: some have graphs."""
        values = iter(node.attributes.values())

        def rewrite(number: int, attribute: memoryview) -> Chunks:
            value = next(values)
            if not isinstance(value, OnnxGraph):
                return bytes_field(number, attribute)
            inner = _rewritten(attribute, {onnx_graph.SUBGRAPH: partial(self._graph, value)})
            return bytes_field(number, *inner)

        return rewrite


def _rewritten(message: memoryview, rewrites: Mapping[int, Rewrite]) -> Chunks:
    """Return `message` with the fields in `rewrites` replaced by their functions' results."""
    chunks: Chunks = []
    for number, kind, value in fields(message):
        rewrite = rewrites.get(number)
        if rewrite is None or kind != BYTES:
            # Fields that we do not know are kept as they are: a rewrite must not lose anything.
            chunks += any_field(number, kind, value)
        else:
            chunks += rewrite(number, value)
    return chunks


def _renamed(names: Mapping[int, str]) -> Rewrite:
    """Return a Rewrite that gives the fields at these places, in order, other names.

    Those that would be "" are left out.
    """
    place = -1

    def rewrite(number: int, value: memoryview) -> Chunks:
        nonlocal place
        place += 1
        if place in names:
            return [text_field(number, names[place])] if names[place] else []
        return any_field(number, BYTES, value)

    return rewrite


def _normalization(number: int, node: RowNode) -> Chunks:
    """Return the nodes that replace an InstanceNormalization."""
    x, y = node.inputs[0], node.outputs[0]
    part = f"{y}:".__add__
    real, whole = ({"to": onnx_type(one)} for one in (DataType.FP32, DataType.INT64))
    # Few operators of old opsets take integers, and a shape made by Concat is not run as written.
    before = (
        OnnxNode("Flatten", (x,), (part("flat"),), {"axis": 2}),
        OnnxNode("Shape", (part("flat"),), (part("dims"),), {}),
        OnnxNode("Constant", (), (part("last"),), {"value": np.array([0, 0, 1])}),
        OnnxNode("Gather", (part("dims"), part("last")), (part("three"),), {}),
        OnnxNode("Mul", (part("three"), part("last")), (part("count"),), {}),  # 0, 0, pixels
        OnnxNode("Sub", (part("last"), part("count")), (part("lack"),), {}),
        OnnxNode("Cast", (part("lack"),), (part("real"),), real),
        OnnxNode("Relu", (part("real"),), (part("lacks"),), {}),
        OnnxNode("Cast", (part("lacks"),), (part("whole"),), whole),
        OnnxNode("Add", (part("count"), part("whole")), (part("line"),), {}),  # 0 keeps a dim
        OnnxNode("Reshape", (x, part("line")), (part("x"),), {}),
    )
    after = (
        OnnxNode("Shape", (x,), (part("shape"),), {}),
        OnnxNode("Reshape", (part("y"), part("shape")), (y,), {}),
    )
    names = {
        onnx_graph.INPUT: _renamed({0: part("x")}),
        onnx_graph.OUTPUT: _renamed({0: part("y")}),
    }
    nodes = [encode_node(one) for one in before]
    nodes += [_rewritten(node.data, names), *(encode_node(one) for one in after)]
    return [chunk for one in nodes for chunk in bytes_field(number, *one)]
