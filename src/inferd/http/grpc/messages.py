"""gRPC over HTTP/2: request heads, length-prefixed messages, statuses.

The rules are those of the "gRPC over HTTP2" protocol description (PROTOCOL-HTTP2.md); sections
are cited by their headings.
"""

import base64
import binascii
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from inferd.errors import InvalidRequest
from inferd.http.coding import WINDOW_BITS
from inferd.http.h2.frames import DATA, END_HEADERS, END_STREAM, HEADERS
from inferd.http.h2.hpack import Field, encode_fields
from inferd.http.h2.request import RequestHead
from inferd.memory.buffer import Buffer
from inferd.record import Record

PREFIX: Final = struct.Struct(">BL")
"""The prefix of each message: compressed flag and length (Length-Prefixed-Message)."""

PREFIX_BYTES: Final = 5

SMALL_BYTES: Final = 16384
"""Messages up to this size are copied, not sent as views, and compressed on the loop."""

OK: Final = 0
CANCELLED: Final = 1
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

ACCEPTED_ENCODINGS: Final = b"identity,deflate,gzip"

_SMALL_BYTES: Final = 65536


class GrpcFault(Exception):
    """Ends the call with a status that gRPC itself defines, whatever the method."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


_MOST_DIGITS: Final = 8  # of a timeout
_UNIT_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_OURS: Final = frozenset(
    (
        b"content-type",
        b"content-length",
        b"te",
        b"host",
        b"grpc-timeout",
        b"grpc-encoding",
        b"grpc-accept-encoding",
    )
)


class GrpcHead(Record):
    """What a request's head says about the call, without its metadata.

    `timeout_s` None means that the client waits forever. `fault`, a mistake of the client, ends
    the call. `method` and the fields after it are for the server, so that it looks up the method
    and its guard only once: `handler` is that of a unary method; `is_plain` says that the call
    needs no work before its message has arrived.
    """

    def __init__(  # noqa: PLR0913
        self,
        timeout_s: float | None = None,
        encoding: bytes = b"identity",
        accepted: frozenset[bytes] = frozenset(),
        fault: GrpcFault | None = None,
        method: Any = None,
        handler: Any = None,
        is_plain: bool = False,
        check_access: Callable[[], None] | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.encoding = encoding
        self.accepted = accepted
        self.fault = fault
        self.method = method
        self.handler = handler
        self.is_plain = is_plain
        self.check_access = check_access


def is_grpc(head: RequestHead) -> bool:
    """Return whether the Content-Type is gRPC's (Requests, Content-Type)."""
    for name, value in head.fields:
        is_grpc_type = name == b"content-type" and value.startswith(b"application/grpc")
        # The type itself, +proto and the like, or parameters; "application/grpc-web" is another
        # protocol.
        if is_grpc_type and value[16:17] in (b"", b"+", b";"):
            return True
    return False


def decode_grpc_head(head: RequestHead) -> GrpcHead:
    """Decode `head`, whose Content-Type is gRPC's."""
    grpc = GrpcHead()
    for name, value in head.fields:
        if name == b"grpc-timeout":
            _take_timeout(grpc, value)
        elif name == b"grpc-encoding":
            grpc.encoding = value
            if value != b"identity" and value not in WINDOW_BITS:
                text = value[:40].decode("latin-1")
                grpc.fault = GrpcFault(
                    UNIMPLEMENTED, f"grpc-encoding '{text}' is not one of gzip, deflate, identity"
                )
        elif name == b"grpc-accept-encoding":
            grpc.accepted = frozenset(one.strip() for one in value.split(b","))
    return grpc


def renew_grpc_head(grpc: GrpcHead, changed: list[Field]) -> GrpcHead | None:
    """Return the head that differs from that of `grpc` only in the values of the fields `changed`.

    Return None if these are not only a deadline and metadata: then the head must be decoded anew.
    """
    fresh = GrpcHead(
        grpc.timeout_s,
        grpc.encoding,
        grpc.accepted,
        grpc.fault,
        grpc.method,
        grpc.handler,
        grpc.is_plain,
        grpc.check_access,
    )
    for name, value in changed:
        if name == b"grpc-timeout":
            _take_timeout(fresh, value)
        elif name in _OURS:
            return None
    return fresh


def _take_timeout(grpc: GrpcHead, value: bytes) -> None:
    digits, unit_s = value[:-1], _UNIT_S.get(value[-1:])
    # Eight digits at most (Requests, Timeout).
    if unit_s is None or len(digits) > _MOST_DIGITS or not digits.isdigit():
        grpc.timeout_s = None
        grpc.fault = GrpcFault(INTERNAL, "grpc-timeout is not a number and a unit")
    else:
        grpc.timeout_s = int(digits) * unit_s


