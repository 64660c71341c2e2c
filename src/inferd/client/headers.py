"""The headers of a client's calls: API key, those of the options, and the trace they belong to."""

import re
import sys
from collections.abc import Iterable
from typing import Any

from inferd.client.errors import InvalidTarget
from inferd.client.settings import ClientSettings, Headers

# token (RFC 9110, section 5.6.2).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# No CR, LF or NUL (RFC 9110, section 5.5): a value from elsewhere must not add a header or a
# request.
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

PRODUCT = "inferd-client"


class HeaderLines:
    """Makes header lines, as HTTP/1.1 has them, for each call."""

    def __init__(self, settings: ClientSettings) -> None:
        own = {"User-Agent": PRODUCT}
        if settings.api_key:
            own["Authorization"] = f"Bearer {settings.api_key}"
        self._more = None
        # A function is asked for each call: tokens expire.
        if callable(settings.headers):
            self._more = settings.headers
        elif settings.headers:
            own |= settings.headers
        self._own = header_lines(own.items())

    def lines(self, headers: Headers | None) -> str:
        """Return the lines of a call that has `headers` of its own. Raises InvalidTarget."""
        lines = self._own
        if self._more is not None:
            lines += header_lines(self._more().items())
        if headers:
            lines += header_lines(headers.items())
        # Looked for, never imported: a program that traces has it loaded, the others need not
        # install it. A context that the caller gives comes before that of the current span.
        if "opentelemetry.trace" in sys.modules and not _has_trace(lines):
            lines += _trace_lines(sys.modules["opentelemetry.trace"])
        return lines


def header_lines(headers: Iterable[tuple[str, str]]) -> str:
    """Return `headers` as lines. Raises InvalidTarget for what cannot be one."""
    lines = []
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            msg = f"header {name!r} cannot be sent: a name or a value has characters it must not"
            raise InvalidTarget(msg)
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)


def _has_trace(lines: str) -> bool:
    return "traceparent:" in lines.lower()


def _trace_lines(trace: Any) -> str:
    """Return the traceparent of the current span, "" if there is none (W3C Trace Context)."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return (
        f"traceparent: 00-{context.trace_id:032x}-{context.span_id:016x}-"
        f"{context.trace_flags:02x}\r\n"
    )
