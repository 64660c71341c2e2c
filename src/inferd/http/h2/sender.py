"""The sending side of one HTTP/2 connection: windows, frames, the ends of streams (RFC 9113).

Output is collected in `out`: buffers, including views, to be written in order. A stream's data
wait in its `pending` buffers and are cut into frames, without copying, as far as the peer's windows
and our own output limit allow, with the streams taking turns.
"""

from collections import deque
from typing import Final

from inferd.http.h2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_STREAM,
    HEADER_BYTES,
    MAX_WINDOW,
    PING,
    ConnectionFault,
    ErrorCode,
    encode_frame,
    encode_goaway,
    encode_headers,
    encode_rst_stream,
    encode_window_update,
    frame_header,
)
from inferd.http.h2.stream import STREAM_WINDOW, H2Stream, StreamHandler
from inferd.memory.buffer import Buffer

OUTPUT_BYTES: Final = 1 << 20
"""About how many bytes are put into `out` before the socket takes them."""

# Each has its DATA under way for about a round trip; older ones are forgotten.
_REMEMBERED_RESETS: Final = 2000


class H2Sender:
    """Calls in, frames out. Once it `is_failed`, the socket is to be closed after `out` is sent.

    `handlers` are those of all streams that have not ended on both sides, by the streams' ids.
    """

    def __init__(self) -> None:
        self.handlers: dict[int, StreamHandler] = {}
        self.last_stream_id = 0
        # Streams that we reset, newest last: how much the peer may have sent before it knew.
        self.resets: dict[int, int] = {}
        self.out: list[Buffer] = []
        self.out_bytes = 0
        self.is_paused = False  # the socket takes no more at present
        self.is_failed = False
        self.is_going_away = False
        self.frames_sent = 0  # HEADERS and DATA, for the ping policy
        self.send_window = DEFAULT_WINDOW
        self.full_window = DEFAULT_WINDOW  # the most that `send_window` has been
        self.peer_stream_window = DEFAULT_WINDOW
        self.peer_frame_bytes = DEFAULT_FRAME_BYTES
        self.table_update = b""  # goes before the next header block
        self.blocked: dict[int, H2Stream] = {}  # wait for the connection's window or the socket

    def send_headers(self, stream: H2Stream, block: bytes, *, ends: bool = False) -> None:
        """Send a header block; `ends`: nothing follows. Pending data must already be in frames."""
        if self.table_update:
            block, self.table_update = self.table_update + block, b""
        flags = END_STREAM if ends else 0
        # Headers are under no flow control.
        self.put(encode_headers(stream.id, block, flags, self.peer_frame_bytes))
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
        self.blocked[stream.id] = stream
        self.pump()

    def pump(self) -> None:
        """Put pending data into frames, the streams taking turns, as far as limits allow now."""
        while self.blocked and not self.is_paused and self.out_bytes < OUTPUT_BYTES:
            has_moved = False
            # Streams that have sent all leave the dict.
            for stream in list(self.blocked.values()):
                if stream.pending_bytes:
                    room = min(stream.send_window, self.send_window, self._turn_bytes())
                    if stream.send_window <= 0:
                        del self.blocked[stream.id]  # its WINDOW_UPDATE brings it back
                        continue
                    if room <= 0:
                        continue
                    self._send_frames(stream, min(room, stream.pending_bytes))
                    has_moved = True
                if not stream.pending_bytes and stream.id in self.blocked:
                    del self.blocked[stream.id]
                    self._finish(stream)
                if self.out_bytes >= OUTPUT_BYTES:
                    return
            # Only streams that wait for the connection's window are left.
            if not has_moved:
                return

    def _turn_bytes(self) -> int:
        """Return how many bytes a stream may send per turn: a frame, or more if it is alone."""
        if len(self.blocked) > 1:
            return self.peer_frame_bytes
        return max(self.peer_frame_bytes, OUTPUT_BYTES - self.out_bytes)

    def _send_frames(self, stream: H2Stream, length: int) -> None:
        """Send `length` pending bytes in DATA frames, all but the last of the largest size."""
        stream.send_window -= length
        self.send_window -= length
        stream.pending_bytes -= length
        stream.sent_bytes += length
        ends = stream.ending == b"" and not stream.pending_bytes
        largest = self.peer_frame_bytes
        pending: deque[Buffer] = stream.pending or deque()
        if length > largest:
            header = frame_header(largest, DATA, 0, stream.id)
            while length > largest:
                if len(pending[0]) > largest:
                    length -= self._send_cut(pending, header, largest, length)
                else:
                    self._send_frame(pending, header, largest)
                    length -= largest
        self._send_frame(
            pending, frame_header(length, DATA, END_STREAM if ends else 0, stream.id), length
        )
        if ends:
            self.blocked.pop(stream.id, None)
            self._end(stream)

    def _send_cut(self, pending: "deque[Buffer]", header: bytes, largest: int, length: int) -> int:
        """Send the full-size frames within the first pending buffer; return how many bytes.

        The last frame of `length` is never among them.
        """
        view = memoryview(pending[0])
        out = self.out
        # The last frame may carry END_STREAM and is made by the caller.
        count = (min(length, len(view)) - 1) // largest
        stop = count * largest
        for at in range(0, stop, largest):
            out += (header, view[at : at + largest])
        pending[0] = view[stop:]
        self.out_bytes += stop + count * HEADER_BYTES
        self.frames_sent += count
        return stop

    def _send_frame(self, pending: "deque[Buffer]", header: bytes, length: int) -> None:
        """Send one frame of `length` pending bytes, without copying."""
        out = self.out
        out.append(header)
        self.out_bytes += length + HEADER_BYTES
        self.frames_sent += 1
        while length:
            buffer = pending[0]
            size = len(buffer)
            if size > length:
                view = memoryview(buffer)
                out.append(view[:length])
                pending[0] = view[length:]
                return
            out.append(pending.popleft())
            length -= size

    def _finish(self, stream: H2Stream) -> None:
        """Go on with a stream whose pending data are all in frames."""
        if stream.is_local_done:
            return
        if stream.ending is None:
            self.handlers[stream.id].on_drained()
        elif stream.ending:
            self.send_headers(stream, stream.ending, ends=True)
        else:
            self.put(encode_frame(DATA, END_STREAM, stream.id))
            self._end(stream)

    def send_at_once(self, stream: H2Stream, frames: Buffer, data_length: int) -> bool:
        """Send complete frames that end the stream, if they may go now; return whether they did.

        One of them is a DATA frame of `data_length` bytes, at most what every peer accepts
        (DEFAULT_FRAME_BYTES).
        """
        # Whatever would have to wait goes the general way.
        if (
            data_length > self.send_window
            or data_length > stream.send_window
            or self.table_update
            or self.is_paused
            or self.out_bytes >= OUTPUT_BYTES
        ):
            return False
        self.send_window -= data_length
        self.out.append(frames)
        self.out_bytes += len(frames)
        # HEADERS and DATA; trailers are HEADERS as well, but gRPC's ping policy does not care.
        self.frames_sent += 2
        self._end(stream)
        return True

    def _end(self, stream: H2Stream) -> None:
        """Note that our side of the stream has ended."""
        stream.is_local_done = True
        if stream.is_remote_done:
            if stream.id in self.handlers:
                del self.handlers[stream.id]
        elif stream.drop_bytes <= 0:
            # Section 8.1: the answer is complete, the rest of the request is not needed.
            self.reset(stream.id, ErrorCode.NO_ERROR)

    def credit(self, stream: H2Stream, count: int) -> None:
        """Let the peer send `count` more bytes on a stream, as many as have been taken."""
        stream.uncredited += count
        # As for the connection: few updates, and no pause.
        if stream.uncredited >= STREAM_WINDOW // 2 and not stream.is_remote_done:
            self.put(encode_window_update(stream.id, stream.uncredited))
            stream.receive_window += stream.uncredited
            stream.uncredited = 0

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """Reset one stream; the application is told unless its answer was complete."""
        self.put(encode_rst_stream(stream_id, code))
        handler = self.handlers.get(stream_id)
        # As much as the client may have sent before it sees the reset.
        self.resets[stream_id] = 0 if handler is None else handler.stream.receive_window
        if len(self.resets) > _REMEMBERED_RESETS:
            del self.resets[next(iter(self.resets))]
        if handler is not None:
            was_done = handler.stream.is_local_done
            self.forget(handler.stream)
            if not was_done:
                handler.on_reset()

    def forget(self, stream: H2Stream) -> None:
        """Remove a stream; nothing more is sent on it."""
        self.handlers.pop(stream.id, None)
        self.blocked.pop(stream.id, None)
        stream.is_local_done = True
        stream.pending = None
        stream.pending_bytes = 0

    def is_idle(self, stream_id: int) -> bool:
        """Return whether a stream has not been opened; ours, the even ones, never are."""
        if stream_id & 1 == 0:
            return True
        return stream_id > self.last_stream_id and not self.is_going_away

    def ping(self, payload: bytes) -> None:
        """Send a PING with a payload of eight bytes; its answer is passed to `on_pong`."""
        self.put(encode_frame(PING, 0, 0, payload))

    def announce_end(self) -> None:
        """Ask the peer to open no more streams; those already under way are still accepted."""
        self.put(encode_goaway(MAX_WINDOW, ErrorCode.NO_ERROR))

    def go_away(self) -> None:
        """Accept no more streams; open ones go on (section 6.8)."""
        if not self.is_going_away:
            self.is_going_away = True
            self.put(encode_goaway(self.last_stream_id, ErrorCode.NO_ERROR))

    def fail(self, code: ErrorCode, message: str) -> None:
        """End the connection with GOAWAY, and tell every stream."""
        if self.is_failed:
            return
        self.is_failed = True
        self.put(encode_goaway(self.last_stream_id, code, message))
        self.lose()

    def lose(self) -> None:
        """Tell every stream that the connection is gone."""
        self.is_failed = True
        for handler in list(self.handlers.values()):
            self.forget(handler.stream)
            handler.on_reset()

    def put(self, frame: bytes) -> None:
        """Send a frame that no window holds up."""
        self.out.append(frame)
        self.out_bytes += len(frame)

    def widen(self, stream: H2Stream, increment: int) -> None:
        """Widen a stream's send window (section 6.9); waiting data go on at the next pump."""
        stream.send_window += increment
        stream.full_window = max(stream.full_window, stream.send_window)
        if stream.pending_bytes:
            self.blocked[stream.id] = stream

    def move_windows(self, size: int) -> None:
        """Set the initial send window of streams to `size`, and adjust those of open ones.

        A window may become negative. Raises ConnectionFault when one becomes too large (RFC 9113,
        section 6.9.2).
        """
        difference = size - self.peer_stream_window
        self.peer_stream_window = size
        for handler in self.handlers.values():
            stream = handler.stream
            self.widen(stream, difference)
            if stream.send_window > MAX_WINDOW:
                msg = "SETTINGS_INITIAL_WINDOW_SIZE makes a window too large"
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, msg)
