"""Line: the worker's end of the socket to the server.

No dedicated thread reads it: that would cost every request a thread switch. Of the threads that
wait for a packet, one reads and dispatches packets to all of them, while the others sleep.
Packets nobody waits for, such as cancellations and released memory, are read when somebody asks
for or needs them.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections import deque
from threading import Condition, Lock, get_ident
from typing import TYPE_CHECKING, Any, Callable

from . import packet
from .pb_utils.error import TritonModelException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .arena import Arena, Block, Received

# Made once: json.dumps makes an encoder at each call that has options.
_encode = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, check_circular=False, allow_nan=False
).encode
_pack, _unpack = packet.HEADER.pack, packet.HEADER.unpack_from
_REPEATED = (packet.EXECUTE, packet.REPLY)


class LineClosed(Exception):
    """The server is gone, or has hung up."""


class Line:
    """Reads and sends packets; any thread may do either.

    `receive` is called with kind, document, data and numbers of each packet, on the thread that
    reads it, one after another. An earlier packet may share its document: never modify it.
    """

    __deletable__ = ("_arena", "received")  # close deletes them

    def __init__(
        self,
        sock: socket.socket,
        arena: Arena,
        received: Received,
        receive: Callable[[int, Any, Any, tuple[int, ...]], None],
    ) -> None:
        self._socket = sock
        self._arena = arena
        self.received = received
        self._receive = receive
        # Packets of several threads must not mix, and their blocks are given out in the same order.
        self._sending = Lock()
        self._sender = 0  # the thread that holds this lock
        self._unsaid: deque[tuple[int, Sequence[Any], tuple[int, ...]]] = deque()
        # Guards what has been read: any thread of a model may wait for its own answer.
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._sleepers = 0
        self._is_reading = False
        self._read_before: dict[bytes, list[Any]] = {}
        self._written_before: dict[Any, tuple[int, bytes]] = {}
        self._buffer = bytearray(packet.MAX_PACKET)
        self._view = memoryview(self._buffer)
        # A stream, where there are no sequenced packets, may end anywhere in a packet.
        self._is_stream = sock.type == socket.SOCK_STREAM
        self._partial_bytes = 0  # of a packet that has not come whole
        # poll, since select() takes no descriptors beyond 1024, of which a model may have more.
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)
        self.is_closed = False
        self._is_over = False

    def fileno(self) -> int:
        """Return the descriptor to wait on; see `look`."""
        return self._socket.fileno()

    def wait(self, is_done: Callable[[], Any], timeout_s: float | None = None) -> bool:
        """Read until `is_done()`; return False on a timeout. Raises LineClosed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._lock.acquire()
        try:  # `with` is slower when compiled
            while not is_done():
                if self.is_closed:
                    raise LineClosed
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                if self._is_reading:
                    self._sleepers += 1
                    self._changed.wait(left_s)
                    self._sleepers -= 1
                else:
                    self._read(left_s)
            return True
        finally:
            self._lock.release()

    def look(self) -> None:
        """Read all packets that have arrived, without waiting."""
        with self._lock:
            while not self._is_reading and not self.is_closed and self._read(0):
                pass

    def _read(self, timeout_s: float | None) -> bool:
        """Read a datagram; called with the lock held, which is released meanwhile."""
        self._is_reading = True
        self._lock.release()
        size = -1
        try:
            if timeout_s is None or self._poll.poll(timeout_s * 1000):
                partial = self._partial_bytes
                size = self._socket.recv_into(self._view[partial:] if partial else self._buffer)
        except OSError:
            size = 0
        finally:
            self._lock.acquire()
            self._is_reading = False
            # The server has closed its end: a datagram is never empty.
            if size == 0:
                self.is_closed = True
            # All of them: what was read may be for any, and each looks again whether it is done.
            if self._sleepers:
                self._changed.notify_all()
        if size > 0:
            if self._is_stream:
                self._dispatch_whole(self._partial_bytes + size)
            else:
                self._dispatch(size)
        return size > 0

    def _dispatch(self, size: int) -> None:
        at = 0
        while at < size:
            kind, document_size, offset, payload_size, one, two, three = _unpack(self._buffer, at)
            at += packet.HEADER_SIZE
            if offset == packet.INLINE:
                text = bytes(self._view[at : at + document_size])
            else:
                block = self.received.block(offset, payload_size)
                text = self.received.text(block, offset, document_size)
            # By its bytes: parsing JSON costs several times as much as the look-up.
            document = self._read_before.get(text)
            if document is None:
                document = json.loads(text)
                if kind in _REPEATED:
                    packet.keep(self._read_before, text, document, len(text))
            # Before the packet is passed on, as answering it may need the memory.
            if document[0]:
                self._take_back(document[0])
            start = (document_size + packet.ALIGN - 1) & -packet.ALIGN
            data: Any = None
            if offset != packet.INLINE:
                if start < payload_size:
                    data = block[start:]  # no copy: the block is this packet's alone
                # Or this frame would keep it from being released until the next packet.
                del block
            else:
                if start < payload_size:  # copied: the next datagram overwrites the buffer
                    data = bytearray(self._view[at + start : at + payload_size])
                at += payload_size
            self._receive(kind, document, data, (one, two, three))

    def _dispatch_whole(self, size: int) -> None:
        """Dispatch the packets that have come whole, and keep the beginning of another."""
        end = packet.whole_size(self._buffer, size)
        self._dispatch(end)
        self._partial_bytes = size - end
        # Copied first, as the two may overlap.
        self._view[: size - end] = bytes(self._view[end:size])

    def _take_back(self, offsets: list[int]) -> None:
        with self._sending:
            self._sender = get_ident()
            for offset in offsets:
                self._arena.give(offset)
            self._sender = 0

    def send(
        self,
        kind: int,
        document: Sequence[Any],
        payload: packet.Payload | None = None,
        numbers: tuple[int, ...] = packet.NO_NUMBERS,
        claimed: Sequence[int] = (),
    ) -> None:
        """Send a packet; `document` lacks its first element. Raises ArenaFull, LineClosed.

        A document that is sent again and again is a tuple, which must be hashable. Blocks that
        were `claimed` are reported as released, in a later packet if this one cannot be sent.
        Raises TritonModelException for a document that is too long, or has numbers that JSON cannot
        express.
        """
        if not self._sending.acquire(False):
            if self._sender == get_ident():
                # A finalizer sends: the garbage collector may run anywhere, even in here.
                self._unsaid.append((kind, document, numbers))
                return
            self._sending.acquire()
        try:
            self._sender = get_ident()
            if self._is_over:
                raise LineClosed
            released = self.received.released() if self.received.fresh else []
            if claimed:
                released += claimed
            try:
                whole = self._packed(kind, self._text(released, document), payload, numbers)
            except BaseException:
                # Their release is still to be reported, by whichever packet goes out next.
                self.received.fresh.extend(released)
                raise
            try:
                # sendall() of a datagram sends it whole or not at all; of
                # a stream, it sends all of it.
                self._socket.sendall(whole)
            except OSError as error:
                raise LineClosed from error
        finally:
            self._sender = 0
            self._sending.release()
        if self._unsaid:
            self._send_unsaid()

    def send_unwaiting(
        self, kind: int, document: Sequence[object], numbers: tuple[int, ...] = packet.NO_NUMBERS
    ) -> None:
        """Send a small packet, after any that is being sent right now; never block.

        This is for finalizers: the garbage collector may call them in the midst of a send, or on
        the thread that other packets wait for.
        """
        self._unsaid.append((kind, document, numbers))
        # If the server is slow to read, this must not wait; whoever sends next takes it along.
        if not self._sending.locked() and self._writable.poll(0):
            self._send_unsaid()

    def _send_unsaid(self) -> None:
        packets = []
        with contextlib.suppress(IndexError):  # another thread may drain it, too
            while True:
                packets.append(self._unsaid.popleft())
        for kind, document, numbers in packets:
            with contextlib.suppress(LineClosed):
                self.send(kind, document, None, numbers)

    def _text(self, released: list[int], document: Sequence[Any]) -> tuple[int, bytes]:
        """Return the size of a document, and its bytes padded up to where tensors begin."""
        key = None
        if type(document) is tuple:
            key = (*released, document) if released else document
            written = self._written_before.get(key)
            if written is not None:
                return written
        # Lone surrogates, as in file names, cannot be encoded.
        try:
            text = _encode([released, *document]).encode(errors="replace")
        except ValueError:
            raise TritonModelException(
                "NaN and infinity cannot be sent to the server, except in tensors"
            ) from None
        if len(text) > packet.MAX_DOCUMENT:
            raise TritonModelException(
                f"{len(text)} bytes cannot be sent to the server, except in tensors; at most "
                f"{packet.MAX_DOCUMENT} can"
            )
        written = len(text), text + packet.ZEROS[: -len(text) % packet.ALIGN]
        if key is not None:
            packet.keep(self._written_before, key, written, len(text))
        return written

    def _packed(
        self,
        kind: int,
        written: tuple[int, bytes],
        payload: packet.Payload | None,
        numbers: tuple[int, ...],
    ) -> bytes:
        """Return the datagram of a packet; a large payload goes to a block. Raises ArenaFull."""
        text_size, text = written
        one, two, three = numbers
        if payload is not None and payload.size:
            size = len(text) + payload.size
            parts = (text, *payload.parts)
        else:
            size = text_size
            parts = (text[:size],)
        if size > packet.INLINE_BYTES:
            offset = self._in_block(size, parts)
            return _pack(kind, text_size, offset, size, one, two, three)
        return _pack(kind, text_size, packet.INLINE, size, one, two, three) + b"".join(parts)

    def _in_block(self, size: int, parts: Sequence[Any]) -> int:
        offset, block = self._arena.take(size)
        at = 0
        for part in parts:
            end = at + len(part)
            block[at:end] = part
            at = end
        return offset

    @property
    def has_blocks(self) -> bool:
        """Whether something here may still refer to blocks of the server."""
        return not self._is_over and self.received.has_blocks

    def find(self, array: Any) -> tuple[Block, int] | None:
        """See Received.find."""
        return None if self._is_over else self.received.find(array)

    def release(self, *, lazily: bool = False) -> None:
        """Tell the server which of its blocks are free; `lazily`: only if they are many."""
        if self.received.fresh and (not lazily or self.received.is_much):
            self.send(packet.RELEASE, [])

    def close(self) -> None:
        """Stop sending and reading, and free the memory, even if somebody keeps the line."""
        with self._sending:
            self.is_closed = self._is_over = True
            del self._arena, self.received
