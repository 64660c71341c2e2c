"""The ports of a server, and the addresses they bind."""

from typing import NamedTuple

from inferd.config.server import ServerConfig

_METRICS_PORT = 8002


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
    sagemaker, vertex_ai = config.sagemaker_address, config.vertex_ai_address
    http = config.http_address
    return (
        Port("HTTP", "--http-port", config.allow_http, config.http_port, http),
        Port("gRPC", "--grpc-port", config.allow_grpc, config.grpc_port, config.grpc_address),
        Port(
            "SageMaker",
            "--sagemaker-port",
            config.allow_sagemaker,
            config.sagemaker_port,
            sagemaker or http,
        ),
        Port(
            "Vertex AI",
            "--vertex-ai-port",
            config.allow_vertex_ai,
            config.vertex_ai_port,
            vertex_ai or http,
        ),
    )


def metrics_port(config: ServerConfig) -> int:
    """Return the port to bind for metrics, 0 for any.

    If --http-port or --grpc-port is 0, several servers may run on the machine, and with one fixed
    port only the first of them could start.
    """
    if config.metrics_port is not None:
        return config.metrics_port
    return 0 if 0 in (config.http_port, config.grpc_port) else _METRICS_PORT
