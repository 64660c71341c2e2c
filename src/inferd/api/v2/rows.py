"""Rows: large bodies of V2 inferences that are received side by side (memory.batch_memory)."""

from inferd.api.coded_bodies import CODING
from inferd.http.message import HttpRequest
from inferd.memory.batch_memory import LEAST_BYTES, BatchMemory, BlockSlot
from inferd.wire.v2.binary import HEADER_KEY


def slot_for(
    batch_memory: BatchMemory, request: HttpRequest, length: int, received: int
) -> BlockSlot | None:
    """Return the slot for the body of `request`, None if it is to have memory of its own.

    The body has `length` bytes, of which `received` are there: they must include its JSON part.
    """
    if length < LEAST_BYTES:
        return None
    pool = batch_memory.get(request.target)
    if pool is None or not pool.is_joined:
        return None
    headers = request.headers
    json_size = length - pool.slot_bytes
    if not 0 < json_size <= received or headers.get(HEADER_KEY) != b"%d" % json_size:
        return None
    if CODING in headers:
        return None
    slot = pool.place()
    return slot if slot.block is not None else None
