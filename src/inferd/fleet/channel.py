"""Channel: messages over a stream socket, for both of its ends."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from inferd.fleet.messages import Frames, NoMessage

log = logging.getLogger("inferd")

MAX_UNSENT_BYTES = 1 << 30
"""What may wait for the other end to read; an end that leaves more unread is given up."""


class Channel(asyncio.Protocol):
    """Calls `hear` with the body of each message, and `gone` when the other end is gone.

    What is written before the connection is made is sent then. `ended`: nothing more will come.
    """

    def __init__(self, hear: Callable[[bytes], None], gone: Callable[[], None]) -> None:
        self._hear = hear
        self._gone = gone
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        # asyncio connects a transport in a later turn of the loop, but
        # a process is told things at once.
        self._early: list[bytes] = []
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what was written so far."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.writelines(self._early)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        """Take messages; bytes that are none end the connection."""
        try:
            for body in self._frames.feed(data):
                self._hear(body)
        # Only our own processes write here, so it is a mistake of ours, or a process whose memory
        # is damaged: nothing that comes after it can be believed.
        except NoMessage as error:
            log.error("a process of this server sends nonsense: %s", error)  # noqa: TRY400
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the other end is gone."""
        self.ended.set()
        self._gone()

    def write(self, frame: bytes) -> None:
        """Send a frame; without effect once the connection has ended."""
        if self._transport is None:
            self._early.append(frame)
        elif not self._transport.is_closing():
            self._transport.write(frame)
            # A process that hangs is ended for its silence after a while; until then what it is
            # told would pile up in the supervisor, whose end is everybody's.
            if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                log.error("a process of this server does not read what it is told")
                self._transport.abort()

    def close(self) -> None:
        """Close the connection; what was written is sent first."""
        if self._transport is not None:
            self._transport.close()
