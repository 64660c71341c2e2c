"""HeadTemplate: a request head with holes, the values in which the heads of one client differ.

Clients repeat their heads. One that differs from an earlier one only in an id or in lengths is
compared instead of parsed (docs/decisions/0054-templates.md).
"""

import re

from inferd.http.message import HttpRequest

_IN_VALUES = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
"""What a header's value may consist of (RFC 9110, section 5.5)."""

_LENGTH = b"content-length"


class Variations:
    """In which headers the heads of one client differ, beside the length of the body.

    The value of `id_name` is new in each, so no two of the heads are equal, but most differ in
    nothing else. The values of `length_names` are other lengths. All names are in lower case.
    """

    def __init__(self, id_name: bytes = b"", length_names: tuple[bytes, ...] = ()) -> None:
        self.id_name = id_name
        names = [_LENGTH, *length_names, *([id_name] if id_name else [])]
        pattern = rb"\r\n(%b):[ \t]*" % b"|".join(map(re.escape, names))
        self.holes = re.compile(pattern, re.IGNORECASE)


NO_VARIATIONS = Variations()

# Longer ones go to the parser, which refuses them properly.
_MOST_DIGITS = 15


class HeadTemplate:
    """What heads say that are alike but for their holes; `request` and `length` are the latest's.

    `length` is that of the body, -1 if it is chunked. `has_id`: the next head will have another id.
    """

    def __init__(
        self,
        holes: list[tuple[bytes, bytes]],
        after: bytes,
        request: HttpRequest,
        length: int,
        limits: tuple[int, int],
        id_name: bytes,
    ) -> None:
        self._holes = holes  # (name, text before the value)
        self._id_name = id_name
        self.has_id = any(name == id_name for name, _ in holes)
        self._after = after
        self._max_bytes, self._max_body_bytes = limits
        self.request = request
        self.length = length

    def read(self, buffer: bytearray | bytes, start: int, end: int) -> int:
        """Return the end of a head that differs in nothing but its holes; 0 if it does.

        Their values are put into the request that was parsed before.
        """
        at, length = start, self.length
        headers = self.request.headers
        changed: dict[bytes, bytes] = {}
        for name, before in self._holes:
            is_alike = buffer.startswith(before, at, end)
            at += len(before)
            if not is_alike or (stop := buffer.find(b"\r", at, end)) < 0:
                return 0
            value = bytes(buffer[at:stop])
            at = stop
            if name == self._id_name:
                # Removing the allowed bytes leaves the others, in one call in C.
                if value.translate(None, _IN_VALUES):
                    return 0
                changed[name] = value.strip(b" \t")
            elif value != headers[name]:
                if not value.isdigit() or len(value) > _MOST_DIGITS:
                    return 0
                changed[name] = value
                if name == _LENGTH:
                    length = int(value)
        after = self._after
        if not buffer.startswith(after, at, end):
            return 0
        at += len(after)
        if at - start > self._max_bytes or length > self._max_body_bytes:
            return 0  # which whoever parses it refuses
        headers.update(changed)
        self.length = length
        return at


def head_template(
    head: bytes,
    request: HttpRequest,
    length: int,
    variations: Variations,
    limits: tuple[int, int],
) -> HeadTemplate:
    """Return the template of `head`, parsed as `request` with a body of that `length`.

    `limits` are the most bytes of a head and of a body.
    """
    holes: list[tuple[bytes, bytes]] = []
    at = 0
    for found in variations.holes.finditer(head):
        name, start = found[1].lower(), found.end()
        stop = head.index(b"\r\n", start)
        # A repeated field has a joined value; its text must then stay the same.
        if request.headers.get(name) == head[start:stop].strip(b" \t"):
            holes.append((name, head[at:start]))
            at = stop
    return HeadTemplate(holes, head[at:], request, length, limits, variations.id_name)
