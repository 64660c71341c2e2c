"""One HTTP/1.1 request and its answer, between the connection and the routes."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol, Self

import httptools

from inferd.record import Record
from inferd.transport.header_forward import HeaderForward, text_of

_HUGE_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*0*[1-9][0-9]{19,}[ \t]*\r\n", re.IGNORECASE)
"""A number the parser refuses, for it has no room for more than 64 bits."""

_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")


NO_BODY = memoryview(b"")


class HttpRequest(Record):
    """A request: header names in lower case, the whole body (chunks joined, still compressed).

    `began_ns` is when the first part of the body came, on the clock of time.perf_counter_ns; 0 when
    it came at once, or requests are not traced.
    `forwarded` are the headers that become parameters of an inference, None for none.
    """

    _fields = (
        "method",
        "target",
        "headers",
        "is_kept_alive",
        "is_http_10",
        "body",
        "began_ns",
        "forwarded",
    )
    __slots__ = _fields

    def __init__(  # noqa: PLR0913
        self,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        is_kept_alive: bool,
        is_http_10: bool,
        body: memoryview = NO_BODY,
        began_ns: int = 0,
        forwarded: dict[str, str] | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.is_kept_alive = is_kept_alive
        self.is_http_10 = is_http_10
        self.body = body
        self.began_ns = began_ns
        self.forwarded = forwarded

    def __copy__(self) -> "HttpRequest":
        """Return one of the same fields."""
        return HttpRequest(
            self.method,
            self.target,
            self.headers,
            self.is_kept_alive,
            self.is_http_10,
            self.body,
            self.began_ns,
            self.forwarded,
        )


NO_REQUEST = HttpRequest(b"", b"", {}, is_kept_alive=False, is_http_10=False)
"""Stands where there has been none yet."""


class Pieces(Protocol):
    """What follows of a body whose length is not known, piece by piece.

    Whoever is given it reads it to its end or closes it, even unread. Only a cancellation may be
    raised. `filler` is a piece that means nothing: it asks a silent client if it is still there.
    """

    filler: bytes

    def __aiter__(self) -> Self:
        """Return itself."""
        ...

    async def __anext__(self) -> bytes:
        """Return the next piece, never an empty one."""
        ...

    async def aclose(self) -> None:
        """Give up the rest."""
        ...


class HttpAnswer(Record):
    """An answer: `headers` are whole lines ending in CR LF; lengths are added when it is sent.

    With `rest` the body goes on after `buffers`, as long as that has pieces.
    """

    _fields = (
        "status",
        "buffers",
        "content_type",
        "headers",
        "rest",
    )
    __slots__ = _fields

    def __init__(
        self,
        status: int,
        buffers: list[Any],
        content_type: bytes = b"application/json",
        headers: bytes = b"",
        rest: Pieces | None = None,
    ) -> None:
        self.status = status
        self.buffers = buffers
        self.content_type = content_type
        self.headers = headers
        self.rest = rest


# A method of letters that nobody knows: "token SP request-target SP HTTP-version".
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) [^ ]+ HTTP/1\.[01]\r\n")


class HttpError(Exception):
    """A request that HTTP itself forbids; the connection closes after the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _Head:
    """What httptools calls back into; `fields` gets the headers one by one, if it is a list."""

    __slots__ = ("fields", "headers", "target")

    def __init__(self, fields: list[tuple[bytes, bytes]] | None) -> None:
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.fields = fields

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.lower()
        value = value.rstrip(b" \t")  # the parser leaves the white space behind a value
        headers = self.headers
        if key in headers:  # sent twice it means the list of both (RFC 9110, section 5.3)
            headers[key] += b", " + value
        else:
            headers[key] = value
        if self.fields is not None:
            self.fields.append((name, value))


