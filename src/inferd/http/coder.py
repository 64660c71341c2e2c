"""Coder: inflates and deflates bodies and messages without holding up the event loop."""

import os
from collections.abc import Sequence
from typing import Any

from inferd.aio.inline import INLINE_CODED_BYTES, NotFast
from inferd.aio.offload import Offload
from inferd.http import coding

MOST_THREADS = 4
"""zlib releases the interpreter lock, but each inflating thread needs its own memory."""


class Coder:
    """Inflates and deflates for one server: short data at once, the rest in a few threads.

    Nothing is inflated to more than `max_bytes`.
    """

    def __init__(self, max_bytes: int) -> None:
        width = min(MOST_THREADS, os.cpu_count() or 1)
        self._max_bytes = max_bytes
        self._inflating = Offload("inferd-inflate", width)
        self._deflating = Offload("inferd-deflate", width)

    async def inflate(self, data: Any, name: bytes) -> memoryview:
        """Return `data` decoded from the content coding `name`.

        Raises as `coding.inflate` does, and Overloaded if too many calls wait.
        """
        try:
            return coding.inflate(data, name, self._max_bytes, on_loop=True)
        except NotFast:
            return await self._inflating.run(coding.inflate, data, name, self._max_bytes)

    async def deflate(self, buffers: Sequence[Any], name: bytes, level: int = -1) -> bytes:
        """Return `buffers` joined and compressed. Raises Overloaded if too many calls wait."""
        if sum(map(len, buffers)) <= INLINE_CODED_BYTES:
            return coding.deflate(buffers, name, level)
        return await self._deflating.run(coding.deflate, buffers, name, level)
