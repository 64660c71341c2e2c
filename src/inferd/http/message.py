"""HTTP/1.1 requests and answers, as the connection and the routes exchange them."""

import re
from functools import lru_cache
from typing import Any, Protocol, Self

import httptools

from inferd.http.header_forward import HeaderForward
from inferd.memory.buffer import Buffer
from inferd.record import Record

_HUGE_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*0*[1-9][0-9]{19,}[ \t]*\r\n", re.IGNORECASE)
"""A length that the parser refuses because it may not fit in 64 bits."""

_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")


NO_BODY = memoryview(b"")


class HttpRequest(Record):
    """A request: header names in lower case, the whole body (chunks joined, still compressed).

    `began_ns` is when the first part of the body arrived, by time.perf_counter_ns; 0 if the body
    arrived with the head, or requests are not timed. `forwarded` are the headers to be forwarded to
    the call, None if there are none. `notes` is where the call notes what it is about, if
    requests are logged (RequestLog).
    """

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
        notes: Any = None,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.is_kept_alive = is_kept_alive
        self.is_http_10 = is_http_10
        self.body = body
        self.began_ns = began_ns
        self.forwarded = forwarded
        self.notes = notes


NO_REQUEST = HttpRequest(b"", b"", {}, is_kept_alive=False, is_http_10=False)
"""Placeholder until there is a request."""


class Pieces(Protocol):
    """The rest of a body of unknown length, piece by piece.

    The receiver must read it to the end or close it, even if unread. Reading raises nothing but a
    cancellation. `filler` is a piece without meaning, sent to find out if a silent client is still
    there.
    """

    filler: bytes

    def __aiter__(self) -> Self:
        """Return self."""
        ...

    async def __anext__(self) -> bytes:
        """Return the next piece, never an empty one."""
        ...

    async def aclose(self) -> None:
        """Give up the rest."""
        ...


class HttpAnswer(Record):
    """An answer: `headers` are complete lines ending in CR LF; the length is added on sending.

    With `rest` the body goes on after `buffers` until `rest` has no more pieces.
    """

    def __init__(
        self,
        status: int,
        buffers: list[Buffer],
        content_type: bytes = b"application/json",
        headers: bytes = b"",
        rest: Pieces | None = None,
    ) -> None:
        self.status = status
        self.buffers = buffers
        self.content_type = content_type
        self.headers = headers
        self.rest = rest


# Well-formed, though the method may be unknown: "token SP request-target SP HTTP-version".
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) [^ ]+ HTTP/1\.[01]\r\n")


