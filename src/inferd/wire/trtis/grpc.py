"""The messages of nvidia.inferenceserver.GRPCService, to and from the types of `trtis_infer`.

An inference is parsed and assembled by hand, so that tensors stay views; protobuf parses what
describes them. Statuses are inside the answers: for gRPC itself each call succeeds.

Different versions wrote messages with different fields under one number; the wire types seen here
tell which version it was, while to protobuf's own reader another wire type is an unknown field.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from inferd.errors import InvalidRequest, UnknownCall
from inferd.memory.buffer import Buffer
from inferd.wire.proto import encode, message_class, parse
from inferd.wire.proto.fields import (
    MAX_MESSAGE_BYTES,
    Layout,
    Split,
    decode_text,
    encode_field,
    encode_varint,
)
from inferd.wire.trtis.answer import Answer
from inferd.wire.trtis.header import InferHeader, InputHeader, InputSource, OutputHeader
from inferd.wire.trtis.http import shortened
from inferd.wire.trtis.infer import SUCCESS
from inferd.wire.trtis.status import PACKAGE

SERVICE = f"{PACKAGE}.GRPCService"

_NAME, _VERSION_NUMBER, _VERSION_TEXT, _HEADER, _RAW_INPUT = 0x0A, 0x10, 0x12, 0x1A, 0x22
_STATUS_FIELD, _HEADER_FIELD, _RAW_OUTPUT = b"\x0a", b"\x12", b"\x1a"
_LATEST = -1

_MAX_HEADER_BYTES = 128 << 10
"""More would hold up the event loop, and no model needs as much."""

_MOST_WORDS, _MOST_INPUTS = 2048, 64
"""A message with more bytes besides its raw inputs, or with more raw inputs, is not remembered."""

_MOST_TIMES = 64

_VARINT, _FIXED64, _TEXT, _FIXED32 = 0, 1, 2, 5  # wire types
UINT64 = 2**64 - 1

_MAX_FIELDS = 10_000
"""More would hold up the event loop, and no model needs as many."""


class DecodedRequest(NamedTuple):
    """An InferRequest: `version` is "" for the latest."""

    model: str
    version: str
    header: InferHeader
    raw: "RawInputs"


class RawInputs(InputSource):
    """The raw inputs of a message."""

    def __init__(self, data: Buffer, raw: list[memoryview]) -> None:
        self.data = data
        self.raw = raw

    def take(self, name: str, size_bytes: int, model: str) -> memoryview:
        """See InputSource."""
        if self._at == len(self.raw):
            msg = (  # the index, not the count: the number that clients know
                f"expected tensor data for at least {self._at} inputs but got only {self._at} sets "
                f"of data for model '{model}': there is no raw input for input '{name}'"
            )
            raise InvalidRequest(msg)
        raw = self.raw[self._at]
        self._at += 1
        if len(raw) != size_bytes:
            raise InvalidRequest(
                f"unexpected size {len(raw)} for input '{name}', expecting {size_bytes} for model "
                f"'{model}', in bytes"
            )
        return raw

    def take_all(self, sizes_bytes: list[int]) -> list[Buffer] | None:
        """See InputSource."""
        raw = self.raw
        # One comparison of all sizes instead of a check of each.
        return list(raw) if list(map(len, raw)) == sizes_bytes else None

    def check_used_up(self, model: str) -> None:
        """See InputSource."""
        if self._at != len(self.raw):
            raise InvalidRequest(
                f"unexpected additional input data for model '{model}': the request has "
                f"{len(self.raw)} raw inputs, expected {self._at}"
            )


def decode_infer_request(data: Buffer) -> DecodedRequest:
    """Decode an InferRequest; raw inputs are views. Raises InvalidRequest."""
    # The first field is the model's name, so this tells messages of different models apart without
    # parsing.
    known = _known(len(data), bytes(data[2 : 2 + data[1]])) if len(data) > 2 else _KnownRequest()
    if (request := known.read(data)) is not None:
        return request
    view = memoryview(data)
    fields = decode_fields(view, "an InferRequest")
    # A repeated message field is merged; of other fields the last one counts (protobuf, encoding).
    described = b"".join(fields.get(_HEADER, ()))
    if len(described) > _MAX_HEADER_BYTES:
        msg = f"meta_data has {len(described)} bytes, expected at most {_MAX_HEADER_BYTES}"
        raise InvalidRequest(msg)
    header = _header(parse(f"{PACKAGE}.InferRequestHeader", described))
    model = decode_text(bytes(fields.get(_NAME, (b"",))[-1]))
    text, number = (fields.get(tag, (None,))[-1] for tag in (_VERSION_TEXT, _VERSION_NUMBER))
    version = _version(text, number, header)
    request = DecodedRequest(model, version, header, RawInputs(data, fields.get(_RAW_INPUT, [])))
    known.note(view, described, request)
    return request


class _KnownRequest:
    """What is known of messages of one length to one model, if they are alike."""

    def __init__(self) -> None:
        self._layout: Layout | None = None  # the positions of what changes: id and raw inputs
        self._request = DecodedRequest(
            "", "", InferHeader(), RawInputs(b"", [])
        )  # what the rest means
        self._times = 0

    def read(self, data: Buffer) -> DecodedRequest | None:
        """Return the request in a message, None if its layout is not known."""
        if self._layout is None or (found := self._layout.cut(data)) is None:
            return None
        number, raw = found
        model, version, known, _ = self._request
        header = known.renewed(0)
        if number:
            try:
                # The last field of a header is its id, as protobuf writes fields by number.
                header.id, end = read_varint(memoryview(number), 0)
            except ValueError:
                return None
            if end != len(number):  # more than the id is there
                return None
        return DecodedRequest(model, version, header, RawInputs(data, raw))

    def note(self, view: memoryview, described: bytes, request: DecodedRequest) -> None:
        """Remember `request`, with the header `described`, if it is likely to be repeated.

        The first message is not: with strings, each may have a length of its own. Nor are those of
        sequences. After _MOST_TIMES different messages no more are remembered.
        """
        self._times += 1
        header = request.header
        # These differ from one request to the next in more than the id.
        if header.is_old or header.correlation_id or header.flags:
            return
        if (
            1 < self._times <= _MOST_TIMES
            and len(view) - sum(map(len, request.raw.raw)) <= _MOST_WORDS
        ):
            # The latest kind of message of this length is the one that comes again.
            self._layout = None
            number = encode_varint(header.id) if header.id else b""
            words = described.removesuffix(b"\x28" + number) if number else described
            split = _split(view, len(number))
            if split is not None and _is_without_id(words):
                self._layout = Layout(view, split)
                header.words = words
                self._request = request._replace(raw=RawInputs(b"", []))


# By length as well, since a layout fits only messages of one length.
@lru_cache(maxsize=512)
def _known(_size: int, _model: bytes) -> _KnownRequest:
    return _KnownRequest()


def _is_without_id(words: bytes) -> bool:
    """Return whether `words` are a complete header without id: then the id was the last field."""
    try:
        return not parse(f"{PACKAGE}.InferRequestHeader", words).id
    except InvalidRequest:
        return False


def _split(view: memoryview, id_size: int) -> Split | None:
    """Return a message cut at its id and raw inputs; None unless it has exactly one header."""
    ends = []
    raw = []
    for tag, _, span in each_field(view, "an InferRequest"):
        if tag == _HEADER:
            ends.append(span.stop)
        elif tag == _RAW_INPUT:
            raw.append(span)
    # Several headers are merged by protobuf, and cannot be cut apart.
    if len(ends) != 1 or len(raw) > _MOST_INPUTS:
        return None
    [end] = ends
    spans = [slice(end - id_size, end)] if id_size else []
    number = bytes(view[end - id_size : end])
    return Split(b"", number, [view[span] for span in raw], [*spans, *raw])


def _version(text: memoryview | None, number: int | None, header: InferHeader) -> str:
    """Return the version as in V2, "" for the latest."""
    if text is not None:  # 0.8
        return decode_text(bytes(text))
    if number is None:
        return "" if header.is_old else "0"
    # int64 in the later schema: protobuf writes negative numbers as 64 bits.
    signed = number - 2**64 if number >= 2**63 else number
    is_latest = signed < 0 if header.is_old else signed == _LATEST
    return "" if is_latest else str(signed)


def _header(message: Any) -> InferHeader:
    outputs = [
        OutputHeader(one.name, one.cls.count, _shared(one), one.byte_size) for one in message.output
    ]
    # Old outputs, and only those, always have this field.
    is_old = bool(outputs) and all(one.byte_size for one in outputs)
    return InferHeader(
        message.batch_size,
        [_input(one, is_old=is_old) for one in message.input],
        outputs,
        message.correlation_id,
        message.id,
        message.flags,
        message.priority,
        message.timeout_microseconds,
        is_old,
    )


def _input(item: Any, *, is_old: bool) -> InputHeader:
    header = InputHeader(item.name)
    if not is_old:
        header.dims = tuple(item.dims)
        header.batch_byte_size = item.batch_byte_size
        header.shared = _shared(item)
    elif item.dims:  # in the new schema this field holds the old size of one item
        header.byte_size = item.dims[-1] & UINT64
    return header


def _shared(item: Any) -> tuple[str, int, int] | None:
    if not item.HasField("shared_memory"):
        return None
    place = item.shared_memory
    return place.name, place.offset, place.byte_size


class Statuses:
    """Writes RequestStatus messages; `server_id` is the server's name."""

    def __init__(self, server_id: str) -> None:
        # Encoded once: all but the number is the same in each answer.
        self._server = encode_field(b"\x1a", server_id.encode(errors="replace"))
        self._success = b"\x08%c%b\x20" % (SUCCESS, self._server)

    def success(self, number: int) -> bytes:
        """Return the message for the request with this number."""
        return self._success + encode_varint(number)

    def failure(self, code: int, message: str, number: int) -> bytes:
        """Return the message for a request that failed; `code` is a RequestStatusCode."""
        text = encode_field(b"\x12", shortened(message).encode(errors="replace"))
        return b"\x08%c%b%b\x20%b" % (code, text, self._server, encode_varint(number))


