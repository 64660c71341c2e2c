"""Protocol: what REST and gRPC have in common, and which of them a target speaks."""

from typing import TYPE_CHECKING, TypeAlias

from inferd.client.rest import RestCalls
from inferd.client.target import ServerTarget

if TYPE_CHECKING:
    from inferd.client.grpc import GrpcCalls

Protocol: TypeAlias = "RestCalls | GrpcCalls"
"""Makes calls, and says which answers are errors."""


def protocol_of(target: ServerTarget) -> Protocol:
    """Return what makes the calls to `target`."""
    if not target.is_grpc:
        return RestCalls()
    from inferd.client.grpc import GrpcCalls  # protobuf takes a while to load

    return GrpcCalls()
