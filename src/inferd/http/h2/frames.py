"""HTTP/2 frames: layout, names, and error codes (RFC 9113, sections 4, 6 and 7)."""

import enum
import struct
from collections.abc import Callable
from typing import Any, Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (RFC 9113, section 3.4)."""

FRAME_HEADER: Final = struct.Struct(">HBBBL")
"""Length (its high 16 and low 8 bits), type, flags, stream; the stream's top bit is reserved."""

Header = tuple[int, int, int, int, int]

read_header: Final[Callable[[Any, int], Header]] = FRAME_HEADER.unpack_from

read_kind: Final[Callable[[Any, int], tuple[int, int, int, int]]] = struct.Struct(
    ">HBHL"
).unpack_from
"""Like `read_header`, but with type and flags as one number."""

HEADER_BYTES: Final = 9

# Frame types, RFC 9113, section 6. Plain integers, since they are compared for each frame.
DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

# Flags.
ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

MAX_WINDOW: Final = 2147483647
DEFAULT_WINDOW: Final = 65535
DEFAULT_FRAME_BYTES: Final = 16384
CONTROL_FRAME_BYTES: Final = 16384  # the limit for most control frames: kept until complete
MAX_FRAME_BYTES: Final = 16777215
STREAM_MASK: Final = 0x7FFFFFFF

_SETTING: Final = struct.Struct(">HL")


class Setting(enum.IntEnum):
    """The settings of RFC 9113, section 6.5.2."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(enum.IntEnum):
    """Why a stream or a connection ends (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class ConnectionFault(Exception):
    """The peer broke a rule that ends the connection (RFC 9113, section 5.4.1)."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StreamFault(Exception):
    """The peer broke a rule that ends one stream (RFC 9113, section 5.4.2)."""

    def __init__(self, stream_id: int, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.stream_id = stream_id
        self.code = code
        self.message = message


def frame_header(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """Return the nine bytes before a payload of `length` bytes."""
    return FRAME_HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a whole frame."""
    return frame_header(len(payload), kind, flags, stream_id) + payload


def encode_settings(settings: dict[Setting, int]) -> bytes:
    """Return a SETTINGS frame."""
    payload = b"".join(_SETTING.pack(name, value) for name, value in settings.items())
    return encode_frame(SETTINGS, 0, 0, payload)


def encode_rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    """Return an RST_STREAM frame."""
    return encode_frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def encode_window_update(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return encode_frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def encode_goaway(last_stream_id: int, code: ErrorCode, message: str = "") -> bytes:
    """Return a GOAWAY frame; `message` is its debug data."""
    payload = struct.pack(">LL", last_stream_id, code) + message.encode()
    return encode_frame(GOAWAY, 0, 0, payload)


def encode_headers(stream_id: int, block: bytes, flags: int, frame_bytes: int) -> bytes:
    """Return a header block as HEADERS and as many CONTINUATION frames as it needs."""
    if len(block) <= frame_bytes:
        return encode_frame(HEADERS, flags | END_HEADERS, stream_id, block)
    pieces = [block[at : at + frame_bytes] for at in range(0, len(block), frame_bytes)]
    frames = [encode_frame(HEADERS, flags, stream_id, pieces[0])]
    frames += [encode_frame(CONTINUATION, 0, stream_id, piece) for piece in pieces[1:-1]]
    frames.append(encode_frame(CONTINUATION, END_HEADERS, stream_id, pieces[-1]))
    return b"".join(frames)


def decode_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return the settings in a SETTINGS payload in order, each checked.

    Raises ConnectionFault (RFC 9113, sections 6.5 and 6.5.2).
    """
    if len(payload) % _SETTING.size:
        msg = f"a SETTINGS frame has {len(payload)} bytes, expected a multiple of 6"
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
    settings = []
    for name, value in _SETTING.iter_unpack(payload):
        if name == Setting.ENABLE_PUSH and value > 1:
            msg = f"SETTINGS_ENABLE_PUSH is {value}, expected 0 or 1"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        if name == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            msg = f"SETTINGS_INITIAL_WINDOW_SIZE is {value}, expected at most {MAX_WINDOW}"
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, msg)
        if name == Setting.MAX_FRAME_SIZE and not DEFAULT_FRAME_BYTES <= value <= MAX_FRAME_BYTES:
            msg = f"SETTINGS_MAX_FRAME_SIZE is {value}, expected 16384 to 16777215"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        settings.append((name, value))
    return settings
