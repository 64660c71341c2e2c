"""The choice of an answer's content coding (RFC 9110, section 12.5.3)."""

from inferd.http.coding import WINDOW_BITS, coding_named

MIN_BYTES = 1024
"""Answers below this size are not compressed: identity is always allowed."""


def choose_coding(accept: bytes) -> bytes:
    """Return the coding that an Accept-Encoding prefers: b"gzip", b"deflate" or b"identity".

    The highest weight wins, the first listed on ties; `*` and unknown codings do not count.
    """
    best, best_weight = b"identity", 0.0
    for item in accept.split(b","):
        name, _, rest = item.partition(b";")
        name = coding_named(name)
        weight = _weight(rest)
        # A weight of 0 means "not acceptable" (RFC 9110, section 12.4.2), so it never wins.
        if (name in WINDOW_BITS or name == b"identity") and weight > best_weight:
            best, best_weight = name, weight
    return best


def _weight(parameter: bytes) -> float:
    name, _, value = parameter.partition(b"=")
    # Parameters other than the weight have no meaning here.
    if name.strip().lower() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
