"""RestLoadConnection: requests over HTTP/1.1, whose answers are counted and not read."""

import json
import re
from typing import Any

import httptools

from inferd.bench.generator.connection import LoadConnection, now_ns

# Searched in the bytes: a parser would cost more than the request.
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_KNOWN_HEADS = 64
_EVENT = b"\ndata:"
_ERROR_EVENT = b'\ndata: {"error"'


class RestLoadConnection(LoadConnection):
    """A connection of HTTP/1.1."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._head = bytearray()
        self._left = -1  # bytes of the body that are to come; -1: not known yet
        self._text: bytearray | None = None  # the body of an error
        self._status = 200
        self._parser: Any = None  # where only a parser can tell the end
        self._closes = False
        self._tail = b""
        self._known: dict[bytes, tuple[int, int, bool]] = {}

    def send(self, content: bytes) -> None:
        """Send a request."""
        self.is_busy = True
        self._left = -1
        self._text = self._parser = None
        self._tail = b"\n"  # as if a line had ended: events begin with one
        self._transport.write(content)

    def buffer_updated(self, count: int) -> None:
        """Take what has arrived."""
        if self._parser is not None:
            self._feed(self._view[:count])
        elif self._left >= 0:
            self._take(self._view[:count])
        else:
            self._head += self._view[:count]
            end = self._head.find(b"\r\n\r\n") + 4
            if end > 3:
                self._begin(end)
            elif not self._head.startswith(b"HTTP/"[: len(self._head)]):
                self.fail("what listens there does not speak HTTP/1.1")

    def eof_received(self) -> None:
        """End an answer whose end is that of the connection."""
        if self._parser is not None and self.is_busy and self._status == 200 and self.answers:
            self._closes = True
            self._finish()

    def _begin(self, end: int) -> None:
        """Read the head of an answer."""
        head = bytes(self._head[:end])
        rest = bytes(self._head[end:])
        self._head.clear()
        found = self._known.get(head)
        if found is None:
            found = self._read_head(head)
            if found is None:
                return
            if len(self._known) >= _KNOWN_HEADS:
                self._known.clear()
            self._known[head] = found
        self._status, self._left, self._closes = found
        # 100 Continue comes before the answer.
        if self._status == 100:
            self._head += rest
            self._left = -1
            if (end := rest.find(b"\r\n\r\n") + 4) > 3:
                self._begin(end)
            return
        if self._status != 200:
            self._text = bytearray()
        if self._left < 0:
            # Only for chunks and bodies that end with the connection, as of streams.
            self._parser = httptools.HttpResponseParser(self)
            self._feed(head + rest)
        else:
            self._take(memoryview(rest))

    def _read_head(self, head: bytes) -> tuple[int, int, bool] | None:
        """Return status, length of the body (-1: chunks), and whether the connection ends then."""
        status = _STATUS.match(head)
        if status is None:
            self.fail("what listens there does not speak HTTP/1.1")
            return None
        length = _LENGTH.search(head)
        return int(status[1]), int(length[1]) if length else -1, bool(_CLOSES.search(head))

    def _take(self, data: memoryview) -> None:
        self._left -= len(data)
        if self._text is not None:
            self._text += data
        if self._left <= 0:
            self._finish()

    def _feed(self, data: Any) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"the answer is no HTTP: {error}")

    def on_body(self, data: bytes) -> None:
        """Take a piece of a body in chunks; each event of a stream is an answer."""
        if self._text is not None:
            self._text += data
            return
        if not self._plan.is_stream:
            return
        # Events are not put together: the end of what came before tells where they begin.
        before, data = self._tail, self._tail + data
        self._tail = data[-len(_ERROR_EVENT) :]
        if count := data.count(_EVENT) - before.count(_EVENT):
            if not self.answers:
                self.first_ns = now_ns()
            self.answers += count
        if (at := data.find(_ERROR_EVENT)) >= 0:
            self._text = bytearray(data[at + len(_EVENT) :])

    def on_message_complete(self) -> None:
        """End an answer in chunks."""
        self._finish()

    def _finish(self) -> None:
        error = ""
        if self._text is not None:
            error = f"{self._status}: {_error_text(bytes(self._text))}"
        self._parser = None
        self._left = -1
        if self._closes:
            self.is_lost = True
            self._transport.close()
        self.end(error)


def _error_text(body: bytes) -> str:
    """Return the text of a V2 error object, or what else a body says."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body[:1000].decode(errors="replace").strip()
    if isinstance(document, dict) and isinstance(document.get("error"), str):
        return str(document["error"])
    return str(document)
