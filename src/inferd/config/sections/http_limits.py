"""Options of what connections of HTTP may ask for."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import option
from inferd.config.sections.units import COUNT, HEAD, MILLISECONDS, TIMEOUT

_http_limits = partial(option, group="HTTP limits")


@dataclass(frozen=True, kw_only=True)
class HttpLimitsSection:
    """Sizes, times and counts, at which requests are refused or connections end."""

    http_max_header_bytes: int = _http_limits(65536, "Largest request line and headers.", **HEAD)
    http_max_body_bytes: int = _http_limits(2147483648, "Largest body of a request.", **COUNT)
    http_max_input_size: int = _http_limits(
        67108864, "Largest JSON, raw or inflated body of a request.", word="BYTES", **COUNT
    )
    http_max_connections: int = _http_limits(
        10000, "Most connections open at the same time.", **COUNT
    )
    http_max_connection_age: int | None = _http_limits(
        None, "Close connections at this age.", shown="never", **MILLISECONDS
    )
    http_max_connection_requests: int | None = _http_limits(
        None,
        "Close a connection after this many requests; from 100 on, up to a tenth earlier.",
        shown="no limit",
        **COUNT,
    )
    http_idle_timeout_secs: float = _http_limits(
        300.0, "How long a connection may have no request.", **TIMEOUT
    )
    http_header_timeout_secs: float = _http_limits(
        60.0, "Time from a request's first byte to its whole head.", **TIMEOUT
    )
    http_body_timeout_secs: float = _http_limits(
        60.0,
        "How long a body may make no progress. A body that trickles in is ended, too.",
        **TIMEOUT,
    )
    http_write_timeout_secs: float = _http_limits(
        60.0, "How long a client may pause reading its answer.", **TIMEOUT
    )
