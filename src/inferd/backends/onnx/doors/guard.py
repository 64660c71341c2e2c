"""Guard: shuts the doors of an ONNX model as it loads, and rewrites it in memory if it has to.

A door is an operator that ends the process of ONNX Runtime for some operands (door.py). All others
are left as they are; a model without a computed operand of a door is not rewritten at all.

InstanceNormalization is one that reads out of bounds if images have no pixels. A model with it is
changed to give it images of one dim, through a Reshape that fails if there is nothing to reshape;
the results are the same. Field numbers are those of onnx.proto.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inferd.backends.onnx.doors.check import Check
from inferd.backends.onnx.doors.door import DOORS, shut
from inferd.backends.onnx.doors.graph import (
    ATTRIBUTE,
    GRAPH,
    INPUT,
    NAME,
    NODE_OF,
    OUTPUT,
    SUBGRAPHS,
    Node,
    Scope,
    opset_of,
    read_node,
)
from inferd.convert.onnx_model import Chunks, OnnxNode, encode_node, onnx_type
from inferd.convert.protobuf import BYTES, Malformed, any_field, bytes_field, fields, text_field
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

_log = logging.getLogger(__name__)

GUARDED = "InstanceNormalization"

MAX_DEPTH = 100
"""The nesting limit of graphs, the same as that of protobuf's own reader."""

_FIRST_OPSET = 7
"""ONNX Runtime has few operators of older opsets, and not those inserted here."""

Rewrite = Callable[[int, memoryview], Chunks]


class Guarded(NamedTuple):
    """A model whose doors are shut: `content` is None if its file runs as it is.

    `checks` are for the inputs of each request. `source` is the model as it was.
    """

    content: bytes | None
    checks: tuple[Check, ...]
    source: bytes | memoryview = b""


def guarded(file: Path) -> Guarded:
    """Return what shuts the doors of the model in `file`. Raises InvalidConfig as `guard` does."""
    if not file.stat().st_size:
        return Guarded(None, ())
    with file.open("rb") as opened:
        content = mmap(opened.fileno(), 0, access=ACCESS_READ)
    source = memoryview(content)
    return guard(source, file.name)._replace(source=source)


def guard(model: memoryview, name: str) -> Guarded:
    """Return what shuts the doors of an encoded ModelProto, which errors call `name`.

    Models of an opset before 7 are left as they are. Raises InvalidConfig for a model that can
    never run, and for one that has doors and cannot be parsed.
    """
    walk = _Walk()
    try:
        walk.opset = opset_of(model)
        if walk.opset < _FIRST_OPSET:
            return Guarded(None, ())
        chunks = _rewritten(model, dict.fromkeys(NODE_OF, partial(walk.graph, Scope(), 0)))
    except Malformed as error:
        content = bytes(model)
        if not any(one.encode() in content for one in (GUARDED, *DOORS)):
            return Guarded(None, ())  # ONNX Runtime says what is wrong
        msg = f"'{name}' is no ONNX model: {error}"
        raise InvalidConfig(msg) from error
    if walk.refusal:
        msg = f"'{name}' cannot run: {walk.refusal}"
        raise InvalidConfig(msg)
    for left in walk.left:
        _log.warning(
            "'%s': %s; a quotient that does not fit would end the process, so that the parameter "
            'inferd_process should be "worker"',
            name,
            left,
        )
    return Guarded(b"".join(chunks) if walk.is_changed else None, tuple(walk.checks))


def _rewritten(message: memoryview, rewrites: Mapping[int, Rewrite]) -> Chunks:
    """Return `message` with the fields in `rewrites` replaced by their functions' results."""
    chunks: Chunks = []
    for number, kind, value in fields(message):
        rewrite = rewrites.get(number)
        if rewrite is None or kind != BYTES:
            chunks += any_field(number, kind, value)
        else:
            chunks += rewrite(number, value)
    return chunks


class _Walk:
    """Goes through a model's graphs, and shuts the doors on the way."""

    def __init__(self) -> None:
        self.opset = 0
        self.is_changed = False
        self.checks: list[Check] = []
        self.refusal = ""
        self.left: list[str] = []

    def graph(self, around: Scope, depth: int, number: int, graph: memoryview) -> Chunks:
        """Rewrite a GraphProto or FunctionProto at nesting level `depth`."""
        if depth >= MAX_DEPTH:
            msg = f"graphs lie in graphs, deeper than {MAX_DEPTH}"
            raise Malformed(msg)
        scope = Scope(around if depth else None)
        if depth or number == GRAPH:
            scope.read(graph, is_main=not depth)
        node = NODE_OF.get(number, NODE_OF[GRAPH])
        return bytes_field(number, *_rewritten(graph, {node: partial(self._node, scope, depth)}))

    def _node(self, scope: Scope, depth: int, number: int, data: memoryview) -> Chunks:
        """Rewrite a NodeProto in a graph at nesting level `depth`."""
        node = read_node(data)
        if node.op == GUARDED and not node.domain and node.inputs and node.outputs:
            chunks = _normalization(number, data, node.inputs[0], node.outputs[0])
            self.is_changed = True
        else:
            chunks = self._shut(node, scope, depth, number, data)
        scope.follow(node)
        return chunks

    def _shut(self, node: Node, scope: Scope, depth: int, number: int, data: memoryview) -> Chunks:
        done = shut(node, scope, self.opset)
        self.refusal = self.refusal or done.refusal
        self.checks += done.checks
        self.left += [done.left] if done.left else []
        rewrites: dict[int, Rewrite] = {ATTRIBUTE: partial(self._attribute, scope, depth)}
        chunks: Chunks = []
        if done.renamed:
            self.is_changed = True
            rewrites[INPUT] = _renamed(done.renamed)
            for one in done.before:
                chunks += bytes_field(number, *encode_node(one))
        content = _rewritten(data, rewrites)
        if done.name:
            content.append(text_field(NAME, done.name))  # the last one counts
        return chunks + bytes_field(number, *content)

    def _attribute(self, scope: Scope, depth: int, number: int, attribute: memoryview) -> Chunks:
        """Rewrite an AttributeProto, which may hold graphs."""
        subgraphs = dict.fromkeys(SUBGRAPHS, partial(self.graph, scope, depth + 1))
        return bytes_field(number, *_rewritten(attribute, subgraphs))


def _renamed(names: Mapping[int, str]) -> Rewrite:
    """Return a Rewrite that gives the fields at these places, in order, other names."""
    place = -1

    def rewrite(number: int, value: memoryview) -> Chunks:
        nonlocal place
        place += 1
        if place in names:
            return [text_field(number, names[place])]
        return any_field(number, BYTES, value)

    return rewrite


def _normalization(number: int, node: memoryview, x: str, y: str) -> Chunks:
    """Return the nodes that replace an InstanceNormalization from `x` to `y`."""
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
    names = {INPUT: _renamed({0: part("x")}), OUTPUT: _renamed({0: part("y")})}
    nodes = [encode_node(one) for one in before]
    nodes += [_rewritten(node, names), *(encode_node(one) for one in after)]
    return [chunk for one in nodes for chunk in bytes_field(number, *one)]
