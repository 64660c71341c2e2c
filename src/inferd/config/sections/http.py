"""Options of the HTTP port, and of the dashboard on it."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import option
from inferd.config.sections.units import PORT

_http = partial(option, group="HTTP")


@dataclass(frozen=True, kw_only=True)
class HttpSection:
    """Where HTTP is served, and to whom."""

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
