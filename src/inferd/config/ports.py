"""The ports of a server, and the addresses they bind."""

from typing import NamedTuple

from inferd.config.server import ServerConfig

_METRICS_PORT = 8002

_WORDS = {"HTTP": "http", "gRPC": "grpc", "SageMaker": "sagemaker", "Vertex AI": "vertex_ai"}
"""By protocol, the word in the names of its port's options."""


class Port(NamedTuple):
    """A port for requests: its protocol, its option, and its address if one is given."""

    protocol: str
    flag: str
    is_open: bool
    number: int
    address: str | None

    @property
    def address_flag(self) -> str:
        """The option for its address; platforms without an address of their own use HTTP's."""
        return "--grpc-address" if self.protocol == "gRPC" else "--http-address"


def ports_of(config: ServerConfig) -> tuple[Port, ...]:
    """Return the ports on which clients can request inferences."""
    return tuple(_port(config, protocol, word) for protocol, word in _WORDS.items())


def is_one_port(config: ServerConfig) -> bool:
    """Tell whether gRPC and HTTP share a port: both are set to the same number, not 0."""
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


def _port(config: ServerConfig, protocol: str, word: str) -> Port:
    is_open, number = getattr(config, f"allow_{word}"), getattr(config, f"{word}_port")
    address = getattr(config, f"{word}_address")
    if word != "grpc":
        address = address or config.http_address
    return Port(protocol, f"--{word.replace('_', '-')}-port", is_open, number, address)
