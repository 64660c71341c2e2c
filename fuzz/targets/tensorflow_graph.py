"""TensorFlow's GraphDef, and TensorFlow Lite's files (first byte L), before their libraries."""

from corpus import files

from inferd.backends.litert.file import check_file
from inferd.backends.tensorflow.graph import TfGraph, has_loops, reaches_outside
from inferd.errors import InferdError
from inferd.formats.protobuf import Malformed, bytes_field, varint_field


def _field(number: int, *content: bytes) -> bytes:
    return b"".join(map(bytes, bytes_field(number, *content)))


def _node(name: bytes, op: bytes, *inputs: bytes) -> bytes:
    kind = _field(1, b"dtype") + _field(2, varint_field(6, 1))
    parts = [_field(1, name), _field(2, op), *(_field(3, one) for one in inputs), _field(5, kind)]
    return _field(1, *parts)


SEEDS = [
    b"G" + _node(b"x", b"Placeholder") + _node(b"y", b"Relu", b"x", b"^x"),
    b"G" + _node(b"f", b"ReadFile", b"x:0") + _field(2, _field(1, _field(1, _field(1, b"fn")))),
    *(b"L" + one for one in files("tests/platforms/files/*.tflite")),
]


def target(data: bytes) -> bool:
    """Read; return whether it is a graph."""
    try:
        if data[:1] == b"L":
            check_file(data[1:], "model.tflite")
            return True
        graph = TfGraph(memoryview(data[1:]))
        graph.placeholders()
        graph.unread()
        reached = graph.reached(list(graph.nodes)[-3:])
        reaches_outside(reached)
        has_loops(reached)
    except (InferdError, Malformed):
        return False
    return bool(graph.nodes)