def encode_infer_response(status: bytes, answer: Answer) -> list[Buffer]:
    """Return the InferResponse with `answer`, as buffers to be sent in order.

    Outputs without bytes, as classes or in shared memory, get an empty raw output. Raises
    InvalidRequest when the answer is larger than a message can be.
    """
    head = encode_field(_STATUS_FIELD, status) + encode_field(_HEADER_FIELD, answer.message())
    buffers: list[Buffer] = []
    total = 0
    for data in answer.buffers:
        if data is None:
            # Empty, because clients match raw outputs to the header by position.
            head += _RAW_OUTPUT + b"\0"
            continue
        head += _RAW_OUTPUT + encode_varint(len(data))
        total += len(head) + len(data)
        buffers += (head, data)
        head = b""
    if head:
        buffers.append(head)
    if total + len(head) > MAX_MESSAGE_BYTES:
        msg = f"{total} bytes of tensors exceed the {MAX_MESSAGE_BYTES} a gRPC message can hold"
        raise InvalidRequest(msg)
    return buffers


def encode_infer_failure(status: bytes, request_id: int) -> bytes:
    """Return the InferResponse for a failed request; an id other than 0 is echoed."""
    header = b"\x28" + encode_varint(request_id) if request_id else b""
    answer = encode_field(_STATUS_FIELD, status)
    return answer + encode_field(_HEADER_FIELD, header) if header else answer


