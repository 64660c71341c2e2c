"""Batches that need not be joined: their inputs lie one behind the other (memory.batch_memory)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from inferd.core.request import InferRequest
from inferd.memory.batch_memory import BlockSlot


class BatchView(NamedTuple):
    """Requests in the order of their slots, and the memory in which their inputs lie in a row."""

    requests: Sequence[InferRequest]
    data: Any


def batch_view_of(requests: Sequence[InferRequest], *, keeps_order: bool) -> BatchView | None:
    """Return `requests`, two or more of one kind, as one view; None if they lie apart.

    The items of a batch have no order of their own, unless `keeps_order`. The pool that the first
    was received in learns which.
    """
    first = requests[0].slot
    if first is None:
        return None
    view = _as_view(first, requests, keeps_order=keeps_order)
    first.pool.note_joined(as_view=view is not None)
    return view


def _as_view(
    first: BlockSlot, requests: Sequence[InferRequest], *, keeps_order: bool
) -> BatchView | None:
    block, size_bytes = first.block, first.pool.slot_bytes
    if block is None or not all(_is_in(block, size_bytes, request) for request in requests):
        return None
    ordered = requests if keeps_order else sorted(requests, key=_index)
    start = _index(ordered[0])
    for offset, request in enumerate(ordered):
        if _index(request) != start + offset:
            return None
    return BatchView(ordered, block[start * size_bytes : (start + len(ordered)) * size_bytes])


def _is_in(block: object, size_bytes: int, request: InferRequest) -> bool:
    """Return whether all that `request` has is its slot in `block`."""
    slot = request.slot
    if slot is None or slot.block is not block or len(request.inputs) != 1:
        return False
    data = request.inputs[0].data
    if type(data) is not memoryview or data.nbytes != size_bytes:
        return False
    owner: object = data.obj
    return owner is block


def _index(request: InferRequest) -> int:
    slot = request.slot
    return slot.index if slot is not None else -1
