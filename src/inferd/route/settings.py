"""RouteSettings: what `inferd route` is told on its command line."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """The options; docs/guide/scaling.md says what they mean. Ports of 0 are chosen by the system.

    `grpc_port` equal to `http_port`, if not 0: one port for everything. `tls_cert` has the
    certificate and those that signed it, `tls_key` its key, `tls_client_ca` those that sign the
    certificates of clients.
    """

    address: str
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    threads: int = 0
    max_places: int = 32
    max_groups: int = 8
    check_timeout_ms: int = 2000
    exit_timeout_secs: int = 30
    key_file: str | None = None
    haproxy: str | None = None
