"""HttpLimits and GrpcLimits: what the connections of a port may ask for.

This module is not compiled, as other layers add their own options to these classes: compiled
functions take a Struct of a compiled module only if it is exactly of that class.
"""

import msgspec


class HttpLimits(msgspec.Struct, frozen=True):
    """The limits of the connections; sizes in bytes, times in seconds.

    A connection that is to end for its age, after `max_connection_requests`, or because the server
    stops tells its client with the next answer. It is closed at once only after `drain_window_s`
    without a request.
    """

    max_header_bytes: int
    max_body_bytes: int
    max_connections: int
    idle_timeout_s: float
    header_timeout_s: float
    body_timeout_s: float
    write_timeout_s: float
    max_connection_age_ms: int | None
    max_connection_requests: int | None
    drain_window_s: float


class GrpcLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the connections and their calls.

    `compression_level`: none, low, medium or high; answers are compressed with a coding that the
    client accepts. The keepalive and connection age settings are gRPC's own. A client that is told
    that its connection ends has `drain_window_s` to say that it knows.
    """

    max_message_bytes: int
    max_send_bytes: int
    compression_level: str
    keepalive_time_ms: int
    keepalive_timeout_ms: int
    keepalive_permit_without_calls: bool
    http2_max_pings_without_data: int
    http2_min_recv_ping_interval_without_data_ms: int
    http2_max_ping_strikes: int
    max_connection_age_ms: int | None
    max_connection_age_grace_ms: int | None
    max_connections: int
    max_concurrent_streams: int
    max_metadata_bytes: int
    max_inflated_bytes: int
    message_timeout_s: float
    write_timeout_s: float
    handshake_timeout_s: float
    max_connection_idle_ms: int | None
    drain_window_s: float
