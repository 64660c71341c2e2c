"""Outcome: what execute has returned, checked, and handed back.

A response in the memory its request came in is handed back without a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .pb_utils.error import kind_of
from .pb_utils.request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
from .pb_utils.response import InferenceResponse
from .pb_utils.tensor import LENT_BYTES, data_of

if TYPE_CHECKING:
    from .line import Line
    from .open import OpenRequest
    from .packet import Payload
    from .pb_utils.request import InferenceRequest


def wanted_again(opens: list[OpenRequest], requests: list[InferenceRequest]) -> list[OpenRequest]:
    """Return the requests that an iterative model asks for again."""
    return [
        one
        for one, request in zip(opens, requests)
        if request._release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE and not one.is_closed
    ]


def odd_item(
    opens: list[OpenRequest],
    requests: list[InferenceRequest],
    responses: Any,
    *,
    is_iterative: bool,
) -> str:
    """Return what is wrong with `responses`, as many as there are requests; "" for nothing."""
    for one, request, response in zip(opens, requests, responses):
        is_again = request._release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
        if is_again and response is not None:
            return "returned a response to a request that it asks to be rescheduled"
        if response is None:
            if is_again and is_iterative:
                continue
            if is_again:
                return "asks for a request to be rescheduled, which needs iterative_sequence"
            if not one.has_sender and not one.is_closed:
                return "returned a list that holds None, expected InferenceResponse"
        elif not isinstance(response, InferenceResponse):
            return f"returned a list that holds {kind_of(response)}, expected InferenceResponse"
        elif one.is_closed:
            return "returned a response to a request that was answered by its response sender"
    return ""


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
