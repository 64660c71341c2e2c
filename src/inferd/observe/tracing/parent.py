"""Parent: the client's own span that a request belongs to (W3C Trace Context, traceparent)."""

import re
from typing import NamedTuple

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Parent(NamedTuple):
    """The ids of a span; `is_sampled`: the client records it and wants its children recorded."""

    trace_id: int
    span_id: int
    is_sampled: bool


def read_parent(traceparent: str) -> Parent | None:
    """Return the parent in the header `traceparent`, None when the header is invalid.

    Version 00 has exactly four fields; later versions may have more.
    """
    match = _TRACEPARENT.fullmatch(traceparent.strip())
    # A version of ff is invalid (W3C Trace Context, section 2.2.1).
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    parent = Parent(int(match[2], 16), int(match[3], 16), bool(int(match[4], 16) & 1))
    # All zeros are invalid as well (section 2.2.2).
    return parent if parent.trace_id and parent.span_id else None
