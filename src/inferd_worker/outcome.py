"""Outcome: checks of what execute has returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .pb_utils.error import kind_of
from .pb_utils.request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
from .pb_utils.response import InferenceResponse

if TYPE_CHECKING:
    from .open import OpenRequest
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
