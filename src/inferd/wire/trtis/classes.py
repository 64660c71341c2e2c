"""Classification in the TensorRT Inference Server API.

V2 puts value, index and label into one text, which rounds the value; here each has its own field.
"""

import struct

import numpy as np

from inferd.tensor.classification import Labels, top_classes
from inferd.tensor.tensor import Tensor
from inferd.wire.proto.fields import encode_field, encode_varint
from inferd.wire.trtis.answer import Piece, escape, escape_bytes

_FLOAT = struct.Struct("<f")


def classes_piece(tensor: Tensor, top_k: int, labels: Labels, batch_dims: int) -> Piece:
    """Return the `top_k` greatest elements of each item of the batch, greatest first.

    `batch_dims` is 1 if the first dim of `tensor` is the batch dim, else 0. Raises InvalidRequest
    as `top_classes` does.
    """
    short = [b'output { name: "%b" ' % escape(tensor.name)]
    line = short.copy()
    lines = [b'output {\n  name: "%b"\n' % escape(tensor.name)]
    message = [encode_field(b"\x0a", tensor.name.encode(errors="replace"))]
    for entry in top_classes(tensor, top_k, batch_dims=batch_dims):
        line.append(b"batch_classes { ")
        lines.append(b"  batch_classes {\n")
        classes = []
        with np.errstate(over="ignore"):  # a double beyond float range becomes infinite
            values = np.array([value for value, _ in entry], np.float64).astype(np.float32)
        for value, (_, index) in zip(values, entry, strict=True):
            label = labels[index] if index < len(labels) else b""
            # Invalid UTF-8 would make the whole message unreadable.
            text = label.decode(errors="replace").encode()
            parts, fields = _fields(index, value, text)
            line.append(b"cls { %b } " % b" ".join(parts))
            lines.append(b"    cls {\n%b    }\n" % b"".join(b"      %b\n" % p for p in parts))
            classes.append(encode_field(b"\x0a", fields))
        line.append(b"} ")
        lines.append(b"  }\n")
        message.append(encode_field(b"\x1a", b"".join(classes)))
    return Piece(
        b"".join([*line, b"} "]),
        b"".join([*lines, b"}\n"]),
        encode_field(b"\x22", b"".join(message)),
        b"".join([*short, b"} "]),
    )


def _fields(index: int, value: np.float32, label: bytes) -> tuple[list[bytes], bytes]:
    """Return the fields of a class as text, one by one, and as a message."""
    parts = []
    message = b""
    if index:
        parts.append(b"idx: %d" % index)
        message = b"\x08" + encode_varint(index)
    # protobuf leaves out fields at 0, but -0.0 is not that.
    if value or np.signbit(value):
        parts.append(b"value: %b" % str(value).encode())
        message += b"\x15" + _FLOAT.pack(value)
    if label:
        parts.append(b'label: "%b"' % escape_bytes(label))
        message += encode_field(b"\x1a", label)
    return parts, message
