"""Writes the digit classifier as a Caffe2 net, and the net that fills in its weights.

    python examples/platforms/to_caffe2.py FOLDER

FOLDER becomes a model repository: `inferd serve FOLDER`. Caffe2 is not needed: a net is a protobuf
message (caffe2.proto), of which this writes the few fields a net needs.
"""

import struct
import sys
from pathlib import Path

import digits
import numpy as np

MODELS = ("digits_caffe2",)

INPUT = 'input { name: "image" data_type: TYPE_FP32 dims: [8, 8] }\n'
"""Nets do not tell what their inputs look like."""

Argument = int | str | list[int] | np.ndarray
Operator = tuple[str, list[str], list[str], dict[str, Argument]]


def export(repository: Path) -> None:
    """Write both nets."""
    numbers = digits.weights()
    filled = {
        "scale": np.array([1 / digits.PIXEL_MAX], np.float32),
        "hidden_w": numbers["hidden_weights"].T,
        "hidden_b": numbers["hidden_bias"],
        "scores_w": numbers["score_weights"].T,
        "scores_b": numbers["score_bias"],
    }
    init: list[Operator] = [
        ("GivenTensorFill", [], [name], {"shape": list(array.shape), "values": array})
        for name, array in filled.items()
    ]
    predict: list[Operator] = [
        ("Flatten", ["image"], ["pixels"], {}),
        ("Mul", ["pixels", "scale"], ["scaled"], {"broadcast": 1}),
        ("FC", ["scaled", "hidden_w", "hidden_b"], ["hidden"], {}),
        ("Relu", ["hidden"], ["hidden"], {}),
        ("FC", ["hidden", "scores_w", "scores_b"], ["scores"], {}),
        ("ArgMax", ["scores"], ["digit"], {"axis": 1, "keepdims": 1}),
        ("Softmax", ["scores"], ["probability"], {}),
    ]
    file = digits.place(repository, MODELS[0], "model.netdef", INPUT)
    file.write_bytes(net(predict, ["image", *filled], ["digit", "probability"]))
    file.with_name("init_model.netdef").write_bytes(net(init, [], list(filled)))


def net(operators: list[Operator], inputs: list[str], outputs: list[str]) -> bytes:
    """Return a NetDef."""
    parts = [field(1, b"digits")]
    for kind, reads, gives, arguments in operators:
        names = [field(1, name.encode()) for name in reads]
        names += [field(2, name.encode()) for name in gives]
        written = [field(5, argument(name, value)) for name, value in arguments.items()]
        parts.append(field(2, b"".join([*names, field(4, kind.encode()), *written])))
    parts += [field(7, name.encode()) for name in inputs]
    parts += [field(8, name.encode()) for name in outputs]
    return b"".join(parts)


def argument(name: str, value: Argument) -> bytes:
    """Return an Argument; each number of a list has its own key, as in proto2."""
    named = field(1, name.encode())
    if isinstance(value, np.ndarray):
        return named + b"".join(b"\x2d" + struct.pack("<f", one) for one in value.reshape(-1))
    if isinstance(value, list):
        return named + b"".join(b"\x30" + varint(one) for one in value)
    return named + (b"\x18" + varint(value) if isinstance(value, int) else field(4, value.encode()))


def field(number: int, content: bytes) -> bytes:
    """Return a field of bytes, of a text, or of a message."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return a whole number, seven bits to a byte."""
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


if __name__ == "__main__":
    export(Path(sys.argv[1]))
