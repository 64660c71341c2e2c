"""Handing: a response in the memory its request came in is handed back without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .pb_utils.tensor import LENT_BYTES, data_of

if TYPE_CHECKING:
    from .line import Line
    from .packet import Payload


def hand_over(
    returned: list[Any], wanted: list[str] | None, payload: Payload, line: Line
) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Return the packet's description of the outputs of a response, and the blocks it claims.

    `returned` holds the model's return value, a list of this one response, and is emptied: if any
    frame referred to the response, the model would seem to have kept it. Bytes in a block that
    nobody refers to any more are named; others are added to `payload`, since their holder might
    change them before the client has read them. Raises TritonModelException.
    """
    tensors = [
        (tensor._name, tensor._datatype, tensor._shape, data_of(tensor))
        for tensor in returned[0][0]._tensors
        if wanted is None or tensor._name in wanted
    ]
    returned.clear()
    datas = [tensor[3] for tensor in tensors]
    heads = [tensor[:3] for tensor in tensors]
    # The tuples in it refer to the arrays, and a claim counts references.
    del tensors
    places = _claimed(datas, line)
    outputs = [
        (*head, *places[index]) if index in places else (*head, *payload.add(datas[index]))
        for index, head in enumerate(heads)
    ]
    # Sorted, so that equal responses make equal documents, which both sides cache.
    return outputs, sorted({block for *_, block in places.values()})


def _claimed(datas: list[Any], line: Line) -> dict[int, tuple[int, int, int]]:
    """Claim the blocks that hold `datas`; return offset, size and block by index."""
    found: dict[int, tuple[Any, dict[int, tuple[int, int, int]]]] = {}
    for index in range(len(datas)):  # by index, to keep no reference to an array
        if type(datas[index]) is not np.ndarray or datas[index].nbytes <= LENT_BYTES:
            continue
        place = line.find(datas[index])
        if place is not None:
            block, at = place
            _, there = found.setdefault(block.offset, (block, {}))
            there[index] = at, datas[index].nbytes, block.offset
    places: dict[int, tuple[int, int, int]] = {}
    for block, there in found.values():
        if sum(size for _, size, _ in there.values()) * 2 < block.size:
            continue  # a slow client would hold the whole block for a small part
        retained = line.received.claim(block, datas, list(there))
        if retained is None:
            places.update(there)
        else:
            for index, (at, size, _) in there.items():
                datas[index] = retained[at : at + size]
    return places
