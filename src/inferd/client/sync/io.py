"""ByteStream: a connection's bytes, for a thread that waits; Slots: how many there may be.

The other side is inferd.client.aio.io; what stands on them is written there and generated here.
"""

import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from inferd.client.failures import connect_failed, out_of_time
from inferd.client.settings import ClientSettings

_MOST_BUFFERS: Final = 512  # of one sendmsg; systems take 1024
_FOREVER_MS: Final = 1 << 30

sleep = time.sleep


class ByteStream:
    """A connected socket. Calls end at `deadline`, on the clock of time.monotonic."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.deadline = 0.0
        self._sock = sock
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._readable = _Waiter(sock, writing=False)
        self._writable = _Waiter(sock, writing=True)
        self._is_answer_due = False

    @property
    def protocol(self) -> str | None:
        """The protocol that both sides chose (ALPN), None if they did not."""
        sock = self._sock
        return sock.selected_alpn_protocol() if isinstance(sock, ssl.SSLSocket) else None

    def send(self, buffers: Sequence[Any]) -> None:
        """Send all of `buffers`. Raises OSError, TimeoutError among them."""
        if self._is_tls or len(buffers) == 1:
            for one in buffers:
                self._send_one(one)
        else:
            self._gather(list(buffers))
        self._is_answer_due = not self._is_tls

    def _send_one(self, buffer: Any) -> None:
        sent = self._attempt(self._sock.send, buffer)
        if sent < len(buffer):
            view = memoryview(buffer)
            while sent < len(view):
                sent += self._attempt(self._sock.send, view[sent:])

    def _gather(self, buffers: list[Any]) -> None:
        at = 0
        while at < len(buffers):
            sent = self._attempt(self._sock.sendmsg, buffers[at : at + _MOST_BUFFERS])
            while at < len(buffers) and sent >= len(buffers[at]):
                sent -= len(buffers[at])
                at += 1
            if sent:
                buffers[at] = memoryview(buffers[at])[sent:]

    def recv_into(self, view: memoryview) -> int:
        """Put what arrives into `view`; return how much, 0 at the end. Raises OSError."""
        if self._is_answer_due:  # it takes the server a while: do not look before
            self._is_answer_due = False
            self._wait(self._readable)
        return self._attempt(self._sock.recv_into, view)

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived, the end of the connection included."""
        return not self._readable.wait(0)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _attempt(self, operation: Any, argument: Any) -> int:
        while True:
            try:
                done: int = operation(argument)
            except (BlockingIOError, ssl.SSLWantReadError):
                is_read = operation == self._sock.recv_into or self._is_tls
                self._wait(self._readable if is_read else self._writable)
            except ssl.SSLWantWriteError:
                self._wait(self._writable)
            except ssl.SSLZeroReturnError:
                return 0
            else:
                return done

    def _wait(self, waiter: "_Waiter") -> None:
        if not waiter.wait(self.deadline - time.monotonic()):
            raise out_of_time()


class _Waiter:
    """Waits until a socket can be read or written."""

    def __init__(self, sock: socket.socket, *, writing: bool) -> None:
        self._sock = sock
        self._writing = writing
        self._poll: Any = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(sock.fileno(), select.POLLOUT if writing else select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Return whether it can, after at most `seconds`."""
        if self._poll is not None:
            milliseconds = min(max(seconds, 0) * 1000, _FOREVER_MS)
            return bool(self._poll.poll(milliseconds))
        one = [self._sock]  # Windows
        read, write, _ = select.select(
            [] if self._writing else one, one if self._writing else [], [], max(seconds, 0)
        )
        return bool(read or write)


def open_stream(settings: ClientSettings, deadline: float) -> ByteStream:
    """Connect to the server. Raises ConnectFailed, DeadlineExceeded."""
    target = settings.target
    seconds = min(settings.connect_timeout_s, deadline - time.monotonic())
    if seconds <= 0:
        raise out_of_time()
    sock = None
    try:
        sock = socket.create_connection((target.host, target.port), seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls is not None:
            sock = settings.tls.wrap_socket(sock, server_hostname=target.host)
    except (OSError, UnicodeError) as error:
        if sock is not None:
            sock.close()
        raise connect_failed(target, error) from error
    return ByteStream(sock)


class CallSlots:
    """How many calls may be under way at a time; others wait."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0

    def take(self, deadline: float) -> None:
        """Wait for a free slot and take it. Raises DeadlineExceeded."""
        with self._changed:
            if self._free <= 0:
                self._waiting += 1
                try:
                    left = deadline - time.monotonic()
                    if not self._changed.wait_for(lambda: self._free > 0, max(left, 0)):
                        raise out_of_time()
                finally:
                    self._waiting -= 1
            self._free -= 1

    def give_back(self) -> None:
        """Free a slot."""
        with self._changed:
            self._free += 1
            if self._waiting:
                self._changed.notify()
