"""Overload: which requests are refused by their heads, retry hints, and how copies count."""

from typing import TYPE_CHECKING, Any

import numpy as np

from inferd.core.request import InferRequest
from inferd.errors import Overloaded
from inferd.memory.capacity import Capacity

if TYPE_CHECKING:
    from inferd.http.grpc.handler import Metadata
    from inferd.http.router import Routes

TAKEN_BYTES = 65536
"""A body up to this size is received even so: a new connection would cost the client more."""

RETRY_AFTER = b"Retry-After: %d\r\n" % Overloaded.retry_s
"""RFC 9110, section 10.2.3."""

RETRY_PUSHBACK: "Metadata" = [("grpc-retry-pushback-ms", f"{1000 * Overloaded.retry_s}")]
"""How long clients wait before they retry (gRPC Retry Design, A6, Pushback)."""


def check_head(capacity: Capacity, routes: "Routes", target: bytes, length: int) -> None:
    """Raise Overloaded or TooLarge for a request that would be refused once its body has arrived.

    `length` is the length of the body, -1 if the head does not say.
    """
    if not capacity.has_room(length):
        raise capacity.too_many_bytes(length)
    if capacity.is_full and not 0 <= length <= TAKEN_BYTES and routes.is_inference(target):
        raise capacity.too_many_requests()


def memory_of(length: int) -> memoryview:
    """Return memory for a body of `length` bytes. Raises Overloaded.

    Not a bytearray: that would zero memory that is about to be overwritten, and touch all of it
    even if the client never sends what it declared.
    """
    try:
        return np.empty(length, np.uint8).data
    except MemoryError:
        msg = "the server has no memory for the body; try again later"
        raise Overloaded(msg) from None


def copied_bytes(request: InferRequest, body: Any) -> int:
    """Return how many bytes the inputs of `request` take besides `body`, which they came in.

    Views of `body` and of the client's shared memory do not count.
    """
    owner = memoryview(body).obj
    shared = {id(span.view) for span in request.spans or () if not span.is_copy}
    size_bytes = 0
    for tensor in request.inputs:
        view = memoryview(tensor.data)
        if view.obj is not owner and id(tensor.data) not in shared:
            size_bytes += view.nbytes
    return size_bytes