class HttpError(Exception):
    """A request that violates HTTP itself; the connection is closed after the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _Head:
    """The callbacks for httptools; `fields`, if it is a list, collects the headers one by one."""

    def __init__(self, fields: list[tuple[bytes, bytes]] | None) -> None:
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.fields = fields

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.lower()
        value = value.rstrip(b" \t")  # the parser keeps trailing white space
        headers = self.headers
        if key in headers:  # repeated fields form one list (RFC 9110, section 5.3)
            headers[key] += b", " + value
        else:
            headers[key] = value
        if self.fields is not None:
            self.fields.append((name, value))


def parse_head(head: bytes, forward: HeaderForward | None = None) -> HttpRequest:
    """Parse `head`, up to and including the empty line, into a request without its body.

    `forward` chooses the headers that are forwarded. Raises HttpError if the head is not valid
    HTTP/1.0 or HTTP/1.1.
    """
    fields: list[tuple[bytes, bytes]] = []
    collected = _Head(None if forward is None else fields)
    # A parser that has seen one head expects its body and would refuse another head.
    parser = httptools.HttpRequestParser(collected)
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass  # an offer to switch protocols, which may be ignored (RFC 9110, section 7.8)
    except httptools.HttpParserError as error:
        encoded = _with_encoded_target(head)
        # Only after a failure: looking at each target would cost all for a few.
        if encoded is not head:
            return parse_head(encoded, forward)
        raise _refused(head, error) from None
    version = parser.get_http_version()
    if version not in ("1.1", "1.0"):
        raise HttpError(505, f"HTTP version {version} is not spoken here, use 1.1")
    headers = collected.headers
    if b", " in headers.get(b"host", b""):  # RFC 9112, section 3.2; Triton accepts none at all
        raise HttpError(400, "the request has more than one Host")
    is_http_10 = version == "1.0"
    is_kept_alive = not is_http_10
    # The parser's should_keep_alive no longer knows the header once the message is complete.
    if connection := headers.get(b"connection"):
        wishes = {wish.strip().lower() for wish in connection.split(b",")}
        is_kept_alive = b"close" not in wishes and (not is_http_10 or b"keep-alive" in wishes)
    request = HttpRequest(parser.get_method(), collected.target, headers, is_kept_alive, is_http_10)
    if forward is not None:
        request.forwarded = forward.chosen_fields(fields)
    return request


def _refused(head: bytes, error: httptools.HttpParserError) -> HttpError:
    """Return what is wrong with a head that the parser refuses."""
    # What does not begin as HTTP is nothing of which a length says something.
    if line := _REQUEST_LINE.match(head):
        if _HUGE_LENGTH.search(head):
            return HttpError(413, "Content-Length says more than any server takes")
        if isinstance(error, httptools.HttpParserInvalidMethodError):  # RFC 9110, section 9.1
            return HttpError(501, f"there is no method {line[1].decode()} here")
    return HttpError(400, f"the request head is not valid HTTP/1.1: {error}")


def _with_encoded_target(head: bytes) -> bytes:
    """Return `head` with the non-ASCII bytes of its target percent-encoded.

    The parser refuses them, but some clients (curl, for one) send URLs as people type them.
    """
    line, end, rest = head.partition(b"\r\n")
    method, space, target = line.partition(b" ")
    if target.isascii():
        return head
    target = _BEYOND_ASCII.sub(lambda found: b"%%%02X" % found[0][0], target)
    return method + space + target + end + rest


def body_length(request: HttpRequest, max_bytes: int) -> int:
    """Return the declared length of the body, -1 if it is chunked (RFC 9112, section 6).

    Raises HttpError for a length that is invalid, ambiguous or above `max_bytes`.
    """
    headers = request.headers
    coding = headers.get(b"transfer-encoding")
    if coding is not None:
        if request.is_http_10:  # a proxy may not have understood it
            raise HttpError(400, "HTTP/1.0 has no Transfer-Encoding")
        if coding.strip().lower() != b"chunked":
            raise HttpError(501, "Transfer-Encoding other than chunked is not supported")
        if b"content-length" in headers:
            # RFC 9112, section 6.3: ambiguous, and how requests are smuggled.
            raise HttpError(400, "the request has both Transfer-Encoding and Content-Length")
        return -1
    declared = headers.get(b"content-length")
    if declared is None:
        return 0
    if not declared.isdigit():
        raise HttpError(400, "Content-Length must be one decimal number")
    # int() of a hostile length would be slow.
    length = int(declared) if len(declared) < 20 else max_bytes + 1
    if length > max_bytes:
        raise HttpError(413, f"the body is larger than the {max_bytes} bytes this server takes")
    return length


REASONS = {
    200: b"OK", 304: b"Not Modified", 308: b"Permanent Redirect", 400: b"Bad Request",
    401: b"Unauthorized", 403: b"Forbidden", 404: b"Not Found",
    405: b"Method Not Allowed", 408: b"Request Timeout", 409: b"Conflict",
    413: b"Content Too Large", 414: b"URI Too Long", 417: b"Expectation Failed",
    431: b"Request Header Fields Too Large", 500: b"Internal Server Error",
    501: b"Not Implemented", 503: b"Service Unavailable", 505: b"HTTP Version Not Supported",
    507: b"Insufficient Storage",
}  # fmt: skip


def encode_stream_head(answer: HttpAnswer, *, is_chunked: bool) -> bytes:
    """Return the status line and headers of an `answer` that is chunked or ends by closing."""
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n%b%b\r\n" % (
        answer.status,
        REASONS[answer.status],
        answer.content_type,
        b"Transfer-Encoding: chunked\r\n" if is_chunked else b"",
        answer.headers,
    )


def encode_head(answer: HttpAnswer, length: int) -> bytes:
    """Return the status line and headers of `answer`, whose body has `length` bytes."""
    start = _head_start(answer.status, answer.content_type)
    return b"%b%d\r\n%b\r\n" % (start, length, answer.headers)


# There are a few dozen pairs of status and type.
@lru_cache(maxsize=256)
def _head_start(status: int, content_type: bytes) -> bytes:
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: " % (
        status,
        REASONS[status],
        content_type,
    )
