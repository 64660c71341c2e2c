"""The head of an HTTP/2 request: pseudo-header fields and field rules (RFC 9113, section 8)."""

import re
from functools import lru_cache
from typing import Any, Final

from inferd.http.h2.hpack import Field
from inferd.record import Record


class MalformedRequest(Exception):
    """The fields break a rule of RFC 9113, section 8: the stream ends with PROTOCOL_ERROR."""


class RequestHead(Record):
    """A decoded request header block; names are in lower case, as required on the wire.

    One head serves every request of a connection that repeats its block, so it is never changed,
    except that the application keeps what it has derived from it in `use`, and may have `fields`
    trimmed before the first use. `fields` exclude pseudo-header fields, one of which is
    `authority`; `size` counts all fields as SETTINGS_MAX_HEADER_LIST_SIZE does.
    `content_length` is -1 when the request does not give it. `base`, if set, is a head from which
    this one differs only in the values of the fields `changed`.
    """

    def __init__(  # noqa: PLR0913
        self,
        method: bytes,
        path: bytes,
        fields: list[Field],
        size: int,
        content_length: int = -1,
        use: Any = None,
        base: "RequestHead | None" = None,
        changed: list[Field] | None = None,
        authority: bytes = b"",
    ) -> None:
        self.method = method
        self.path = path
        self.fields = fields
        self.size = size
        self.content_length = content_length
        self.use = use
        self.base = base
        self.changed = [] if changed is None else changed
        self.authority = authority


_PSEUDO: Final = frozenset((b":method", b":path", b":scheme", b":authority"))
_HOP_BY_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
# Lower case only (section 8.2.1).
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_SPACE: Final = b" \t"  # by RFC 9113 no value begins or ends with it
_LENGTH = re.compile(rb"[0-9]+")
_MOST_REMEMBERED: Final = 64  # bytes of a name
_MOST_DIGITS: Final = 18  # no real length has more, so longer ones count as the largest of these


def decode_request_head(fields: list[Field], size: int) -> RequestHead:
    """Return the request head for `fields`. Raises MalformedRequest."""
    pseudo: dict[bytes, bytes] = {}
    count = 0
    for name, value in fields:
        if not name.startswith(b":"):
            break
        is_padded = value.strip(_SPACE) != value
        if name not in _PSEUDO or name in pseudo or is_padded or not _is_clean(value):
            raise MalformedRequest(_named("pseudo-header field", name))
        pseudo[name] = value
        count += 1
    ordinary = fields[count:]
    length = check_fields(ordinary)
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if method == b"CONNECT":  # section 8.5
        if path or b":scheme" in pseudo or not pseudo.get(b":authority"):
            raise MalformedRequest("CONNECT has :authority and neither :path nor :scheme")
    elif not method or not path or not pseudo.get(b":scheme"):
        raise MalformedRequest("a request needs :method, :scheme and :path, none of them empty")
    elif not path.startswith(b"/") and (path, method) != (b"*", b"OPTIONS"):
        raise MalformedRequest("the :path of a request begins with a slash")
    authority = pseudo.get(b":authority", b"")
    return RequestHead(method, path, ordinary, size, length, authority=authority)


class BaseHead:
    """A head that others differ from only in some values: its fields as received, and the head.

    A client whose deadlines, ids and traces differ from call to call changes nothing else.
    """

    def __init__(self, fields: list[Field], head: RequestHead) -> None:
        self.fields = fields
        self.head = head
        self._are_plain = [len(name) <= _MOST_REMEMBERED and _is_plain(name) for name, _ in fields]

    def renewed(self, fields: list[Field], size: int) -> RequestHead | None:
        """Return the head of `fields` if only values of fields without special rules differ.

        Return None for any other list, including malformed ones: it must be decoded.
        """
        ours, base = self.fields, self.head
        count = len(fields)
        if count != len(ours):
            return None
        changed: list[Field] = []
        for at in range(count):
            field, known = fields[at], ours[at]
            # Fields from HPACK's tables are the same objects each time.
            if field is known:
                continue
            name, value = field[0], field[1]
            if name is not known[0] and name != known[0]:
                return None
            if value == known[1]:
                continue
            # The usual values, in a single call.
            if not (self._are_plain[at] and (value.isalnum() or _is_clean(value))):
                return None
            changed.append(field)
        ordinary = fields[count - len(base.fields) :]
        return RequestHead(
            base.method,
            base.path,
            ordinary,
            size,
            base.content_length,
            None,
            base,
            changed,
            base.authority,
        )


def check_fields(fields: list[Field]) -> int:
    """Check field names and values (sections 8.2.1 and 8.2.2); return the content length, or -1.

    Raises MalformedRequest.
    """
    length = -1
    for name, value in fields:
        is_plain = len(name) <= _MOST_REMEMBERED and _is_plain(name)
        if not is_plain and not _NAME.fullmatch(name):
            raise MalformedRequest(_named("field name", name))
        if not _is_clean(value):
            raise MalformedRequest(_named("value of field", name))
        if is_plain:
            continue
        value = value.strip(_SPACE)
        if name in _HOP_BY_HOP or (name == b"te" and value.lower() != b"trailers"):
            raise MalformedRequest(_named("connection-specific field", name))
        if name == b"content-length":
            # Equal lengths given twice are one (RFC 9110, section 8.6).
            if not _LENGTH.fullmatch(value) or length not in (-1, _number(value)):
                raise MalformedRequest("content-length must be one decimal number")
            length = _number(value)
    return length


def _is_clean(value: bytes) -> bool:
    """Return whether a value has no NUL, CR or LF.

    Spaces around it, which section 8.2.1 forbids as well, are taken: gRPC's own servers take them
    in metadata, and pass them on.
    """
    return 0 not in value and 13 not in value and 10 not in value


def trimmed(fields: list[Field]) -> list[Field]:
    """Return `fields` without spaces around their values, as HTTP/1.1 reads them."""
    return [(name, value.strip(_SPACE)) for name, value in fields]


@lru_cache(maxsize=1024)
def _is_plain(name: bytes) -> bool:
    """Return whether `name` is a valid field name without special rules; cached: names repeat."""
    is_special = name in _HOP_BY_HOP or name in (b"te", b"content-length")
    return not is_special and _NAME.fullmatch(name) is not None


def _number(digits: bytes) -> int:
    digits = digits.lstrip(b"0") or b"0"
    return int(digits if len(digits) <= _MOST_DIGITS else b"9" * _MOST_DIGITS)


def _named(what: str, name: bytes) -> str:
    return f"the {what} {name[:40]!r} is not allowed here"
