"""RequestReader: what one HTTP/1.1 connection has received, from bytes to requests."""

from typing import cast

from inferd.http.h1.body import BodyReader
from inferd.http.h1.head import HeadReader, unread_request
from inferd.http.limits import HttpLimits
from inferd.http.message import HttpRequest
from inferd.http.routes import Routes
from inferd.http.turns import NO_TRANSPORT
from inferd.http.unread import has_unread
from inferd.memory.capacity import Capacity

# Holds a usual head with a small body, and is all that an idle connection has.
_FIRST_BUFFER = 8192


class RequestReader:
    """Reads one request after the other from `buffer[start:end]`, which has not been consumed yet.

    `request` is the one whose `body` is still coming. The client sends no more once `has_ended`;
    while the connection does not want more, `is_reading` is False. `has_skipped` is that nothing
    but empty lines has come: whoever reads it takes it back.
    """

    def __init__(self, limits: HttpLimits, routes: Routes, capacity: Capacity) -> None:
        self.transport = NO_TRANSPORT
        self.buffer = bytearray(_FIRST_BUFFER)
        self.view = memoryview(self.buffer)
        # A whole head and the beginning of what follows.
        self._most_bytes = limits.max_header_bytes + _FIRST_BUFFER
        self.start = 0
        self.end = 0
        self.heads = HeadReader(
            limits.max_header_bytes, limits.max_body_bytes, routes.forward, routes.variations
        )
        self.body = BodyReader(capacity, limits.max_body_bytes)
        self.request: HttpRequest | None = None
        self.is_whole = False
        self.is_reading = True
        self.has_ended = False
        self.has_skipped = False

    def room(self) -> memoryview:
        """Return memory for what comes next, behind what has not been consumed."""
        if self.end == len(self.buffer):
            self._make_room()
        return self.view[self.end :]

    def _make_room(self) -> None:
        """Move the unconsumed bytes to the front of a new buffer, a larger one if necessary.

        The old one cannot be resized: the transport still holds a view of it.
        """
        unread = self.end - self.start
        size = len(self.buffer)
        if self.start == 0:
            size = min(2 * size, self._most_bytes)
        # At least a byte of room, or reading would end the connection.
        fresh = bytearray(max(size, unread + 1))
        fresh[:unread] = self.view[self.start : self.end]
        self.buffer, self.view = fresh, memoryview(fresh)
        self.start, self.end = 0, unread

    def has_news(self) -> bool:
        """Return whether there is something to do now that a request has been answered."""
        return self.end > 0 or self.has_ended or not self.is_reading

    def has_more(self) -> bool:
        """Return whether the client has sent more, even if it has not been received yet."""
        return self.start != self.end or has_unread(self.transport)

    def first_bytes(self) -> bytes:
        """Return what has come of the first head; b"" once there has been one."""
        return b"" if self.heads.head else bytes(self.view[self.start : self.end])

    def drop(self) -> None:
        """Forget what has not been consumed; the whole buffer is free again."""
        self.start = self.end = 0

    def stop(self) -> None:
        """Receive nothing more until `go_on`."""
        if self.is_reading:
            self.is_reading = False
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Receive again; the transport must not be closed."""
        if not self.is_reading:
            self.is_reading = True
            self.transport.resume_reading()

    def read(self) -> HttpRequest | None:
        """Return the next request if its head is complete; `is_whole` tells if it has its body.

        Otherwise what has come of the body is next in `buffer`. Raises HttpError.
        """
        heads, start, end = self.heads, self.start, self.end
        head = heads.head
        # A client sends the same head again as long as its requests are alike.
        # A comparison of bytes in place of parsing: the most frequent case.
        if head and self.buffer.startswith(head, start, end):
            start += len(head)
        else:
            template = heads.changing
            start = 0 if template is None else template.read(self.buffer, start, end)
            if template is not None and start:
                heads.length = template.length
            elif not (start := self._read_head()):
                return None
        request, length = heads.request, heads.length
        body_end = start + length
        if 0 <= length <= end - start:
            # A copy of the part: the buffer is written over by the next read.
            request.body = memoryview(self.buffer[start:body_end])
            self.is_whole = True
            if body_end == end:
                # All consumed: the next read begins in front, and nothing has to be moved.
                self.start = self.end = 0
            else:
                self.start = body_end
        else:
            self.is_whole = False
            self.start = start
        return request

    def _read_head(self) -> int:
        """Read a head that differs from the last one; return its end, or 0 if it is incomplete."""
        buffer, start = self.buffer, self.start
        while start < self.end and buffer[start] in b"\r\n":  # RFC 9112, section 2.2
            start += 1
        self.start = start
        head_end = buffer.find(b"\r\n\r\n", start, self.end)
        if head_end < 0:
            if start == self.end:
                self.has_skipped = start > 0
                self.drop()
            else:
                self.heads.check_partial(buffer, start, self.end)
            return 0
        head_end += 4
        self.heads.read(bytes(self.view[start:head_end]))
        return head_end

    def begin_body(self, length: int) -> None:
        """Receive a body of `length` bytes from now on, -1 if it comes in chunks.

        Raises Overloaded and TooLarge.
        """
        self.body.begin(length, self.view[self.start : self.end])
        if length >= 0:
            # What was here is in the body's own memory now.
            self.drop()

    def fill_body(self, count: int) -> HttpRequest | None:
        """Note `count` more bytes in the body's own memory; return the request if it is whole.

        Raises Overloaded and TooLarge.
        """
        if not self.body.add(count):
            return None
        request, self.request = cast("HttpRequest", self.request), None
        self.body.give(request)
        return request

    def read_chunks(self) -> HttpRequest | None:
        """Read what has come of a body in chunks; return the request if it is whole.

        Raises HttpError, Overloaded and TooLarge.
        """
        finished = self.body.feed(self.view[self.start : self.end])
        self.drop()
        if finished is None:
            return None
        request, self.request = cast("HttpRequest", self.request), None
        request.body, rest = finished
        # It always fits: what follows the body came from this buffer.
        self.buffer[: len(rest)] = rest
        self.end = len(rest)
        self.is_whole = True
        return request

    def give_up(self) -> HttpRequest:
        """Forget all that has come; return what is known of the request that is then refused."""
        request = self.request or unread_request(self.buffer[self.start : self.end])
        self.release()
        self.drop()
        return request

    def release(self) -> None:
        """Release the body, and the request whose body was coming."""
        self.body.release()
        self.request = None