def encode_answer(rpc: str, status: bytes, **fields: Any) -> bytes:
    """Return the response message of `rpc` with its status and these fields."""
    return encode_field(_STATUS_FIELD, status) + encode(f"{PACKAGE}.{rpc}Response", **fields)


def decode_call(rpc: str, data: bytes) -> Any:
    """Return the request message of `rpc`. Raises InvalidRequest, UnknownCall."""
    # Its layouts are told apart before a parser sees it.
    if rpc == "SharedMemoryControl":
        return decode_memory_call(data)
    return parse(f"{PACKAGE}.{rpc}Request", data)


_MEMORY_CALL = f"{PACKAGE}.SharedMemoryControlRequest"
_WHAT = "a SharedMemoryControlRequest"

_REGISTER, _UNREGISTER, _UNREGISTER_ALL = 0, 1, 2
"""The type in 1.6. In 1.5, where none of it worked, the first two are swapped."""

# Tags: number and wire type of a field. First those of the request, then those of a region.
_TYPE, _NEWER_REGISTER, _REGION = 0x08, 0x0A, 0x12
_REGION_NAME, _KEY, _OFFSET_1_6, _SIZE_1_6 = 0x0A, 0x12, 0x18, 0x20
_SYSTEM, _OFFSET_1_7, _SIZE_1_7 = 0x12, 0x20, 0x28


