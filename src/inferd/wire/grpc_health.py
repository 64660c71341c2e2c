"""The server's side of the messages of the gRPC health checking protocol (grpc.health.v1)."""

import enum
from collections.abc import Mapping

from inferd.wire.proto import encode, parse


class Serving(enum.Enum):
    """HealthCheckResponse.ServingStatus."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


def decode_check_request(data: bytes) -> str:
    """Return the service that a HealthCheckRequest asks about, "" for the server as a whole.

    Raises InvalidRequest.
    """
    service: str = parse("grpc.health.v1.HealthCheckRequest", data).service
    return service


def decode_list_request(data: bytes) -> None:
    """Check a HealthListRequest, which has no fields. Raises InvalidRequest."""
    parse("grpc.health.v1.HealthListRequest", data)


def encode_check_response(status: Serving) -> bytes:
    """Return a HealthCheckResponse."""
    return encode("grpc.health.v1.HealthCheckResponse", status=status.value)


def encode_list_response(statuses: Mapping[str, Serving]) -> bytes:
    """Return a HealthListResponse with the status of each service by name."""
    rows = {service: {"status": status.value} for service, status in statuses.items()}
    return encode("grpc.health.v1.HealthListResponse", statuses=rows)
