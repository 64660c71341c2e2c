"""Link: the server's end of the line to a worker process. In the server, only `wait` blocks."""

import asyncio
import logging
import select
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from inferd_worker import packet
from inferd_worker.arena import Arena, Received

log = logging.getLogger("inferd.model")

_encode = msgspec.json.Encoder().encode
_pack, _unpack = packet.HEADER.pack, packet.HEADER.unpack_from

_AT_END = object()

PIECE_BYTES = 4 << 20
"""Bytes copied in one go: about a millisecond, if the memory is new."""

MOST_AT_ONCE = 16
"""The most datagrams read in one turn of the event loop."""

MAX_BACKLOG_BYTES = 64 << 20
"""How many bytes may queue up for a worker that does not read."""

_PACKET_BYTES = 128  # overhead of each queued packet

Loans = Mapping[int, Any]
"""The blocks of our own memory that a packet names: byte arrays by offset."""

NO_LOANS: Loans = {}

CLOSED = "closed its socket"
GARBLED = "was killed: it sent what no worker sends"
DEAF = "was killed: it does not read what it is sent"


class LinkClosed(Exception):
    """The worker has closed its end and will read nothing more."""


class Link:
    """Sends packets to a worker, and hands those that arrive to `receive`.

    `receive` gets the kind, document and data of each packet, and the numbers of its header.

    Until `attach`, a single thread calls `wait` to receive packets; afterwards the event loop
    reads, and everything happens there. `lost` is called with the reason when the other end is
    closed, sends something invalid, or does not read while more than `most_bytes` are queued.

    While the receiver sets `expects`, the event loop tries to read more before it turns to others.
    """

    def __init__(
        self,
        sock: socket.socket,
        arena: Arena,
        received: Received,
        receive: Callable[[int, bytes, Any, tuple[int, ...]], None],
        lost: Callable[[str], None],
        most_bytes: int = MAX_BACKLOG_BYTES,
    ) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._arena = arena
        self._received = received
        self._receive = receive
        self._lost = lost
        self._most_bytes = most_bytes
        # One buffer for all: whatever has to outlive a packet is copied out of it.
        self._buffer = bytearray(packet.MAX_PACKET)
        self._view = memoryview(self._buffer)
        # A stream, where there are no sequenced packets, may end anywhere in a packet.
        self._is_stream = sock.type == socket.SOCK_STREAM
        self._partial_bytes = 0  # of a packet that has not come whole
        self._backlog: deque[bytes] = deque()
        # A packet whose tensors are still being copied, and those queued behind it.
        self._behind: deque[tuple[bytes, Iterator[None] | None]] = deque()
        self._backlog_bytes = 0
        # Packets that wait to share a datagram.
        self._delayed: list[bytes] = []
        self._delayed_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self.expects = False

    def _forget_backlog(self) -> None:
        self._backlog.clear()
        self._backlog_bytes = 0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the event loop read from now on; called on that loop."""
        self._loop = loop
        loop.add_reader(self._socket, self._read_several)
        if self._backlog:
            loop.add_writer(self._socket, self._write)

    def close(self) -> None:
        """Read and send no more."""
        self._is_closed = True
        self._forget_backlog()
        self._delayed.clear()
        self._behind.clear()
        loop: Any = self._loop  # Any: uvloop returns None where compiled code insists on a bool
        if loop is not None:
            loop.remove_reader(self._socket)
            loop.remove_writer(self._socket)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a packet and read it; return whether one came. Not for an event loop."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._backlog else 0))
        if not poll.poll(timeout_s * 1000):
            return False
        if self._backlog:
            self._write()
        self.read()
        return True

    def _read_several(self) -> None:
        left = MOST_AT_ONCE
        while left and self.read() and self.expects:
            left -= 1

    def read(self) -> bool:
        """Read one datagram and hand on its packets; return whether there was one."""
        try:
            partial = self._partial_bytes
            size = self._socket.recv_into(self._view[partial:] if partial else self._buffer)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # it left data unread; what it sent can still be read
            return not self._is_closed
        except OSError:
            size = 0
        if not size or self._is_closed:
            self._hang_up(CLOSED)
            return False
        try:
            if self._is_stream:
                self._dispatch_whole(partial + size)
            else:
                self._dispatch(size)
        except LinkClosed:
            self._hang_up(CLOSED)
        except (ValueError, msgspec.MsgspecError):
            self._hang_up(GARBLED)
        # The worker runs code of models: whatever it sends must not end the server.
        except Exception:
            log.exception("a worker process said what nobody understands")
            self._hang_up(GARBLED)
        return not self._is_closed

    def read_last(self) -> None:
        """Read everything left from a worker that sends no more."""
        if self._socket.fileno() < 0:
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not self._is_closed and poll.poll(0):
            self.read()

    def _hang_up(self, why: str) -> None:
        if not self._is_closed:
            self.close()
            self._lost(why)

    def _dispatch(self, size: int) -> None:
        at = 0
        while at < size and not self._is_closed:
            if at + packet.HEADER_SIZE > size:  # beyond `size` lie bytes of earlier datagrams
                raise ValueError(f"a packet ends after {size - at} bytes")
            kind, document_size, offset, payload_size, one, two, three = _unpack(self._buffer, at)
            at += packet.HEADER_SIZE
            if document_size > packet.MAX_DOCUMENT:
                raise ValueError(f"a document of {document_size} bytes")
            # Tensors begin at a multiple of ALIGN, so that frameworks can use them where they lie.
            start = (document_size + packet.ALIGN - 1) & -packet.ALIGN
            if offset == packet.INLINE:
                end = min(at + payload_size, size)
                document = bytes(self._view[at : min(at + document_size, end)])
                data: Any = bytes(self._view[at + start : end]) if start < payload_size else b""
                at += payload_size
            else:
                block: Any = self._received.block(offset, payload_size)
                document = self._received.text(block, offset, document_size)
                data = block[start:]
                # A view of its own keeps the block; the last reference
                # that goes is what releases it.
                del block
            self._receive(kind, document, data, (one, two, three))

    def _dispatch_whole(self, size: int) -> None:
        """Dispatch the packets that have come whole, and keep the beginning of another."""
        end = packet.whole_size(self._buffer, size)
        self._dispatch(end)
        self._partial_bytes = size - end
        # By way of bytes, as both may overlap.
        self._view[: size - end] = bytes(self._view[end:size])

    def settle(self, released: Collection[int], named: Collection[int] = ()) -> Loans:
        """Take back the blocks that a packet says are `released`; return those it has `named`.

        A packet may do both with a block. Raises ValueError for one that cannot be lent.
        """
        # Lent before anything is given back: a packet may name a block and release it.
        loans = {offset: self._arena.lend(offset) for offset in named} if named else NO_LOANS
        for offset in released:
            self._arena.give(offset)
        return loans

    def send(
        self,
        kind: int,
        document: list[Any],
        payload: packet.Payload | None = None,
        numbers: tuple[int, int, int] = packet.NO_NUMBERS,
        *,
        holds: bool = False,
    ) -> None:
        """Send a packet; `document` lacks its first element. Raises ArenaFull, LinkClosed.

        With `holds` the packet may wait, to share a datagram with others, until the next packet
        without `holds`, the end of this turn of the event loop, or a call of `flush`; before
        `attach` nothing waits. Large payloads are copied in pieces, so that the event loop can
        run other callbacks in between.
        """
        one, two, three = numbers
        released = self._received.released() if self._received.fresh else []
        try:
            text = _encode([released, *document])
        except BaseException:
            self._received.fresh.extend(released)
            raise
        tensors = payload.size if payload is not None else 0
        start = -(-len(text) // packet.ALIGN) * packet.ALIGN
        size = start + tensors if tensors else len(text)
        copying: Iterator[None] | None = None
        # Small ones go with the packet: a block would have to be found, and
        # told of when it is free (decision 0015).
        if size <= packet.INLINE_BYTES:
            whole = _pack(kind, len(text), packet.INLINE, size, one, two, three)
            if payload is not None and tensors:
                zeros = packet.ZEROS[: start - len(text)]
                whole = b"".join((whole, text, zeros, *payload.parts))
            else:
                whole += text
        else:
            try:
                at, block = self._arena.take(size)
            except BaseException:
                self._received.fresh.extend(released)
                raise
            whole = _pack(kind, len(text), at, size, one, two, three)
            block[: len(text)] = text
            if payload is not None:
                copying = self._copy(payload, block[start:])
        # Packets never overtake each other: a worker would take a
        # request's cancellation before the request.
        if holds or copying is not None or len(self._delayed) or len(self._behind):
            self._put_in_turn(whole, copying, holds=holds)
        else:
            self._put(whole)

    def _put_in_turn(self, whole: bytes, copying: Iterator[None] | None, *, holds: bool) -> None:
        if copying is not None or self._behind:
            self._behind.append((whole, copying))
            if len(self._behind) == 1:
                self._copy_on()
        elif holds and self._loop is not None:
            self._hold(whole)
        else:
            self._put_behind_delayed(whole)

    def _copy(self, payload: packet.Payload, block: memoryview) -> Iterator[None] | None:
        """Copy tensors into `block`, or return an iterator that does so piece by piece."""
        copying = _pieces(payload, block)
        # In a thread nobody else waits for a turn.
        if self._loop is not None and payload.size > PIECE_BYTES:
            return copying
        # The quickest way to run an iterator to its end.
        deque(copying, 0)
        return None

    def _copy_on(self) -> None:
        """Copy a piece of the first waiting packet, or send it and go on to the next."""
        while self._behind:
            whole, copying = self._behind[0]
            if copying is not None and next(copying, _AT_END) is not _AT_END:
                assert self._loop is not None
                self._loop.call_soon(self._copy_on)
                return
            self._behind.popleft()
            with suppress(LinkClosed):  # reading notices the closed end, too
                self._put_behind_delayed(whole)

    def _put_behind_delayed(self, whole: bytes) -> None:
        if self._delayed:
            self._hold(whole)
            self.flush()
        else:
            self._put(whole)

    def _hold(self, whole: bytes) -> None:
        self._delayed_bytes += len(whole)
        if self._delayed_bytes > packet.MAX_PACKET:
            self.flush()
            self._delayed_bytes = len(whole)
        if self._loop is not None and not self._delayed:
            self._loop.call_soon(self._flush_in_turn)
        self._delayed.append(whole)

    def flush(self) -> None:
        """Send the packets held back. Raises LinkClosed."""
        if delayed := self._delayed:
            self._delayed, self._delayed_bytes = [], 0
            self._put(delayed[0] if len(delayed) == 1 else b"".join(delayed))

    def _flush_in_turn(self) -> None:
        with suppress(LinkClosed):  # reading notices the closed end, too
            self.flush()

    def release(self) -> None:
        """Tell the worker which of its blocks are free, if they are many."""
        if self._received.fresh and self._received.is_much:
            with suppress(LinkClosed):
                self.send(packet.RELEASE, [])

    def _put(self, whole: bytes) -> None:
        if self._is_closed:
            raise LinkClosed
        if not self._backlog:
            try:
                # At once, not when the loop says that there is room: nearly always there is, and
                # that turn would be added to each request.
                sent = self._socket.send(whole)
            except BlockingIOError:
                pass
            except OSError as error:
                raise LinkClosed from error
            else:
                if sent == len(whole):
                    return
                whole = whole[sent:]  # a stream took the beginning
        self._backlog.append(whole)
        self._backlog_bytes += len(whole) + _PACKET_BYTES
        if self._backlog_bytes > self._most_bytes:
            self._hang_up(DEAF)
            raise LinkClosed
        if self._loop is not None:
            self._loop.add_writer(self._socket, self._write)

    def _write(self) -> None:
        while self._backlog:
            try:
                sent = self._socket.send(self._backlog[0])
            except BlockingIOError:
                return
            except OSError:
                self._forget_backlog()
                break
            first = self._backlog.popleft()
            self._backlog_bytes -= len(first) + _PACKET_BYTES
            if sent < len(first):  # a stream took the beginning
                self._backlog.appendleft(first[sent:])
                self._backlog_bytes += len(first) - sent + _PACKET_BYTES
                return
        loop: Any = self._loop  # as in close
        if loop is not None:
            loop.remove_writer(self._socket)


def _pieces(payload: packet.Payload, block: memoryview) -> Iterator[None]:
    """Copy tensors to their places in `block`; yield whenever PIECE_BYTES have been copied."""
    at = copied_bytes = 0
    for part in payload.parts:
        for begin in range(0, len(part), PIECE_BYTES):
            piece = part[begin : begin + PIECE_BYTES]
            block[at : at + len(piece)] = piece
            at += len(piece)
            copied_bytes += len(piece)
            if copied_bytes >= PIECE_BYTES:
                copied_bytes = 0
                yield
