"""Keepalive: the pings of one HTTP/2 connection, the client's and ours (gRPC's keepalive)."""

from typing import Final

from inferd.http.grpc.endpoint import GrpcEndpoint
from inferd.http.h2.frames import ErrorCode
from inferd.http.h2.sender import H2Sender

PING_WITHOUT_CALLS_S: Final = 7200.0
"""Minimum time between a client's pings while it has no calls (gRPC keepalive, ping strikes)."""

# Any eight bytes; they only have to differ from those of the drain.
_PAYLOAD: Final = b"areuhere"
_NEVER: Final = float("inf")


class Keepalive:
    """Whether the client pings too often, and whether it still answers our pings."""

    def __init__(self, endpoint: GrpcEndpoint, sender: H2Sender) -> None:
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._sender = sender
        self._pinged_at: float | None = None
        self._pings_without_data = 0
        self._sent_at_ping = 0
        self._client_pinged_at = -_NEVER
        self._sent_at_client_ping = 0
        self._strikes = 0

    def note_ping(self) -> None:
        """Note a ping of the client; end the connection if they come more often than they may."""
        now, limits, sender = self._endpoint.clock(), self._limits, self._sender
        may_ping = bool(sender.handlers) or limits.keepalive_permit_without_calls
        least_s = limits.http2_min_recv_ping_interval_without_data_ms / 1000
        # gRPC's rule: data in between resets the strikes.
        if sender.frames_sent != self._sent_at_client_ping:
            self._strikes = 0
        elif now - self._client_pinged_at < (least_s if may_ping else PING_WITHOUT_CALLS_S):
            self._strikes += 1
            if 0 < limits.http2_max_ping_strikes < self._strikes:
                # The code and text by which gRPC clients know that they have to ping less often.
                sender.fail(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
        self._client_pinged_at = now
        self._sent_at_client_ping = sender.frames_sent

    def is_alive(self, now: float, read_at: float) -> bool:
        """Return False if the client has not answered a ping in time; `read_at`: it last sent then.

        A client that has been quiet gets a ping.
        """
        limits, sender = self._limits, self._sender
        if self._pinged_at is not None:
            # Whatever has come since shows that the client lives; it need not be the answer itself.
            if read_at >= self._pinged_at:
                self._pinged_at = None
            elif now - self._pinged_at > limits.keepalive_timeout_ms / 1000:
                return False
        if sender.frames_sent != self._sent_at_ping:
            self._pings_without_data, self._sent_at_ping = 0, sender.frames_sent
        limit = limits.http2_max_pings_without_data
        if (
            self._pinged_at is None
            and now - read_at > limits.keepalive_time_ms / 1000
            and (sender.handlers or limits.keepalive_permit_without_calls)
            and not 0 < limit <= self._pings_without_data
        ):
            self._pinged_at = now
            self._pings_without_data += 1
            sender.ping(_PAYLOAD)
        return True
