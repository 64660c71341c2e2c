"""The DATA frames of one HTTP/2 connection: bytes for streams, under flow control (RFC 9113).

A large frame is passed on as it arrives, or received straight into its stream's own memory. The
connection's window is reopened as soon as DATA has arrived, a stream's only when the application
has taken it, so a slow reader holds up only its own stream.
"""

from typing import Final

from inferd.http.h2.budget import FloodBudget
from inferd.http.h2.frames import (
    DEFAULT_FRAME_BYTES,
    END_STREAM,
    HEADER_BYTES,
    PADDED,
    STREAM_MASK,
    ConnectionFault,
    ErrorCode,
    Header,
    StreamFault,
    encode_window_update,
    read_header,
)
from inferd.http.h2.sender import H2Sender
from inferd.http.h2.stream import H2Stream, StreamHandler
from inferd.memory.buffer import Buffer

# Wide open: what limits a client is each stream's window, and the server's memory.
CONNECTION_WINDOW: Final = 1 << 30


class H2Receiver:
    """Takes the DATA frames that H2Connection finds, whole or in pieces.

    Its `sender` reopens windows, and knows which streams there are. `data_left` is how many bytes
    of a begun DATA frame are still to come, without padding; `skip_left`, how many to skip:
    padding, or a frame that is ignored.
    """

    def __init__(self, sender: H2Sender, budget: FloodBudget) -> None:
        self._sender = sender
        self._budget = budget
        self.data_left = 0
        self.skip_left = 0
        self._data_handler: StreamHandler | None = None
        self._data_ends = False
        self.data_stream_id = 0  # of the last DATA
        self.window = CONNECTION_WINDOW

    def room(self) -> memoryview | None:
        """Return memory to receive the next bytes into, None if they must go to `receive`.

        There is some while a large DATA frame is arriving; call `filled` afterwards.
        """
        handler = self._data_handler
        # Smaller rests are taken from the buffer that all connections share.
        if self.data_left < DEFAULT_FRAME_BYTES or handler is None:
            return None
        memory = None if handler.stream.is_local_done else handler.room()
        return None if memory is None else memory[: self.data_left]

    def filled(self, count: int) -> None:
        """Note that `count` bytes have been received into `room`."""
        handler = self._data_handler
        self.data_left -= count
        is_last = not self.data_left
        if handler is not None and not handler.stream.is_local_done:
            handler.on_filled(count, ends=is_last and self._data_ends)
        if is_last:
            self._data_handler = None

    def missing_bytes(self) -> int:
        """Return how many bytes the last DATA's message still lacks, 0 if unknown."""
        handler = self._sender.handlers.get(self.data_stream_id)
        if handler is None or handler.stream.is_local_done:
            return 0
        memory = handler.room()
        return 0 if memory is None else len(memory)

    def data(self, header: Header, data: Buffer, start: int, stop: int) -> int:
        """Take a whole DATA frame with payload data[start:stop]; return where the next begins.

        A large message comes in many frames of the largest size that its sender uses. Consecutive
        ones are taken together.
        """
        flags, stream_id = header[3], header[4] & STREAM_MASK
        # No padding and no end: the frames in the middle of a message.
        if not flags and stop > start:
            starts = self._run(stream_id, header, data, start, stop)
            if starts is not None:
                self._sender.handlers[stream_id].on_data_run(data, starts, stop - start)
                return starts[-1] + stop - start
        end = stop
        length = stop - start
        overhead = 0
        if flags & PADDED:
            padding = padding_of(data, start, length)
            overhead = padding + 1
            start += 1
            stop -= padding
        handler = self._taker(stream_id, length)
        if handler is None:
            return end
        stream = handler.stream
        if stream.is_local_done:
            self._drop(stream, length, ends=bool(flags & END_STREAM))
            return end
        # Padding counts against the window, and nobody will take it.
        stream.uncredited += overhead
        ends = bool(flags & END_STREAM)
        if stream.head.content_length >= 0:
            check_length(stream, stop - start, ends=ends)
        # Before `on_data`, which may end the stream.
        if ends:
            stream.is_remote_done = True
        elif start == stop:
            self._budget.note_empty(self._sender.last_stream_id)
        handler.on_data(data, start, stop, ends=ends)
        return end

    def _run(
        self, stream_id: int, header: Header, data: Buffer, start: int, stop: int
    ) -> range | None:
        """Take the frame data[start:stop] and the following ones with the same header.

        Return where their payloads start. Return None, with nothing done, if they cannot be taken
        as a run.
        """
        handler = self._sender.handlers.get(stream_id)
        if handler is None or not handler.takes_runs:
            return None
        stream = handler.stream
        if stream.is_remote_done or stream.is_local_done:
            return None
        length = stop - start
        last = len(data) - length - HEADER_BYTES
        # All nine bytes at once: same stream, length and flags.
        while stop <= last and header == read_header(data, stop):
            stop += HEADER_BYTES + length
        starts = range(start, stop, HEADER_BYTES + length)
        count = length * len(starts)
        if (declared := stream.head.content_length) >= 0:
            if stream.received_bytes + count > declared:
                return None
            stream.received_bytes += count
        self._taker(stream_id, count)
        return starts

    def begin_data(self, flags: int, stream_id: int, data: Buffer, start: int, length: int) -> int:
        """Begin an incomplete DATA frame; return from where bytes are kept.

        That is from its header while its pad length has not arrived. After a fault the rest of the
        frame is skipped.
        """
        end = len(data)
        padding, has_padding = 0, bool(flags & PADDED)
        if has_padding:
            if start == end:
                return start - HEADER_BYTES
            padding = padding_of(data, start, length)
        self.skip_left = length - (end - start)
        handler = self._taker(stream_id, length)
        data_length = length - padding - has_padding
        ends = bool(flags & END_STREAM)
        if handler is not None and handler.stream.is_local_done:
            self._drop(handler.stream, length, ends=ends)
            handler = None
        if handler is not None:
            stream = handler.stream
            stream.uncredited += padding + has_padding
            if stream.head.content_length >= 0:
                check_length(stream, data_length, ends=ends)
            stream.is_remote_done = ends
            if not data_length and not ends:
                self._budget.note_empty(self._sender.last_stream_id)
        self._data_handler, self._data_ends = handler, ends
        self.data_left, self.skip_left = data_length, padding
        return self.go_on(data, end, start + has_padding)

    def _drop(self, stream: H2Stream, count: int, *, ends: bool) -> None:
        """Drop DATA that a client goes on sending though its answer is complete.

        Some clients lose the answer if their stream is reset meanwhile, so the reset comes late.
        """
        stream.drop_bytes -= count
        if ends:
            self._sender.forget(stream)
        elif stream.drop_bytes <= 0:
            self._sender.reset(stream.id, ErrorCode.NO_ERROR)
        else:
            self._sender.credit(stream, count)

    def go_on(self, data: Buffer, end: int, at: int = 0) -> int:
        """Pass on what has arrived of a begun DATA frame; return where the next frame begins."""
        handler = self._data_handler
        if self.data_left or handler is not None:
            stop = min(end, at + self.data_left)
            self.data_left -= stop - at
            is_last = not self.data_left
            if is_last:
                self._data_handler = None
            if handler is not None and not handler.stream.is_local_done and (stop > at or is_last):
                try:
                    handler.on_data(data, at, stop, ends=is_last and self._data_ends)
                except StreamFault as fault:
                    self.end_faulty(fault)
            at = stop
        skipped = min(end - at, self.skip_left)
        self.skip_left -= skipped
        return at + skipped

    def _taker(self, stream_id: int, length: int) -> StreamHandler | None:
        """Take `length` bytes off the windows; return the handler to receive them, if any.

        The whole payload counts, including padding (section 6.9.1).
        """
        sender = self._sender
        self.data_stream_id = stream_id
        self.window -= length
        # Halves, so that updates are few and the client never waits for one.
        if self.window < CONNECTION_WINDOW // 2:
            if self.window < 0:
                msg = "DATA exceeds the window of the connection"
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, msg)
            sender.put(encode_window_update(0, CONNECTION_WINDOW - self.window))
            self.window = CONNECTION_WINDOW
        handler = sender.handlers.get(stream_id)
        if handler is None:
            left = sender.resets.get(stream_id, 0)
            if 0 < length <= left:  # it was under way when we reset the stream (section 5.1)
                sender.resets[stream_id] = left - length
            else:
                self.check_gone(stream_id, "DATA")
            return None
        stream = handler.stream
        if stream.is_remote_done:
            msg = "DATA after the end of the stream"
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, msg)
        stream.receive_window -= length
        if stream.receive_window < 0:
            # Not a StreamFault: a peer that ignores windows would go on with the next stream.
            msg = "DATA exceeds the window of the stream"
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, msg)
        return handler

    def check_gone(self, stream_id: int, frame: str) -> None:
        """Check a frame on a stream that is not open (section 5.1); it may be one we have reset."""
        sender = self._sender
        if stream_id in sender.resets:
            self._budget.note_empty(sender.last_stream_id)
        elif sender.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{frame} on a stream that is idle")
        elif not (sender.is_going_away and stream_id > sender.last_stream_id):
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"{frame} on a stream that is closed")

    def end_faulty(self, fault: StreamFault) -> None:
        """Reset a faulty stream, and count it: it costs us as much as a reset by the peer."""
        # Ours is the limit; a client that has opened one too many before it knew has done nothing
        # wrong.
        if fault.code is ErrorCode.REFUSED_STREAM:
            self._budget.note_empty(self._sender.last_stream_id)
        else:
            self._budget.note_reset(fault.stream_id, self._sender.last_stream_id)
        self._sender.reset(fault.stream_id, fault.code)


def padding_of(data: Buffer, start: int, length: int) -> int:
    """Return how many bytes of padding a padded payload says it has. Raises ConnectionFault."""
    if not length:
        msg = "a padded frame is too short for its pad length"
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, msg)
    padding: int = data[start]
    if padding >= length:
        msg = "the padding is as long as the frame, or longer"
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, msg)
    return padding


def check_length(stream: H2Stream, count: int, *, ends: bool) -> None:
    """Count DATA against the declared content-length (section 8.1.1)."""
    stream.received_bytes += count
    declared = stream.head.content_length
    if stream.received_bytes > declared or (ends and stream.received_bytes != declared):
        msg = f"content-length says {declared} bytes, the body has another length"
        raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, msg)
