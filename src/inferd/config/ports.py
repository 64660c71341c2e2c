"""The ports of a server, and the addresses they bind."""

import os
import socket
from collections.abc import Iterator
from typing import NamedTuple

from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig

# Triton's.
_METRICS_PORT = 8002

# In this order ports are named in messages.
_WORDS = {"HTTP": "http", "gRPC": "grpc", "SageMaker": "sagemaker", "Vertex AI": "vertex_ai"}
"""By protocol, the word in the names of its port's options."""


class Port(NamedTuple):
    """A port for requests: its protocol, its option, and its address if one is given."""

    protocol: str
    flag: str
    number: int
    address: str | None

    @property
    def address_flag(self) -> str:
        """The option for its address; platforms without an address of their own use HTTP's."""
        return "--grpc-address" if self.protocol == "gRPC" else "--http-address"


def open_ports(config: ServerConfig) -> Iterator[Port]:
    """Yield the ports on which clients can request inferences, those that are not turned off."""
    for protocol, word in _WORDS.items():
        if getattr(config, f"allow_{word}"):
            address = getattr(config, f"{word}_address")
            if word != "grpc":
                address = address or config.http_address
            flag = f"--{word.replace('_', '-')}-port"
            yield Port(protocol, flag, getattr(config, f"{word}_port"), address)


def is_one_port(config: ServerConfig) -> bool:
    """Tell whether gRPC and HTTP share a port: both are set to the same number, not 0."""
    # Two ports that the system chooses are two ports.
    is_same = config.http_port == config.grpc_port != 0
    return config.allow_http and config.allow_grpc and is_same


def metrics_port(config: ServerConfig) -> int:
    """Return the port to bind for metrics, 0 for any.

    If --http-port or --grpc-port is 0, several servers may run on the machine, and with one fixed
    port only the first of them could start.
    """
    if config.metrics_port is not None:
        return config.metrics_port
    return 0 if 0 in (config.http_port, config.grpc_port) else _METRICS_PORT


def are_metrics_on_http(config: ServerConfig) -> bool:
    """Tell whether the HTTP port has the metrics, too: both are set to the same number, not 0."""
    return (
        config.allow_metrics and config.allow_http and config.metrics_port == config.http_port > 0
    )


def has_health_port(config: ServerConfig) -> bool:
    """Tell whether health checks have a port of their own, other than the HTTP port."""
    port = config.http_health_port
    # Else health checks are answered on the HTTP port, which does that in any case.
    return port is not None and not (config.allow_http and port == config.http_port != 0)


class Listening(NamedTuple):
    """A port to be opened for `protocol`; its options begin with --`word`-."""

    protocol: str
    word: str
    address: str
    number: int
    is_reused: bool = False


def listening(config: ServerConfig, default_address: str) -> Iterator[Listening]:
    """Yield every port to be opened; `default_address` is bound where none is configured."""
    http = config.http_address or default_address
    if config.allow_http:
        # The HTTP port comes first, because ready lines and supervisors report in this order.
        yield Listening("HTTP", "http", http, config.http_port, config.reuse_http_port)
    if config.allow_grpc and not is_one_port(config):
        grpc = config.grpc_address or default_address
        yield Listening("gRPC", "grpc", grpc, config.grpc_port, config.reuse_grpc_port)
    if has_health_port(config):
        yield Listening("Health", "http-health", http, config.http_health_port or 0)
    if config.allow_sagemaker:
        address = config.sagemaker_address or http
        yield Listening("SageMaker", "sagemaker", address, config.sagemaker_port)
    if config.allow_vertex_ai:
        address = config.vertex_ai_address or http
        yield Listening("Vertex AI", "vertex-ai", address, config.vertex_ai_port)
    if config.allow_metrics and not are_metrics_on_http(config):
        yield Listening("Metrics", "metrics", config.metrics_address or http, metrics_port(config))


def cannot_listen(port: Listening, reason: str) -> InvalidConfig:
    """Return the error for a port that cannot be opened; it names the options that help."""
    # RFC 3986, section 3.2.2: an address with colons stands in brackets.
    where = f"[{port.address}]" if ":" in port.address else port.address
    protocol = "metrics" if port.protocol == "Metrics" else port.protocol
    return InvalidConfig(
        f"cannot listen on {where}:{port.number} for {protocol}: {reason}; choose another place "
        f"with --{port.word}-port (0 lets the system choose) or --{port.word}-address"
    )


def cannot_listen_at(word: str, path: str, reason: str, shared: str = "") -> InvalidConfig:
    """Return the error for a Unix socket; `shared` is the option that shares its port, if set."""
    msg = f"cannot listen on --{word}-unix-socket {path}: {reason}"
    return InvalidConfig(
        msg + (f"; {shared} shares the TCP port, not a Unix socket" if shared else "")
    )


def why_not(error: OSError) -> str:
    """Return why an address cannot be bound, in the system's words.

    asyncio replaces these by a sentence of its own; gRPC gives no reason.
    """
    if isinstance(error, socket.gaierror):
        return str(error.strerror).lower()
    # os.strerror, since the exception's own text has the address in it a second time.
    if error.errno:
        return os.strerror(error.errno).lower()
    return "the address is taken, or not one of this machine"
