"""Lifetime: how long one HTTP/1.1 connection is kept."""

import random

from inferd.http.limits import HttpLimits

_NEVER = float("inf")
_UNLIMITED = 1 << 60
_MOST_PIPELINED = 1000
"""How many requests a client may have sent ahead when its connection is to end."""


class Lifetime:
    """When a connection made at `now` is to end; chance keeps those made together from ending so.

    The last answer, when none of `answers_left` is left, tells the client. No answer beyond it is
    sent, except to requests that were on their way.
    """

    def __init__(self, limits: HttpLimits, now: float) -> None:
        self._limits = limits
        self._expires_at = _NEVER
        self.answers_left = _UNLIMITED
        if limits.max_connection_age_ms is not None:
            age_s = limits.max_connection_age_ms / 1000
            # As gRPC does it with its own connections' ages.
            self._expires_at = now + age_s * random.uniform(0.9, 1.1)
        if (most := limits.max_connection_requests) is not None:
            self.answers_left = most - (random.randint(0, most // 10) if most >= 100 else 0)

    def is_over(self, now: float) -> bool:
        """Return whether the connection is to end because of its age."""
        return now >= self._expires_at

    def has_idled(self, lasts_s: float) -> bool:
        """Return whether it is long enough for an end that there has been no request."""
        limits, is_ending = self._limits, self.answers_left <= 0
        return lasts_s > (limits.drain_window_s if is_ending else limits.idle_timeout_s)

    def may_go_on(self) -> bool:
        """Return whether a client that has sent more may have more answers than there are left."""
        return self.answers_left > -_MOST_PIPELINED

    def end(self) -> None:
        """Make the next answer the last."""
        self._expires_at = _NEVER
        self.answers_left = min(self.answers_left, 0)
