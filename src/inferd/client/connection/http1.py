"""RestConnection: one call of REST after the other on a connection (RFC 9112)."""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from inferd.client.call import SMALL_BYTES, ClientCall, ServerAnswer
from inferd.client.connection.reader import Reader
from inferd.client.connection.stream import ByteStream
from inferd.client.errors import BadAnswer, ConnectionLost
from inferd.client.failures import not_http
from inferd.client.settings import ClientSettings

_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")

CHUNKED = -2
"""The length of a body in chunks."""

UNTIL_CLOSED = -1
"""The length of a body that ends with the connection."""


class AnswerHead(NamedTuple):
    """A head; `length` is that of the body, or CHUNKED or UNTIL_CLOSED; names are in lower case."""

    status: int
    headers: dict[str, str]
    length: int
    is_last: bool
    """Whether the connection ends after it."""


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

    async def start(self) -> None:
        """Do what comes before the first call: nothing."""

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived since the last answer."""
        return self._reader.start == self._reader.end and self.stream.is_quiet()

    async def is_usable(self) -> bool:
        """Return whether another call is possible after something has arrived unasked: never."""
        return False

    async def ask(self, call: ClientCall[object], fields: str) -> ServerAnswer:
        """Send `call` with the header lines `fields`, and return the answer.

        Raises OSError, ConnectionLost, BadAnswer and DeadlineExceeded.
        """
        head = await self._exchange(call, fields)
        return ServerAnswer(head.status, head.headers, await self._body(head))

    async def begin(self, call: ClientCall[object], fields: str) -> ServerAnswer | None:
        """Send `call`; return None if the answer is a stream, otherwise the answer.

        Raises as `ask`.
        """
        head = await self._exchange(call, fields)
        kind = head.headers.get("content-type", "")
        # Any other answer is one by itself: an error, or that of a server without streams.
        if head.status == 200 and kind.partition(";")[0].strip() == "text/event-stream":
            self._head_of_stream = head
            self._events = _UnsizedBody(self._reader, head.length)
            self._text = bytearray()
            return None
        return ServerAnswer(head.status, head.headers, await self._body(head))

    async def next_message(self) -> memoryview | None:
        """Return the data of the next event after `begin` returned None, None at the end.

        Raises as `ask`.
        """
        text = self._text
        while True:
            # An event ends with an empty line (HTML Standard, section 9.2.6); the end of a piece
            # means nothing.
            while (stop := text.find(b"\n\n")) >= 0:
                data = _event_data(bytes(text[:stop]))
                del text[: stop + 2]
                if data is not None:
                    return memoryview(data)
            # What is left is one unfinished event: nothing else bounds it.
            if len(text) > self._max_bytes:
                raise self._too_large(len(text))
            piece = await self._events.next_piece()
            if not piece:
                return None
            text += piece
            # The standard allows CR alone as well; it is not looked for.
            if b"\r" in text:
                text[:] = text.replace(b"\r\n", b"\n")

    def outcome(self) -> ServerAnswer:
        """Return the status of a stream that was read to its end."""
        head = self._head_of_stream
        return ServerAnswer(head.status, head.headers, memoryview(b""))

    async def _exchange(self, call: ClientCall[object], fields: str) -> AnswerHead:
        """Send `call`, and return the head of the answer."""
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
            await self.stream.send(buffers)
        except (BrokenPipeError, ConnectionResetError):
            # The server has closed it; a refusal that came before is worth more than that.
            self.is_reusable = False
        reader = self._reader
        while True:
            # An end here, before the first byte, is that of a kept connection which the server has
            # closed meanwhile.
            if reader.start == reader.end and not await reader.more_or_end():
                raise ConnectionLost("the server closed the connection without an answer")
            answer = parse_answer_head(self._whole_block() or await self._block())
            # 1xx are interim (RFC 9110, section 15.2), such as 103 of a proxy; the answer follows.
            if answer.status >= 200:
                break
        if answer.is_last:
            self.is_reusable = False
        return answer

    def _whole_block(self) -> bytes:
        """Return the head that has arrived, as nearly always; b"" if it must be waited for."""
        reader = self._reader
        buffer = reader.buffer
        stop = buffer.find(b"\r\n\r\n", reader.start, reader.end)
        if stop < 0 or not buffer.startswith(b"HTTP/", reader.start):
            return b""
        block = bytes(buffer[reader.start : stop])
        reader.start = stop + 4
        return block

    async def _block(self) -> bytes:
        reader = self._reader
        # Only "HTTP/" tells an answer from TLS or HTTP/2, which may be shorter than any head.
        while reader.end - reader.start < 5:
            await reader.more()
        if not reader.buffer.startswith(b"HTTP/", reader.start):
            raise not_http(self._target, bytes(reader.buffer[reader.start : reader.end]))
        return await reader.until(b"\r\n\r\n")

    async def _body(self, head: AnswerHead) -> memoryview:
        if head.length >= 0:
            if head.length > self._max_bytes:
                raise self._too_large(head.length)
            # As long as announced, and given to the arrays as it is: they are views of it. Of a
            # bytearray, so that they can be written to, as arrays of others can.
            body = memoryview(bytearray(head.length))
            at = self._reader.take(body)
            if at < head.length:
                await self._reader.fill(body[at:])
            return body
        whole = bytearray()
        body_pieces = _UnsizedBody(self._reader, head.length)
        while piece := await body_pieces.next_piece():
            whole += piece
            if len(whole) > self._max_bytes:
                raise self._too_large(len(whole))
        return memoryview(whole)

    def _too_large(self, size: int) -> BadAnswer:
        return BadAnswer(
            f"the answer has {size} bytes or more, the limit is {self._max_bytes} "
            f"(max_answer_bytes)"
        )


class _UnsizedBody:
    """A body that is read in pieces: in chunks, to the end of the connection, or of events."""

    def __init__(self, reader: Reader, length: int) -> None:
        self._reader = reader
        self._is_chunked = length == CHUNKED
        self._is_within_chunks = False
        # Of the body, or of the chunk. UNTIL_CLOSED is beyond anything that can arrive: such a body
        # ends with the connection (RFC 9112, section 6.3).
        self._left = {CHUNKED: 0, UNTIL_CLOSED: 1 << 62}.get(length, length)

    async def next_piece(self) -> bytes:
        """Return some of the body, b"" at its end."""
        reader = self._reader
        if self._is_chunked:
            if not self._left and not await self._begin_chunk():
                return b""
            if reader.start == reader.end:
                await reader.more()
        elif not self._left or (reader.start == reader.end and not await reader.more_or_end()):
            return b""
        stop = min(reader.end, reader.start + self._left)
        piece = bytes(reader.buffer[reader.start : stop])
        reader.start = stop
        self._left -= len(piece)
        return piece

    async def _begin_chunk(self) -> bool:
        """Return whether there is another chunk; after the last one, skip the trailers."""
        reader = self._reader
        if self._is_within_chunks and await reader.until(b"\r\n"):
            raise BadAnswer("a chunk of the answer is longer than it says")
        self._left = chunk_size(await reader.until(b"\r\n"))
        self._is_within_chunks = True
        if not self._left:
            # Read, or they would be taken for the next answer (RFC 9112, section 7.1.2).
            while await reader.until(b"\r\n"):
                pass
        return bool(self._left)


def _event_data(event: bytes) -> bytes | None:
    """Return the data of an event (HTML Standard, Server-sent events), None without any."""
    lines = [line for line in event.split(b"\n") if line.startswith(b"data:")]
    # One space after the colon is no part of the value; `data` lines of one event are joined by LF.
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines) if lines else None


# Parsing a head costs more than a lookup, and most are repeated: answers to the same call differ by
# their length at most, and a Date in each second of some servers.
@lru_cache(maxsize=64)
def parse_answer_head(block: bytes) -> AnswerHead:
    """Return what is in `block`, the bytes before the empty line: never change it.

    Raises BadAnswer.
    """
    # Decodes any byte: what the server has put there cannot fail here.
    first, *lines = block.decode("latin-1").split("\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise BadAnswer(f"the answer begins with {first[:60]!r}, which is no status line of HTTP")
    status = int(found[2])
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        # No space before the colon and no folded lines (RFC 9112, sections 5.1 and 5.2): both have
        # been used to smuggle.
        if not colon or not name or name != name.strip():
            raise BadAnswer(f"the answer has a header line {line[:60]!r}")
        key, value = name.lower(), value.strip(" \t")
        if key in headers:
            # Equal lengths may be taken as one, different ones must not (RFC 9110, section 8.6).
            if key == "content-length" and headers[key] != value:
                raise BadAnswer("the answer has two lengths")
            value = value if key == "content-length" else f"{headers[key]}, {value}"
        headers[key] = value
    options = headers.get("connection", "").lower()
    # HTTP/1.0 closes unless it says otherwise (RFC 9112, section 9.3).
    is_last = "close" in options or (found[1] == "0" and "keep-alive" not in options)
    length = _length(status, headers)
    return AnswerHead(status, headers, length, is_last or length == UNTIL_CLOSED)


def _length(status: int, headers: dict[str, str]) -> int:
    # These have no body whatever they say (RFC 9112, section 6.3).
    if status < 200 or status in (204, 304):
        return 0
    # It overrides Content-Length (RFC 9112, section 6.3).
    if coding := headers.get("transfer-encoding"):
        if coding.lower() != "chunked":
            raise BadAnswer(f"the answer has the transfer coding {coding[:60]!r}")
        return CHUNKED
    text = headers.get("content-length")
    if text is None:
        return UNTIL_CLOSED
    # int() accepts signs, spaces and digits of other scripts; more than 18 digits is no size of
    # memory.
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise BadAnswer(f"the answer has the length {text[:60]!r}")
    return int(text)


def chunk_size(line: bytes) -> int:
    """Return the size that the first line of a chunk says. Raises BadAnswer."""
    # Extensions of a chunk are ignored (RFC 9112, section 7.1.1).
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
        raise BadAnswer(f"the answer has a chunk of size {line[:60]!r}")
    return int(digits, 16)