def decode_memory_call(data: bytes) -> Any:
    """Return the SharedMemoryControlRequest in `data` in the layout of 1.8.

    The layout changed with each of its first versions. 1.5 and 1.6 have a type and one region; 1.7
    has a region's key, offset and size in other fields than 1.8 and later. Read by the later
    layout, a request to register in 1.6 would unregister.

    Raises InvalidRequest, and UnknownCall for an unknown type.
    """
    fields = decode_fields(memoryview(data), _WHAT)
    region = _inner(fields, _REGION)
    # Only 1.5 and 1.6 have a type, and only there the key stands in the region itself.
    if _TYPE in fields or _KEY in region:
        return _of_1_6(fields.get(_TYPE, [_REGISTER])[-1], region)
    register = _inner(fields, _NEWER_REGISTER)
    where = _inner(register, _SYSTEM)
    if _KEY in where:
        return _registering(register, _region_text(where, _KEY), _OFFSET_1_7, _SIZE_1_7)
    return parse(_MEMORY_CALL, data)


def _of_1_6(kind: int, region: dict[int, list[Any]]) -> Any:
    if kind == _REGISTER:
        return _registering(region, _region_text(region, _KEY), _OFFSET_1_6, _SIZE_1_6)
    if kind == _UNREGISTER:
        return message_class(_MEMORY_CALL)(unregister={"name": _region_text(region, _REGION_NAME)})
    if kind == _UNREGISTER_ALL:
        return message_class(_MEMORY_CALL)(unregister_all={})
    raise UnknownCall(f"unknown sharedmemorycontrol request type: it is {kind}")


def _registering(region: dict[int, list[Any]], key: str, offset: int, size: int) -> Any:
    request = message_class(_MEMORY_CALL)()
    register = request.register
    register.name = _region_text(region, _REGION_NAME)
    register.system_shared_memory.shared_memory_key = key
    # Of a field given twice the last value counts (protobuf, encoding).
    register.system_shared_memory.offset = region.get(offset, [0])[-1]
    register.byte_size = region.get(size, [0])[-1]
    return request


def _inner(fields: dict[int, list[Any]], tag: int) -> dict[int, list[Any]]:
    """Return the fields of the message in field `tag`, none if that is missing."""
    return decode_fields(fields[tag][-1], _WHAT) if tag in fields else {}


def _region_text(fields: dict[int, list[Any]], tag: int) -> str:
    return decode_text(bytes(fields.get(tag, (b"",))[-1]))


def decode_fields(view: memoryview, what: str) -> dict[int, list[Any]]:
    """Return the numbers and views in a message, by tag.

    Raises InvalidRequest when it cannot be read as `what`, and for too many fields.
    """
    fields: dict[int, list[Any]] = {}
    for tag, value, _ in each_field(view, what):
        fields.setdefault(tag, []).append(value)
    return fields


def each_field(view: memoryview, what: str) -> Iterator[tuple[int, object, slice]]:
    """Yield each field's tag, its number or view, and its position. Raises as `decode_fields`."""
    value: object
    at, end, count = 0, len(view), 0
    try:
        while at < end:
            tag, at = read_varint(view, at)
            if tag & 7 == _TEXT:
                size, at = read_varint(view, at)
                stop = at + size
                if stop > end:
                    raise ValueError
                value = view[at:stop]
            elif tag & 7 == _VARINT:
                value, stop = read_varint(view, at)
            else:
                value, stop = 0, _skipped(view, tag, at)
            count += 1
            if count > _MAX_FIELDS:
                raise InvalidRequest(f"the request has more than {_MAX_FIELDS} fields")
            yield tag, value, slice(at, stop)
            at = stop
    except ValueError:
        raise InvalidRequest(f"the message cannot be read as {what}") from None


def read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """Return the number at `at`, of at most 64 bits, and where it ends. Raises ValueError."""
    value = 0
    for shift, byte in enumerate(view[at : at + 10]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value & UINT64, at + shift + 1
    raise ValueError


def _skipped(view: memoryview, tag: int, at: int) -> int:
    """Return where a field of a fixed-size wire type, which is ignored, ends. Raises ValueError."""
    size = {_FIXED64: 8, _FIXED32: 4}.get(tag & 7)
    # Groups (3 and 4) are deprecated, and no message here ever had one.
    if size is None or at + size > len(view):
        raise ValueError
    return at + size
