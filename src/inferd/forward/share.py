"""Shares: how far the answers of a forwarded stream may be ahead of their reader."""

from inferd.core.request import InferResponse

# Enough for small answers to be on their way while the reader takes one.
WINDOW = 16
"""How many shares may be under way; the reader gives each back when it takes an answer."""

WINDOW_BYTES = 1 << 20
"""About how many bytes these are; an answer larger than this travels alone."""


def share_of(answer: InferResponse) -> int:
    """Return how much of WINDOW an answer takes."""
    size_bytes = sum([tensor.size_bytes for tensor in answer.outputs])
    # At least one share each, so that the number of answers under way is bounded, too.
    return min(1 + size_bytes * WINDOW // WINDOW_BYTES, WINDOW)
