"""Rows: large bodies of V2 inferences that are received side by side (memory.batch_memory)."""

from inferd.api.coded_bodies import CODING
from inferd.http.message import HttpRequest
from inferd.memory.batch_memory import Row, Strips
from inferd.wire.v2 import binary as v2_binary

INFER_HEADER = v2_binary.HEADER.lower().encode()


def row_for(strips: Strips, request: HttpRequest, length: int, came: int) -> Row | None:
    """Return the row for the body of `request`, None if it is to have memory of its own.

    The body has `length` bytes, of which `came` are there: they must include its JSON part.
    """
    strip = strips.get(request.target)
    if strip is None or not strip.is_joined:
        return None
    headers = request.headers
    json_size = length - strip.row_bytes
    if not 0 < json_size <= came or headers.get(INFER_HEADER) != b"%d" % json_size:
        return None
    if CODING in headers:
        return None
    row = strip.place()
    return row if row.block is not None else None
