"""The gRPC status for an error, and the hint when to try again."""

from inferd.errors import Code, InferdError, Overloaded
from inferd.http.grpc.handler import Metadata

GRPC_STATUS = {
    Code.UNKNOWN: 2,
    Code.INTERNAL: 13,
    Code.NOT_FOUND: 5,
    Code.INVALID_ARG: 3,
    Code.UNAVAILABLE: 14,
    Code.UNSUPPORTED: 12,
    Code.ALREADY_EXISTS: 6,
    Code.CANCELLED: 1,
    Code.RESTRICTED: 14,  # UNAVAILABLE, like Triton
    Code.UNAUTHENTICATED: 16,
    Code.FORBIDDEN: 7,
    Code.TOO_LARGE: 8,  # RESOURCE_EXHAUSTED, as for any message above a limit
}
"""The gRPC status code (google.rpc.Code) of each reason."""

RETRY_PUSHBACK: Metadata = [("grpc-retry-pushback-ms", f"{1000 * Overloaded.retry_s}")]
"""How long clients wait before they retry (gRPC Retry Design, A6, Pushback)."""

_MAX_DETAILS_BYTES = 1500
"""Status details are a header: percent-encoded they must stay well below the 8 KiB peers accept."""


def status_of(error: Exception) -> tuple[int, str]:
    """Return the gRPC status code and details that report `error` to a client.

    No details of unexpected errors are disclosed.
    """
    if not isinstance(error, InferdError):
        return GRPC_STATUS[Code.INTERNAL], "the server failed unexpectedly; its log says why"
    # The cut may be inside of a character.
    details = error.message.encode(errors="replace")[:_MAX_DETAILS_BYTES].decode(errors="ignore")
    return GRPC_STATUS[error.code], details
