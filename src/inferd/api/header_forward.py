"""Header forwarding: HTTP headers and gRPC metadata that become parameters of the request.

See the Parameters extension; off unless the server is given a pattern.
"""

from collections.abc import Iterable, Mapping
from typing import Self

from inferd.config.options.header_forward import read_header_pattern
from inferd.core.request import InferRequest
from inferd.errors import InvalidRequest

MAX_NAME_BYTES = 256
"""Longer names are skipped: a pattern can take long to find that it does not match."""

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


class HeaderForward:
    """Chooses the headers in whose name the regular expression `pattern` matches somewhere.

    Case does not matter, unless the pattern begins with (?-i). Those in `secret`, in lower case,
    are never chosen. Raises InvalidConfig, its text beginning with `where`, for an invalid pattern.
    """

    def __init__(self, pattern: str, where: str, secret: frozenset[str] = frozenset()) -> None:
        self._never = secret | {_STATUSES}
        self._has = read_header_pattern(where, pattern).search

    @classmethod
    def of(
        cls, pattern: str | None, where: str, secret: frozenset[str] = frozenset()
    ) -> Self | None:
        """Return a HeaderForward for `pattern`, None if there is no pattern."""
        return cls(pattern, where, secret) if pattern else None

    def chosen(self, fields: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
        """Return the chosen `fields`, names as they were sent; binary metadata are left out.

        Repeated ones form one list, as always in HTTP (RFC 9110, section 5.3), under the name that
        was sent first.
        """
        found: dict[str, str] = {}
        names: dict[str, str] = {}
        for name, value in fields:
            if not isinstance(value, str) or len(name) > MAX_NAME_BYTES:
                continue
            if self._has(name) and name.lower() not in self._never:
                first = names.setdefault(name.lower(), name)
                found[first] = f"{found[first]}, {value}" if first in found else value
        return found


def add_forwarded(request: InferRequest, headers: Mapping[str, str]) -> None:
    """Add `headers` to the parameters of `request`, replacing those of the same name.

    Raises InvalidRequest for a name that is reserved among parameters.
    """
    for name in headers:
        if name in _RESERVED or name.startswith("triton_"):
            msg = (
                f"header '{name}' cannot become a parameter: the name is reserved. Either the "
                f"request goes without it, or the server's pattern should leave it out"
            )
            raise InvalidRequest(msg)
    request.parameters = {**request.parameters, **headers}


def text_of(value: bytes) -> str:
    """Return a header's bytes as text: decoded as UTF-8 if valid, else as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
