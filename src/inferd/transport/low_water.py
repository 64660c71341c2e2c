"""LowWater: how much must have come before a connection that receives a large message is read.

Clients of HTTP/2 send a large message in many small frames, and a server that waits for them wakes
up for each few: of what 600 KB cost, that was a third. So while such a message comes the socket's
receive low-water mark (SO_RCVLOWAT) is raised, and the system says nothing of less.

Whatever else the client says meanwhile, of another stream or that it cancels this one, may have to
wait with it. So a mark under which nothing has come for a moment is lowered, and not raised again
for that stream: its client is slow, and waking up for it costs little.
"""

import asyncio
import socket
from typing import Any, Final

WAKE_BYTES: Final = 5 << 17
"""The highest mark: what a read of a connection can take, less room for what comes meanwhile."""

LEAST_BYTES: Final = 1 << 15
"""With less than this missing, the mark is low."""

PATIENCE_S: Final = 0.001
"""A mark is lowered when nothing has been read for so long, or for twice as long."""

_OPTION: Final[int | None] = getattr(socket, "SO_RCVLOWAT", None)
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_NO_STREAM: Final = -1


class LowWater:
    """The mark of one connection's socket."""

    def __init__(self, transport: asyncio.BaseTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._socket: Any = None
        sock = transport.get_extra_info("socket")
        if _OPTION is not None and sock is not None and sock.family in _FAMILIES:
            self._socket = sock
        self._loop = loop
        self._mark = 1
        self._is_watched = False
        self._read_count = 0
        self._watched_count = 0
        self._stream_id = _NO_STREAM  # whose message the mark was raised for
        self._slow_id = _NO_STREAM

    def note_read(self, stream_id: int, missing_bytes: int) -> None:
        """Take note that something was read, after which that stream's message lacks so much."""
        self._read_count += 1
        mark = 1
        if missing_bytes >= LEAST_BYTES and stream_id != self._slow_id:
            mark = min(missing_bytes, WAKE_BYTES)
            self._stream_id = stream_id
            if not self._is_watched:
                self._watch()
        if mark != self._mark:
            self._move(mark)

    def _move(self, mark: int) -> None:
        self._mark = mark
        if self._socket is not None:
            try:  # without suppress(), which costs three calls each time
                self._socket.setsockopt(socket.SOL_SOCKET, _OPTION, mark)
            except (OSError, ValueError):  # it was closed meanwhile; ValueError is uvloop's
                self._socket = None

    def _watch(self) -> None:
        self._is_watched = True
        self._watched_count = self._read_count
        self._loop.call_later(PATIENCE_S, self._look)

    def _look(self) -> None:
        """Lower the mark if nothing has been read since it was last looked at."""
        self._is_watched = False
        if self._mark == 1:
            return
        if self._read_count == self._watched_count:
            self._slow_id = self._stream_id
            self._move(1)
        else:
            self._watch()
