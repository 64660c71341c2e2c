"""GrpcConnection: one call of gRPC after the other on a connection (RFC 9113).

A connection has one stream at a time: calls side by side have connections of their own. So nothing
waits behind the answer of another call, and there is no window to be shared.
"""

import struct
import time
from collections.abc import Sequence
from typing import Any, Final

from inferd.client.call import SMALL_BYTES, ClientCall, ServerAnswer
from inferd.client.connection.reader import Reader
from inferd.client.connection.stream import ByteStream
from inferd.client.errors import BadAnswer, ConnectionLost
from inferd.client.failures import not_http2
from inferd.client.incoming import PREFIX, whole_answer, without_padding
from inferd.client.outgoing import (
    MAX_LIST_BYTES,
    START,
    BodyPieces,
    SendWindows,
    header_block,
    timeout_text,
)
from inferd.client.settings import ClientSettings
from inferd.http.h2 import frames
from inferd.http.h2.frames import ConnectionFault, ErrorCode
from inferd.http.h2.hpack import HeaderDecoder
from inferd.memory.buffer import Buffer

# A server answers with a head and trailers that are nearly always the same.
_KNOWN_BLOCKS: Final = 16
# Windows are opened as far as the protocol allows, 2 GiB, and renewed after a quarter of that: an
# answer of usual size needs no frame of ours at all.
_RENEWED_AT: Final = 1 << 29
# Ids of streams are 31 bits and are not used again (RFC 9113, section 5.1.1); then a new connection
# is needed.
_LAST_STREAM: Final = 0x7FFFFFF0


