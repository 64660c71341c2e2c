"""The request heads of one HTTP/1.1 connection: parsed, or recognized from earlier requests."""

import re
from string import ascii_letters, digits

from inferd.http.head_template import NO_VARIATIONS, HeadTemplate, Variations, head_template
from inferd.http.header_forward import HeaderForward
from inferd.http.message import NO_REQUEST, HttpError, HttpRequest, body_length, parse_head

_BARE_END = re.compile(rb"\n\r?\n")
_ORIGIN = re.compile(rb"^origin:[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_FIRST_BYTES = frozenset(f"{ascii_letters}{digits}!#$%&'*+-.^_`|~".encode())
"""What a method may begin with (RFC 9110, section 5.6.2); TLS and other protocols do not."""


MOST_HEADS = 8
"""How many templates a connection keeps: heads of requests to other targets."""

MOST_TEXTS = 16
"""How many heads a connection keeps as they are, to find those that are equal."""

MOST_REMEMBERED_BYTES = 2048
"""Longer heads are remembered only until the next one."""


class HeadReader:
    """Reads one head after the other and keeps templates: most clients repeat the same ones.

    `head` is the text of the last one, `request` its parsed form, `length` the length of the body,
    -1 if chunked. If the last head has an id, which the next one will not repeat, its template is
    in `changing`, and `head` is empty. `forward` chooses the headers that are forwarded: then only
    equal heads are alike. `variations` says in what the heads of one client differ.
    """

    def __init__(
        self,
        max_bytes: int,
        max_body_bytes: int,
        forward: HeaderForward | None,
        variations: Variations = NO_VARIATIONS,
    ) -> None:
        self._limits = max_bytes, max_body_bytes
        self._forward = forward
        self._variations = variations
        self._templates: list[HeadTemplate] = []
        self._texts: dict[bytes, tuple[HttpRequest, int]] = {}
        self.head = b""
        self.changing: HeadTemplate | None = None
        self.request = NO_REQUEST
        self.length = 0

    def read(self, head: bytes) -> None:
        """Read a head that differs from the last one. Raises HttpError."""
        # Heads to several models by turns: a search by hash takes a tenth of comparing them.
        if known := self._texts.get(head):
            self.head, self.changing = head, None
            self.request, self.length = known
            return
        found: HeadTemplate | None = None
        for template in self._templates:
            if template.read(head, 0, len(head)):
                found = template
                break
        if found is None:
            found = self._learned(head)
        self.request, self.length = found.request, found.length
        if found.has_id:
            self.head, self.changing = b"", found
            return
        self.head, self.changing = head, None
        if len(head) <= MOST_REMEMBERED_BYTES:
            self._remember(head)

    def _remember(self, head: bytes) -> None:
        if len(self._texts) >= MOST_TEXTS:
            self._texts.clear()
        found = self.request
        # Its own, as the template fills its request anew.
        self.request = HttpRequest(
            found.method,
            found.target,
            found.headers.copy(),
            found.is_kept_alive,
            found.is_http_10,
            forwarded=found.forwarded,
        )
        self._texts[head] = self.request, self.length

    def _learned(self, head: bytes) -> HeadTemplate:
        """Return the template of `head`, which is like none before."""
        if len(head) > self._limits[0]:
            raise self._too_large(head)
        request, length = self._parsed(head)
        # Forwarded headers are chosen when a head is parsed, and would be the old ones.
        if self._forward is None:
            template = head_template(head, request, length, self._variations, self._limits)
        else:
            template = HeadTemplate([], head, request, length, self._limits, b"")
        if len(head) <= MOST_REMEMBERED_BYTES:
            self._templates = [*self._templates[1 - MOST_HEADS :], template]
        return template

    def _parsed(self, head: bytes) -> tuple[HttpRequest, int]:
        request = parse_head(head, self._forward)
        expectation = request.headers.get(b"expect")
        if (
            expectation is not None
            and expectation.lower() != b"100-continue"
            and not request.is_http_10
        ):
            raise HttpError(417, "Expect may only be 100-continue")
        return request, body_length(request, self._limits[1])

    def check_partial(self, buffer: bytearray, start: int, end: int) -> None:
        """Raise HttpError if buffer[start:end] can no longer become the head of a request."""
        if end - start > self._limits[0]:
            raise self._too_large(buffer[start:end])
        # Told at once, since such a client would wait for an answer until the timeout.
        if _BARE_END.search(buffer, start, end):
            raise HttpError(400, "the lines of a request head must end in CR LF")
        if buffer[start] not in _FIRST_BYTES:
            raise HttpError(400, "this is not HTTP/1.1; is the client speaking TLS or HTTP/2?")

    def _too_large(self, head: bytes | bytearray) -> HttpError:
        limit = self._limits[0]
        # The request line alone is too long.
        if not 0 <= head.find(b"\r\n") < limit:
            return HttpError(414, "the URL is too long")
        return HttpError(431, f"the request head is larger than {limit} bytes")


def unread_request(head: bytes | bytearray) -> HttpRequest:
    """Return a request with the target and origin of a refused or incomplete head, if it has them.

    The wording of a refusal depends on the target, and on the origin whether a page may read it.
    """
    line, _, rest = head.partition(b"\n")
    words = bytes(line).split(maxsplit=2)
    origin = _ORIGIN.search(rest.partition(b"\r\n\r\n")[0])
    headers = {} if origin is None else {b"origin": bytes(origin[1]).rstrip()}
    return HttpRequest(b"", words[1] if len(words) > 1 else b"", headers, False, False)
