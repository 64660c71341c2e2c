"""Coder: inflates and deflates bodies and messages without holding up the event loop."""

from collections.abc import Sequence

from inferd.aio.inline import INLINE_CODED_BYTES, NotFast
from inferd.aio.offload import Offload, Work
from inferd.http import coding
from inferd.memory.buffer import Buffer


class Coder:
    """Inflates and deflates: short data at once, the rest in threads of `offload`.

    Nothing is inflated to more than `max_bytes`.
    """

    def __init__(self, max_bytes: int, offload: Offload) -> None:
        self._max_bytes = max_bytes
        self._offload = offload

    async def inflate(self, data: Buffer, name: bytes) -> memoryview:
        """Return `data` decoded from the content coding `name`.

        Raises as `coding.inflate` does, and Overloaded if too many calls wait.
        """
        try:
            return coding.inflate(data, name, self._max_bytes, on_loop=True)
        except NotFast:
            pass  # nothing may be awaited while an exception is handled
        return await self._offload.run(Work.INFLATE, coding.inflate, data, name, self._max_bytes)

    async def deflate(self, buffers: Sequence[Buffer], name: bytes, level: int = -1) -> bytes:
        """Return `buffers` joined and compressed. Raises Overloaded if too many calls wait."""
        if sum(map(len, buffers)) <= INLINE_CODED_BYTES:
            return coding.deflate(buffers, name, level)
        return await self._offload.run(Work.DEFLATE, coding.deflate, buffers, name, level)
