"""The fields of messages that are read and written by hand, without a protobuf parser.

A parser would copy raw contents twice, and parse again what a client repeats in each of its calls.
Protocol Buffers, encoding: these messages are a sequence of fields: tag, length, that many bytes.
"""

from typing import NamedTuple

from inferd.errors import InvalidRequest
from inferd.memory.buffer import Buffer
from inferd.tensor.tensor import Tensor

MAX_MESSAGE_BYTES = 2**31 - 1
"""The largest size of a protobuf message, and so of a gRPC message."""

MAX_FIELDS = 65536
"""The most fields of an inference request: no model has as many tensors."""

MOST_CUT = 8192
"""Messages of more fields are left to a parser: cutting them would hold up the event loop."""

ID = b"\x1a"
"""The tag of the id, in both ModelInferRequest and ModelInferResponse."""


class Split(NamedTuple):
    """A message cut in three: the two fields that change from call to call, and the rest.

    `spans` are the positions of those two fields' values in the message: first the id's, if any.
    """

    rest: bytes
    id: bytes
    raw: list[memoryview]
    spans: list[slice]


def split_message(data: Buffer, raw_tag: int) -> Split | None:
    """Cut a ModelInferRequest or ModelInferResponse, given as bytes or a view of bytes.

    Raw contents are views, not copies.

    Return None when the layout is not as expected, so that a parser says what is wrong with it, and
    for very many fields.
    """
    view = memoryview(data)
    rest: list[Buffer] = []
    raw: list[memoryview] = []
    request_id, id_span = b"", None
    raw_spans: list[slice] = []
    start, end = 0, len(data)
    for _ in range(MOST_CUT):
        if start + 1 >= end:
            break
        tag, size, at = data[start], data[start + 1], start + 2
        # Most lengths are one byte, read without a call.
        if size >= 0x80:
            size, at = _varint_at(data, start + 1)
        stop = at + size
        # Every field of the messages is length-delimited (wire type 2) and has a one-byte tag.
        if tag & 0x87 != 2 or stop > end:
            return None
        if tag == raw_tag:
            raw_spans.append(slice(at, stop))
            raw.append(view[at:stop])
        elif tag == ID[0]:
            if id_span is not None:  # the last one counts, but a parser looks at each
                return None
            id_span = slice(at, stop)
            request_id = bytes(data[at:stop])
        else:
            rest.append(data[start:stop])
        start = stop
    if start != end:
        return None
    spans = raw_spans if id_span is None else [id_span, *raw_spans]
    return Split(b"".join(rest), request_id, raw, spans)


def check_field_count(data: Buffer) -> None:
    """Raise InvalidRequest if a message has more than MAX_FIELDS fields, before it is parsed.

    A parser needs many times the memory of a message of tiny fields. It says what else is wrong.
    """
    at, end = 0, len(data)
    for _ in range(MAX_FIELDS):
        if at >= end:
            return
        # Wire types: varint, 64 bits, length-delimited, 32 bits. Groups have none of their own and
        # are left to the parser.
        kind = data[at] & 7
        at = _number_end(data, at)
        if kind == 0:
            at = _number_end(data, at)
        elif kind == 1:
            at += 8
        elif kind == 2:
            size, at = _varint_at(data, at)
            at += size
        elif kind == 5:
            at += 4
    if at < end:
        raise InvalidRequest(f"the request has more than {MAX_FIELDS} fields")


def _number_end(data: Buffer, at: int) -> int:
    """Return where the number at `at` ends, behind the end of the message if it is malformed."""
    # Ten bytes hold 64 bits; a longer varint is malformed.
    for length, byte in enumerate(data[at : at + 10], 1):
        if byte < 0x80:
            return at + length
    return len(data)


class Layout:
    """How to cut messages of one length that differ only in id and raw contents."""

    def __init__(self, data: Buffer, split: Split) -> None:
        self._id = split.spans[0] if split.id else None
        self._raw = split.spans[len(split.spans) - len(split.raw) :]
        self._fixed: list[tuple[slice, bytes]] = []
        start = 0
        # With an empty span at the end, so that the last piece is one as well.
        for span in sorted((*split.spans, slice(len(data), 0)), key=lambda one: int(one.start)):
            if start < span.start:
                piece = slice(start, span.start)
                self._fixed.append((piece, bytes(data[piece])))
            start = span.stop

    def cut(self, data: Buffer) -> tuple[bytes, list[memoryview]] | None:
        """Return the id and the raw contents of `data`, a message of the same length.

        Return None when anything else in it differs, including tags and lengths.
        """
        for piece, expected in self._fixed:
            if data[piece] != expected:
                return None
        view = memoryview(data)
        request_id = b"" if self._id is None else bytes(data[self._id])
        return request_id, [view[span] for span in self._raw]


class Field:
    """One length-delimited field of a message: its one-byte tag, its bytes, and where it ends."""

    def __init__(self, tag: int, value: memoryview, end: int) -> None:
        self.tag = tag
        self.value = value
        self.end = end


def read_field(view: memoryview, at: int) -> Field | None:
    """Return the field that begins at `at`, None when it is of another kind or truncated."""
    if at + 1 >= len(view) or view[at] & 0x87 != 2:
        return None
    size, start = _varint_at(view, at + 1)
    end = start + size
    return Field(view[at], view[start:end], end) if end <= len(view) else None


def decode_text(value: bytes) -> str:
    """Return the text of a string field. Raises InvalidRequest when it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the message cannot be read: a text is not UTF-8: {error}") from error


def _varint_at(data: Buffer, at: int) -> tuple[int, int]:
    """Return the varint at `at` and where it ends; a malformed one counts as too large a size."""
    size = 0
    # Sizes have at most 31 bits, which are five bytes.
    for shift, byte in enumerate(data[at : at + 5]):
        size |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return size, at + shift + 1
    return MAX_MESSAGE_BYTES + 1, at


def encode_varint(value: int) -> bytes:
    """Return `value`, 0 or more, as a varint: seven bits per byte, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_field(tag: bytes, value: bytes) -> bytes:
    """Return a field: tag, length, `value`."""
    return tag + encode_varint(len(value)) + value


def with_raw(head: bytes, tag: bytes, tensors: list[Tensor]) -> list[Buffer]:
    """Return `head` followed by the data of each of `tensors` as a field `tag`, without copying.

    Raises InvalidRequest when the total is more than a message can hold.
    """
    buffers: list[Buffer] = []
    total = 0
    for tensor in tensors:
        # Contiguous: a view of an array with strides is no sequence of bytes.
        data = tensor.packed()
        size = len(data)
        # Tags and lengths between two tensors are one buffer, so that there are two per tensor.
        head += tag + encode_varint(size)
        total += len(head) + size
        buffers += (head, data)
        head = b""
    if head:
        buffers.append(head)
    # protobuf refuses to read a larger message (encoding, limits).
    if total > MAX_MESSAGE_BYTES:
        msg = f"{total} bytes of tensors exceed the {MAX_MESSAGE_BYTES} a gRPC message can hold"
        raise InvalidRequest(msg)
    return buffers
