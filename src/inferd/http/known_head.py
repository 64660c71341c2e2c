"""Request heads that are known from earlier ones, except for a few values."""

import re

from inferd.http.message import HttpRequest

_IN_VALUES = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
"""What a header's value may consist of (RFC 9110, section 5.5)."""


class Variations:
    """In which headers the heads of one client differ, beside the length of the body.

    The value of `id_name` is new in each, so no two of the heads are equal, but most differ in
    nothing else. The values of `length_names` are other lengths. All names are in lower case.
    """

    __slots__ = ("id_line", "id_name", "lengths")

    def __init__(self, id_name: bytes = b"", length_names: tuple[bytes, ...] = ()) -> None:
        self.id_name = id_name
        self.id_line = re.compile(rb"\r\n%b:" % re.escape(id_name), re.IGNORECASE)
        names = b"|".join(map(re.escape, (b"content-length", *length_names)))
        self.lengths = re.compile(rb"\r\n(%b):[ \t]*" % names, re.IGNORECASE)


NO_VARIATIONS = Variations()


class ChangingHead:
    """A head that is known except for the value of its header `name`."""

    __slots__ = ("_after", "_before", "_name", "_request", "_room")

    def __init__(
        self, name: bytes, before: bytes, after: bytes, request: HttpRequest, room: int
    ) -> None:
        self._name = name
        self._before = before
        self._after = after
        self._request = request
        self._room = room  # the longest value, in bytes

    def read(self, buffer: bytearray | bytes, start: int, end: int) -> int:
        """Return the end of a head that differs in nothing else; 0 if it does.

        Its value is put into the request that was parsed before.
        """
        before = self._before
        if not buffer.startswith(before, start, end):
            return 0
        start += len(before)
        stop = buffer.find(b"\r", start, end)
        if not 0 <= stop - start <= self._room or not buffer.startswith(self._after, stop, end):
            return 0
        value = bytes(buffer[start:stop])
        # Removing the allowed bytes leaves the others, in one call in C.
        if value.translate(None, _IN_VALUES):
            return 0
        self._request.headers[self._name] = value.strip(b" \t")
        return stop + len(self._after)


def changing_head(
    head: bytes, request: HttpRequest, variations: Variations, max_bytes: int
) -> ChangingHead | None:
    """Return what the next heads may repeat of `head`, parsed as `request`; None without an id.

    With its own value each may have up to `max_bytes`.
    """
    name = variations.id_name
    value = request.headers.get(name)
    found = variations.id_line.search(head) if value is not None else None
    if found is None:
        return None
    start = found.end()
    stop = head.index(b"\r\n", start)
    if value != head[start:stop].strip(b" \t"):
        return None  # the field is repeated, or continues on the next line
    room = max_bytes - len(head) + stop - start
    return ChangingHead(name, head[:start], head[stop:], request, room)


# Longer ones go to the parser, which refuses them properly.
_MOST_DIGITS = 15


class KnownHead:
    """A head that is known except for the values of its length fields."""

    __slots__ = ("_after", "_fields", "_request")

    def __init__(
        self, fields: list[tuple[bytes, bytes]], after: bytes, request: HttpRequest
    ) -> None:
        self._fields = fields  # (name, text before the value)
        self._after = after
        self._request = request

    def request(self, head: bytes) -> HttpRequest | None:
        """Return the request, still without a body, of a head that differs only in its lengths.

        None for any other head.
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


def known_head(head: bytes, request: HttpRequest, variations: Variations) -> KnownHead:
    """Return what the next heads may repeat of `head`, parsed as `request`."""
    fields = []
    at = 0
    for found in variations.lengths.finditer(head):
        name, start = found[1].lower(), found.end()
        stop = head.index(b"\r\n", start)
        # A repeated field has a joined value; its text must then stay the same.
        if request.headers.get(name) == head[start:stop].rstrip(b" \t"):
            fields.append((name, head[at:start]))
            at = stop
    return KnownHead(fields, head[at:], request)
