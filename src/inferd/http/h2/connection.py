"""The server side of one HTTP/2 connection, without its socket (RFC 9113).

Bytes go into `receive`, and their meaning reaches the application as calls of the StreamHandler
that it has made for a stream. A connection has a sender (h2/sender.py), which knows the streams and
puts out frames, and a receiver of DATA (h2/receiver.py); here frames are parsed, and all other
types of them are handled.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from inferd.http.h2.budget import FloodBudget
from inferd.http.h2.frames import (
    ACK,
    CONTINUATION,
    CONTROL_FRAME_BYTES,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADER_BYTES,
    HEADERS,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    STREAM_MASK,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    ConnectionFault,
    ErrorCode,
    Setting,
    StreamFault,
    decode_settings,
    encode_frame,
    encode_settings,
    encode_window_update,
    read_header,
    read_kind,
)
from inferd.http.h2.heads import HeaderBlocks
from inferd.http.h2.hpack import NO_TABLE, TABLE_BYTES
from inferd.http.h2.receiver import CONNECTION_WINDOW, H2Receiver, check_length, padding_of
from inferd.http.h2.request import MalformedRequest, RequestHead, check_fields
from inferd.http.h2.sender import H2Sender
from inferd.http.h2.stream import STREAM_WINDOW, H2Stream, StreamHandler
from inferd.memory.buffer import Buffer

FRAME_BYTES: Final = 1 << 20
"""The SETTINGS_MAX_FRAME_SIZE we offer: a large message comes in few frames."""

_SMALL_INCREMENT: Final = 1024
_REMEMBERED_GAPS: Final = 100
_LAST_DATA: Final = DATA << 8 | END_STREAM
_UNUSUAL: Final = END_HEADERS | PADDED | WITH_PRIORITY
"""A mask for HEADERS flags: a frame with a whole block and nothing else has only END_HEADERS."""


class H2Connection:
    """Frames in, calls out; calls of its `sender` in, frames out.

    `handle` makes the application's handler of a new stream. `on_ping` is called for each PING that
    asks for an answer, and may end the connection with the sender's `fail`; `on_pong` is called for
    answers to ours.
    """

    def __init__(
        self,
        handle: Callable[[H2Stream], StreamHandler],
        *,
        max_streams: int,
        max_header_bytes: int,
        on_ping: Callable[[], None] = lambda: None,
        on_pong: Callable[[bytes], None] = lambda _payload: None,
    ) -> None:
        self.sender = sender = H2Sender()
        self._budget = FloodBudget()
        self.receiver = H2Receiver(sender, self._budget)
        self._handle = handle
        self._on_ping = on_ping
        self._on_pong = on_pong
        self._max_streams = max_streams
        self._preface_left = PREFACE
        # One comparison tells for each frame that nothing special is expected.
        self._gate = -1  # -1: SETTINGS must come first; > 0: the stream of an open header block
        self._rest = b""
        self._blocks = HeaderBlocks(max_header_bytes)
        self._block_flags = 0
        self._next_stream_id = 1
        self._sent_at_ping = 0
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED_GAPS)
        self._handlers = {
            HEADERS: self._headers,
            PRIORITY: self._priority,
            RST_STREAM: self._rst_stream,
            SETTINGS: self._settings,
            PUSH_PROMISE: self._push_promise,
            PING: self._ping,
            GOAWAY: self._goaway,
            WINDOW_UPDATE: self._window_update,
            CONTINUATION: self._continuation,
        }
        sender.put(
            encode_settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: max_streams,
                    Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                    Setting.MAX_FRAME_SIZE: FRAME_BYTES,
                    Setting.MAX_HEADER_LIST_SIZE: max_header_bytes,
                }
            )
            # SETTINGS cannot set the connection's window (section 6.9.2).
            + encode_window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW)
        )

    @property
    def is_ready(self) -> bool:
        """Whether the peer has shown that it speaks HTTP/2: preface and SETTINGS have come."""
        return self._gate != -1

    def tick(self) -> None:
        """Refill the flood budget; to be called about once a second."""
        self._budget.tick(self.sender.last_stream_id)

    def receive(self, data: Buffer) -> None:
        """Process bytes from the peer; `data` may be overwritten afterwards."""
        if self.sender.is_failed:
            return
        try:
            if self._preface_left and not (data := self._read_preface(data)):
                return
            if self._rest:
                # An incomplete frame is small, since large ones are DATA, which pass as they
                # arrive.
                data, self._rest = b"".join((self._rest, data)), b""
            self._read_frames(data)
        except ConnectionFault as fault:
            self.sender.fail(fault.code, fault.message)

    def _read_preface(self, data: Buffer) -> Buffer:
        left = self._preface_left
        count = min(len(left), len(data))
        if bytes(data[:count]) != left[:count]:
            msg = "the connection does not begin with the preface of HTTP/2"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        self._preface_left = left[count:]
        return data[count:]

    def _read_frames(self, data: Buffer) -> None:
        at, end = 0, len(data)
        sender, receiver = self.sender, self.receiver
        if receiver.data_left or receiver.skip_left:
            at = receiver.go_on(data, end)
        while at + HEADER_BYTES <= end:
            header = read_header(data, at)
            high, low, kind, flags, stream_id = header
            length = high << 8 | low
            start = at + HEADER_BYTES
            at = stop = start + length
            stream_id &= STREAM_MASK
            if self._gate or length > CONTROL_FRAME_BYTES:
                self._check_frame(kind, flags, stream_id, length)
            try:
                if stop > end:
                    at = self._begin(kind, flags, stream_id, data, start, length)
                    break
                if kind == DATA:
                    at = receiver.data(header, data, start, stop)
                elif (
                    kind == HEADERS
                    and stream_id == self._next_stream_id
                    and flags & _UNUSUAL == END_HEADERS
                ):
                    block = bytes(data[start:stop])
                    at = self._usual_request(stream_id, block, flags, data, stop)
                else:
                    self._other(kind, flags, stream_id, bytes(data[start:stop]))
            except StreamFault as fault:
                receiver.end_faulty(fault)
            if sender.is_failed:
                return
        if at < end:
            self._rest = bytes(data[at:end])

    def _check_frame(self, kind: int, flags: int, stream_id: int, length: int) -> None:
        """Check a frame in a rare case: it is large, the first one, or inside a header block."""
        if length > FRAME_BYTES:
            msg = f"a frame has {length} bytes, expected at most {FRAME_BYTES}"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        is_block = kind in (HEADERS, CONTINUATION)
        # Room for padding beside the block.
        most = self._blocks.max_block_bytes + 256 if is_block else CONTROL_FRAME_BYTES
        if length > most and kind in self._handlers:
            msg = f"a frame of type {kind} has {length} bytes, which is more than it can need"
            has_size = kind in (PRIORITY, RST_STREAM, PING, WINDOW_UPDATE)
            # A frame of fixed size has a wrong size; a block that is too long has only become too
            # much.
            code = ErrorCode.FRAME_SIZE_ERROR if has_size else ErrorCode.ENHANCE_YOUR_CALM
            raise ConnectionFault(code, msg)
        # Section 3.4: SETTINGS are the first frame, and not an acknowledgement.
        if self._gate == -1:
            if kind != SETTINGS or flags & ACK:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self._gate = 0
        elif self._gate and (kind != CONTINUATION or stream_id != self._gate):
            msg = "a header block is interrupted by another frame"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)

    def _other(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        handle = self._handlers.get(kind)
        if handle is not None:
            handle(flags, stream_id, payload)
        else:  # unknown types are ignored, section 4.1
            self._budget.note_empty(self.sender.last_stream_id)

    def _begin(
        self, kind: int, flags: int, stream_id: int, data: Buffer, start: int, length: int
    ) -> int:
        """Begin an incomplete frame; return from where its bytes are kept until it is complete."""
        if kind in self._handlers:
            return start - HEADER_BYTES
        if kind == DATA:
            return self.receiver.begin_data(flags, stream_id, data, start, length)
        self._budget.note_empty(self.sender.last_stream_id)
        self.receiver.skip_left = length - (len(data) - start)
        return len(data)

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        # Section 5.1.1: clients open odd ones.
        if not stream_id & 1:
            msg = "HEADERS on a stream that no client can open"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        depends_on = 0
        if flags & PADDED:
            padding = padding_of(payload, 0, len(payload))
            payload = payload[1 : len(payload) - padding]
        if flags & WITH_PRIORITY:
            if len(payload) < 5:
                msg = "HEADERS are too short for their priority"
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
            depends_on = int.from_bytes(payload[:4], "big") & STREAM_MASK
            payload = payload[5:]
        if depends_on == stream_id:
            # Above the eight bits of real flags.
            flags |= PRIORITY << 8  # refused once the block is decoded
        if flags & END_HEADERS:
            self._head(stream_id, payload, flags)
        else:
            self._gate = stream_id
            self._block_flags = flags
            self._blocks.begin(payload)

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._gate:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without a header block")
        self._blocks.go_on(payload)
        if flags & END_HEADERS:
            self._gate = 0
            self._head(stream_id, self._blocks.take(), self._block_flags)

    def _head(self, stream_id: int, block: bytes, flags: int) -> None:
        if stream_id < self._next_stream_id:
            self._trailers(stream_id, block, flags)
            return
        sender = self.sender
        if stream_id != self._next_stream_id and not sender.is_going_away:
            # Streams passed over count as closed (section 5.1.1), and must be told from those that
            # were.
            self._gaps.append((sender.last_stream_id, stream_id))
        self._request(stream_id, self._blocks.head(block), flags)

    def _request(self, stream_id: int, head: RequestHead | MalformedRequest, flags: int) -> None:
        """Open a stream (section 5.1.1)."""
        sender = self.sender
        if sender.is_going_away:
            return  # section 6.8: streams that our GOAWAY excludes are ignored
        # Also if refused below: the client may use the number no more.
        sender.last_stream_id = stream_id
        self._next_stream_id = stream_id + 2
        if isinstance(head, MalformedRequest) or flags >> 8:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "the request is malformed")
        if len(sender.handlers) >= self._max_streams:
            msg = "there are as many streams as may be"
            raise StreamFault(stream_id, ErrorCode.REFUSED_STREAM, msg)
        stream = H2Stream(stream_id, head, sender.peer_stream_window)
        sender.handlers[stream_id] = handler = self._handle(stream)
        if flags & END_STREAM:
            stream.is_remote_done = True
            if head.content_length > 0:
                raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a body is missing")
        handler.on_open()
        if flags & END_STREAM and not stream.is_local_done:
            handler.on_end()

    def _usual_request(
        self, stream_id: int, block: bytes, flags: int, data: Buffer, at: int
    ) -> int:
        """Open the next stream in order; return where the next frame begins, at `at` or later.

        Nearly all small requests have a single DATA frame, which ends them and comes along with
        the head: both are taken together.
        """
        head: RequestHead | MalformedRequest | None = self._blocks.known.get(block)
        if head is None:
            head = self._blocks.head(block)
        start = at + HEADER_BYTES
        if flags == END_HEADERS and start <= len(data) and not isinstance(head, MalformedRequest):
            high, low, kind, same_id = read_kind(data, at)
            size = high << 8 | low
            sender, receiver = self.sender, self.receiver
            window = receiver.window - size
            # Whatever is not so is no fault: it goes the general way.
            if (
                kind == _LAST_DATA
                and same_id == stream_id
                and start + size <= len(data)
                and window >= CONNECTION_WINDOW // 2
                and head.content_length in (-1, size)
                and len(sender.handlers) < self._max_streams
                and not sender.is_going_away
            ):
                sender.last_stream_id = stream_id
                self._next_stream_id = stream_id + 2
                stream = H2Stream(stream_id, head, sender.peer_stream_window)
                sender.handlers[stream_id] = handler = self._handle(stream)
                handler.on_open()
                if stream.is_local_done:
                    return at  # the stream no longer takes its data
                receiver.window = window
                stream.is_remote_done = True
                handler.on_data(data, start, start + size, ends=True)
                return start + size
        self._request(stream_id, head, flags)
        return at

    def _trailers(self, stream_id: int, block: bytes, flags: int) -> None:
        """Take a second header block on a stream (section 8.1)."""
        # Also for a stream that is gone, since a block left out puts the table out of step.
        fields, _ = self._blocks.decode(block)
        handler = self.sender.handlers.get(stream_id)
        if handler is None:
            if any(low < stream_id < high for low, high in self._gaps):
                msg = "HEADERS on a stream that the client has passed over"  # section 5.1.1
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
            self.receiver.check_gone(stream_id, "HEADERS")
            return
        stream = handler.stream
        if stream.is_remote_done:
            msg = "HEADERS after the end of the stream"
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, msg)
        if flags >> 8:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "the stream depends on itself")
        if not flags & END_STREAM:
            msg = "trailers that do not end the stream"
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, msg)
        try:
            check_fields(fields)
        except MalformedRequest as error:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from error
        if stream.head.content_length >= 0:
            check_length(stream, 0, ends=True)
        stream.is_remote_done = True
        if stream.is_local_done:
            self.sender.forget(stream)
        else:
            handler.on_end()

    def _priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Check and ignore (section 6.3; priorities are deprecated, section 5.3.2)."""
        self._budget.note_empty(self.sender.last_stream_id)
        if not stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
        is_wrong_size = len(payload) != 5
        if is_wrong_size or int.from_bytes(payload[:4], "big") & STREAM_MASK == stream_id:
            code = ErrorCode.FRAME_SIZE_ERROR if is_wrong_size else ErrorCode.PROTOCOL_ERROR
            msg = "PRIORITY has the wrong size, or makes a stream depend on itself"
            if stream_id not in self.sender.handlers and self.sender.is_idle(stream_id):
                raise ConnectionFault(code, msg)  # an idle stream cannot be reset
            raise StreamFault(stream_id, code, msg)

    def _rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Handle RST_STREAM (section 6.4)."""
        if len(payload) != 4:
            msg = f"RST_STREAM has {len(payload)} bytes, expected 4"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        sender = self.sender
        if sender.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on a stream that is idle")
        handler = sender.handlers.get(stream_id)
        if handler is None:
            self._budget.note_empty(sender.last_stream_id)
            return
        self._budget.note_reset(stream_id, sender.last_stream_id)
        sender.forget(handler.stream)
        handler.on_reset()

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Handle SETTINGS (section 6.5)."""
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        self._budget.note_empty(self.sender.last_stream_id)
        if flags & ACK:
            if payload:
                msg = "an acknowledgement of SETTINGS has a payload"
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
            return
        sender = self.sender
        for name, value in decode_settings(payload):
            # We never put anything into the table, so only one that is smaller than the default has
            # to be told of.
            if name == Setting.HEADER_TABLE_SIZE and value < TABLE_BYTES:
                sender.table_update = NO_TABLE
            elif name == Setting.MAX_FRAME_SIZE:
                sender.peer_frame_bytes = value
            elif name == Setting.INITIAL_WINDOW_SIZE:
                sender.move_windows(value)
        # After all settings have been applied (section 6.5.3).
        sender.put(encode_frame(SETTINGS, ACK, 0))
        sender.pump()

    def _push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        msg = "PUSH_PROMISE from a client"  # section 8.4
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Handle PING (section 6.7)."""
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            msg = f"PING has {len(payload)} bytes, expected 8"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        sender = self.sender
        # grpc-go pings after each message that it gets, to measure how much is under way.
        if flags & ACK or sender.frames_sent == self._sent_at_ping:
            self._budget.note_empty(sender.last_stream_id)
        if flags & ACK:
            self._on_pong(payload)
            return
        self._sent_at_ping = sender.frames_sent
        sender.put(encode_frame(PING, ACK, 0, payload))
        # After the answer is put out: the ping may be what ends the connection.
        self._on_ping()

    def _goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Handle GOAWAY (section 6.8); running requests still get their answers."""
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            msg = f"GOAWAY has {len(payload)} bytes, expected at least 8"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        # The client opens no more streams; those there are go on.
        self._budget.note_empty(self.sender.last_stream_id)

    def _window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Handle WINDOW_UPDATE (section 6.9)."""
        if len(payload) != 4:
            msg = f"WINDOW_UPDATE has {len(payload)} bytes, expected 4"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        increment = int.from_bytes(payload, "big") & STREAM_MASK
        sender = self.sender
        handler = sender.handlers.get(stream_id)
        stream = None if handler is None else handler.stream
        # Many small updates cost us more than they let us send.
        if increment < _SMALL_INCREMENT and not self._is_of_use(stream_id, stream):
            self._budget.note_empty(sender.last_stream_id)
        if not stream_id:
            sender.send_window += increment
            sender.full_window = max(sender.full_window, sender.send_window)
            # Section 6.9: an increment of 0 is an error.
            if not increment or sender.send_window > MAX_WINDOW:
                raise ConnectionFault(*_bad_increment(increment))
        elif stream is not None:
            sender.widen(stream, increment)
            if not increment or stream.send_window > MAX_WINDOW:
                raise StreamFault(stream_id, *_bad_increment(increment))
        elif sender.is_idle(stream_id):
            msg = "WINDOW_UPDATE on a stream that is idle"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        sender.pump()

    def _is_of_use(self, stream_id: int, stream: H2Stream | None) -> bool:
        """Return whether a WINDOW_UPDATE lets us go on, or gives back bytes that we have sent.

        Clients may give back each small message of a stream separately.
        """
        sender = self.sender
        if sender.blocked:
            return True
        if stream is None:
            return not stream_id and sender.send_window < sender.full_window
        return stream.pending_bytes > 0 or stream.send_window < stream.full_window


def _bad_increment(increment: int) -> tuple[ErrorCode, str]:
    if not increment:
        return ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE adds nothing"
    return ErrorCode.FLOW_CONTROL_ERROR, "WINDOW_UPDATE makes a window too large"
