"""Caffe2 nets, and their operators by themselves."""

from pathlib import Path

import numpy as np
import pytest

from inferd.formats.onnx_model import OnnxPort
from inferd.formats.protobuf import bytes_field, float_field, text_field, varint_field
from inferd.tensor.dtype import datatype_of
from inferd_convert.caffe2.netdef import Net, NetArgument, Operator
from inferd_convert.caffe2.network import Caffe2Network

DATA = Path(__file__).parents[2] / "data" / "caffe2"
EMPTY = Net("", [], [], [])


@pytest.fixture(scope="session")
def data():
    """The folder of what Caffe2 itself has written."""
    return DATA


def _argument(value):
    """Return the argument that Caffe2's Python would write for a value."""
    match value:
        case bool() | int() | np.integer():
            return NetArgument(i=int(value))
        case float():
            return NetArgument(f=value)
        case str():
            return NetArgument(s=value.encode())
        case [float(), *_]:
            return NetArgument(floats=np.array(value, np.float32))
    return NetArgument(ints=list(value))


@pytest.fixture(scope="session")
def model_of():
    """model_of(type, arguments, inputs, output count) is one operator as an ONNX model.

    `dims` says what is known of the inputs: "all", their "rank", or "nothing". Inputs are called
    i0, i1, ..., outputs o0, o1, ...
    """

    def build(kind, arguments, inputs, outputs=1, dims="all"):
        reads = tuple(f"i{number}" for number in range(len(inputs)))
        gives = tuple(f"o{number}" for number in range(outputs))
        written = {name: _argument(value) for name, value in arguments.items()}
        operator = Operator(kind, reads, gives, written, f"'model.netdef', operator 1 ('{kind}')")
        ports = [
            OnnxPort(name, datatype_of(array.dtype), _SHAPES[dims](array.shape))
            for name, array in zip(reads, inputs, strict=True)
        ]
        return Caffe2Network(EMPTY, Net("", [operator], list(reads), list(gives))).convert(ports)

    return build


_SHAPES = {
    "all": tuple,
    "rank": lambda shape: (-1,) * len(shape),
    "nothing": lambda shape: None,
}


@pytest.fixture(scope="session")
def apply(model_of, run):
    """apply(type, arguments, inputs, output count, dims) returns the outputs of one operator."""

    def answer(kind, arguments, inputs, outputs=1, dims="all"):
        model = model_of(kind, arguments, inputs, outputs, dims)
        feed = {f"i{number}": array for number, array in enumerate(inputs)}
        found = run(model, feed)
        return [found[f"o{number}"] for number in range(outputs)]

    return answer


@pytest.fixture(scope="session")
def netdef():
    """netdef(operators, inputs, outputs) is the NetDef as bytes.

    An operator is (type, inputs, outputs, arguments); an argument an int, float, text or list.
    """

    def write(operators, inputs=(), outputs=()):
        parts = [text_field(1, "net")]
        for kind, reads, gives, arguments in operators:
            operator = [text_field(1, name) for name in reads]
            operator += [text_field(2, name) for name in gives]
            operator.append(text_field(4, kind))
            for name, value in arguments.items():
                operator += bytes_field(5, text_field(1, name), _written(value))
            parts += bytes_field(2, *operator)
        parts += [text_field(7, name) for name in inputs]
        parts += [text_field(8, name) for name in outputs]
        return b"".join(parts)

    return write


def _written(value):
    match value:
        case int():
            return varint_field(3, value)
        case float():
            return float_field(2, value)
        case str():
            return text_field(4, value)
        case [str(), *_]:
            return b"".join(text_field(7, one) for one in value)
        case [float(), *_]:
            return b"".join(float_field(5, one) for one in value)
    return b"".join(varint_field(6, one) for one in value)
