"""InferResponseHeader, written in its three forms at once: one line, several lines, a message.

HTTP has the line in the header NV-InferResponse and the lines, or the message, behind the tensors;
gRPC has the message. All text is ASCII: other bytes are escaped, as protobuf text allows.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from inferd.memory.buffer import Buffer
from inferd.wire.proto.fields import encode_field, encode_varint

MAX_LINE_BYTES = 32 << 10
"""A longer line omits the classes, as in versions 0.11 to 1.1: clients limit header sizes."""


class Piece(NamedTuple):
    """Some fields in the three forms; `line` ends with a space, `lines` with a line feed.

    `short` is the line without classes.
    """

    line: bytes
    lines: bytes
    message: bytes
    short: bytes


class Answer:
    """The answer to an inference: its header, the id apart, and the bytes of each output.

    An output that is given as classes, or put in shared memory, has None for its bytes.
    """

    def __init__(self, header: Piece, answer_id: int, buffers: list[Buffer | None]) -> None:
        self._header = header
        self._id = answer_id  # last in each form, as the field with the highest number
        self.buffers = buffers

    def line(self) -> bytes:
        """Return the header on one line."""
        header = self._header
        line = header.line if len(header.line) <= MAX_LINE_BYTES else header.short
        return line + b"id: %d" % self._id if self._id else line[:-1]

    def lines(self) -> bytes:
        """Return the header on several lines."""
        lines = self._header.lines
        return lines + b"id: %d\n" % self._id if self._id else lines

    def message(self) -> bytes:
        """Return the header as a message."""
        message = self._header.message
        return message + b"\x28" + encode_varint(self._id) if self._id else message


def joined(pieces: Iterable[Piece]) -> Piece:
    """Return the concatenation of all `pieces`."""
    rows = list(pieces)
    return Piece(*(b"".join([piece[form] for piece in rows]) for form in range(4)))


# Most answers differ in nothing but id and bytes.
@lru_cache(maxsize=1024)
def head_piece(model: str, version: str, batch_size: int) -> Piece:
    """Return the fields before the outputs."""
    name, number = escape(model), int(version)
    parts = [b'model_name: "%b"' % name, b"model_version: %d" % number]
    parts.append(b"batch_size: %d" % batch_size)
    message = encode_field(b"\x0a", model.encode(errors="replace"))
    message += b"\x10" + encode_varint(number) + b"\x18" + encode_varint(batch_size)
    line = b" ".join(parts) + b" "
    return Piece(line, b"\n".join(parts) + b"\n", message, line)


@lru_cache(maxsize=4096)
def raw_piece(name: str, dims: tuple[int, ...] | None, size_bytes: int) -> Piece:
    """Return the fields of an output whose bytes are sent or in shared memory.

    `dims` is None for old clients: then `size_bytes` is the size of one item of the batch.
    """
    if dims is None:
        parts = [b"byte_size: %d" % size_bytes]
        raw = b"\x08" + encode_varint(size_bytes) if size_bytes else b""
    else:
        parts = [b"dims: %d" % dim for dim in dims]
        packed = b"".join(map(encode_varint, dims))
        raw = encode_field(b"\x0a", packed) if packed else b""
        if size_bytes:
            parts.append(b"batch_byte_size: %d" % size_bytes)
            raw += b"\x10" + encode_varint(size_bytes)
    label = escape(name)
    line = b'output { name: "%b" raw { %b } } ' % (label, b" ".join(parts))
    inner = b"".join(b"    %b\n" % part for part in parts)
    lines = b'output {\n  name: "%b"\n  raw {\n%b  }\n}\n' % (label, inner)
    encoded = name.encode(errors="replace")
    message = encode_field(b"\x0a", encoded) + encode_field(b"\x12", raw)
    return Piece(line, lines, encode_field(b"\x22", message), line)


_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")
_NAMED = {0x09: b"\\t", 0x0A: b"\\n", 0x0D: b"\\r", 0x22: b'\\"', 0x27: b"\\'", 0x5C: b"\\\\"}


def escape(text: str) -> bytes:
    """Escape `text` for protobuf text between double quotes: ASCII without line breaks."""
    # Most names need no escape.
    if _PLAIN.fullmatch(text):
        return text.encode()
    return escape_bytes(text.encode(errors="replace"))


def escape_bytes(data: bytes) -> bytes:
    """Escape `data` for protobuf text between double quotes."""
    return b"".join([_ESCAPED[byte] for byte in data])


_ESCAPED = [
    _NAMED.get(byte) or (bytes((byte,)) if 0x20 <= byte < 0x7F else b"\\%03o" % byte)
    for byte in range(256)
]
