"""Reader: what a connection receives, by the line or by the size, large parts in place."""

from typing import Final

from inferd.client.connection.stream import ByteStream
from inferd.client.errors import BadAnswer, ConnectionLost

_BUFFER_BYTES: Final = 65536


class Reader:
    """`buffer[start:end]` has arrived and was not read yet."""

    def __init__(self, stream: ByteStream) -> None:
        # Heads, frames and small answers are read here; large parts go where they belong (`fill`).
        self.buffer = bytearray(_BUFFER_BYTES)
        self.start = self.end = 0
        self._view = memoryview(self.buffer)
        self._stream = stream

    async def more(self) -> None:
        """Receive more. Raises ConnectionLost at the end, BadAnswer if the buffer is full."""
        count = await self._stream.recv_into(self._room())
        if not count:
            raise ConnectionLost("the server closed the connection before its answer was complete")
        self.end += count

    async def more_or_end(self) -> int:
        """Receive more; return 0 at the end. Raises BadAnswer if the buffer is full."""
        count = await self._stream.recv_into(self._room())
        self.end += count
        return count

    def _room(self) -> memoryview:
        # Nothing is moved as long as answers are read to their end, as nearly always.
        if self.start == self.end:
            self.start = self.end = 0
        elif self.end == _BUFFER_BYTES:
            if not self.start:
                raise BadAnswer(f"a line or head of the answer has more than {_BUFFER_BYTES} bytes")
            self._shift()
        return self._view[self.end :]

    def _shift(self) -> None:
        """Move what was not read to the start of the buffer."""
        left = self.end - self.start
        self.buffer[:left] = self.buffer[self.start : self.end]
        self.start, self.end = 0, left

    async def until(self, mark: bytes) -> bytes:
        """Return what comes before `mark`, and skip that. Raises as `more`."""
        seen = self.start
        while (stop := self.buffer.find(mark, seen, self.end)) < 0:
            # A mark may be cut in two: search its possible beginning again, and nothing twice
            # besides.
            searched = max(self.end - self.start - len(mark) + 1, 0)
            await self.more()
            seen = self.start + searched
        part = bytes(self._view[self.start : stop])
        self.start = stop + len(mark)
        return part

    async def need(self, count: int) -> int:
        """Have `count` bytes in the buffer, which are few; return where. Raises as `more`."""
        if _BUFFER_BYTES - self.start < count:
            self._shift()
        while self.end - self.start < count:
            await self.more()
        return self.start

    def take(self, view: memoryview) -> int:
        """Put into `view` what the buffer has of it; return how much."""
        at = min(len(view), self.end - self.start)
        view[:at] = self._view[self.start : self.start + at]
        self.start += at
        return at

    async def fill(self, view: memoryview) -> None:
        """Fill `view`: what the buffer does not have is received in place. Raises as `more`."""
        size = len(view)
        at = self.take(view)
        while at < size:
            # Received in place: a large array is not copied after it has left the system.
            count = await self._stream.recv_into(view[at:], whole=True)
            if not count:
                raise ConnectionLost(
                    f"the server closed the connection before its answer was complete: "
                    f"{size - at} bytes are missing"
                )
            at += count

    async def skip(self, count: int) -> None:
        """Read `count` bytes and forget them."""
        while count:
            if self.start == self.end:
                await self.more()
            step = min(count, self.end - self.start)
            self.start += step
            count -= step
