# Written by tools/build_sync_client.py from ../aio/http1.py: change it there.
"""RestConnection: one call of REST after the other on a connection (RFC 9112)."""

from collections.abc import Iterator
from typing import Any

from inferd.client.call import SMALL_BYTES, ClientCall, ServerAnswer
from inferd.client.errors import BadAnswer, ConnectionLost
from inferd.client.failures import not_http
from inferd.client.heads import CHUNKED, UNTIL_CLOSED, AnswerHead, chunk_size, parse_answer_head
from inferd.client.settings import ClientSettings
from inferd.client.sync.io import ByteStream
from inferd.client.sync.reader import Reader


class RestConnection:
    """A connection that has one call at a time. After an error it must be closed."""

    def __init__(self, stream: ByteStream, settings: ClientSettings) -> None:
        self.stream = stream
        self.is_reusable = True
        target = settings.target
        self._target = target
        self._reader = Reader(stream)
        self._max_bytes = settings.max_answer_bytes
        # The same in each request, so put together once.
        self._host = f" HTTP/1.1\r\nHost: {target.authority}\r\n"

    def start(self) -> None:
        """Do what comes before the first call: nothing."""

    def is_usable(self) -> bool:
        """Return whether the connection can have another call: nothing has arrived unasked."""
        return self.is_reusable and self.stream.is_quiet()

    def ask(self, call: ClientCall[object], fields: str, seconds: float) -> ServerAnswer:
        """Send `call` with the header lines `fields`, and return the answer.

        Raises OSError, ConnectionLost, BadAnswer and DeadlineExceeded.
        """
        self._send(call, fields)
        head = self._head()
        # It has the head of a GET, with its Content-Length, and no body (RFC 9110, section 9.3.2).
        if call.verb == "HEAD":
            return ServerAnswer(head.status, head.headers, memoryview(b""))
        return ServerAnswer(head.status, head.headers, self._body(head))

    def begin(self, call: ClientCall[object], fields: str, seconds: float) -> ServerAnswer | None:
        """Send `call`; return None if the answer is a stream, otherwise the answer.

        Raises as `ask`.
        """
        self._send(call, fields)
        head = self._head()
        kind = head.headers.get("content-type", "")
        # Any other answer is one by itself: an error, or that of a server without streams.
        if head.status == 200 and kind.partition(";")[0].strip() == "text/event-stream":
            self._head_of_stream = head
            return None
        return ServerAnswer(head.status, head.headers, self._body(head))

    def messages(self) -> Iterator[memoryview]:
        """Yield the data of each event after `begin` returned None. Raises as `ask`."""
        text = bytearray()
        for piece in self._pieces(self._head_of_stream):
            text += piece
            # The standard allows CR alone as well; it is not looked for.
            if b"\r" in text:
                text = text.replace(b"\r\n", b"\n")
            # An event ends with an empty line (HTML Standard, section 9.2.6); the end of a piece
            # means nothing.
            while (stop := text.find(b"\n\n")) >= 0:
                data = _event_data(bytes(text[:stop]))
                del text[: stop + 2]
                if data is not None:
                    yield memoryview(data)
            # What is left is one unfinished event: nothing else bounds it.
            if len(text) > self._max_bytes:
                raise self._too_large(len(text))

    def outcome(self) -> ServerAnswer:
        """Return the status of a stream that was read to its end."""
        head = self._head_of_stream
        return ServerAnswer(head.status, head.headers, memoryview(b""))

    def _send(self, call: ClientCall[object], fields: str) -> None:
        head = call.verb + " " + self._target.path + call.path + self._host + fields
        for name, value in call.headers:
            head += f"{name}: {value}\r\n"
        # A POST without a body needs a length as well (RFC 9110, section 8.6): proxies answer 411
        # otherwise.
        if call.size or call.verb == "POST":
            head += f"Content-Length: {call.size}\r\n"
        # The bytes of obs-text (RFC 9110, section 5.5); HeaderLines has refused what is not
        # Latin-1.
        start = (head + "\r\n").encode("latin-1")
        # One copy of so little, instead of a longer list of buffers for the system.
        if call.size <= SMALL_BYTES:
            buffers: list[Any] = [b"".join((start, *call.buffers))]
        else:
            buffers = [start, *call.buffers]
        try:
            self.stream.send(buffers)
        except (BrokenPipeError, ConnectionResetError):
            # The server has closed it; a refusal that came before is worth more than that.
            self.is_reusable = False

    def _head(self) -> AnswerHead:
        while True:
            block = self._block()
            head = parse_answer_head(block)
            # 1xx are interim (RFC 9110, section 15.2), such as 103 of a proxy; the answer follows.
            if head.status >= 200:
                break
        if head.is_last:
            self.is_reusable = False
        return head

    def _block(self) -> bytes:
        reader = self._reader
        # An end here, before the first byte, is that of a kept connection which the server has
        # closed meanwhile.
        if reader.start == reader.end and not reader.more_or_end():
            msg = "the server closed the connection without an answer"
            raise ConnectionLost(msg)
        buffer = reader.buffer
        stop = buffer.find(b"\r\n\r\n", reader.start, reader.end)
        if stop > 0 and buffer.startswith(b"HTTP/", reader.start):  # as nearly always
            block = bytes(buffer[reader.start : stop])
            reader.start = stop + 4
            return block
        # Only "HTTP/" tells an answer from TLS or HTTP/2, which may be shorter than any head.
        while reader.end - reader.start < 5:
            reader.more()
        if not reader.buffer.startswith(b"HTTP/", reader.start):
            raise not_http(self._target, bytes(reader.buffer[reader.start : reader.end]))
        return reader.until(b"\r\n\r\n")

    def _body(self, head: AnswerHead) -> memoryview:
        if head.length >= 0:
            if head.length > self._max_bytes:
                raise self._too_large(head.length)
            # As long as announced, and given to the arrays as it is: they are views of it. Of a
            # bytearray, so that they can be written to, as arrays of others can.
            body = memoryview(bytearray(head.length))
            self._reader.fill(body)
            return body
        whole = bytearray()
        for piece in self._pieces(head):
            whole += piece
            if len(whole) > self._max_bytes:
                raise self._too_large(len(whole))
        return memoryview(whole)

    def _pieces(self, head: AnswerHead) -> Iterator[bytes]:
        """Yield a body of a length that is not said, in pieces."""
        reader = self._reader
        if head.length != CHUNKED:
            # Beyond anything that can arrive: such a body ends with the connection (RFC 9112,
            # section 6.3).
            left = head.length if head.length != UNTIL_CLOSED else 1 << 62
            while left and (reader.start < reader.end or reader.more_or_end()):
                stop = min(reader.end, reader.start + left)
                piece = bytes(reader.buffer[reader.start : stop])
                reader.start = stop
                left -= len(piece)
                yield piece
            return
        while size := chunk_size(reader.until(b"\r\n")):
            while size:
                if reader.start == reader.end:
                    reader.more()
                stop = min(reader.end, reader.start + size)
                piece = bytes(reader.buffer[reader.start : stop])
                reader.start = stop
                size -= len(piece)
                yield piece
            if reader.until(b"\r\n"):
                msg = "a chunk of the answer is longer than it says"
                raise BadAnswer(msg)
        # Read, or they would be taken for the next answer (RFC 9112, section 7.1.2).
        while reader.until(b"\r\n"):
            pass  # trailers

    def _too_large(self, size: int) -> BadAnswer:
        return BadAnswer(
            f"the answer has {size} bytes or more, the limit is {self._max_bytes} "
            f"(max_answer_bytes)"
        )


def _event_data(event: bytes) -> bytes | None:
    """Return the data of an event (HTML Standard, Server-sent events), None without any."""
    lines = [line for line in event.split(b"\n") if line.startswith(b"data:")]
    # One space after the colon is no part of the value; `data` lines of one event are joined by LF.
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines) if lines else None
