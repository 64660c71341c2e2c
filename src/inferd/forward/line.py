"""Line: frames on a stream socket between two processes of one server.

A frame is a header, a head and data, which begins at a multiple of ALIGN. What is sent in one turn
of the event loop leaves in one write. Small frames are copied out of the buffer that the socket is
read into; the rest of a large one is read to where it stays.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from inferd.compiled import mypyc_attr
from inferd.forward.message import ALIGN, PADS
from inferd.memory.buffer import Buffer

FORMAT = 1
"""The format of all frames; a process with another one is no peer."""

# Sizes before the kind, so that all are aligned; padded to a multiple of ALIGN, as data begins at
# one.
HEADER = struct.Struct("<QQIBB10x")
"""Number, size of the data, size of the head, kind, FORMAT."""

MAX_HEAD_BYTES = 64 << 20
MAX_DATA_BYTES = 16 << 30
"""More is an error of the other end, which no memory is given for."""

JOINED_BYTES = 64 << 10
"""So much is written as one piece; more piece by piece, without being copied."""

UNREAD_BYTES = 1 << 20
"""The other end does not read if so much has not left."""

# Many small frames in one read, which the kernel's buffers can hold.
_BUFFER_BYTES = 256 << 10
# From here on a second copy costs more than another call of `get_buffer`.
_SMALL_BYTES = 16 << 10

ENDED = "ended"
GARBLED = "sent what nobody understands"


class FrameKind:
    """What a frame is: ANSWER, END and DISMISSAL are an owner's, HAS is of both.

    The others are an origin's.
    """

    REQUEST: Final = 1
    STREAM: Final = 2
    CANCEL: Final = 3
    CREDIT: Final = 4
    ANSWER: Final = 5
    END: Final = 6
    LAST: Final = 7
    """The origin has no more requests of clients, only such as belong to those of others."""

    HAS: Final = 8
    """Does that sequence live there? And the answer to it, YES or nothing."""

    DISMISSAL: Final = 9
    """The owner ends: new requests are for the process that took its place."""


YES = b"y"


Receive = Callable[[int, int, memoryview, memoryview], None]
"""Takes kind, number, head and data of a frame.

Raises ValueError or MsgspecError for one that makes no sense, which ends the line.
"""


# FrameLine derives from asyncio's class and cannot be compiled.
@mypyc_attr(allow_interpreted_subclasses=True)
class FrameReader:
    """One end of a link: an asyncio.BufferedProtocol in all but name; FrameLine has that, too.

    It hands frames to `receive`, and calls `lost` once, with the reason. With `waits_for_reader`
    nothing more is read while the other end does not read.
    """

    def __init__(
        self, receive: Receive, lost: Callable[[str], None], *, waits_for_reader: bool = False
    ) -> None:
        self._receive = receive
        self._lost = lost
        self._waits_for_reader = waits_for_reader
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._view = memoryview(bytearray(_BUFFER_BYTES))
        self._end = 0  # of what has been read into the buffer and not yet taken from it
        self._large: _Large | None = None
        self._unsent: list[Any] = []
        self._unsent_bytes = 0
        self.is_open = False

    def send(self, kind: int, number: int, head: bytes, data: Sequence[Buffer] = ()) -> None:
        """Send a frame at the end of this turn of the event loop; a closed line takes it in vain.

        The parts of `data` are buffers of bytes, each with its padding to ALIGN behind it.
        """
        loop = self._loop
        if loop is None or not self.is_open:
            return
        size = sum(map(len, data))
        unsent = self._unsent
        if not unsent:
            # With the first frame of a turn: all that follow in it leave together.
            loop.call_soon(self._flush)
        unsent.append(HEADER.pack(number, size, len(head), kind, FORMAT))
        unsent.append(head)
        if size:
            # Only before data: a frame without any has no padding.
            unsent.append(PADS[-len(head) % ALIGN])
            unsent += data
        self._unsent_bytes += HEADER.size + len(head) + size

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        size, self._unsent_bytes = self._unsent_bytes, 0
        transport = self._transport
        if transport is None or not self.is_open or not unsent:
            return
        # Joining costs less than as many buffers in a system call.
        if size <= JOINED_BYTES:
            transport.write(b"".join(unsent))
        else:
            transport.writelines([part for part in unsent if len(part)])

    def close(self) -> None:
        """Send what is to be sent, and end."""
        self._flush()
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def break_off(self, why: str) -> None:
        """End at once."""
        transport, was_open, self.is_open = self._transport, self.is_open, False
        if transport is not None:
            # Not `close`: what is unsent would be sent to an end that sends nonsense.
            transport.abort()
        if was_open:
            self._lost(why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNREAD_BYTES)
        self._loop = asyncio.get_running_loop()
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        del exc
        was_open, self.is_open = self.is_open, False
        self._transport = None
        self._large = None
        if was_open:
            # The reason of the error is of no use: the process has ended, or is ending.
            self._lost(ENDED)

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        # An owner whose answers are not read takes no further requests: they would only produce
        # more.
        if self._waits_for_reader and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        if self._waits_for_reader and self._transport is not None:
            self._transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        del sizehint
        large = self._large
        return self._view[self._end :] if large is None else large.view[large.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        large = self._large
        try:
            if large is None:
                self._end += nbytes
                self._take_frames()
                return
            large.filled += nbytes
            if large.filled == len(large.view):
                self._large = None
                self._take(large.kind, large.number, large.view, large.head_size)
        # A size that nobody can hold is as senseless as one beyond the limit.
        except (ValueError, msgspec.MsgspecError, MemoryError):
            self.break_off(GARBLED)

    def _take_frames(self) -> None:
        view, at, end = self._view, 0, self._end
        # A frame may have closed the line.
        while self.is_open and end - at >= HEADER.size:
            number, data_size, head_size, kind, form = HEADER.unpack_from(view, at)
            if form != FORMAT or head_size > MAX_HEAD_BYTES or data_size > MAX_DATA_BYTES:
                raise ValueError(f"a frame of format {form}, {head_size} and {data_size} bytes")
            size = head_size + (data_size and data_size + -head_size % ALIGN)
            start = at + HEADER.size
            if end - start >= size:
                at = start + size
                # Copied: views of tensors outlive the buffer, which is read into again.
                self._take(kind, number, memoryview(bytearray(view[start:at])), head_size)
            elif size > _SMALL_BYTES:
                # Its own memory, which the socket then fills: no second copy of a large tensor.
                self._large = _Large(kind, number, head_size, size, view[start:end])
                at = end
            else:
                break
        self._end = end - at
        if self._end and at:
            # The begun frame moves to the front; it is shorter than _SMALL_BYTES.
            view[: self._end] = view[at:end]

    def _take(self, kind: int, number: int, body: memoryview, head_size: int) -> None:
        start = head_size + -head_size % ALIGN
        self._receive(kind, number, body[:head_size], body[start:])


class _Large:
    """A frame whose beginning has been read; the rest goes into `view` directly."""

    def __init__(
        self, kind: int, number: int, head_size: int, size: int, begun: memoryview
    ) -> None:
        self.kind = kind
        self.number = number
        self.head_size = head_size
        self.view = memoryview(bytearray(size))
        self.filled = len(begun)
        self.view[: self.filled] = begun
