"""Guard: rewrites ONNX models where ONNX Runtime would read memory out of bounds.

Its InstanceNormalization does not check that images have pixels: an empty tensor from another
operator crashes the process. So a model with this operator is changed to give it images of one
dim, through a Reshape that fails if there is nothing to reshape; the results are the same. Field
numbers are those of onnx.proto.
"""

from collections.abc import Callable, Mapping
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from inferd.convert.onnx_model import Chunks, OnnxNode, encode_node, onnx_type
from inferd.convert.protobuf import BYTES, Malformed, any_field, bytes_field, fields, text_field
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

GUARDED = b"InstanceNormalization"

MAX_DEPTH = 100
"""The nesting limit of graphs, the same as that of protobuf's own reader."""

_GRAPH, _OPSET, _FUNCTION = 7, 8, 25  # of a ModelProto
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2  # of an OperatorSetIdProto
_NODE_OF = {_GRAPH: 1, _FUNCTION: 7}
_INPUT, _OUTPUT, _OP, _ATTRIBUTE, _DOMAIN = 1, 2, 4, 5, 7  # of a NodeProto
_SUBGRAPHS = (6, 11)  # of an AttributeProto
_DEFAULT_DOMAINS = (b"", b"ai.onnx")

_FIRST_OPSET = 7
"""ONNX Runtime has few operators of older opsets, and not those inserted here."""

Rewrite = Callable[[int, memoryview], Chunks]


def guarded(file: Path) -> bytes | None:
    """Return the model in `file` with the guards inserted, None if it needs none.

    Models of an opset before 7 are left as they are.

    Raises InvalidConfig for a model that needs guards and cannot be parsed.
    """
    if not file.stat().st_size:
        return None
    with file.open("rb") as opened:
        content = mmap(opened.fileno(), 0, access=ACCESS_READ)
    if content.find(GUARDED) < 0:
        return None
    model = memoryview(content)
    try:
        if _opset(model) < _FIRST_OPSET:
            return None
        return b"".join(_rewritten(model, dict.fromkeys(_NODE_OF, partial(_graph, 0))))
    except Malformed as error:
        msg = f"'{file.name}' is no ONNX model: {error}"
        raise InvalidConfig(msg) from error


def _opset(model: memoryview) -> int:
    """Return the opset version of ONNX's own operators that a ModelProto imports."""
    version = 0
    for number, kind, value in fields(model):
        if number == _OPSET and kind == BYTES:
            by_field = {n: one for n, _, one in fields(value)}
            if bytes(by_field.get(_OPSET_DOMAIN, b"")) in _DEFAULT_DOMAINS:
                version = by_field.get(_OPSET_VERSION, 0)
    return version


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


def _graph(depth: int, number: int, graph: memoryview) -> Chunks:
    """Rewrite a GraphProto or FunctionProto at nesting level `depth`."""
    if depth >= MAX_DEPTH:
        msg = f"graphs lie in graphs, deeper than {MAX_DEPTH}"
        raise Malformed(msg)
    node = _NODE_OF.get(number, _NODE_OF[_GRAPH])
    return bytes_field(number, *_rewritten(graph, {node: partial(_node, depth)}))


def _node(depth: int, number: int, node: memoryview) -> Chunks:
    """Rewrite a NodeProto in a graph at nesting level `depth`."""
    found = [(n, bytes(v)) for n, kind, v in fields(node) if kind == BYTES and n != _ATTRIBUTE]
    by_field = dict(found)
    inputs, outputs = ([v for n, v in found if n == field] for field in (_INPUT, _OUTPUT))
    is_guarded = by_field.get(_OP) == GUARDED and by_field.get(_DOMAIN, b"") in _DEFAULT_DOMAINS
    if is_guarded and inputs and outputs:
        return _normalization(number, node, _name(inputs[0]), _name(outputs[0]))
    return bytes_field(number, *_rewritten(node, {_ATTRIBUTE: partial(_attribute, depth)}))


def _attribute(depth: int, number: int, attribute: memoryview) -> Chunks:
    """Rewrite an AttributeProto, which may hold graphs."""
    subgraphs = dict.fromkeys(_SUBGRAPHS, partial(_graph, depth + 1))
    return bytes_field(number, *_rewritten(attribute, subgraphs))


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
    names = {_INPUT: _first_renamed(part("x")), _OUTPUT: _first_renamed(part("y"))}
    nodes = [encode_node(one) for one in before]
    nodes += [_rewritten(node, names), *(encode_node(one) for one in after)]
    return [chunk for one in nodes for chunk in bytes_field(number, *one)]


def _first_renamed(name: str) -> Rewrite:
    """Return a Rewrite that replaces the first field by `name`, and keeps the others."""
    names = [name]

    def rewrite(number: int, value: memoryview) -> Chunks:
        return [text_field(number, names.pop())] if names else any_field(number, BYTES, value)

    return rewrite


def _name(value: Any) -> str:
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        msg = "a tensor in it has a name that is no UTF-8"
        raise Malformed(msg) from error
