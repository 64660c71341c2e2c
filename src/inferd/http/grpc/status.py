"""The gRPC status for an error."""

from inferd.errors import Code, InferdError
from inferd.wire.v2.grpc.codec import GRPC_STATUS

_MAX_DETAILS_BYTES = 1500
"""Status details are a header: percent-encoded they must stay well below the 8 KiB peers accept."""


def status_of(error: Exception) -> tuple[int, str]:
    """Return the gRPC status code and details that report `error` to a client.

    No details of unexpected errors are disclosed.
    """
    if not isinstance(error, InferdError):
        return GRPC_STATUS[Code.INTERNAL], "the server failed unexpectedly; its log says why"
    details = error.message.encode(errors="replace")[:_MAX_DETAILS_BYTES].decode(errors="ignore")
    return GRPC_STATUS[error.code], details