class GrpcConnection:
    """A connection that has one call at a time. After an error it must be closed."""

    def __init__(self, stream: ByteStream, settings: ClientSettings) -> None:
        self.stream = stream
        self.is_reusable = True
        target = settings.target
        self._target = target
        self._scheme = "https" if target.is_tls else "http"
        self._reader = Reader(stream)
        self._max_bytes = settings.max_answer_bytes
        self._decoder = HeaderDecoder(MAX_LIST_BYTES)
        # Header blocks by their bytes, while they do not depend on the dynamic table.
        self._known: dict[bytes, dict[str, str]] = {}
        self._control = b""  # frames that go out with what is sent next
        # A server must begin with SETTINGS (RFC 9113, section 3.4): what else comes first tells
        # that it is none.
        self._is_greeted = False
        # What the peer allows.
        self._windows = SendWindows()
        # What was received since windows were last renewed.
        self._used = self._stream_used = 0
        # The current stream; those of clients are odd (RFC 9113, section 5.1.1).
        self._id = -1
        # Whether a frame was given up in the middle, by a time limit or a cancellation: whatever
        # is read or sent next is a part of it.
        self._is_torn = False
        self._head: dict[str, str] | None = None
        self._trailers: dict[str, str] | None = None
        self._is_ended = True
        self._prefix = b""
        self._message: memoryview | None = None
        self._filled = 0
        self._messages: list[memoryview] = []

    async def start(self) -> None:
        """Greet the server; the answer is awaited with that of the first call."""
        if self._target.is_tls and self.stream.protocol != "h2":
            msg = f"{self._target} speaks TLS, but no HTTP/2; write https:// if it is for REST"
            raise BadAnswer(msg)
        # Nothing is sent yet: the greeting goes out in one packet with the first call, which need
        # not wait for the server's SETTINGS (RFC 9113, section 3.4).
        self._control = START

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived since the last answer."""
        return self._reader.start == self._reader.end and self.stream.is_quiet()

    async def is_usable(self) -> bool:
        """Return whether the connection can have another call; read what arrived meanwhile."""
        try:
            while self.is_reusable and not self.is_quiet():
                # Servers send PING, SETTINGS and GOAWAY to idle connections: a GOAWAY must be read
                # before the next call, or that would be lost.
                await self._read_frame()
        except (OSError, ConnectionLost, BadAnswer):
            return False
        return self.is_reusable

    async def ask(self, call: ClientCall[object], fields: str) -> ServerAnswer:
        """Send `call` with the header lines `fields`, and return the answer.

        Raises OSError, ConnectionLost, BadAnswer and DeadlineExceeded.
        """
        self.open(call, fields, self.stream.deadline - time.monotonic())
        await self.send_message(call.buffers, call.size, is_last=True)
        reader = self._reader
        # The usual case: what is received next is a whole answer. Frames that must go out first, or
        # bytes that are here already, take the longer way.
        if self._is_greeted and not (self._is_ended or self._control or reader.end > reader.start):
            await reader.more()
            self._read_at_once()
        while not self._is_ended:
            await self._read_frame()
        return self._answer()

    async def begin(self, call: ClientCall[object], fields: str) -> ServerAnswer | None:
        """Send `call`, whose answers `messages` yields. Raises as `ask`."""
        self.open(call, fields, self.stream.deadline - time.monotonic())
        await self.send_message(call.buffers, call.size, is_last=True)
        return None

    async def next_message(self) -> memoryview | None:
        """Return the next message, None when the call has ended. Raises as `ask`."""
        while not self._messages and not self._is_ended:
            await self._read_frame()
        # Messages that came before the end of the call are still its answers.
        return self._messages.pop(0) if self._messages else None

    @property
    def is_done(self) -> bool:
        """Whether the call has ended, and all of it was read."""
        return self._is_ended and not self._messages and not self._is_torn

    def outcome(self) -> ServerAnswer:
        """Return the status of a call whose messages were read, as an answer without any."""
        return self._answer()

    def open(self, call: ClientCall[object], fields: str, seconds: float | None) -> None:
        """Begin a stream, which goes out with its first message; without `seconds` for long."""
        self._id += 2
        # The connection takes this call, and no further one.
        if self._id >= _LAST_STREAM:
            self.is_reusable = False
        self._head = self._trailers = None
        self._is_ended = False
        self._prefix, self._message, self._filled = b"", None, 0
        self._messages = []
        self._windows.begin()
        self._stream_used = 0
        for name, value in call.headers:
            # As lines, since the block is kept by them: header_block is called with equal texts for
            # most calls.
            fields += f"{name}: {value}\r\n"
        target = self._target
        timeout = b"" if seconds is None else timeout_text(seconds)
        block = header_block(self._scheme, target.authority, call.path, fields, timeout)
        self._control += frames.encode_headers(self._id, block, 0, self._windows.frame_bytes)

    def _answer(self) -> ServerAnswer:
        headers = self._head or {}
        # An error may come as trailers only, in the one HEADERS frame (gRPC over HTTP/2,
        # Responses).
        trailers = headers if self._trailers is None else self._trailers
        # A proxy's own error has no grpc-status, a server's may have both.
        if (status := headers.get(":status")) != "200" and "grpc-status" not in trailers:
            raise BadAnswer(f"{self._target} answers over HTTP/2, but not as gRPC: status {status}")
        code = trailers.get("grpc-status")
        if code is None or not code.isdigit():
            msg = f"{self._target} answers over HTTP/2, but not as gRPC: there is no grpc-status"
            raise BadAnswer(msg)
        # END_STREAM within a message: the status is no excuse for what is missing.
        if self._message is not None or self._prefix:
            raise ConnectionLost("the server ended its answer in the middle of a message")
        body = self._messages[0] if self._messages else memoryview(b"")
        return ServerAnswer(int(code), headers if headers is trailers else headers | trailers, body)

    async def send_message(self, buffers: Sequence[Buffer], size: int, *, is_last: bool) -> None:
        """Send a message of `size` bytes, unless the call has ended. Raises as `ask`."""
        # The server may answer before it has read all, as with RESOURCE_EXHAUSTED: the rest is not
        # wanted.
        if self._is_ended:
            return
        prefix = PREFIX.pack(0, size)
        total = size + len(prefix)
        flags = frames.END_STREAM if is_last else 0
        windows = self._windows
        # As nearly all messages: one frame, joined with what else is to be sent.
        if total <= min(windows.room(), windows.frame_bytes):
            windows.spend(total)
            start = self._take_control()
            start += frames.frame_header(total, frames.DATA, flags, self._id) + prefix
            await self._send([start, *buffers], total)
            return
        pieces = BodyPieces([memoryview(prefix), *(memoryview(one) for one in buffers)])
        try:
            await self._send_pieces(pieces, total, flags)
        except BaseException:
            # The next message would be taken for the rest of this one.
            self._is_torn = True
            raise

    async def _send_pieces(self, pieces: BodyPieces, total: int, flags: int) -> None:
        windows = self._windows
        while total and not self._is_ended:
            room = windows.room()
            # Below 0 is possible: SETTINGS may shrink a window that is used already (RFC 9113,
            # section 6.9.2).
            if room <= 0:
                # Acknowledgements must not wait for a window, which covers DATA only (RFC 9113,
                # section 6.9): the server might wait for them.
                if self._control:
                    await self._send([self._take_control()], 0)
                await self._read_frame()
                continue
            out: list[Any] = [self._take_control()]
            sent = 0
            while room and total:
                step = min(room, total, windows.frame_bytes)
                total -= step
                room -= step
                sent += step
                # END_STREAM is on the last frame with data, so that none follows.
                kind = flags if not total else 0
                out.append(frames.frame_header(step, frames.DATA, kind, self._id))
                out += pieces.take(step)
            windows.spend(sent)
            await self._send(out, sent)

    async def end(self) -> None:
        """Say that no more messages follow. Raises as `ask`."""
        if not self._is_ended:
            last = frames.frame_header(0, frames.DATA, frames.END_STREAM, self._id)
            await self._send([self._take_control() + last], 0)

    async def _send(self, buffers: list[Any], size: int) -> None:
        # As over REST: one copy of so little, instead of a longer list of buffers.
        self._check_whole()
        if size <= SMALL_BYTES:
            buffers = [b"".join(buffers)]
        try:
            await self.stream.send(buffers)
        except (BrokenPipeError, ConnectionResetError):
            # The server has closed it; what it said before is worth more than that.
            self.is_reusable = False
        except BaseException:
            self._is_torn = True
            # What is left must not follow later: its arrays are their owner's again.
            self.stream.close()
            raise

    def _check_whole(self) -> None:
        if self._is_torn:
            raise ConnectionLost("the stream was given up in the middle of a message")

    def _take_control(self) -> bytes:
        control, self._control = self._control, b""
        return control

    async def _read_frame(self) -> None:
        """Read one frame, and do what it asks for. Raises as `ask`."""
        self._check_whole()
        reader = self._reader
        if reader.end - reader.start < frames.HEADER_BYTES:
            # Before waiting, not after each frame: what one read brought is acknowledged by one
            # write.
            if self._control and not self._is_ended:
                await self._send([self._take_control()], 0)
            await self._read_head()
        high, low, kind, flags, stream_id = frames.read_header(reader.buffer, reader.start)
        length = high << 8 | low
        if not self._is_greeted:
            self._check_greeting(kind, length)
        reader.start += frames.HEADER_BYTES
        # Until all of the frame was read.
        self._is_torn = True
        if kind == frames.DATA:
            await self._read_data(length, flags, stream_id & frames.STREAM_MASK)
            self._is_torn = False
            return
        # Only DATA was allowed to be larger than the least that all must accept (RFC 9113, section
        # 4.2).
        if length > frames.CONTROL_FRAME_BYTES:
            raise BadAnswer(f"{self._target} sends a frame of kind {kind} with {length} bytes")
        at = await reader.need(length)
        payload = bytes(reader.buffer[at : at + length])
        reader.start += length
        try:
            if kind == frames.HEADERS:
                await self._read_headers(payload, flags, stream_id & frames.STREAM_MASK)
                self._is_torn = False
            else:
                self._is_torn = False
                self._obey(kind, flags, stream_id & frames.STREAM_MASK, payload)
        except (ConnectionFault, struct.error) as error:
            raise BadAnswer(f"{self._target} breaks a rule of HTTP/2: {error}") from error

    def _read_at_once(self) -> None:
        """Read a small answer that has arrived whole, as most do."""
        reader = self._reader
        found = whole_answer(reader.buffer, reader.start, reader.end, self._id, self._known)
        if found is not None:
            self._head, self._trailers, body, reader.start = found
            self._messages.append(memoryview(body))
            self._used += len(body) + PREFIX.size
            self._is_ended = True

    # In a function of its own to keep try out of the loop over frames.
    async def _read_head(self) -> None:
        reader = self._reader
        try:
            await reader.need(frames.HEADER_BYTES)
        except ConnectionLost:
            # Less than the head of a frame, and then the end: an HTTP/1 error or an alert of TLS,
            # which is worth showing.
            if not self._is_greeted and reader.start < reader.end:
                start = bytes(reader.buffer[reader.start : reader.end])
                raise not_http2(self._target, start) from None
            raise

    def _check_greeting(self, kind: int, length: int) -> None:
        if kind != frames.SETTINGS or length > frames.CONTROL_FRAME_BYTES:
            reader = self._reader
            raise not_http2(self._target, bytes(reader.buffer[reader.start : reader.end]))
        self._is_greeted = True

    async def _read_data(self, length: int, flags: int, stream_id: int) -> None:
        # Padding counts as well, and DATA of streams that have ended (RFC 9113, section 6.1 and
        # 5.1).
        self._used += length
        self._stream_used += length
        padding = 0
        if flags & frames.PADDED:
            at = await self._reader.need(1)
            padding = self._reader.buffer[at]
            self._reader.start += 1
            length -= 1 + padding
        if length < 0:
            raise BadAnswer(f"{self._target} sends a frame that is all padding")
        if stream_id == self._id and not self._is_ended:
            await self._read_messages(length)
            self._is_ended = bool(flags & frames.END_STREAM)
        # Frames that were on their way when the call had ended.
        else:
            await self._reader.skip(length)
        await self._reader.skip(padding)
        if self._used >= _RENEWED_AT:
            self._control += frames.encode_window_update(0, self._used)
            self._used = 0
        if self._stream_used >= _RENEWED_AT and not self._is_ended:
            self._control += frames.encode_window_update(self._id, self._stream_used)
            self._stream_used = 0

    async def _read_messages(self, left: int) -> None:
        """Read `left` bytes of the call's messages, each with five bytes before it."""
        reader = self._reader
        while left:
            if self._message is None:
                count = min(PREFIX.size - len(self._prefix), left)
                at = await reader.need(count)
                # The five bytes may be cut anywhere: DATA frames know nothing of messages.
                self._prefix += reader.buffer[at : at + count]
                reader.start += count
                left -= count
                if len(self._prefix) == PREFIX.size:
                    self._begin_message()
            else:
                count = min(len(self._message) - self._filled, left)
                await reader.fill(self._message[self._filled : self._filled + count])
                self._filled += count
                left -= count
            if self._message is not None and self._filled == len(self._message):
                self._messages.append(self._message)
                self._prefix, self._message = b"", None

    def _begin_message(self) -> None:
        is_compressed, size = PREFIX.unpack(self._prefix)
        # We send no grpc-accept-encoding, so only identity is allowed (gRPC Compression).
        if is_compressed:
            raise BadAnswer("the answer is compressed, which was not asked for")
        if size > self._max_bytes:
            msg = f"the answer has {size} bytes, the limit is {self._max_bytes} (max_answer_bytes)"
            raise BadAnswer(msg)
        self._message, self._filled = memoryview(bytearray(size)), 0

    async def _read_headers(self, payload: bytes, flags: int, stream_id: int) -> None:
        block = without_padding(payload, flags)
        # Stream dependency and weight, deprecated (RFC 9113, section 5.3.2).
        if flags & frames.WITH_PRIORITY:
            block = block[5:]
        while not flags & frames.END_HEADERS:
            reader = self._reader
            await reader.need(frames.HEADER_BYTES)
            high, low, kind, more, _ = frames.read_header(reader.buffer, reader.start)
            length = high << 8 | low
            # Nothing may come between them (RFC 9113, section 6.10); the limit stops one that never
            # ends.
            if kind != frames.CONTINUATION or len(block) + length > MAX_LIST_BYTES:
                raise BadAnswer(f"{self._target} sends headers without an end")
            reader.start += frames.HEADER_BYTES
            at = await reader.need(length)
            block += reader.buffer[at : at + length]
            reader.start += length
            flags |= more & frames.END_HEADERS
        # Of foreign streams too: each block may change the dynamic table that the next one needs.
        headers = self._decode(bytes(block))
        if stream_id != self._id or self._is_ended:
            return
        if self._head is None:
            # Interim heads may come before (RFC 9113, section 8.1).
            if not headers.get(":status", "").startswith("1"):
                self._head = headers
        else:
            self._trailers = headers
        if flags & frames.END_STREAM:
            self._is_ended = True

    def _decode(self, block: bytes) -> dict[str, str]:
        headers = self._known.get(block)
        if headers is not None:
            return headers
        fields, _ = self._decoder.decode(block)
        headers = {}
        for name, value in fields:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            # Repeated fields are one list (RFC 9110, section 5.2).
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        # Known blocks may refer to entries of the table by number, which a change moves.
        if self._decoder.is_table_changed or len(self._known) >= _KNOWN_BLOCKS:
            self._known.clear()
        if not self._decoder.is_table_changed:
            self._known[block] = headers
        return headers

    def _obey(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Do what a frame says that is about the connection. Raises ConnectionLost."""
        if kind in (frames.SETTINGS, frames.PING):
            if not flags & frames.ACK:
                self._apply(kind, payload)
        elif kind == frames.WINDOW_UPDATE:
            # An update for a stream that has ended is allowed, and has no use.
            if stream_id in (0, self._id):
                self._windows.widen(payload, of_connection=not stream_id)
        elif kind == frames.RST_STREAM:
            if stream_id == self._id and not self._is_ended:
                self._end_early(payload)
        elif kind == frames.GOAWAY:
            self._leave(payload)
        elif kind == frames.PUSH_PROMISE:
            raise BadAnswer(f"{self._target} pushes, which was turned off")

    def _apply(self, kind: int, payload: bytes) -> None:
        """Answer SETTINGS or PING."""
        if kind == frames.PING:
            self._control += frames.encode_frame(frames.PING, frames.ACK, 0, payload)
        else:
            self._windows.apply(payload)
            self._control += frames.encode_frame(frames.SETTINGS, frames.ACK, 0)

    def _end_early(self, payload: bytes) -> None:
        (code,) = struct.unpack(">L", payload)
        self._is_ended = True
        # A server that has answered without reading all says NO_ERROR so that we stop sending (RFC
        # 9113, section 8.1): the answer is good.
        has_status = "grpc-status" in (self._trailers or self._head or {})
        if code == ErrorCode.NO_ERROR and has_status:
            return
        name = ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)
        msg = f"the server ended the call: {name}"
        # "Not processed in any way" (RFC 9113, section 8.7): the one reset after which a call is
        # safe to repeat.
        raise ConnectionLost(msg, is_untaken=code == ErrorCode.REFUSED_STREAM)

    def _leave(self, payload: bytes) -> None:
        last, code = struct.unpack(">LL", payload[:8])
        self.is_reusable = False
        # Streams up to `last` are still answered (RFC 9113, section 6.8), later ones were not
        # looked at.
        if not self._is_ended and self._id > (last & frames.STREAM_MASK):
            text = payload[8:].decode("latin-1")[:100]
            msg = f"the server closes the connection (code {code}{text and ', ' + text})"
            raise ConnectionLost(msg, is_untaken=True)
