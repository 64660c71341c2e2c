"""Heads of HTTP/1.1 answers (RFC 9112, sections 4 to 6)."""

import re
from functools import lru_cache
from typing import NamedTuple

from inferd.client.errors import BadAnswer

MAX_HEAD_BYTES = 65536
"""The longest head of an answer."""

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
        msg = f"the answer begins with {first[:60]!r}, which is no status line of HTTP"
        raise BadAnswer(msg)
    status = int(found[2])
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        # No space before the colon and no folded lines (RFC 9112, sections 5.1 and 5.2): both have
        # been used to smuggle.
        if not colon or not name or name != name.strip():
            msg = f"the answer has a header line {line[:60]!r}"
            raise BadAnswer(msg)
        key, value = name.lower(), value.strip(" \t")
        if key in headers:
            # Equal lengths may be taken as one, different ones must not (RFC 9110, section 8.6).
            if key == "content-length" and headers[key] != value:
                msg = "the answer has two lengths"
                raise BadAnswer(msg)
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
            msg = f"the answer has the transfer coding {coding[:60]!r}"
            raise BadAnswer(msg)
        return CHUNKED
    text = headers.get("content-length")
    if text is None:
        return UNTIL_CLOSED
    # int() accepts signs, spaces and digits of other scripts; more than 18 digits is no size of
    # memory.
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        msg = f"the answer has the length {text[:60]!r}"
        raise BadAnswer(msg)
    return int(text)


def chunk_size(line: bytes) -> int:
    """Return the size that the first line of a chunk says. Raises BadAnswer."""
    # Extensions of a chunk are ignored (RFC 9112, section 7.1.1).
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
        msg = f"the answer has a chunk of size {line[:60]!r}"
        raise BadAnswer(msg)
    return int(digits, 16)
