"""Overload: which requests are refused by their heads, and the hints when to try again."""

import numpy as np

from inferd.errors import Overloaded
from inferd.http.routes import Routes
from inferd.memory.capacity import Capacity

TAKEN_BYTES = 65536
"""A body up to this size is received even so: a new connection would cost the client more."""

RETRY_AFTER = b"Retry-After: %d\r\n" % Overloaded.retry_s
"""RFC 9110, section 10.2.3."""


def check_head(capacity: Capacity, routes: Routes, target: bytes, length: int) -> None:
    """Raise the error of a request that would be refused once its body has arrived.

    `length` is the length of the body, -1 if the head does not say.
    """
    if not 0 <= length <= TAKEN_BYTES:
        routes.check_length(target, length)
    if not capacity.has_room(length):
        raise capacity.too_many_bytes(length)
    if capacity.is_full and not 0 <= length <= TAKEN_BYTES and routes.is_refusable(target):
        raise capacity.too_many_requests()


def memory_of(length: int) -> memoryview:
    """Return memory for a body of `length` bytes. Raises Overloaded.

    Not a bytearray: that would zero memory that is about to be overwritten, and touch all of it
    even if the client never sends what it declared.
    """
    try:
        return np.empty(length, np.uint8).data
    except MemoryError:
        raise Overloaded("the server has no memory for the body; try again later") from None
