"""OnnxModel: the few ONNX messages that converters need, encoded as ONNX Runtime loads them.

Field numbers are those of onnx.proto; the onnx package is not needed.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from inferd.formats.protobuf import bytes_field, float_field, packed_field, text_field, varint_field
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

Attribute = int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | Array
Chunks = list[bytes | memoryview]

OPSET = 21
"""The operator set version that converters write; ONNX Runtime 1.20 supports it."""

TREES = "ai.onnx.ml"
"""The domain of the operators of classical machine learning."""

# Opset 5 replaced TreeEnsembleRegressor by another operator, which older ONNX Runtimes lack.
_TREES_OPSET = 3
# The IR version of the ONNX release that brought opset 21 (onnx.proto, Version).
_IR_VERSION = 10

_TYPES = {
    DataType.FP32: 1,
    DataType.UINT8: 2,
    DataType.INT8: 3,
    DataType.UINT16: 4,
    DataType.INT16: 5,
    DataType.INT32: 6,
    DataType.INT64: 7,
    DataType.BYTES: 8,
    DataType.BOOL: 9,
    DataType.FP16: 10,
    DataType.FP64: 11,
    DataType.UINT32: 12,
    DataType.UINT64: 13,
    DataType.BF16: 16,
}


class OnnxNode(NamedTuple):
    """One operator, with the names of its inputs ("" for an omitted one) and outputs."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    name: str = ""
    domain: str = ""


class OnnxPort(NamedTuple):
    """An input or output of the model; -1 is a variable dim, `shape` None an unknown rank.

    If `datatype` is None, ONNX Runtime infers the type of the output.
    """

    name: str
    datatype: DataType | None
    shape: tuple[int, ...] | None


def onnx_type(datatype: DataType) -> int:
    """Return ONNX's number for `datatype`."""
    return _TYPES[datatype]


def encode_model(
    nodes: Sequence[OnnxNode],
    constants: Mapping[str, Array],
    inputs: Sequence[OnnxPort],
    outputs: Sequence[OnnxPort],
) -> bytes:
    """Return the ModelProto of a graph; `constants` of dtype object have bytes as elements."""
    # ONNX's checker wants a graph to have a name.
    graph: Chunks = [text_field(2, "converted")]
    for node in nodes:
        graph += bytes_field(1, *encode_node(node))
    for name, array in constants.items():
        graph += bytes_field(5, *_tensor(array, name))
    for port in inputs:
        graph += bytes_field(11, *_port(port))
    for port in outputs:
        graph += bytes_field(12, *_port(port))
    opset = varint_field(2, OPSET)
    head = varint_field(1, _IR_VERSION) + text_field(2, "inferd")
    opsets = bytes_field(8, opset)
    if any(node.domain == TREES for node in nodes):
        opsets += bytes_field(8, text_field(1, TREES), varint_field(2, _TREES_OPSET))
    return b"".join([head, *bytes_field(7, *graph), *opsets])


def encode_node(node: OnnxNode) -> Chunks:
    """Return the content of a NodeProto."""
    chunks: Chunks = [text_field(1, name) for name in node.inputs]
    chunks += [text_field(2, name) for name in node.outputs]
    chunks += [text_field(3, node.name), text_field(4, node.op), text_field(7, node.domain)]
    for name, value in node.attributes.items():
        chunks += bytes_field(5, text_field(1, name), *_attribute(value))
    return chunks


def _attribute(value: Attribute) -> Chunks:
    """Return the value and kind (AttributeProto.AttributeType) fields of an attribute."""
    if isinstance(value, str):
        return [text_field(4, value), varint_field(20, 3)]
    # Before floats, and by its type: an attribute of the wrong kind is
    # refused by ONNX Runtime, even if 1 is meant.
    if isinstance(value, int | np.integer):
        return [varint_field(3, int(value)), varint_field(20, 2)]
    if isinstance(value, float | np.floating):
        return [float_field(2, float(value)), varint_field(20, 1)]
    if isinstance(value, np.ndarray):
        return [*bytes_field(5, *_tensor(value, "")), varint_field(20, 4)]
    if any(isinstance(one, str) for one in value):
        return [*(text_field(9, str(one)) for one in value), varint_field(20, 8)]
    # A float among them makes all of them floats: 1 may stand for 1.0.
    if any(isinstance(one, float) for one in value):
        return [*(float_field(7, float(one)) for one in value), varint_field(20, 6)]
    return [packed_field(8, [int(one) for one in value]), varint_field(20, 7)]


def _tensor(array: Array, name: str) -> Chunks:
    chunks: Chunks = [packed_field(1, array.shape), text_field(8, name)]
    if array.dtype == object:
        chunks.append(varint_field(2, _TYPES[DataType.BYTES]))
        for element in array.reshape(-1):
            chunks += bytes_field(6, element)
        return chunks
    # raw_data is little-endian on all machines (onnx.proto, TensorProto).
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    chunks.append(varint_field(2, _TYPES[datatype_of(array.dtype)]))
    # raw_data, as a view: weights are copied once, when all chunks are joined.
    return [*chunks, *bytes_field(9, array.reshape(-1).view(np.uint8).data)]


def _port(port: OnnxPort) -> Chunks:
    chunks: Chunks = [text_field(1, port.name)]
    if port.datatype is not None:
        tensor: Chunks = [varint_field(1, _TYPES[port.datatype])]
        if port.shape is not None:
            tensor += bytes_field(2, *_shape(port))
        chunks += bytes_field(2, *bytes_field(1, *tensor))
    return chunks


def _shape(port: OnnxPort) -> Chunks:
    chunks: Chunks = []
    for index, dim in enumerate(port.shape or ()):
        # Dims of the same name would have to be equal, so each has its own.
        written = text_field(2, f"{port.name}_{index}") if dim < 0 else varint_field(1, dim)
        chunks += bytes_field(1, written)
    return chunks
