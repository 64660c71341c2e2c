"""The options of the gRPC port, whichever transport carries it, and its TLS context."""

import ssl

import msgspec

from inferd.api.apis import V2_ALONE, Apis
from inferd.errors import InvalidConfig
from inferd.http.access import OPEN, Access


class GrpcOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the gRPC port; config/server.py has the defaults.

    `typed_answers`: typed requests get typed answers. Metadata whose keys match
    `header_forward_pattern` become parameters of an inference. `compression_level`: none, low,
    medium or high; answers are compressed with a coding that the client accepts. The keepalive and
    connection age settings are gRPC's own. TLS files are PEM; `mutual_tls` asks clients for a
    certificate signed by `root_cert`. The options from `max_connections` to
    `max_connection_idle_ms` are for our own transport; grpcio has none of them.
    """

    typed_answers: bool
    header_forward_pattern: str | None = None
    reuse_port: bool
    max_receive_bytes: int
    max_send_bytes: int
    compression_level: str
    keepalive_time_ms: int
    keepalive_timeout_ms: int
    keepalive_permit_without_calls: bool
    max_pings_without_data: int
    min_recv_ping_interval_without_data_ms: int
    max_ping_strikes: int
    max_connection_age_ms: int | None
    max_connection_age_grace_ms: int | None
    tls: bool
    mutual_tls: bool
    server_cert: str | None
    server_key: str | None
    root_cert: str | None
    max_connections: int
    max_streams: int
    max_metadata_bytes: int
    max_inflated_bytes: int
    message_timeout_s: float
    write_timeout_s: float
    handshake_timeout_s: float
    max_connection_idle_ms: int | None
    access: Access = OPEN
    apis: Apis = V2_ALONE

    @property
    def has_tls(self) -> bool:
        """Whether the port speaks TLS."""
        return self.tls or self.mutual_tls


def grpc_ssl_context(options: GrpcOptions) -> ssl.SSLContext:
    """Return the TLS context that `options` ask for. Raises InvalidConfig."""
    if not options.server_cert or not options.server_key:
        msg = "TLS for gRPC needs a server certificate and a server key"
        raise InvalidConfig(msg)
    if options.mutual_tls and not options.root_cert:
        msg = "mutual TLS for gRPC needs the root certificate that signs the clients'"
        raise InvalidConfig(msg)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # RFC 9113, section 9.2
    context.set_alpn_protocols(["h2"])
    try:
        # Without a password OpenSSL would ask for that of an encrypted key at the terminal.
        context.load_cert_chain(options.server_cert, options.server_key, password="")
        if options.root_cert:
            context.load_verify_locations(options.root_cert)
    except (OSError, ValueError) as error:
        msg = f"TLS for gRPC: certificate, key or root certificate cannot be used: {error}"
        raise InvalidConfig(msg) from error
    if options.mutual_tls:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