def decode_metadata(head: RequestHead) -> list[tuple[str, str | bytes]]:
    """Return the metadata; keys that end in -bin have bytes, and several in one field are split.

    Raises InvalidRequest for bytes that are not Base64 (Requests, Custom-Metadata).
    """
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in head.fields:
        if name in _OURS:
            continue
        key = name.decode("latin-1")
        if name.endswith(b"-bin"):
            # Several values may share a field, separated by commas (Custom-Metadata).
            metadata += [(key, _decode_base64(key, one)) for one in value.split(b",")]
        else:
            metadata.append((key, value.decode("latin-1")))
    return metadata


def _decode_base64(key: str, value: bytes) -> bytes:
    stripped = value.strip().rstrip(b"=")
    try:
        # Padding may be left out (Custom-Metadata).
        return base64.b64decode(stripped + b"=" * (-len(stripped) % 4), validate=True)
    except binascii.Error as error:
        raise InvalidRequest(f"metadata '{key}' is not Base64: {error}") from error


class MessageReader:
    """Assembles the messages of one call from the pieces in DATA frames.

    A message's bytes go into one buffer of the length that its prefix declares; memory is committed
    as they arrive. Each message, not yet decompressed, is passed to `on_message` with its
    compressed flag: as bytes when it is small, else as a view.
    """

    def __init__(self, max_bytes: int, on_message: Callable[[Any, bool], None]) -> None:
        self._max_bytes = max_bytes
        self._on_message = on_message
        self.begun_count = 0  # messages that were given a buffer
        self._prefix = b""
        self._message: memoryview | None = None
        self._is_compressed = False
        self._filled = 0

    @property
    def is_between_messages(self) -> bool:
        """Whether the last message is complete."""
        return self._message is None and not self._prefix

    @property
    def coming_bytes(self) -> int:
        """How many bytes of the incomplete message have arrived, 0 between messages."""
        return len(self._prefix) if self._message is None else PREFIX_BYTES + self._filled

    @property
    def missing_bytes(self) -> int:
        """How many bytes the incomplete message still lacks, 0 between messages."""
        return 0 if self._message is None else len(self._message) - self._filled

    def feed(self, data: Buffer, at: int, stop: int) -> None:
        """Take data[at:stop]. Raises GrpcFault for a message too large or with a bad flag."""
        while at < stop:
            if self._message is not None:
                count = min(stop - at, len(self._message) - self._filled)
                self._message[self._filled : self._filled + count] = data[at : at + count]
                at += count
                self.filled(count)
                continue
            if self._prefix or stop - at < PREFIX_BYTES:
                count = min(stop - at, PREFIX_BYTES - len(self._prefix))
                self._prefix += bytes(data[at : at + count])
                at += count
                if len(self._prefix) < PREFIX_BYTES:
                    return
                flag, length = PREFIX.unpack(self._prefix)
                self._prefix = b""
            else:
                flag, length = PREFIX.unpack_from(data, at)
                at += PREFIX_BYTES
            self._check(flag, length)
            if length <= stop - at and length <= _SMALL_BYTES:
                # A copy, because `data` is the connection's read buffer.
                self._on_message(bytes(data[at : at + length]), flag == 1)
                at += length
            else:
                self._is_compressed = flag == 1
                self._begin(length)

    def feed_run(self, data: Buffer, starts: Sequence[int], length: int) -> None:
        """Take `length` bytes of `data` from each of `starts`, evenly spaced. Raises as `feed`."""
        while starts:
            count = 1
            if len(starts) > 1:
                # Whole pieces of the current message only; the last of it goes through `feed`,
                # which knows prefixes.
                count = max(1, min(len(starts), self.missing_bytes // length))
            if count > 1:
                self._copy_run(data, starts[:count], length)
            else:
                self.feed(data, starts[0], starts[0] + length)
            starts = starts[count:]

    def _copy_run(self, data: Buffer, starts: Sequence[int], length: int) -> None:
        """Copy several pieces of the current message in one operation."""
        shape = len(starts), length
        # One strided copy in C instead of a slice in Python per frame.
        there = np.ndarray(shape, np.uint8, data, starts[0], (starts[1] - starts[0], 1))
        here = np.ndarray(shape, np.uint8, self._message, self._filled)
        here[:] = there
        self.filled(shape[0] * length)

    def room(self) -> memoryview | None:
        """Return the unfilled rest of the current message's buffer, None if there is none."""
        return None if self._message is None else self._message[self._filled :]

    def filled(self, count: int) -> None:
        """Note that `count` bytes of `room` have been filled."""
        self._filled += count
        message = self._message
        if message is not None and self._filled == len(message):
            self._message, self._filled = None, 0
            is_small = len(message) <= _SMALL_BYTES
            self._on_message(bytes(message) if is_small else message, self._is_compressed)

    def _check(self, flag: int, length: int) -> None:
        if flag > 1:
            raise GrpcFault(INTERNAL, f"a message's compressed flag is {flag}, expected 0 or 1")
        if length > self._max_bytes:
            msg = f"a message has {length} bytes, this server takes at most {self._max_bytes}"
            raise GrpcFault(RESOURCE_EXHAUSTED, msg)

    def _begin(self, length: int) -> None:
        self.begun_count += 1
        # Not a bytearray: that would zero memory that is about to be overwritten, and commit all
        # of it though the client may never send what it announced.
        try:
            self._message = np.empty(length, np.uint8).data
        except MemoryError:
            msg = "the server has no memory for the message; try again later"
            raise GrpcFault(RESOURCE_EXHAUSTED, msg) from None
        self._filled = 0


def choose_encoding(accepted: frozenset[bytes]) -> bytes:
    """Return the encoding for answers to a client that accepts these encodings."""
    for encoding in (b"gzip", b"deflate"):
        if encoding in accepted:
            return encoding
    return b"identity"


_BASIC: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))
_UNSAFE: Final = re.compile(rb"[^ -$&-~]|^ | $")
"""What is percent-encoded (Responses, Status-Message): also a space at either end of the value."""


