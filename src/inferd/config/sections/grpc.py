"""Options of the gRPC port, and of what its connections and calls may ask for."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import option
from inferd.config.sections.units import COUNT, HEAD, LONGEST, MILLISECONDS, PINGS, PORT, TIMEOUT

_grpc = partial(option, group="gRPC")


@dataclass(frozen=True, kw_only=True)
class GrpcSection:
    """Where gRPC is served, to whom, and its limits."""

    allow_grpc: bool = _grpc(True, "Serve gRPC.")
    grpc_address: str | None = _grpc(
        None, "Address the gRPC port binds.", shown="127.0.0.1; 0.0.0.0 in a container"
    )
    grpc_port: int = _grpc(
        8001, "Port of gRPC; 0 lets the system choose.", also="MLSERVER_GRPC_PORT", **PORT
    )
    grpc_unix_socket: str | None = _grpc(None, "Serve gRPC on this Unix socket too.", word="PATH")
    grpc_transport: str = _grpc(
        "own",
        "own: HTTP/2 on the server's own event loop. grpcio: the gRPC project's library, which "
        "takes several times the CPU.",
        choices=("own", "grpcio"),
    )
    grpc_use_ssl: bool = _grpc(False, "TLS for gRPC.")
    grpc_server_cert: str | None = _grpc(None, "PEM file of the server's certificate chain.")
    grpc_server_key: str | None = _grpc(None, "PEM file of the server's private key.")
    grpc_use_ssl_mutual: bool = _grpc(
        False, "Clients must show a certificate signed by --grpc-root-cert. Implies --grpc-use-ssl."
    )
    grpc_root_cert: str | None = _grpc(
        None, "PEM file of the authorities that sign client certificates."
    )
    grpc_infer_response_compression_level: str = _grpc(
        "none", "How hard answers are compressed.", choices=("none", "low", "medium", "high")
    )
    grpc_keepalive_time: int = _grpc(
        7200000, "Idle time after which the client is pinged.", **MILLISECONDS
    )
    grpc_keepalive_timeout: int = _grpc(
        20000, "How long the answer to that ping may take.", **MILLISECONDS
    )
    grpc_keepalive_permit_without_calls: bool = _grpc(False, "Ping even if no call is running.")
    grpc_http2_max_pings_without_data: int = _grpc(
        2, "How many pings to send without data between them; 0: no limit.", **PINGS
    )
    grpc_http2_min_recv_ping_interval_without_data: int = _grpc(
        300000,
        "Least time between two pings of a client without data between them.",
        **MILLISECONDS,
    )
    grpc_http2_max_ping_strikes: int = _grpc(
        2, "How many pings a client may send too early; 0: no limit.", **PINGS
    )
    grpc_max_connection_age: int | None = _grpc(
        None, "Close connections at this age.", shown="never", **MILLISECONDS
    )
    grpc_max_connection_age_grace: int | None = _grpc(
        None,
        "How long calls may go on after --grpc-max-connection-age.",
        shown="no limit",
        **MILLISECONDS,
    )
    grpc_max_connection_idle: int | None = _grpc(
        None,
        "Close connections that have had no call for this long.",
        shown="never",
        **MILLISECONDS,
    )
    grpc_max_message_bytes: int = _grpc(
        2147483647, "Largest message accepted from a client.", minimum=1, maximum=2147483647
    )
    grpc_max_inflated_bytes: int = _grpc(
        67108864,
        "Largest compressed message from a client, once inflated. With grpcio, the limit of all "
        "messages is --grpc-max-message-bytes, inflated or not.",
        **COUNT,
    )
    grpc_max_metadata_bytes: int = _grpc(16384, "Largest metadata of a call from a client.", **HEAD)
    grpc_max_connections: int = _grpc(10000, "Most connections open at the same time.", **COUNT)
    grpc_max_concurrent_streams: int = _grpc(
        1000, "Most calls open at the same time on one connection.", maximum=LONGEST, **COUNT
    )
    grpc_handshake_timeout_secs: float = _grpc(
        20.0, "Time from a connection's start until it speaks HTTP/2.", **TIMEOUT
    )
    grpc_message_timeout_secs: float = _grpc(
        60.0,
        "How long a message may make no progress. One that trickles in is ended, too.",
        **TIMEOUT,
    )
    grpc_write_timeout_secs: float = _grpc(
        60.0, "How long a client may pause reading its answer.", **TIMEOUT
    )
    reuse_grpc_port: bool = _grpc(False, "Share the port with other processes (SO_REUSEPORT).")
    grpc_header_forward_pattern: str | None = _grpc(
        None,
        "Regular expression; metadata whose keys it matches somewhere become request parameters.",
    )
    grpc_restricted_protocol: tuple[str, ...] = _grpc(
        (),
        "APIS:KEY=VALUE: like --http-restricted-api; the metadata is called "
        "triton-grpc-protocol-KEY. May be repeated.",
    )
