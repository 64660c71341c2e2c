"""The server's side of one HTTP/2 connection without its socket (RFC 9113).

Bytes go into `receive`, and what they mean reaches the application as calls on its H2Stream
objects. What is to be sent gathers in `out`: buffers, views among them, to be written in order.

Both flow-control windows are kept here. The connection's window is opened again as soon as DATA
has come; a stream's only when the application has taken it, so a reader that is slow holds up its
own stream and nothing else. What a stream has to send waits in its `pending` buffers and is cut
into frames, never copied, as far as the peer's windows and our own output limit allow.

Against peers that make work without doing any (RFC 9113, section 10.5) there are budgets, filled
up at each `tick`, which is called about once a second.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from inferd.wire.h2_frames import (
    ACK,
    CONTINUATION,
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
    encode_goaway,
    encode_headers,
    encode_rst_stream,
    encode_settings,
    encode_window_update,
    frame_header,
)
from inferd.wire.h2_hpack import NO_TABLE, TABLE_BYTES, HeaderDecoder
from inferd.wire.h2_request import (
    MalformedRequest,
    RequestHead,
    check_fields,
    decode_request_head,
)

Buffer = Any
"""bytes, or a memoryview of bytes."""

FRAME_BYTES = 1 << 20
"""SETTINGS_MAX_FRAME_SIZE as we offer it: a large message comes in few frames."""

STREAM_WINDOW = 1 << 22
"""SETTINGS_INITIAL_WINDOW_SIZE as we offer it."""

CONNECTION_WINDOW = 1 << 30

CONTROL_FRAME_BYTES = 16384
"""No frame but DATA may be larger: it would have to be kept until it is whole."""

OUTPUT_BYTES = 1 << 20
"""About how much is put into `out` before the socket takes it."""

EMPTY_FRAMES = 1000
"""Frames without use that a peer may send between two ticks, beside some for each request."""

EMPTY_FRAMES_PER_STREAM = 16

RESETS = 500
"""Streams a peer may open and reset between two ticks, beside one for each that it lets end."""

_SMALL_INCREMENT = 1024
_REMEMBERED_HEADS = 64
_REMEMBERED_BYTES = 4096
_REMEMBERED_RESETS = 2000
_REMEMBERED_GAPS = 100
_DECODED_LISTS = 8  # times the limit: so much is decoded, to refuse the one stream alone
_UNDECODED_BLOCKS = 4  # times the limit


class H2Stream:
    """One stream, as the connection knows it; the application subclasses it and is called."""

    is_remote_done = False  # the peer has ended its side
    is_local_done = False  # we have ended ours, or the stream was reset
    uncredited = 0  # bytes taken, the peer not yet told
    pending_bytes = 0
    ending: bytes | None = None  # trailers to send after `pending`, b"" for none
    received_bytes = 0  # counted only where the head declares a length
    deadline_s: float | None = None  # when `expire` is due, on the application's clock

    def __init__(self, connection: "H2Connection", stream_id: int, head: RequestHead) -> None:
        self.connection = connection
        self.id = stream_id
        self.head = head
        self.send_window = connection.peer_stream_window
        self.receive_window = STREAM_WINDOW
        self.pending: deque[Buffer] | None = None

    def on_open(self) -> None:
        """Act on the head; called once. DATA may follow, or `on_end`."""

    def on_data(self, data: Buffer, start: int, stop: int, *, ends: bool) -> None:
        """Take data[start:stop], which is only valid now; `ends`: nothing follows."""
        raise NotImplementedError

    def on_end(self) -> None:
        """Take note that the peer has ended its side without more DATA."""
        raise NotImplementedError

    def on_reset(self) -> None:
        """Take note that the stream is gone: reset by either side, or the connection lost."""
        raise NotImplementedError

    def on_drained(self) -> None:
        """Go on sending: what was pending has been put into frames."""

    def room(self) -> memoryview | None:
        """Return memory that DATA may be received into directly, None for none."""
        return None

    def on_filled(self, count: int, *, ends: bool) -> None:
        """Take note that `count` bytes of `room` have been filled."""
        raise NotImplementedError

    def expire(self) -> None:
        """End because the deadline has passed."""

    def cut(self) -> None:
        """End because the server does."""


class H2Connection:
    """Frames in, calls out; calls in, frames out.

    `open_stream` makes the application's object of a new request. `on_ping` is called for each
    PING that asks for an answer, and may end the connection with `fail`. `is_failed`: nothing
    more is read, `out` ends with GOAWAY, and the socket is to be closed.
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
        self._open_stream = open_stream
        self._on_ping = on_ping
        self._on_pong = on_pong
        self._max_streams = max_streams
        self._max_header_bytes = max_header_bytes
        self.max_header_bytes = max_header_bytes
        self.streams: dict[int, H2Stream] = {}
        self.last_stream_id = 0
        self.out: list[Buffer] = []
        self.out_bytes = 0
        self.is_paused = False  # the socket takes no more at the moment
        self.is_failed = False
        self.is_going_away = False
        self.peer_is_going_away = False
        self.frames_sent = 0  # HEADERS and DATA, for the ping policy
        # reading
        self._preface_left = PREFACE
        self._gate = -1  # -1: SETTINGS must come; else the stream whose header block goes on
        self._rest = b""
        self.data_left = 0
        self._skip_left = 0  # padding, or a frame of a type that is not known
        self._data_stream: H2Stream | None = None
        self._data_ends = False
        self._block = bytearray()
        self._block_flags = 0
        self._block_frames = 0
        self._decoder = HeaderDecoder(_DECODED_LISTS * max_header_bytes)
        self._heads: dict[bytes, RequestHead | MalformedRequest] = {}
        self._resets: dict[int, None] = {}  # streams that we reset, the newest last
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED_GAPS)
        self._receive_window = CONNECTION_WINDOW
        self._empty_count = 0
        self._reset_count = 0
        self._ticked_stream_id = 0
        # writing
        self.send_window = DEFAULT_WINDOW
        self.peer_stream_window = DEFAULT_WINDOW
        self.peer_frame_bytes = DEFAULT_FRAME_BYTES
        self.table_update = b""
        self._blocked: dict[int, H2Stream] = {}
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

    @property
    def has_pending(self) -> bool:
        """Whether any stream waits for the peer, or the socket, to take its data."""
        return any(stream.pending_bytes for stream in self.streams.values())

    # --- reading ---

    def receive(self, data: Buffer) -> None:
        """Take what the peer sent; `data` may be overwritten afterwards."""
        if self.is_failed:
            return
        try:
            if self._preface_left and not (data := self._read_preface(data)):
                return
            self._read_frames(data)
        except ConnectionFault as fault:
            self.fail(fault.code, fault.message)

    def room(self) -> memoryview | None:
        """Return where the next bytes may be received directly, None: give them to `receive`.

        That is while a large DATA frame is coming; then `filled` is to be called.
        """
        if self.data_left < DEFAULT_FRAME_BYTES or self._data_stream is None or self.is_failed:
            return None
        memory = self._data_stream.room()
        return None if memory is None else memory[: self.data_left]

    def filled(self, count: int) -> None:
        """Take note that `count` bytes of `room` have been received."""
        stream = self._data_stream
        self.data_left -= count
        is_last = not self.data_left
        if stream is not None:
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
        if self._rest:
            data = b"".join((self._rest, data))
            self._rest = b""
        at, end = 0, len(data)
        if self.data_left or self._skip_left:
            at = self._go_on_with_data(data, end)
        unpack, others = FRAME_HEADER.unpack_from, self._other
        while at + HEADER_BYTES <= end:
            high, low, kind, flags, stream_id = unpack(data, at)
            length = high << 8 | low
            start = at + HEADER_BYTES
            at = stop = start + length
            if self._gate or length > CONTROL_FRAME_BYTES:
                self._check_frame(kind, flags, stream_id & STREAM_MASK, length)
            try:
                if kind == DATA:
                    if stop > end:
                        at = self._begin_data(flags, stream_id & STREAM_MASK, data, start, length)
                        if at < 0:
                            at = start - HEADER_BYTES
                            break
                        continue
                    self._data(flags, stream_id & STREAM_MASK, data, start, stop)
                elif stop > end:
                    at = self._begin_frame(kind, start, stop, end)
                    break
                elif kind == HEADERS:
                    self._headers(flags, stream_id & STREAM_MASK, data, start, stop)
                elif handle := others.get(kind):
                    handle(flags, stream_id & STREAM_MASK, bytes(data[start:stop]))
                else:
                    self._note_empty()  # unknown types are ignored, section 4.1
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
        if length > CONTROL_FRAME_BYTES and (kind == HEADERS or kind in self._other):
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

    def _begin_frame(self, kind: int, start: int, stop: int, end: int) -> int:
        """Return from where the bytes of a frame that is not whole are kept."""
        if kind == HEADERS or kind in self._other:
            return start - HEADER_BYTES
        self._note_empty()
        self._skip_left = stop - end
        return end

    def _end_faulty(self, fault: StreamFault) -> None:
        """Reset a stream on which a rule was broken; that costs us as much as the peer's resets."""
        if fault.code is ErrorCode.REFUSED_STREAM:
            self._note_empty()
        else:
            self._note_reset()
        self.reset(fault.stream_id, fault.code)

    # --- DATA, section 6.1 ---

    def _data(self, flags: int, stream_id: int, data: Buffer, start: int, stop: int) -> None:
        length = stop - start
        stream = self._receiver(stream_id, length)
        if flags & PADDED:
            padding = self._padding(data, start, length)
            start += 1
            stop -= padding
            if stream is not None:
                stream.uncredited += padding + 1
        if stream is None:
            return
        ends = bool(flags & END_STREAM)
        if stream.head.content_length >= 0:
            _check_length(stream, stop - start, ends=ends)
        if ends:
            stream.is_remote_done = True
        elif start == stop:
            self._note_empty()
        stream.on_data(data, start, stop, ends=ends)

    def _begin_data(self, flags: int, stream_id: int, data: Buffer, start: int, length: int) -> int:
        """Begin a frame of which a part is still to come; return the end of `data`.

        Returns -1 when not even its pad length has come.
        """
        end = len(data)
        padding, has_padding = 0, bool(flags & PADDED)
        if has_padding:
            if start == end:
                return -1
            padding = self._padding(data, start, length)
        stream = self._receiver(stream_id, length)
        data_length = length - padding - has_padding
        if stream is not None:
            if has_padding:
                stream.uncredited += padding + 1
            if stream.head.content_length >= 0:
                _check_length(stream, data_length, ends=bool(flags & END_STREAM))
        self._data_stream = stream
        self._data_ends = bool(flags & END_STREAM)
        self.data_left = data_length
        self._skip_left = padding
        if self._data_ends and stream is not None:
            stream.is_remote_done = True
        return self._go_on_with_data(data, end, start + has_padding)

    def _go_on_with_data(self, data: Buffer, end: int, at: int = 0) -> int:
        """Hand on what has come of a begun DATA frame; return where the next frame begins."""
        if self.data_left:
            stop = min(end, at + self.data_left)
            self.data_left -= stop - at
            stream, is_last = self._data_stream, not self.data_left
            if is_last:
                self._data_stream = None
            if stream is not None and (stop > at or is_last):
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
        if stream_id in self._resets:
            self._note_empty()
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
            self._block = bytearray(block)
            self._block_flags = flags
            self._block_frames = 0

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._gate:
            msg = "CONTINUATION without a header block"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        self._block += payload
        self._block_frames += 1
        limit = max(_UNDECODED_BLOCKS * self._max_header_bytes, CONTROL_FRAME_BYTES)
        if len(self._block) > limit or self._block_frames > 8 + len(self._block) // 256:
            msg = "a header block goes on for too long"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, msg)
        if flags & END_HEADERS:
            block, self._block, self._gate = bytes(self._block), bytearray(), 0
            self._head(stream_id, block, self._block_flags)

    def _head(self, stream_id: int, block: bytes, flags: int) -> None:
        if stream_id in self.streams or stream_id <= self.last_stream_id:
            self._trailers(stream_id, block, flags)
            return
        head = self._heads.get(block)
        if head is None:
            head = self._decode_head(block)
        if self.is_going_away:
            return  # section 6.8: what we said we would not answer is ignored
        if stream_id != self.last_stream_id + 2 and stream_id != 1:
            self._gaps.append((self.last_stream_id, stream_id))
        self.last_stream_id = stream_id
        if flags >> 8:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "the stream depends on itself")
        if isinstance(head, MalformedRequest):
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, str(head))
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

    def _decode_head(self, block: bytes) -> RequestHead | MalformedRequest:
        """Decode a block that is not remembered.

        A block means the same as long as the dynamic table does not change.
        """
        fields, size = self._decoder.decode(block)
        head: RequestHead | MalformedRequest
        try:
            head = decode_request_head(fields, size)
        except MalformedRequest as error:
            head = error
        if self._decoder.is_table_changed:
            self._heads.clear()
        else:
            if len(self._heads) >= _REMEMBERED_HEADS:
                self._heads.clear()
            if len(block) <= _REMEMBERED_BYTES and size <= _REMEMBERED_BYTES:
                self._heads[block] = head
        return head

    def _trailers(self, stream_id: int, block: bytes, flags: int) -> None:
        """Take a block on a stream that has had one (section 8.1)."""
        fields, _ = self._decoder.decode(block)
        if self._decoder.is_table_changed:
            self._heads.clear()
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
        stream.on_end()

    # --- the other frames ---

    def _priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Check and ignore (section 6.3; priorities are deprecated, section 5.3.2)."""
        self._note_empty()
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
        self._note_empty()
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        self._note_reset()
        self._forget(stream)
        stream.on_reset()

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Section 6.5."""
        if stream_id:
            msg = "SETTINGS on a stream"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
        self._note_empty()
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
                self._move_windows(value - self.peer_stream_window)
                self.peer_stream_window = value
        self._put(encode_frame(SETTINGS, ACK, 0))
        self.pump()

    def _move_windows(self, difference: int) -> None:
        """Section 6.9.2: a window may become negative, but not larger than 2^31 - 1."""
        for stream in self.streams.values():
            stream.send_window += difference
            if stream.pending_bytes:
                self._blocked[stream.id] = stream
            if stream.send_window > MAX_WINDOW:
                msg = "SETTINGS_INITIAL_WINDOW_SIZE makes a window too large"
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, msg)

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
        self._note_empty()
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
        self._note_empty()
        self.peer_is_going_away = True

    def _window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Section 6.9."""
        if len(payload) != 4:
            msg = f"WINDOW_UPDATE has {len(payload)} bytes, expected 4"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
        increment = int.from_bytes(payload, "big") & STREAM_MASK
        if increment < _SMALL_INCREMENT and not self._blocked and not self._is_waiting(stream_id):
            self._note_empty()
        if not stream_id:
            self.send_window += increment
            if not increment or self.send_window > MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
                msg = "the window of the connection grows by nothing, or too large"
                raise ConnectionFault(code, msg)
            if self._blocked:
                self.pump()
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            if self._is_idle(stream_id):
                msg = "WINDOW_UPDATE on a stream that is idle"
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
            return
        stream.send_window += increment
        if not increment or stream.send_window > MAX_WINDOW:
            code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
            msg = "the window of a stream grows by nothing, or too large"
            raise StreamFault(stream_id, code, msg)
        if stream.pending:
            self._blocked[stream_id] = stream
            self.pump()

    def _is_waiting(self, stream_id: int) -> bool:
        stream = self.streams.get(stream_id)
        return stream is not None and stream.pending_bytes > 0

    def _note_empty(self) -> None:
        """Count a frame that carries nothing (section 10.5)."""
        self._empty_count += 1
        if self._empty_count > EMPTY_FRAMES:
            opened = (self.last_stream_id - self._ticked_stream_id) // 2
            if self._empty_count > EMPTY_FRAMES + EMPTY_FRAMES_PER_STREAM * opened:
                msg = "too many frames that carry nothing"
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, msg)

    def _note_reset(self) -> None:
        self._reset_count += 1
        opened = (self.last_stream_id - self._ticked_stream_id) // 2
        if 2 * self._reset_count > RESETS + opened:
            msg = "too many streams are opened only to be reset"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, msg)

    def tick(self) -> None:
        """Fill the budgets up; to be called about once a second."""
        self._empty_count = self._reset_count = 0
        self._ticked_stream_id = self.last_stream_id

    # --- writing ---

    def send_headers(self, stream: H2Stream, block: bytes, *, ends: bool = False) -> None:
        """Send a header block; `ends`: nothing follows. What is pending must have gone before."""
        if self.table_update:
            block, self.table_update = self.table_update + block, b""
        flags = END_STREAM if ends else 0
        self._put(encode_headers(stream.id, block, flags, self.peer_frame_bytes))
        self.frames_sent += 1
        if ends:
            self._end(stream)

    def send_data(self, stream: H2Stream, buffers: list[Buffer], ending: bytes | None) -> None:
        """Send `buffers` as the windows allow, then trailers.

        `ending` is the block of the trailers, b"" to end without any, None if more is to come.
        """
        if stream.pending is None:
            stream.pending = deque()
        for buffer in buffers:
            if size := len(buffer):
                stream.pending.append(buffer)
                stream.pending_bytes += size
        stream.ending = ending
        self._blocked[stream.id] = stream
        self.pump()

    def pump(self) -> None:
        """Turn what is pending into frames, the streams by turns, as far as it may go now."""
        while self._blocked and not self.is_paused and self.out_bytes < OUTPUT_BYTES:
            has_moved = False
            for stream in list(self._blocked.values()):
                if stream.pending_bytes:
                    room = min(stream.send_window, self.send_window, self.peer_frame_bytes)
                    if stream.send_window <= 0:
                        del self._blocked[stream.id]  # its WINDOW_UPDATE brings it back
                        continue
                    if room <= 0:
                        continue
                    self._send_frame(stream, min(room, stream.pending_bytes))
                    has_moved = True
                if not stream.pending_bytes and stream.id in self._blocked:
                    del self._blocked[stream.id]
                    self._finish(stream)
                if self.out_bytes >= OUTPUT_BYTES:
                    return
            if not has_moved:
                return

    @property
    def is_blocked_by_output(self) -> bool:
        """Whether more could be sent as soon as `out` has been taken."""
        return bool(self._blocked) and self.send_window > 0

    def _send_frame(self, stream: H2Stream, length: int) -> None:
        """Send one DATA frame of `length` pending bytes; nothing is copied."""
        pending: deque[Buffer] = stream.pending or deque()
        stream.send_window -= length
        self.send_window -= length
        stream.pending_bytes -= length
        ends = stream.ending == b"" and not stream.pending_bytes
        out = self.out
        out.append(frame_header(length, DATA, END_STREAM if ends else 0, stream.id))
        self.out_bytes += length + HEADER_BYTES
        self.frames_sent += 1
        while length:
            buffer = pending.popleft()
            size = len(buffer)
            if size > length:
                view = memoryview(buffer)
                buffer, size = view[:length], length
                pending.appendleft(view[length:])
            out.append(buffer)
            length -= size
        if ends:
            self._blocked.pop(stream.id, None)
            self._end(stream)

    def _finish(self, stream: H2Stream) -> None:
        """Act on a stream whose pending data are all in frames."""
        if stream.is_local_done:
            return
        if stream.ending is None:
            stream.on_drained()
        elif stream.ending:
            self.send_headers(stream, stream.ending, ends=True)
        else:
            self._put(encode_frame(DATA, END_STREAM, stream.id))
            self._end(stream)

    def send_at_once(self, stream: H2Stream, frames: Buffer, data_length: int) -> None:
        """Send whole frames that end the stream, with `data_length` bytes of DATA among them.

        The caller has seen that the windows allow it (`may_send_at_once`).
        """
        self.send_window -= data_length
        self.out.append(frames)
        self.out_bytes += len(frames)
        self.frames_sent += 2
        self._end(stream)

    def may_send_at_once(self, stream: H2Stream, data_length: int) -> bool:
        """Tell whether one DATA frame of that length may go now."""
        return (
            data_length <= self.send_window
            and data_length <= stream.send_window
            and data_length <= self.peer_frame_bytes
            and not self.table_update
            and not self.is_paused
            and self.out_bytes < OUTPUT_BYTES
        )

    def _end(self, stream: H2Stream) -> None:
        """Take note that our side of the stream has ended."""
        stream.is_local_done = True
        if stream.is_remote_done:
            self.streams.pop(stream.id, None)
            if self._data_stream is stream:
                self._data_stream = None
        else:
            # Section 8.1: the answer is complete, the rest of the request is not needed.
            self.reset(stream.id, ErrorCode.NO_ERROR)

    def credit(self, stream: H2Stream, count: int) -> None:
        """Let the peer send `count` bytes more on a stream; they have been taken."""
        stream.uncredited += count
        if stream.uncredited >= STREAM_WINDOW // 2 and not stream.is_remote_done:
            self._put(encode_window_update(stream.id, stream.uncredited))
            stream.receive_window += stream.uncredited
            stream.uncredited = 0

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """End one stream; the application hears of it unless its answer was complete."""
        self._put(encode_rst_stream(stream_id, code))
        self._resets[stream_id] = None
        if len(self._resets) > _REMEMBERED_RESETS:
            del self._resets[next(iter(self._resets))]
        stream = self.streams.get(stream_id)
        if stream is not None:
            was_done = stream.is_local_done
            self._forget(stream)
            if not was_done:
                stream.on_reset()

    def _forget(self, stream: H2Stream) -> None:
        self.streams.pop(stream.id, None)
        self._blocked.pop(stream.id, None)
        if self._data_stream is stream:
            self._data_stream = None
        stream.is_local_done = True
        stream.pending = None
        stream.pending_bytes = 0

    def ping(self, payload: bytes) -> None:
        """Send a PING of eight bytes; its answer is given to `on_pong`."""
        self._put(encode_frame(PING, 0, 0, payload))

    def announce_end(self) -> None:
        """Ask the peer to open no more streams; those it has under way are still taken."""
        self._put(encode_goaway(MAX_WINDOW, ErrorCode.NO_ERROR))

    def go_away(self) -> None:
        """Take no more streams; those that are open go on (section 6.8)."""
        if not self.is_going_away:
            self.is_going_away = True
            self._put(encode_goaway(self.last_stream_id, ErrorCode.NO_ERROR))

    def fail(self, code: ErrorCode, message: str) -> None:
        """End the connection with GOAWAY; every stream hears of it."""
        if self.is_failed:
            return
        self.is_failed = True
        self._put(encode_goaway(self.last_stream_id, code, message))
        self.lose()

    def lose(self) -> None:
        """Tell every stream that the connection is gone."""
        self.is_failed = True
        self._rest = b""
        self._block = bytearray()
        self._data_stream = None
        for stream in list(self.streams.values()):
            self._forget(stream)
            stream.on_reset()

    def _put(self, frame: bytes) -> None:
        self.out.append(frame)
        self.out_bytes += len(frame)


def _check_length(stream: H2Stream, count: int, *, ends: bool) -> None:
    """Count DATA against the declared content-length (section 8.1.1)."""
    stream.received_bytes += count
    declared = stream.head.content_length
    if stream.received_bytes > declared or (ends and stream.received_bytes != declared):
        msg = f"content-length says {declared} bytes, the body has another length"
        raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, msg)
