"""The server's side of one HTTP/2 connection without its socket (RFC 9113).

Bytes go into `receive`, and what they mean reaches the application as calls on its H2Stream
objects; what is to be sent is the sender's (h2_sender.py), which this class adds the reading to.

Both flow-control windows are kept here. The connection's window is opened again as soon as DATA
has come; a stream's only when the application has taken it, so a reader that is slow holds up its
own stream and nothing else.
"""

from collections import deque
from collections.abc import Callable

from inferd.wire.h2_budget import FloodBudget
from inferd.wire.h2_frames import (
    ACK,
    CONTINUATION,
    CONTROL_FRAME_BYTES,
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
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
)
from inferd.wire.h2_heads import HeaderBlocks
from inferd.wire.h2_hpack import NO_TABLE, TABLE_BYTES
from inferd.wire.h2_request import MalformedRequest, RequestHead, check_fields
from inferd.wire.h2_sender import H2Sender
from inferd.wire.h2_stream import STREAM_WINDOW, Buffer, H2Stream

FRAME_BYTES = 1 << 20
"""SETTINGS_MAX_FRAME_SIZE as we offer it: a large message comes in few frames."""

CONNECTION_WINDOW = 1 << 30

_SMALL_INCREMENT = 1024
_REMEMBERED_GAPS = 100


