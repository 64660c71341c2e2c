"""Capacity: how much the whole server may have under way at once, across all protocols."""

from inferd.errors import InferdError, Overloaded, TooLarge

UNLIMITED = (1 << 62) - 1
"""More than there will ever be, and still an unboxed integer in compiled code."""


class Capacity:
    """Counts and limits the inferences under way, and the bytes of requests in memory.

    The engine counts an inference while it runs; the steps of an ensemble are part of its one.
    Transports count the bytes of bodies and messages from their arrival until they are answered,
    and of their inflated form, or of what a thread parses from text. What is small and comes in
    one piece is not counted: the number of requests bounds it. All this is on the event loop, so
    these are plain integers. Without limits nothing is ever refused.
    """

    def __init__(self, max_requests: int = UNLIMITED, max_bytes: int = UNLIMITED) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.request_count = 0
        self.buffered_bytes = 0
        self.refused_for_requests = 0
        self.refused_for_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether one more inference would be refused."""
        return self.request_count >= self.max_requests

    def hold(self, size_bytes: int) -> bool:
        """Add `size_bytes`, which may be negative, to those in memory; tell if that is allowed."""
        # Added even if it is too much: the caller refuses, and gives back what it held, in one way.
        self.buffered_bytes += size_bytes
        return self.buffered_bytes <= self.max_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether `hold` of that many more bytes would return True."""
        return self.buffered_bytes + size_bytes <= self.max_bytes

    def too_many_requests(self) -> Overloaded:
        """Count a request refused because of the requests under way; return the error."""
        self.refused_for_requests += 1
        return Overloaded(
            f"the server has {self.request_count} requests under way, as many as it takes "
            f"(--max-inflight-requests); try again later"
        )

    def too_many_bytes(self, size_bytes: int) -> InferdError:
        """Count a request refused because of the bytes in memory; return the error.

        A request whose own `size_bytes` exceed the limit is too large: it is not counted, and
        sending it again is of no use.
        """
        # Another status than for a busy server: clients try that
        # again, and would do so in vain here.
        if size_bytes > self.max_bytes:
            return TooLarge(
                f"the request has {size_bytes} bytes or more, the server holds at most "
                f"{self.max_bytes} of all requests together (--max-inflight-bytes)"
            )
        self.refused_for_bytes += 1
        return Overloaded(
            f"the server holds as much request data as it may, {self.max_bytes} bytes "
            f"(--max-inflight-bytes); try again later"
        )
