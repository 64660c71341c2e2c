"""GrpcLoadConnection: calls over HTTP/2, one at a time, whose answers are counted and not read."""

import asyncio
from typing import Any, Final
from urllib.parse import unquote

from inferd.bench.generator.connection import LoadConnection, now_ns
from inferd.http.h2 import frames
from inferd.http.h2.frames import ConnectionFault, Setting
from inferd.http.h2.hpack import HeaderDecoder

_MAX_LIST_BYTES: Final = 65536
# As the client's: a quarter of the window.
_RENEWED_AT: Final = 1 << 29
_PREFIX_BYTES: Final = 5
_KNOWN_BLOCKS: Final = 64

_START: Final = (
    frames.PREFACE
    + frames.encode_settings(
        {
            Setting.HEADER_TABLE_SIZE: 0,  # so that equal blocks mean the same
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW,
        }
    )
    + frames.encode_window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
)
FINAL: Final = b"\x0a\x15triton_final_response\x12\x02\x08\x01"
"""The entry of a response's parameters that says that no more follow."""
_STATUSES: Final = [
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
]  # fmt: skip


class GrpcLoadConnection(LoadConnection):
    """A connection of HTTP/2; of a plan of streams it has one stream, which stays."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._input = bytearray()
        self._skipped = 0  # bytes of a message that are to come, and that nobody reads
        self._decoder = HeaderDecoder(_MAX_LIST_BYTES)
        self._known: dict[bytes, str | None] = {}
        self._id = -1
        self._is_open = False
        self._block = bytearray()
        self._received = bytearray()  # of a stream
        self._frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._initial_window = frames.DEFAULT_WINDOW
        self._window = self._connection_window = frames.DEFAULT_WINDOW
        self._used = 0
        self._unsent = memoryview(b"")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the server."""
        super().connection_made(transport)
        self._transport.write(_START)

    def send(self, content: bytes) -> None:
        """Send a call, or on a stream a message."""
        self.is_busy = True
        start = b""
        if not self._is_open:
            self._id += 2
            self._window = self._initial_window
            head = self._plan.head
            start = frames.frame_header(len(head), frames.HEADERS, frames.END_HEADERS, self._id)
            start += head
            self._is_open = True
        size = len(content)
        # As nearly all requests: head and message in one write.
        if size <= min(self._frame_bytes, self._window, self._connection_window):
            flags = 0 if self._plan.is_stream else frames.END_STREAM
            self._window -= size
            self._connection_window -= size
            begun = start + frames.frame_header(size, frames.DATA, flags, self._id)
            self._transport.write(begun + content)
            return
        if start:
            self._transport.write(start)
        self._unsent = memoryview(content)
        self._send_more()

    def _send_more(self) -> None:
        """Send what the peer's windows leave room for."""
        while self._unsent:
            size = min(self._frame_bytes, self._window, self._connection_window, len(self._unsent))
            if size <= 0:
                return
            piece, self._unsent = self._unsent[:size], self._unsent[size:]
            is_last = not self._unsent and not self._plan.is_stream
            self._window -= size
            self._connection_window -= size
            flags = frames.END_STREAM if is_last else 0
            header = frames.frame_header(size, frames.DATA, flags, self._id)
            self._transport.writelines((header, piece))

    def buffer_updated(self, count: int) -> None:
        """Take what has arrived."""
        data = self._view[:count]
        if self._skipped:
            skipped = min(self._skipped, count)
            self._skipped -= skipped
            data = data[skipped:]
        self._input += data
        try:
            self._read_frames()
        except ConnectionFault as fault:
            self.fail(fault.message)

    def _read_frames(self) -> None:
        buffer, at = self._input, 0
        end = len(buffer)
        if buffer.startswith(b"HTTP/1"):
            self.fail("what listens there speaks HTTP/1.1, not gRPC")
            return
        while end - at >= frames.HEADER_BYTES:
            high, low, kind, flags, stream_id = frames.read_header(buffer, at)
            length = high << 8 | low
            start = at + frames.HEADER_BYTES
            # Kinds beyond CONTINUATION must be ignored (RFC 9113, section 4.1), but on stream 0
            # they are more likely another protocol.
            if kind > frames.CONTINUATION and not stream_id:
                self.fail("what listens there does not speak HTTP/2")
                return
            if start + length > end:
                # Only padding and streams need the bytes of a frame.
                if kind != frames.DATA or self._plan.is_stream or flags & frames.PADDED:
                    break
                # Large answers are counted, not collected.
                self._skipped = length - (end - start)
                self._count(length)
                at = end
                break
            at = start + length
            self._take_frame(kind, flags, stream_id, buffer[start:at])
        del buffer[:at]

    def _take_frame(self, kind: int, flags: int, stream_id: int, payload: bytearray) -> None:
        if kind == frames.DATA:
            self._count(len(payload))
            if self._plan.is_stream and stream_id == self._id:
                padding = payload[0] if flags & frames.PADDED else 0
                self._take_messages(payload[1:-padding] if padding else payload)
        elif kind in (frames.HEADERS, frames.CONTINUATION):
            self._take_block(kind, flags, stream_id, payload)
        elif kind == frames.WINDOW_UPDATE:
            self._take_window(stream_id, int.from_bytes(payload[:4], "big") & frames.STREAM_MASK)
        elif kind == frames.RST_STREAM and stream_id == self._id:
            code = int.from_bytes(payload[:4], "big")
            self._end_call(f"the server reset the stream (error {code})")
        else:
            self._take_control(kind, flags, payload)

    def _take_control(self, kind: int, flags: int, payload: bytearray) -> None:
        """Take a frame that is about the connection."""
        if kind == frames.SETTINGS and not flags & frames.ACK:
            self._take_settings(payload)
        elif kind == frames.PING and not flags & frames.ACK:
            self._transport.write(frames.encode_frame(frames.PING, frames.ACK, 0, bytes(payload)))
        elif kind == frames.GOAWAY:
            self.is_lost = True
            if not self.is_busy:
                self._transport.close()

    def _take_window(self, stream_id: int, increment: int) -> None:
        if not stream_id:
            self._connection_window += increment
        elif stream_id == self._id:
            self._window += increment
        self._send_more()

    def _count(self, size: int) -> None:
        """Count received data, and give the peer new room for more in time."""
        self._used += size
        if self._used >= _RENEWED_AT:
            update = frames.encode_window_update(0, self._used)
            # A unary call ends before its own window does: it has 2 GiB.
            if self._plan.is_stream and self._is_open:
                update += frames.encode_window_update(self._id, self._used)
            self._transport.write(update)
            self._used = 0

    def _take_settings(self, payload: bytearray) -> None:
        for at in range(0, len(payload) - 5, 6):
            name = int.from_bytes(payload[at : at + 2], "big")
            value = int.from_bytes(payload[at + 2 : at + 6], "big")
            if name == Setting.MAX_FRAME_SIZE:
                self._frame_bytes = value
            elif name == Setting.INITIAL_WINDOW_SIZE:
                # The difference counts for open streams (RFC 9113, section 6.9.2).
                self._window += value - self._initial_window
                self._initial_window = value
        self._transport.write(frames.encode_frame(frames.SETTINGS, frames.ACK, 0))
        self._send_more()

    def _take_block(self, kind: int, flags: int, stream_id: int, payload: bytearray) -> None:
        """Take a header block: of trailers, or of an answer that has no message."""
        if kind == frames.HEADERS:
            if flags & frames.PADDED:
                payload = payload[1 : -payload[0] or None]
            if flags & frames.WITH_PRIORITY:
                payload = payload[5:]
            self._block = payload
            self._is_last = bool(flags & frames.END_STREAM)
        else:
            self._block += payload
        if not flags & frames.END_HEADERS:
            return
        error = self._error_in(bytes(self._block))
        if self._is_last and stream_id == self._id:
            self._end_call("the answer has no status of gRPC" if error is None else error)

    def _error_in(self, block: bytes) -> str | None:
        """Return what a block's status says: "" is success, None that it has none."""
        # Equal blocks mean the same, since the dynamic table is turned off in SETTINGS.
        if block in self._known:
            return self._known[block]
        fields, _ = self._decoder.decode(block)
        found: dict[bytes, bytes] = {field[0]: field[1] for field in fields}
        status = found.get(b"grpc-status")
        error: str | None = None
        if status is not None:
            error = "" if status == b"0" else _status_text(status, found)
        elif found.get(b":status", b"200") != b"200":
            error = f"the server answers with status {found[b':status'].decode()} of HTTP, not gRPC"
        if not self._decoder.is_table_changed:
            if len(self._known) >= _KNOWN_BLOCKS:
                self._known.clear()
            self._known[block] = error
        return error

    def _take_messages(self, data: bytearray) -> None:
        """Take messages of a stream."""
        received = self._received
        received += data
        while len(received) >= _PREFIX_BYTES:
            end = _PREFIX_BYTES + int.from_bytes(received[1:_PREFIX_BYTES], "big")
            if len(received) < end:
                return
            message = bytes(received[_PREFIX_BYTES:end])
            del received[:end]
            self._take_answer(message)

    def _take_answer(self, message: bytes) -> None:
        if not self.is_busy:
            return
        # Field 1 of ModelStreamInferResponse; a good answer has an empty one, which is not written.
        if message.startswith(b"\x0a"):  # error_message
            size, at = _integer(message, 1)
            self.end(message[at : at + size].decode(errors="replace"))
            return
        # Looked for as bytes: decoding each answer would cost more than the server's work.
        is_final = self._plan.has_one_answer or FINAL in message
        if not is_final or _has_outputs(message):
            if not self.answers:
                self.first_ns = now_ns()
            self.answers += 1
        if is_final:
            self.end("")

    def _end_call(self, error: str) -> None:
        self._is_open = False
        self._unsent = memoryview(b"")
        if self.is_lost:
            self._transport.close()
        if self.is_busy:
            if not error and self._plan.is_stream:
                error = "the server ended the stream before the last answer"
            self.end(error)


def _status_text(status: bytes, fields: dict[bytes, bytes]) -> str:
    text = unquote(fields.get(b"grpc-message", b"").decode(errors="replace"))
    # UNKNOWN (gRPC over HTTP/2: a status that is no number).
    number = int(status) if status.isdigit() else 2
    name = _STATUSES[number] if number < len(_STATUSES) else str(number)
    return f"{name}: {text}"


def _has_outputs(message: bytes) -> bool:
    """Return whether a ModelStreamInferResponse has outputs: the last of a model may have none."""
    at, end = 1, len(message)
    _, at = _integer(message, at)  # its infer_response
    while at < end:
        tag = message[at]
        if tag == _OUTPUTS_TAG:
            return True
        size, at = _integer(message, at + 1)
        # Fields before `outputs` are strings and messages: none has a fixed width.
        at += size if tag & 7 == _WITH_LENGTH else 0
    return False


_OUTPUTS_TAG: Final = 0x2A
_WITH_LENGTH: Final = 2


def _integer(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, at