def parse_head(head: bytes, forward: HeaderForward | None = None) -> HttpRequest:
    """Return the request whose head, up to and including the empty line, is `head`.

    `forward` chooses the headers that become parameters. Raises HttpError when it is not HTTP/1.0
    or HTTP/1.1.
    """
    fields: list[tuple[bytes, bytes]] = []
    collected = _Head(None if forward is None else fields)
    # A parser that has seen one head waits for its body and would refuse the next head.
    parser = httptools.HttpRequestParser(collected)
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass  # an offer to speak something else; it may be ignored (RFC 9110, section 7.8)
    except httptools.HttpParserError as error:
        encoded = _with_encoded_target(head)
        if encoded is not head:
            return parse_head(encoded, forward)
        if _HUGE_LENGTH.search(head):
            raise HttpError(413, "Content-Length says more than any server takes") from None
        if isinstance(error, httptools.HttpParserInvalidMethodError) and (
            line := _REQUEST_LINE.match(head)
        ):  # RFC 9110, section 9.1
            raise HttpError(501, f"there is no method {line[1].decode()} here") from None
        raise HttpError(400, f"the request head is not valid HTTP/1.1: {error}") from None
    version = parser.get_http_version()
    if version not in ("1.1", "1.0"):
        raise HttpError(505, f"HTTP version {version} is not spoken here, use 1.1")
    headers = collected.headers
    if b", " in headers.get(b"host", b""):  # RFC 9112, section 3.2; none at all is Triton's habit
        raise HttpError(400, "the request has more than one Host")
    is_http_10 = version == "1.0"
    is_kept_alive = not is_http_10
    # The parser's own should_keep_alive forgets the header once the message is complete.
    if connection := headers.get(b"connection"):
        wishes = {wish.strip().lower() for wish in connection.split(b",")}
        is_kept_alive = b"close" not in wishes and (not is_http_10 or b"keep-alive" in wishes)
    request = HttpRequest(parser.get_method(), collected.target, headers, is_kept_alive, is_http_10)
    if forward is not None:
        request.forwarded = forwarded_of(fields, forward)
    return request


def _with_encoded_target(head: bytes) -> bytes:
    """Return `head` with the bytes beyond ASCII in its first line percent-encoded.

    The parser refuses them, but clients send what people type: curl, for one.
    """
    line, end, rest = head.partition(b"\r\n")
    if line.isascii():
        return head
    return _BEYOND_ASCII.sub(lambda found: b"%%%02X" % found[0][0], line) + end + rest


_CHANGING = re.compile(rb"\r\nnv-inferrequest:", re.IGNORECASE)
_CHANGING_NAME = b"nv-inferrequest"
_IN_VALUES = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
"""What a header's value may consist of (RFC 9110, section 5.5)."""


class ChangingHead:
    """A head around the value of its NV-InferRequest.

    Clients of the old API have the ids of their requests there: no two of their heads are alike,
    but most of them in all the rest.
    """

    __slots__ = ("_after", "_before", "_request", "_room")

    def __init__(self, before: bytes, after: bytes, request: HttpRequest, room: int) -> None:
        self._before = before
        self._after = after
        self._request = request
        self._room = room  # for the value

    def read(self, buffer: bytearray | bytes, start: int, end: int) -> int:
        """Return where a head that differs in nothing else ends; 0 for any other.

        The value it has is put into the request that was read before.
        """
        before = self._before
        if not buffer.startswith(before, start, end):
            return 0
        start += len(before)
        stop = buffer.find(b"\r", start, end)
        if not 0 <= stop - start <= self._room or not buffer.startswith(self._after, stop, end):
            return 0
        value = bytes(buffer[start:stop])
        if value.translate(None, _IN_VALUES):
            return 0
        self._request.headers[_CHANGING_NAME] = value.strip(b" \t")
        return stop + len(self._after)


def changing_head(head: bytes, request: HttpRequest, max_bytes: int) -> ChangingHead | None:
    """Return what of `head`, which said `request`, the next ones may repeat; None without ids.

    With another value they may have `max_bytes`.
    """
    value = request.headers.get(_CHANGING_NAME)
    found = _CHANGING.search(head) if value is not None else None
    if found is None:
        return None
    start = found.end()
    stop = head.index(b"\r\n", start)
    if value != head[start:stop].strip(b" \t"):
        return None  # it came twice, or goes on in the next line
    return ChangingHead(head[:start], head[stop:], request, max_bytes - len(head) + stop - start)


_LENGTHS = re.compile(
    rb"\r\n(content-length|inference-header-content-length):[ \t]*", re.IGNORECASE
)
_MOST_DIGITS = 15


