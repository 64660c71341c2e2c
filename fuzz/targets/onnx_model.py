"""ONNX files as the server looks at them itself: their graph, its rows, and doors to be shut."""

from contextlib import suppress

import numpy as np
from corpus import files

from inferd.backends.onnx.doors.guard import guard
from inferd.backends.onnx.signature import declared_signature
from inferd.errors import InferdError
from inferd.formats.onnx_graph import read_model
from inferd.formats.onnx_model import OnnxNode, OnnxPort, encode_model
from inferd.formats.protobuf import Malformed
from inferd.rows.verdict import verdict_on
from inferd.tensor.dtype import DataType


def _model(*nodes: OnnxNode) -> bytes:
    ports = [OnnxPort("x", DataType.FP32, (-1, 4))], [OnnxPort("y", DataType.FP32, (-1, 4))]
    return encode_model(nodes, {"w": np.ones((4, 4), np.float32)}, *ports)


SEEDS = [
    *files("examples/digits/models/*/1/model.onnx"),
    _model(OnnxNode("MatMul", ("x", "w"), ("h",), {}), OnnxNode("Relu", ("h",), ("y",), {})),
    _model(OnnxNode("Reshape", ("x", "w"), ("y",), {"allowzero": 1})),
    _model(OnnxNode("Gather", ("x", "w"), ("y",), {"axis": 1})),
    _model(OnnxNode("ConstantOfShape", ("x",), ("y",), {"value": np.zeros(1, np.float32)})),
]


def target(data: bytes) -> bool:
    """Read; return whether it is a model."""
    verdict_on(data)
    with suppress(InferdError):
        guard(memoryview(data), "model.onnx")
    try:
        model = read_model(data)
    except Malformed:
        return False
    with suppress(InferdError):
        declared_signature(model)
    return bool(model.graph.nodes)