# There are as many as encodings.
@lru_cache(maxsize=16)
def encode_response_head(encoding: bytes = b"identity") -> bytes:
    """Return the block before the answer's messages (Responses, Response-Headers)."""
    fields = list(_BASIC)
    if encoding != b"identity":
        fields.append((b"grpc-encoding", encoding))
    return encode_fields(fields)


def encode_status(status: int, message: str, metadata: Iterable[Field] = ()) -> bytes:
    """Return the block of the trailers (Responses, Trailers)."""
    return encode_fields([*_status_fields(status, message), *metadata])


def encode_status_only(status: int, message: str) -> bytes:
    """Return the block of an answer without messages (Responses, Trailers-Only)."""
    fields = [*_BASIC, *_status_fields(status, message)]
    if status == UNIMPLEMENTED:  # Compression: says which encodings are supported
        fields.append((b"grpc-accept-encoding", ACCEPTED_ENCODINGS))
    return encode_fields(fields)


def _status_fields(status: int, message: str) -> list[Field]:
    fields: list[Field] = [(b"grpc-status", b"%d" % status)]
    if message:
        # Lone surrogates of a model's text must not fail the status.
        text = message.encode(errors="replace")
        fields.append((b"grpc-message", _UNSAFE.sub(lambda m: b"%%%02X" % m[0][0], text)))
    return fields


OK_TRAILERS: Final = encode_status(OK, "")

_HEAD_BLOCK: Final = encode_response_head()
_pack_head: Final = struct.Struct(f">5sL{len(_HEAD_BLOCK)}sLxLxL").pack
_HEAD_START: Final = bytes((0, 0, len(_HEAD_BLOCK), HEADERS, END_HEADERS))
_pack_tail: Final = struct.Struct(f">5sL{len(OK_TRAILERS)}s").pack
_TAIL_START: Final = bytes((0, 0, len(OK_TRAILERS), HEADERS, END_HEADERS | END_STREAM))


def encode_small_answer(stream_id: int, buffers: list[Buffer], length: int) -> bytes:
    """Return the frames of a whole answer with status OK: HEADERS, one DATA, HEADERS.

    `length` is that of the message in `buffers`; with its prefix it must fit in one frame.
    """
    frame_start = length + PREFIX_BYTES << 8 | DATA  # the frame's and the prefix's flags are 0
    head = _pack_head(_HEAD_START, stream_id, _HEAD_BLOCK, frame_start, stream_id, length)
    # One buffer: a write of three costs more than the copy.
    return b"".join((head, *buffers, _pack_tail(_TAIL_START, stream_id, OK_TRAILERS)))


def encode_message(buffers: list[Buffer], *, is_compressed: bool = False) -> list[Buffer]:
    """Return one message with its prefix, as buffers."""
    length = sum(map(len, buffers))
    return [PREFIX.pack(is_compressed, length), *buffers]