class H2Connection(H2Sender):
    """Frames in, calls out; calls in, frames out.

    `open_stream` makes the application's object of a new request. `on_ping` is called for each
    PING that asks for an answer, and may end the connection with `fail`; `on_pong` for answers
    to ours. `data_left` is what is still to come of a DATA frame that has begun.
    """

    def __init__(
        self,
        open_stream: Callable[["H2Connection", int, RequestHead], H2Stream],
        *,
        max_streams: int,
        max_header_bytes: int,
        on_ping: Callable[[], None] = lambda: None,
        on_pong: Callable[[bytes], None] = lambda _payload: None,
    ) -> None:
        super().__init__()
        self.max_header_bytes = max_header_bytes
        self.data_left = 0
        self._open_stream = open_stream
        self._on_ping = on_ping
        self._on_pong = on_pong
        self._max_streams = max_streams
        self._preface_left = PREFACE
        self._gate = -1  # -1: SETTINGS must come; else the stream whose header block goes on
        self._rest = b""
        self._skip_left = 0  # padding, or a frame that nobody is to have
        self._data_stream: H2Stream | None = None
        self._data_ends = False
        self._blocks = HeaderBlocks(max_header_bytes)
        self._block_flags = 0
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED_GAPS)
        self._receive_window = CONNECTION_WINDOW
        self._budget = FloodBudget()
        self._other = {
            PRIORITY: self._priority,
            RST_STREAM: self._rst_stream,
            SETTINGS: self._settings,
            PUSH_PROMISE: self._push_promise,
            PING: self._ping,
            GOAWAY: self._goaway,
            WINDOW_UPDATE: self._window_update,
            CONTINUATION: self._continuation,
        }
        self._put(
            encode_settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: max_streams,
                    Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                    Setting.MAX_FRAME_SIZE: FRAME_BYTES,
                    Setting.MAX_HEADER_LIST_SIZE: max_header_bytes,
                }
            )
            + encode_window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW)
        )

    @property
    def is_ready(self) -> bool:
        """Whether the peer has proved to speak HTTP/2: preface and SETTINGS have come."""
        return self._gate != -1

    def tick(self) -> None:
        """Let time pass, for what a peer may do in it; to be called about once a second."""
        self._budget.tick(self.last_stream_id)

    # --- reading ---

    def receive(self, data: Buffer) -> None:
        """Take what the peer sent; `data` may be overwritten afterwards."""
        if self.is_failed:
            return
        try:
            if self._preface_left and not (data := self._read_preface(data)):
                return
            if self._rest:
                data, self._rest = b"".join((self._rest, data)), b""
            self._read_frames(data)
        except ConnectionFault as fault:
            self.fail(fault.code, fault.message)

    def room(self) -> memoryview | None:
        """Return where the next bytes may be received directly, None: give them to `receive`.

        That is while a large DATA frame is coming; then `filled` is to be called.
        """
        stream = self._data_stream
        if self.data_left < DEFAULT_FRAME_BYTES or stream is None or stream.is_local_done:
            return None
        memory = stream.room()
        return None if memory is None else memory[: self.data_left]

    def filled(self, count: int) -> None:
        """Take note that `count` bytes of `room` have been received."""
        stream = self._data_stream
        self.data_left -= count
        is_last = not self.data_left
        if stream is not None and not stream.is_local_done:
            stream.on_filled(count, ends=is_last and self._data_ends)
        if is_last:
            self._data_stream = None

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
        if self.data_left or self._skip_left:
            at = self._go_on_with_data(data, end)
        unpack = FRAME_HEADER.unpack_from
        while at + HEADER_BYTES <= end:
            high, low, kind, flags, stream_id = unpack(data, at)
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
                    self._data(flags, stream_id, data, start, stop)
                elif kind == HEADERS:
                    self._headers(flags, stream_id, data, start, stop)
                else:
                    self._other_frame(kind, flags, stream_id, bytes(data[start:stop]))
            except StreamFault as fault:
                self._end_faulty(fault)
            if self.is_failed:
                return
        if at < end:
            self._rest = bytes(data[at:end])

    def _check_frame(self, kind: int, flags: int, stream_id: int, length: int) -> None:
        """Check what is rarely the case: a large frame, the first one, or one inside a block."""
        if length > FRAME_BYTES:
            msg = f"a frame has {length} bytes, expected at most {FRAME_BYTES}"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        is_block = kind in (HEADERS, CONTINUATION)
        most = self._blocks.max_block_bytes + 256 if is_block else CONTROL_FRAME_BYTES
        if length > most and (is_block or kind in self._other):
            msg = f"a frame of type {kind} has {length} bytes, which is more than it can need"
            has_size = kind in (PRIORITY, RST_STREAM, PING, WINDOW_UPDATE)
            code = ErrorCode.FRAME_SIZE_ERROR if has_size else ErrorCode.ENHANCE_YOUR_CALM
            raise ConnectionFault(code, msg)
        if self._gate == -1:
            if kind != SETTINGS or flags & ACK:
                msg = "the first frame must be SETTINGS"
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
            self._gate = 0
        elif self._gate and (kind != CONTINUATION or stream_id != self._gate):
            msg = "a header block is interrupted by another frame"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)

    def _other_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        handle = self._other.get(kind)
        if handle is not None:
            handle(flags, stream_id, payload)
        else:  # unknown types are ignored, section 4.1
            self._budget.note_empty(self.last_stream_id)

    def _begin(
        self, kind: int, flags: int, stream_id: int, data: Buffer, start: int, length: int
    ) -> int:
        """Begin a frame that is not whole; return from where its bytes are kept till it is."""
        if kind == HEADERS or kind in self._other:
            return start - HEADER_BYTES
        if kind == DATA:
            return self._begin_data(flags, stream_id, data, start, length)
        self._budget.note_empty(self.last_stream_id)
        self._skip_left = length - (len(data) - start)
        return len(data)

    def _end_faulty(self, fault: StreamFault) -> None:
        """Reset a stream on which a rule was broken; that costs us as much as the peer's resets."""
        if fault.code is ErrorCode.REFUSED_STREAM:
            self._budget.note_empty(self.last_stream_id)
        else:
            self._budget.note_reset(self.last_stream_id)
        self.reset(fault.stream_id, fault.code)

    # --- DATA, section 6.1 ---

    def _data(self, flags: int, stream_id: int, data: Buffer, start: int, stop: int) -> None:
        length = stop - start
        overhead = 0
        if flags & PADDED:
            padding = self._padding(data, start, length)
            overhead = padding + 1
            start += 1
            stop -= padding
        stream = self._receiver(stream_id, length)
        if stream is None:
            return
        if stream.is_local_done:
            self._drop(stream, length, ends=bool(flags & END_STREAM))
            return
        stream.uncredited += overhead
        ends = bool(flags & END_STREAM)
        if stream.head.content_length >= 0:
            _check_length(stream, stop - start, ends=ends)
        if ends:
            stream.is_remote_done = True
        elif start == stop:
            self._budget.note_empty(self.last_stream_id)
        stream.on_data(data, start, stop, ends=ends)

    def _begin_data(self, flags: int, stream_id: int, data: Buffer, start: int, length: int) -> int:
        """Begin a DATA frame; return from where bytes are kept: its header, until its pad length.

        What is still to come is dropped when a rule was broken.
        """
        end = len(data)
        padding, has_padding = 0, bool(flags & PADDED)
        if has_padding:
            if start == end:
                return start - HEADER_BYTES
            padding = self._padding(data, start, length)
        self._skip_left = length - (end - start)
        stream = self._receiver(stream_id, length)
        data_length = length - padding - has_padding
        ends = bool(flags & END_STREAM)
        if stream is not None and stream.is_local_done:
            self._drop(stream, length, ends=ends)
            stream = None
        if stream is not None:
            stream.uncredited += padding + has_padding
            if stream.head.content_length >= 0:
                _check_length(stream, data_length, ends=ends)
            stream.is_remote_done = ends
            if not data_length and not ends:
                self._budget.note_empty(self.last_stream_id)
        self._data_stream, self._data_ends = stream, ends
        self.data_left, self._skip_left = data_length, padding
        return self._go_on_with_data(data, end, start + has_padding)

    def _drop(self, stream: H2Stream, count: int, *, ends: bool) -> None:
        """Drop what a client goes on sending though its answer is complete.

        Some clients lose the answer when their stream is reset meanwhile, so that comes late.
        """
        stream.drop_bytes -= count
        if ends:
            self.forget(stream)
        elif stream.drop_bytes <= 0:
            self.reset(stream.id, ErrorCode.NO_ERROR)
        else:
            self.credit(stream, count)

    def _go_on_with_data(self, data: Buffer, end: int, at: int = 0) -> int:
        """Hand on what has come of a begun DATA frame; return where the next frame begins."""
        if self.data_left or self._data_stream is not None:
            stop = min(end, at + self.data_left)
            self.data_left -= stop - at
            stream, is_last = self._data_stream, not self.data_left
            if is_last:
                self._data_stream = None
            if stream is not None and not stream.is_local_done and (stop > at or is_last):
                try:
                    stream.on_data(data, at, stop, ends=is_last and self._data_ends)
                except StreamFault as fault:
                    self._end_faulty(fault)
            at = stop
        skipped = min(end - at, self._skip_left)
        self._skip_left -= skipped
        return at + skipped

    def _receiver(self, stream_id: int, length: int) -> H2Stream | None:
        """Take `length` bytes off the windows; return who is to have them, None for nobody.

        The whole payload counts, padding included (section 6.9.1).
        """
        self._receive_window -= length
        if self._receive_window < CONNECTION_WINDOW // 2:
            if self._receive_window < 0:
                msg = "DATA exceeds the window of the connection"
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, msg)
            self._put(encode_window_update(0, CONNECTION_WINDOW - self._receive_window))
            self._receive_window = CONNECTION_WINDOW
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_gone(stream_id, "DATA")
            return None
        if stream.is_remote_done:
            msg = "DATA after the end of the stream"
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, msg)
        stream.receive_window -= length
        if stream.receive_window < 0:
            # A peer that does not count would go on with the next stream.
            msg = "DATA exceeds the window of the stream"
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, msg)
        return stream

    def _padding(self, data: Buffer, start: int, length: int) -> int:
        if not length:
            msg = "a padded frame is too short for its pad length"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        padding: int = data[start]
        if padding >= length:
            msg = "the padding is as long as the frame, or longer"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        return padding

    def _check_gone(self, stream_id: int, frame: str) -> None:
        """Check a frame on a stream that is not open (section 5.1): those we reset are pardoned."""
        if stream_id in self.resets:
            self._budget.note_empty(self.last_stream_id)
        elif self._is_idle(stream_id):
            msg = f"{frame} on a stream that is idle"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        elif not (self.is_going_away and stream_id > self.last_stream_id):
            msg = f"{frame} on a stream that is closed"
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, msg)

    def _is_idle(self, stream_id: int) -> bool:
        """Tell whether no request has come on the stream; ours, the even ones, never have one."""
        if stream_id & 1 == 0:
            return True
        return stream_id > self.last_stream_id and not self.is_going_away

    # --- HEADERS and CONTINUATION, sections 6.2 and 6.10 ---

    def _headers(self, flags: int, stream_id: int, data: Buffer, start: int, stop: int) -> None:
        if not stream_id & 1:
            msg = "HEADERS on a stream that no client can open"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        depends_on = 0
        if flags & (PADDED | WITH_PRIORITY):
            if flags & PADDED:
                padding = self._padding(data, start, stop - start)
                start, stop = start + 1, stop - padding
            if flags & WITH_PRIORITY:
                if stop - start < 5:
                    msg = "HEADERS are too short for their priority"
                    raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
                depends_on = int.from_bytes(data[start : start + 4], "big") & STREAM_MASK
                start += 5
        block = bytes(data[start:stop])
        if depends_on == stream_id:
            flags |= PRIORITY << 8  # refused once the block is decoded
        if flags & END_HEADERS:
            self._head(stream_id, block, flags)
        else:
            self._gate = stream_id
            self._block_flags = flags
            self._blocks.begin(block)

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._gate:
            msg = "CONTINUATION without a header block"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        self._blocks.go_on(payload)
        if flags & END_HEADERS:
            self._gate = 0
            self._head(stream_id, self._blocks.take(), self._block_flags)

    def _head(self, stream_id: int, block: bytes, flags: int) -> None:
        if stream_id in self.streams or stream_id <= self.last_stream_id:
            self._trailers(stream_id, block, flags)
            return
        head = self._blocks.head(block)
        if self.is_going_away:
            return  # section 6.8: what we said we would not answer is ignored
        if stream_id != self.last_stream_id + 2 and stream_id != 1:
            self._gaps.append((self.last_stream_id, stream_id))
        self.last_stream_id = stream_id
        if isinstance(head, MalformedRequest) or flags >> 8:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "the request is malformed")
        if len(self.streams) >= self._max_streams:
            msg = "there are as many streams as may be"
            raise StreamFault(stream_id, ErrorCode.REFUSED_STREAM, msg)
        self.streams[stream_id] = stream = self._open_stream(self, stream_id, head)
        if flags & END_STREAM:
            stream.is_remote_done = True
            if head.content_length > 0:
                raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a body is missing")
        stream.on_open()
        if flags & END_STREAM and not stream.is_local_done:
            stream.on_end()

    def _trailers(self, stream_id: int, block: bytes, flags: int) -> None:
        """Take a block on a stream that has had one (section 8.1)."""
        fields = self._blocks.trailers(block)
        stream = self.streams.get(stream_id)
        if stream is None:
            if any(low < stream_id < high for low, high in self._gaps):
                msg = "HEADERS on a stream that the client has passed over"  # section 5.1.1
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
            self._check_gone(stream_id, "HEADERS")
            return
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
            _check_length(stream, 0, ends=True)
        stream.is_remote_done = True
        if stream.is_local_done:
            self.forget(stream)
        else:
            stream.on_end()

    # --- the other frames ---

    def _priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Check and ignore (section 6.3; priorities are deprecated, section 5.3.2)."""
        self._budget.note_empty(self.last_stream_id)
        if not stream_id:
            msg = "PRIORITY on stream 0"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        is_wrong_size = len(payload) != 5
        if is_wrong_size or int.from_bytes(payload[:4], "big") & STREAM_MASK == stream_id:
            code = ErrorCode.FRAME_SIZE_ERROR if is_wrong_size else ErrorCode.PROTOCOL_ERROR
            msg = "PRIORITY has the wrong size, or makes a stream depend on itself"
            if stream_id not in self.streams and self._is_idle(stream_id):
                raise ConnectionFault(code, msg)  # an idle stream cannot be reset
            raise StreamFault(stream_id, code, msg)

    def _rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Section 6.4."""
        if len(payload) != 4:
            msg = f"RST_STREAM has {len(payload)} bytes, expected 4"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        if self._is_idle(stream_id):
            msg = "RST_STREAM on a stream that is idle"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        self._budget.note_empty(self.last_stream_id)
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        self._budget.note_reset(self.last_stream_id)
        self.forget(stream)
        stream.on_reset()

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Section 6.5."""
        if stream_id:
            msg = "SETTINGS on a stream"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        self._budget.note_empty(self.last_stream_id)
        if flags & ACK:
            if payload:
                msg = "an acknowledgement of SETTINGS has a payload"
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
            return
        for name, value in decode_settings(payload):
            if name == Setting.HEADER_TABLE_SIZE and value < TABLE_BYTES:
                self.table_update = NO_TABLE
            elif name == Setting.MAX_FRAME_SIZE:
                self.peer_frame_bytes = value
            elif name == Setting.INITIAL_WINDOW_SIZE:
                self.move_windows(value)
        self._put(encode_frame(SETTINGS, ACK, 0))
        self.pump()

    def _push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        msg = "PUSH_PROMISE from a client"  # section 8.4
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Section 6.7."""
        if stream_id:
            msg = "PING on a stream"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        if len(payload) != 8:
            msg = f"PING has {len(payload)} bytes, expected 8"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        self._budget.note_empty(self.last_stream_id)
        if flags & ACK:
            self._on_pong(payload)
            return
        self._put(encode_frame(PING, ACK, 0, payload))
        self._on_ping()

    def _goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Section 6.8; requests that are running still get their answers."""
        if stream_id:
            msg = "GOAWAY on a stream"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        if len(payload) < 8:
            msg = f"GOAWAY has {len(payload)} bytes, expected at least 8"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        self._budget.note_empty(self.last_stream_id)
        self.peer_is_going_away = True

    def _window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Section 6.9."""
        if len(payload) != 4:
            msg = f"WINDOW_UPDATE has {len(payload)} bytes, expected 4"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        increment = int.from_bytes(payload, "big") & STREAM_MASK
        stream = self.streams.get(stream_id)
        is_of_use = self.has_blocked or (stream is not None and stream.pending_bytes)
        if increment < _SMALL_INCREMENT and not is_of_use:
            self._budget.note_empty(self.last_stream_id)
        if not stream_id:
            self.send_window += increment
            if not increment or self.send_window > MAX_WINDOW:
                raise ConnectionFault(*_bad_increment(increment))
        elif stream is not None:
            self.widen(stream, increment)
            if not increment or stream.send_window > MAX_WINDOW:
                raise StreamFault(stream_id, *_bad_increment(increment))
        elif self._is_idle(stream_id):
            msg = "WINDOW_UPDATE on a stream that is idle"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        self.pump()


def _check_length(stream: H2Stream, count: int, *, ends: bool) -> None:
    """Count DATA against the declared content-length (section 8.1.1)."""
    stream.received_bytes += count
    declared = stream.head.content_length
    if stream.received_bytes > declared or (ends and stream.received_bytes != declared):
        msg = f"content-length says {declared} bytes, the body has another length"
        raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, msg)


def _bad_increment(increment: int) -> tuple[ErrorCode, str]:
    if not increment:
        return ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE adds nothing"
    return ErrorCode.FLOW_CONTROL_ERROR, "WINDOW_UPDATE makes a window too large"
