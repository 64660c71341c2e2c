"""Options of HTTP and gRPC: their ports, their limits, and what the protocols leave open."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import (
    COUNT,
    HEAD,
    LONGEST,
    MILLISECONDS,
    PINGS,
    PORT,
    TIMEOUT,
    option,
)

_http = partial(option, group="HTTP")
_http_limits = partial(option, group="HTTP limits")
_grpc = partial(option, group="gRPC")
_details = partial(option, group="Protocol details")


@dataclass(frozen=True, kw_only=True)
class ProtocolsSection:
    """Where requests are taken, from whom, up to which limits, and how answers look."""

    allow_http: bool = _http(True, "Serve HTTP.")
    http_address: str | None = _http(
        None, "Address the HTTP port binds.", shown="127.0.0.1; 0.0.0.0 in a container"
    )
    http_port: int = _http(
        8000, "Port of HTTP; 0 lets the system choose.", also="MLSERVER_HTTP_PORT", **PORT
    )
    http_health_port: int | None = _http(
        None,
        "Extra port for health checks only, without TLS; --http-port answers them, too.",
        **PORT,
    )
    http_unix_socket: str | None = _http(None, "Serve HTTP on this Unix socket too.", word="PATH")
    http_use_ssl: bool = _http(False, "Serve HTTPS instead of HTTP.")
    http_server_cert: str | None = _http(None, "PEM file of the server's certificate chain.")
    http_server_key: str | None = _http(None, "PEM file of the server's private key.")
    http_use_ssl_mutual: bool = _http(
        False, "Clients must show a certificate signed by --http-root-cert. Implies --http-use-ssl."
    )
    http_root_cert: str | None = _http(
        None, "PEM file of the authorities that sign client certificates."
    )
    reuse_http_port: bool = _http(False, "Share the port with other processes (SO_REUSEPORT).")
    http_header_forward_pattern: str | None = _http(
        None,
        "Regular expression; headers whose names it matches somewhere become request parameters.",
    )
    http_restricted_api: tuple[str, ...] = _http(
        (),
        "APIS:HEADER=VALUE: only requests with this header may call these APIs. APIS is a list of "
        "health, metadata, inference, shared-memory, model-config, model-repository, statistics, "
        "trace and logging, separated by commas. May be repeated.",
    )
    http_cors_origin: tuple[str, ...] = _http(
        (),
        "Web pages of this origin, such as https://example.org, may call the server; * means all "
        "pages. May be repeated.",
        word="ORIGIN",
    )
    ui: str = _http(
        "read",
        "The dashboard at /ui. read: it shows the server. full: who opens the link that the server "
        "prints may also load and unload models, and change what is logged and traced. off: none.",
        choices=("off", "read", "full"),
    )
    ui_hosts: tuple[str, ...] = _http(
        (),
        "Names by which browsers may reach the dashboard, separated by commas, beside localhost, "
        "IP addresses, this machine's name and those of the certificate; *.example.org is any "
        "name below example.org. May be repeated.",
        word="NAMES",
    )
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
    allow_trtis: bool = _details(
        True,
        "Serve the API of the TensorRT Inference Server, Triton's predecessor, on the same ports.",
    )
    json_half_floats: str = _details(
        "accept",
        "FP16 and BF16 tensors in JSON: accept them as numbers, or refuse them.",
        choices=("accept", "refuse"),
    )
    json_non_finite: str = _details(
        "tokens",
        "NaN and infinities in JSON answers: the words NaN and Infinity (not strict JSON, but what "
        "Triton's clients read), null, or an error.",
        choices=("tokens", "null", "error"),
    )
    not_ready_status: int = _details(
        400,
        "HTTP status of failed readiness checks: Triton's 400, or KServe's 503.",
        choices=(400, 503),
    )
    grpc_typed_answers: bool = _details(
        False,
        "Answer gRPC requests that have typed contents in typed contents, not raw_output_contents.",
    )
