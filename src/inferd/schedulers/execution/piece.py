"""Batches that need not be joined: requests whose inputs lie in one piece (memory.batch_memory)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from inferd.core.request import InferRequest
from inferd.memory.batch_memory import Row


class Piece(NamedTuple):
    """Requests in the order of their rows, and the memory of their inputs: one behind the other."""

    requests: Sequence[InferRequest]
    data: Any


def piece_of(requests: Sequence[InferRequest], *, keeps_order: bool) -> Piece | None:
    """Return the piece that `requests`, two or more of one kind, are; None if they are apart.

    The items of a batch have no order of their own, unless `keeps_order`. Tells the strip that the
    first came in.
    """
    first = requests[0].row
    if first is None:
        return None
    piece = _found(first, requests, keeps_order=keeps_order)
    first.strip.note_joined(as_view=piece is not None)
    return piece


def _found(first: Row, requests: Sequence[InferRequest], *, keeps_order: bool) -> Piece | None:
    block, size_bytes = first.block, first.strip.row_bytes
    if block is None or not all(_is_in(block, size_bytes, request) for request in requests):
        return None
    ordered = requests if keeps_order else sorted(requests, key=_index)
    start = _index(ordered[0])
    for offset, request in enumerate(ordered):
        if _index(request) != start + offset:
            return None
    return Piece(ordered, block[start * size_bytes : (start + len(ordered)) * size_bytes])


def _is_in(block: object, size_bytes: int, request: InferRequest) -> bool:
    """Return whether all that `request` has is its row in `block`."""
    row = request.row
    if row is None or row.block is not block or len(request.inputs) != 1:
        return False
    data = request.inputs[0].data
    if type(data) is not memoryview or data.nbytes != size_bytes:
        return False
    owner: object = data.obj
    return owner is block


def _index(request: InferRequest) -> int:
    row = request.row
    return row.index if row is not None else -1
