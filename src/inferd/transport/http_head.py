"""The heads of one HTTP/1.1 connection: parsed, or known from the request before."""

import re
from typing import cast

from inferd.transport.header_forward import HeaderForward
from inferd.transport.http_message import (
    ChangingHead,
    HttpError,
    HttpRequest,
    body_length,
    changing_head,
    parse_head,
)

_BARE_END = re.compile(rb"\n\r?\n")
_FIRST_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_")


class HeadReader:
    """Reads one head after the other, and keeps the last one: most clients send it again.

    `head` is its text, `request` what it says, `length` that of the body, -1 for chunks. A head in
    which a part changes is `changing` instead, and `head` is empty. `forward` chooses the headers
    that become parameters.
    """

    __slots__ = (
        "_forward",
        "_max_body_bytes",
        "_max_bytes",
        "changing",
        "head",
        "length",
        "request",
    )

    def __init__(self, max_bytes: int, max_body_bytes: int, forward: HeaderForward | None) -> None:
        self._max_bytes = max_bytes
        self._max_body_bytes = max_body_bytes
        self._forward = forward
        self.head = b""
        self.changing: ChangingHead | None = None
        self.request = cast("HttpRequest", None)
        self.length = 0

    def read(self, head: bytes) -> tuple[HttpRequest, int]:
        """Return what a head says that is not the last one, and how long its body is.

        Raises HttpError.
        """
        if len(head) > self._max_bytes:
            raise self._too_large(head)
        request = parse_head(head, self._forward)
        expectation = request.headers.get(b"expect")
        if (
            expectation is not None
            and expectation.lower() != b"100-continue"
            and not request.is_http_10
        ):
            raise HttpError(417, "Expect may only be 100-continue")
        length = body_length(request, self._max_body_bytes)
        self.head, self.request, self.length = head, request, length
        if self._forward is None:
            self.changing = changing_head(head, request, self._max_bytes)
            if self.changing is not None:
                self.head = b""
        return request, length

    def check_partial(self, buffer: bytearray, start: int, end: int) -> None:
        """Raise HttpError if what lies there cannot become the head of a request any more."""
        if end - start > self._max_bytes:
            raise self._too_large(buffer[start:end])
        if _BARE_END.search(buffer, start, end):
            raise HttpError(400, "the lines of a request head must end in CR LF")
        if buffer[start] not in _FIRST_BYTES:
            raise HttpError(400, "this is not HTTP/1.1; is the client speaking TLS or HTTP/2?")

    def _too_large(self, head: bytes | bytearray) -> HttpError:
        limit = self._max_bytes
        if not 0 <= head.find(b"\r\n") < limit:
            return HttpError(414, "the URL is too long")
        return HttpError(431, f"the request head is larger than {limit} bytes")


def unread_request(head: bytes | bytearray) -> HttpRequest:
    """Return the request that a broken or unfinished head begins, with what it shows of its target.

    The words of a refusal depend on that.
    """
    words = bytes(head.partition(b"\n")[0]).split(maxsplit=2)
    return HttpRequest(b"", words[1] if len(words) > 1 else b"", {}, False, False)
