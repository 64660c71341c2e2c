"""SocketByteStream: a connection's bytes, for a thread that waits; ThreadCallSlots: how many.

Their coroutines block, so that they never suspend, nor do those that await nothing else: `run` runs
them in one step.
"""

import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from inferd.client.connection.stream import ClientTransport
from inferd.client.failures import connect_failed, out_of_time
from inferd.client.settings import ClientSettings
from inferd.memory.buffer import Buffer

_MOST_BUFFERS: Final = 512  # of one sendmsg; systems take 1024
_FOREVER_MS: Final = 1 << 30
_FOREVER_US: Final = 1 << 50
_TIMEVAL: Final = struct.Struct("@ll")

T = TypeVar("T")


def run(coroutine: Coroutine[object, object, T]) -> T:
    """Return what `coroutine` returns, which awaits nothing but what blocks."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        value: T = returned.value
        return value
    raise RuntimeError("the coroutine waits for an event loop")


def first_step(items: AsyncGenerator[T, None]) -> Coroutine[object, object, T | None]:
    """Return what `run` has yield the first item, or None at the end.

    An event loop that runs in this thread would be told of the generator, and close it when it ends
    itself: answers would be missing without an error.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return anext(items, None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


class SocketByteStream:
    """A connected socket in the clear. Calls end at `deadline`, on the clock of time.monotonic.

    The system itself ends the wait of a blocking call, so that none needs a poll before it. Its
    limit is set anew only when the deadline is a tenth off.
    """

    protocol: str | None = None
    """The protocol that both sides chose (ALPN), None if they did not."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        self.deadline = 0.0
        self._sock = sock
        self._limit_s = 0.0
        self._readable = _waiter(sock, writing=False)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """See ByteStream."""
        self._set_limit()
        if len(buffers) == 1:
            [buffer] = buffers
            sent = self._attempt(self._sock.send, buffer)
            while sent < len(buffer):
                sent += self._attempt(self._sock.send, memoryview(buffer)[sent:])
        else:
            await self._gather(list(buffers))

    async def _gather(self, buffers: list[Any]) -> None:
        if not hasattr(self._sock, "sendmsg"):  # Windows
            for buffer in buffers:
                await self.send([buffer])
            return
        at = 0
        while at < len(buffers):
            sent = self._attempt(self._sock.sendmsg, buffers[at : at + _MOST_BUFFERS])
            while at < len(buffers) and sent >= len(buffers[at]):
                sent -= len(buffers[at])
                at += 1
            if sent:
                buffers[at] = memoryview(buffers[at])[sent:]

    async def recv_into(self, view: memoryview, *, whole: bool = False) -> int:
        """See ByteStream."""
        self._set_limit()
        flags = socket.MSG_WAITALL if whole else 0
        while True:
            try:
                return self._sock.recv_into(view, 0, flags)
            except BlockingIOError:
                self._set_limit()

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived, the end of the connection included."""
        return not self._readable(0)

    def is_here(self) -> bool:
        """Return whether it can be used here: in any thread."""
        return True

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _attempt(self, operation: Callable[[Any], int], argument: Any) -> int:
        while True:
            try:
                return operation(argument)
            except BlockingIOError:
                self._set_limit()

    def _set_limit(self) -> None:
        """Limit the next call of the system. Raises DeadlineExceeded."""
        left_s = self.deadline - time.monotonic()
        limit_s = self._limit_s
        if 0.9 * limit_s < left_s < 1.1 * limit_s:
            return
        if left_s <= 0:
            raise out_of_time()
        microseconds = min(int(left_s * 1e6) + 1, _FOREVER_US)
        if sys.platform == "win32":
            value: Any = microseconds // 1000 + 1
        else:
            value = _TIMEVAL.pack(*divmod(microseconds, 1_000_000))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        self._limit_s = left_s


class TlsByteStream(SocketByteStream):
    """A connected socket with TLS, which does not block: OpenSSL has no limit for a wait."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        super().__init__(sock)
        sock.setblocking(False)
        self.protocol = sock.selected_alpn_protocol()
        self._secured = sock
        self._writable = _waiter(sock, writing=True)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """See ByteStream."""
        for buffer in buffers:
            view = memoryview(buffer)
            sent = 0
            while sent < len(view):
                sent += self._attempt(self._secured.send, view[sent:])

    async def recv_into(self, view: memoryview, *, whole: bool = False) -> int:
        """See ByteStream."""
        # Also where nothing is waited for: a server may never stop to send.
        if time.monotonic() >= self.deadline:
            raise out_of_time()
        return self._attempt(self._secured.recv_into, view)

    def is_quiet(self) -> bool:
        """See ByteStream."""
        return not self._secured.pending() and super().is_quiet()

    def _attempt(self, operation: Callable[[Any], int], argument: Any) -> int:
        while True:
            try:
                return operation(argument)
            except ssl.SSLWantReadError:
                self._wait(self._readable)
            except ssl.SSLWantWriteError:
                self._wait(self._writable)
            except ssl.SSLZeroReturnError:
                return 0

    def _wait(self, waiter: Callable[[float], object]) -> None:
        left_s = self.deadline - time.monotonic()
        if not waiter(min(max(left_s, 0) * 1000, _FOREVER_MS)):
            raise out_of_time()


def _waiter(sock: socket.socket, *, writing: bool) -> Callable[[float], object]:
    """Return what waits some milliseconds, and returns whether `sock` can be read, or written."""
    if not hasattr(select, "poll"):  # Windows
        read, write = ([], [sock]) if writing else ([sock], [])
        return lambda wait_ms: any(select.select(read, write, [], wait_ms / 1000))
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLOUT if writing else select.POLLIN)
    return poll.poll


async def open_stream(settings: ClientSettings, deadline: float) -> SocketByteStream:
    """Connect to the server. Raises ConnectFailed, DeadlineExceeded."""
    target = settings.target
    _limit_s(settings, deadline)  # before its name is looked up
    sock = None
    try:
        sock = _connected(settings, deadline)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls is not None:
            sock.settimeout(_limit_s(settings, deadline))
            sock = settings.tls.wrap_socket(sock, server_hostname=target.host)
            return TlsByteStream(sock)
    except (OSError, UnicodeError) as error:
        if sock is not None:
            sock.close()
        if isinstance(error, TimeoutError) and time.monotonic() >= deadline:
            raise out_of_time() from error
        raise connect_failed(target, error) from error
    return SocketByteStream(sock)


def _connected(settings: ClientSettings, deadline: float) -> socket.socket:
    """Return a socket for the first of the server's addresses that takes it. Raises OSError."""
    target = settings.target
    failure: OSError = OSError("its name has no address")
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        # socket.create_connection would give each address the time of all.
        limit_s = _limit_s(settings, deadline)
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(limit_s)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _limit_s(settings: ClientSettings, deadline: float) -> float:
    """Return how long the next step of a connection may take. Raises DeadlineExceeded."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise out_of_time()
    return min(settings.connect_timeout_s, left_s)


class ThreadCallSlots:
    """How many calls may be under way at a time; others wait, in their order."""

    def __init__(self, count: int) -> None:
        self._free = count
        # Held for a few steps only; whoever waits for a slot waits for a lock of its own, so that
        # slots go to threads in the order in which they came.
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    async def take(self, deadline: float) -> None:
        """Wait for a free slot and take it. Raises DeadlineExceeded."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            is_mine = turn.acquire(timeout=_seconds(deadline))
        except BaseException:
            self._give_up(turn)
            raise
        if not is_mine:
            self._give_up(turn)
            raise out_of_time()

    def _give_up(self, turn: threading.Lock) -> None:
        """Leave the queue; if it was our turn meanwhile, it is the next one's."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self.give_back()

    def give_back(self) -> None:
        """Free a slot, or hand it to who waits longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


def _seconds(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0), threading.TIMEOUT_MAX)


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)


IN_THREAD: Final = ClientTransport(open_stream, ThreadCallSlots, _sleep)
"""In the thread that calls."""