class KnownHead:
    """A head that was read, around the lengths in which the next one may differ."""

    __slots__ = ("_after", "_fields", "_request")

    def __init__(
        self, fields: list[tuple[bytes, bytes]], after: bytes, request: HttpRequest
    ) -> None:
        self._fields = fields  # names, and the text before each value
        self._after = after
        self._request = request

    def request(self, head: bytes) -> HttpRequest | None:
        """Return what a head says that differs in nothing else; None for any other.

        It has no body yet.
        """
        at = 0
        changed = {}
        for name, before in self._fields:
            if not head.startswith(before, at):
                return None
            at += len(before)
            stop = head.find(b"\r", at)
            value = head[at:stop]
            if not value.isdigit() or len(value) > _MOST_DIGITS:
                return None
            changed[name] = value
            at = stop
        if head[at:] != self._after:
            return None
        known = self._request
        return HttpRequest(
            known.method,
            known.target,
            known.headers | changed,
            known.is_kept_alive,
            known.is_http_10,
        )


def known_head(head: bytes, request: HttpRequest) -> KnownHead:
    """Return what of `head`, which said `request`, the next ones may repeat."""
    fields = []
    at = 0
    for found in _LENGTHS.finditer(head):
        name, start = found[1].lower(), found.end()
        stop = head.index(b"\r\n", start)
        # One that came twice has another value, and is repeated as it is.
        if request.headers.get(name) == head[start:stop].rstrip(b" \t"):
            fields.append((name, head[at:start]))
            at = stop
    return KnownHead(fields, head[at:], request)


def forwarded_of(
    fields: Iterable[tuple[bytes, ...]], forward: HeaderForward
) -> dict[str, str] | None:
    """Return what `forward` chooses among header `fields`, None for nothing."""
    return forward.chosen((text_of(name), text_of(value)) for name, value in fields) or None


def body_length(request: HttpRequest, max_bytes: int) -> int:
    """Return the declared length of the body, -1 for chunks (RFC 9112, section 6).

    Raises HttpError for a length that is not a number or above `max_bytes`.
    """
    headers = request.headers
    coding = headers.get(b"transfer-encoding")
    if coding is not None:
        if request.is_http_10:  # whoever forwarded this may not have understood it
            raise HttpError(400, "HTTP/1.0 has no Transfer-Encoding")
        if coding.strip().lower() != b"chunked":
            raise HttpError(501, "Transfer-Encoding other than chunked is not supported")
        if b"content-length" in headers:
            raise HttpError(400, "the request has both Transfer-Encoding and Content-Length")
        return -1
    declared = headers.get(b"content-length")
    if declared is None:
        return 0
    if not declared.isdigit():
        raise HttpError(400, "Content-Length must be one decimal number")
    length = int(declared) if len(declared) < 20 else max_bytes + 1
    if length > max_bytes:
        raise HttpError(413, f"the body is larger than the {max_bytes} bytes this server takes")
    return length


REASONS = {
    200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 403: b"Forbidden", 404: b"Not Found",
    405: b"Method Not Allowed", 408: b"Request Timeout", 409: b"Conflict",
    413: b"Content Too Large", 414: b"URI Too Long", 417: b"Expectation Failed",
    431: b"Request Header Fields Too Large", 500: b"Internal Server Error",
    501: b"Not Implemented", 503: b"Service Unavailable", 505: b"HTTP Version Not Supported",
    507: b"Insufficient Storage",
}  # fmt: skip


def encode_stream_head(answer: HttpAnswer, *, is_chunked: bool) -> bytes:
    """Return status line and headers of `answer`, whose body ends with chunks or the connection."""
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n%b%b\r\n" % (
        answer.status,
        REASONS[answer.status],
        answer.content_type,
        b"Transfer-Encoding: chunked\r\n" if is_chunked else b"",
        answer.headers,
    )


def encode_head(answer: HttpAnswer, length: int) -> bytes:
    """Return status line and headers of `answer`, whose body has `length` bytes."""
    start = _head_start(answer.status, answer.content_type)
    return b"%b%d\r\n%b\r\n" % (start, length, answer.headers)


@lru_cache(maxsize=256)
def _head_start(status: int, content_type: bytes) -> bytes:
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: " % (
        status,
        REASONS[status],
        content_type,
    )
