"""ReceiveLowWater: how much must arrive before a connection with a large message is read.

HTTP/2 clients send a large message in many small frames, and a server wakes up for every few of
them: for 600 KB that was a third of the cost. So while such a message arrives, the socket's
receive low-water mark (SO_RCVLOWAT) is raised, and the system does not report less.

Anything else the client sends meanwhile, for another stream or to cancel this one, may have to wait
as well. So if nothing is read for a moment, the mark is lowered and not raised again for that
stream: its client is slow, and waking up for it costs little.
"""

import asyncio
import socket
from typing import Any, Final

from inferd import system

WAKE_BYTES: Final = 5 << 17
"""The highest mark: what one read can take, less room for bytes that arrive before it."""

LEAST_BYTES: Final = 1 << 15
"""With less than this missing, the mark is not raised."""

PATIENCE_S: Final = 0.001
"""The mark is lowered once nothing has been read for this long, or at most twice as long."""

_OPTION: Final[int | None] = system.LOW_WATER
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_NO_STREAM: Final = -1


class ReceiveLowWater:
    """The low-water mark of one connection's socket."""

    def __init__(self, transport: asyncio.BaseTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._socket: Any = None
        sock = transport.get_extra_info("socket")
        # Unix sockets have no such option.
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
        """Note a read, after which the message of stream `stream_id` lacks `missing_bytes`."""
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
            try:  # not suppress(), which costs three calls each time
                self._socket.setsockopt(socket.SOL_SOCKET, _OPTION, mark)
            except (OSError, ValueError):  # closed meanwhile; ValueError is uvloop's
                self._socket = None

    def _watch(self) -> None:
        self._is_watched = True
        self._watched_count = self._read_count
        self._loop.call_later(PATIENCE_S, self._look)

    def _look(self) -> None:
        """Lower the mark if nothing has been read since the last check."""
        self._is_watched = False
        if self._mark == 1:
            return
        if self._read_count == self._watched_count:
            self._slow_id = self._stream_id
            self._move(1)
        else:
            self._watch()
