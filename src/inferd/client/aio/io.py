"""AsyncByteStream: a connection's bytes, for asyncio; AsyncCallSlots: how many there may be."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from inferd.client.connection.stream import ClientTransport
from inferd.client.failures import connect_failed, out_of_time
from inferd.client.settings import ClientSettings
from inferd.memory.buffer import Buffer

# It fills only by what nobody asked for.
_SPILL_BYTES: Final = 65536


class AsyncByteStream(asyncio.BufferedProtocol):
    """A connection. Calls end at `deadline`, on the clock of time.monotonic.

    What arrives goes where `recv_into` says; what nobody waits for goes into the spill.
    """

    def __init__(self) -> None:
        self.deadline = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        # Something must take what arrives between calls: a PING, or the end of what was not wanted.
        self._spill = memoryview(bytearray(_SPILL_BYTES))
        self._start = self._end = 0
        self._wanted: memoryview | None = None
        self._count = 0
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._is_full = False
        self._is_ended = False
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = transport
        # Transports keep what they cannot send at once without copying it, and arrays are their
        # owner's again when `send` is done. TLS has copied them by then.
        if transport.get_extra_info("sslcontext") is None:
            self._transport.set_write_buffer_limits(0)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        if self._wanted is not None:
            return self._wanted
        return self._spill[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        if self._wanted is not None:
            self._wanted = None
            self._count = nbytes
            _wake(self._reading)
            return
        self._end += nbytes
        # A peer that sends without being asked waits from here on, instead of filling memory.
        if self._end == len(self._spill):
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """See asyncio.BufferedProtocol."""
        self._is_ended = True
        _wake(self._reading)
        # Let the transport close: a server that has ended its half answers nothing more.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._is_ended = True
        self._error = exc
        _wake(self._reading)
        _wake(self._writing)

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._is_full = True

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._is_full = False
        _wake(self._writing)

    @property
    def protocol(self) -> str | None:
        """The protocol that both sides chose (ALPN), None if they did not."""
        secured = self._transport.get_extra_info("ssl_object")
        chosen: str | None = secured and secured.selected_alpn_protocol()
        return chosen

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """See ByteStream."""
        for one in buffers:
            if self._is_ended:
                raise self._error or ConnectionResetError("the server closed the connection")
            self._transport.write(one)
            # The next buffer waits until this one is sent: the transport holds one at a time.
            while self._is_full and not self._is_ended:
                self._writing = self._loop.create_future()
                await self._until(self._writing)

    # `whole` is of use to the synchronous side only (MSG_WAITALL).
    async def recv_into(self, view: memoryview, *, whole: bool = False) -> int:
        """See ByteStream."""
        if self._start < self._end:
            return self._unspill(view)
        if self._is_ended:
            if self._error is not None:
                raise self._error
            return 0
        self._wanted = view
        self._count = 0
        self._reading = self._loop.create_future()
        try:
            await self._until(self._reading)
        except BaseException:
            # It arrived in the turn of the loop in which the wait was given up.
            if self._count:
                self._spill = memoryview(bytearray(b"".join((view[: self._count], self._spill))))
                self._end += self._count
            raise
        finally:
            # Also after a timeout or a cancellation: the loop must not write into an array that its
            # caller has again.
            self._wanted = None
        if not self._count and self._error is not None:
            raise self._error
        return self._count

    def _unspill(self, view: memoryview) -> int:
        count = min(len(view), self._end - self._start)
        view[:count] = self._spill[self._start : self._start + count]
        self._start += count
        if self._start == self._end:
            was_full = self._end == len(self._spill)
            self._start = self._end = 0
            if was_full and not self._is_ended:
                self._transport.resume_reading()
        return count

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived, the end of the connection included."""
        return self._start == self._end and not self._is_ended

    def is_here(self) -> bool:
        """Return whether it belongs to the running event loop: a client may outlive one."""
        return self._loop is asyncio.get_running_loop()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None and not self._loop.is_closed():
            # A client may be closed by another thread than that of its loop, garbage collection
            # included. Not `close`, which would wait for unsent bytes of a call that was given up.
            self._loop.call_soon_threadsafe(self._transport.abort)

    async def _until(self, done: asyncio.Future[None]) -> None:
        left_s = self.deadline - time.monotonic()
        # What arrives in each turn of the loop comes before its timers: a server that never stops
        # to send would be read for ever.
        if left_s <= 0:
            raise out_of_time()
        timer = self._loop.call_later(left_s, _expire, done)
        try:
            await done
        finally:
            timer.cancel()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _expire(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_exception(out_of_time())


async def open_stream(settings: ClientSettings, deadline: float) -> AsyncByteStream:
    """Connect to the server. Raises ConnectFailed, DeadlineExceeded."""
    target = settings.target
    seconds = min(settings.connect_timeout_s, deadline - time.monotonic())
    if seconds <= 0:
        raise out_of_time()
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            _, stream = await loop.create_connection(
                AsyncByteStream, target.host, target.port, ssl=settings.tls
            )
    # A host name with an empty or too long label fails in the IDNA codec.
    except (OSError, UnicodeError) as error:
        # The nearer of both limits, not the clock: timers of a loop may be early. Timeouts of the
        # system have a number.
        is_ours = isinstance(error, TimeoutError) and error.errno is None
        if is_ours and seconds < settings.connect_timeout_s:
            raise out_of_time() from error
        raise connect_failed(target, error) from error
    return stream


class AsyncCallSlots:
    """How many calls may be under way at a time; others wait, in their order."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, deadline: float) -> None:
        """Wait for a free slot and take it. Raises DeadlineExceeded."""
        if self._free > 0:
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        # One timer for a call that waits, and none for one that does not.
        timer = loop.call_later(deadline - time.monotonic(), _expire, turn)
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back()  # it was ours already
            raise
        finally:
            timer.cancel()

    def give_back(self) -> None:
        """Free a slot, or hand it to who waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            # Given up meanwhile: its time was over, or it was cancelled.
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


ON_LOOP: Final = ClientTransport(open_stream, AsyncCallSlots, asyncio.sleep)
"""In tasks of an event loop of asyncio."""
