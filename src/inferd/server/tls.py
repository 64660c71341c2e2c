"""TLS for the HTTP port: certificates read into an ssl context."""

import ssl
from typing import NoReturn

from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig


def tls_files(config: ServerConfig, protocol: str) -> list[str]:
    """Return the paths of the TLS files of `protocol`, http or grpc; none without TLS."""
    if not (
        getattr(config, f"{protocol}_use_ssl") or getattr(config, f"{protocol}_use_ssl_mutual")
    ):
        return []
    files = [
        getattr(config, f"{protocol}_{name}") for name in ("server_cert", "server_key", "root_cert")
    ]
    return [file for file in files if file]


def ssl_context(config: ServerConfig, *, with_http2: bool) -> ssl.SSLContext:
    """Return the context of --http-use-ssl or --http-use-ssl-mutual.

    `with_http2` offers HTTP/2 beside HTTP/1.1, for a port that also carries gRPC. Raises
    InvalidConfig naming the flags whose files cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"] if with_http2 else ["http/1.1"])
    try:
        # Without a password, OpenSSL would ask for that of an encrypted key at the terminal.
        context.load_cert_chain(str(config.http_server_cert), config.http_server_key, password="")
    except (OSError, ValueError) as error:
        _refuse("--http-server-cert and --http-server-key", error)
    if config.http_use_ssl_mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(config.http_root_cert)
        except (OSError, ValueError) as error:
            _refuse("--http-root-cert", error)
    return context


def _refuse(flags: str, error: OSError | ValueError) -> NoReturn:
    raise InvalidConfig(f"{flags}: {error}") from error
