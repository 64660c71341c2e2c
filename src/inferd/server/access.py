"""Who may call what, from the options to the guards of each protocol."""

from collections.abc import Sequence

from inferd.config.restriction import read_restrictions
from inferd.config.server import ServerConfig
from inferd.transport.access import OPEN, Access, Secret

_GRPC_PREFIX = "triton-grpc-protocol-"
"""Stands before the key of a restriction in gRPC metadata, as Triton has it."""


def http_access(config: ServerConfig) -> Access:
    """Return who may call what over HTTP. Raises InvalidConfig."""
    return _access("--http-restricted-api", config.http_restricted_api)


def grpc_access(config: ServerConfig) -> Access:
    """Return who may call what over gRPC. Raises InvalidConfig."""
    flag, texts = "--grpc-restricted-protocol", config.grpc_restricted_protocol
    return _access(flag, texts, prefix=_GRPC_PREFIX)


def _access(flag: str, texts: Sequence[str], prefix: str = "") -> Access:
    if not texts:
        return OPEN
    return Access(
        {
            api: Secret(f"{prefix}{key}".encode(), value.encode())
            for api, (key, value) in read_restrictions(flag, texts).items()
        }
    )
