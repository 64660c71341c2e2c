"""Outflow: sends a body of unknown length to one client, no faster than the client reads."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from inferd.http.message import Pieces
from inferd.memory.buffer import Buffer

IN_A_ROW = 16
"""How many pieces are sent before others get a turn; a producer may have many ready at once."""

IN_A_ROW_BYTES = 65536
"""The same in bytes, roughly: only in the pause after that can the socket say that it is full."""


class Outflow:
    """Takes one piece after the other from its producer and passes each to `write`.

    While the client does not read, between `hold` and `release`, it takes none: the producer has to
    wait as well, and nothing piles up here.
    """

    def __init__(self, pieces: Pieces, write: Callable[[Buffer], None]) -> None:
        self.write = write
        self._pieces = pieces
        self._is_held = False
        self._waiter: asyncio.Future[None] | None = None

    def hold(self) -> None:
        """Send nothing more until `release`."""
        self._is_held = True

    def release(self) -> None:
        """Resume sending."""
        self._is_held = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fill(self) -> None:
        """Send a filler piece, unless on hold, to find out if the client is still there."""
        if not self._is_held:
            self.write(self._pieces.filler)

    async def run(self) -> None:
        """Send all pieces, then close them, even on failure or cancellation."""
        count = size = 0
        # The producer hears of it however this ends.
        async with aclosing(self._pieces):
            await self._until_released()
            async for piece in self._pieces:
                self.write(piece)
                count, size = count + 1, size + len(piece)
                if count == IN_A_ROW or size > IN_A_ROW_BYTES:
                    count = size = 0
                    await asyncio.sleep(0)
                await self._until_released()

    async def _until_released(self) -> None:
        while self._is_held:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
