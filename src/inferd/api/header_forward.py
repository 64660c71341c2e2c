"""Header forwarding: HTTP headers and gRPC metadata that become parameters of the request.

See the Parameters extension; off unless the server is given a pattern.
"""

from collections.abc import Mapping

from inferd.config.options.access import read_header_pattern
from inferd.core.request import InferRequest
from inferd.errors import InvalidRequest
from inferd.http.header_forward import HeaderForward

_STATUSES = "triton_grpc_error"  # asks for gRPC statuses; no concern of models
_RESERVED = frozenset(
    (
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
    )
)


def header_forward(
    pattern: str | None, where: str, secret: frozenset[str] = frozenset()
) -> HeaderForward | None:
    """Return what chooses the headers whose names match `pattern`, None if there is no pattern.

    The regular expression may match anywhere in a name; case does not matter, unless it begins with
    (?-i). Those in `secret`, in lower case, are never chosen. Raises InvalidConfig, its text
    beginning with `where`, for an invalid pattern.
    """
    if not pattern:
        return None
    return HeaderForward(read_header_pattern(where, pattern).search, secret | {_STATUSES})


def add_forwarded(request: InferRequest, headers: Mapping[str, str]) -> None:
    """Add `headers` to the parameters of `request`, replacing those of the same name.

    Raises InvalidRequest for a name that is reserved among parameters.
    """
    for name in headers:
        # Reserved by Triton's Parameters extension, for parameters with a meaning of their own.
        if name in _RESERVED or name.startswith("triton_"):
            raise InvalidRequest(
                f"header '{name}' cannot become a parameter: the name is reserved. Either the "
                f"request goes without it, or the server's pattern should leave it out"
            )
    # Headers come last and win: a proxy in front adds them, and clients must not be able to
    # override it.
    request.parameters = {**request.parameters, **headers}
