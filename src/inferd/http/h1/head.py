"""The request heads of one HTTP/1.1 connection: parsed, or recognized from earlier requests."""

import re
from string import ascii_letters, digits

from inferd.http.header_forward import HeaderForward
from inferd.http.known_head import (
    NO_VARIATIONS,
    ChangingHead,
    KnownHead,
    Variations,
    changing_head,
    known_head,
)
from inferd.http.message import NO_REQUEST, HttpError, HttpRequest, body_length, parse_head

_BARE_END = re.compile(rb"\n\r?\n")
_FIRST_BYTES = frozenset(f"{ascii_letters}{digits}!#$%&'*+-.^_`|~".encode())
"""What a method may begin with (RFC 9110, section 5.6.2); TLS and other protocols do not."""


MOST_HEADS = 8
"""How many heads a connection remembers to recognize similar ones, to other targets."""

MOST_TEXTS = 16
"""How many heads a connection remembers to recognize equal ones."""

MOST_REMEMBERED_BYTES = 2048
"""Longer heads are remembered only until the next one."""


class HeadReader:
    """Reads one head after the other and remembers some: most clients repeat the same ones.

    `head` is the text of the last one, `request` its parsed form, `length` the length of the body,
    -1 if chunked. If the last head has an id, which the next one will not repeat, it is in
    `changing`, and `head` is empty. `forward` chooses the headers that are forwarded; `variations`
    says in what the heads of one client differ.
    """

    __slots__ = (
        "_changing",
        "_forward",
        "_known",
        "_max_body_bytes",
        "_max_bytes",
        "_texts",
        "_variations",
        "changing",
        "head",
        "length",
        "request",
    )

    def __init__(
        self,
        max_bytes: int,
        max_body_bytes: int,
        forward: HeaderForward | None,
        variations: Variations = NO_VARIATIONS,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_body_bytes = max_body_bytes
        self._forward = forward
        self._variations = variations
        self._texts: dict[bytes, tuple[HttpRequest, int]] = {}
        self._known: list[KnownHead] = []
        self._changing: list[tuple[ChangingHead, HttpRequest, int]] = []
        self.head = b""
        self.changing: ChangingHead | None = None
        self.request = NO_REQUEST
        self.length = 0

    def read(self, head: bytes) -> None:
        """Read a head that differs from the last one. Raises HttpError."""
        # Heads with an id in them come first: their client never repeats one exactly.
        for changing, request, length in self._changing:
            if changing.read(head, 0, len(head)):
                self.head, self.changing, self.request, self.length = b"", changing, request, length
                return
        found = self._texts.get(head) or self._like_another(head)
        if found is not None:
            self.head, self.changing = head, None
            self.request, self.length = found
            return
        # After the known ones, which were short enough.
        if len(head) > self._max_bytes:
            raise self._too_large(head)
        request, length = self._parsed(head)
        self.head, self.request, self.length = head, request, length
        self.changing = None
        # Forwarded headers are chosen when a head is parsed, and would be the old ones.
        if self._forward is None:
            self.changing = changing_head(head, request, self._variations, self._max_bytes)
            if self.changing is not None:
                self.head = b""
                if len(head) <= MOST_REMEMBERED_BYTES:
                    latest = self._changing[1 - MOST_HEADS :]
                    self._changing = [*latest, (self.changing, request, length)]
                return
        if len(head) <= MOST_REMEMBERED_BYTES:
            self._remember(head, request, length)
            if self._forward is None:
                self._known = [
                    *self._known[1 - MOST_HEADS :],
                    known_head(head, request, self._variations),
                ]

    def _like_another(self, head: bytes) -> tuple[HttpRequest, int] | None:
        """Return request and body length of a head that differs from a known one only in lengths.

        None for any other head.
        """
        if len(head) > self._max_bytes or len(head) > MOST_REMEMBERED_BYTES:
            return None
        for known in self._known:
            request = known.request(head)
            if request is not None:
                length = body_length(request, self._max_body_bytes)
                self._remember(head, request, length)
                return request, length
        return None

    def _remember(self, head: bytes, request: HttpRequest, length: int) -> None:
        if len(self._texts) >= MOST_TEXTS:
            self._texts.clear()
        self._texts[head] = request, length

    def _parsed(self, head: bytes) -> tuple[HttpRequest, int]:
        request = parse_head(head, self._forward)
        expectation = request.headers.get(b"expect")
        if (
            expectation is not None
            and expectation.lower() != b"100-continue"
            and not request.is_http_10
        ):
            raise HttpError(417, "Expect may only be 100-continue")
        return request, body_length(request, self._max_body_bytes)

    def check_partial(self, buffer: bytearray, start: int, end: int) -> None:
        """Raise HttpError if buffer[start:end] can no longer become the head of a request."""
        if end - start > self._max_bytes:
            raise self._too_large(buffer[start:end])
        # Told at once, since such a client would wait for an answer until the timeout.
        if _BARE_END.search(buffer, start, end):
            raise HttpError(400, "the lines of a request head must end in CR LF")
        if buffer[start] not in _FIRST_BYTES:
            raise HttpError(400, "this is not HTTP/1.1; is the client speaking TLS or HTTP/2?")

    def _too_large(self, head: bytes | bytearray) -> HttpError:
        limit = self._max_bytes
        # The request line alone is too long.
        if not 0 <= head.find(b"\r\n") < limit:
            return HttpError(414, "the URL is too long")
        return HttpError(431, f"the request head is larger than {limit} bytes")


def unread_request(head: bytes | bytearray) -> HttpRequest:
    """Return a request with the target of a malformed or incomplete head, if it has one.

    The wording of a refusal depends on the target.
    """
    words = bytes(head.partition(b"\n")[0]).split(maxsplit=2)
    return HttpRequest(b"", words[1] if len(words) > 1 else b"", {}, False, False)
