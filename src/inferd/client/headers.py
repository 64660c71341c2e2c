"""The headers of a client's calls: API key, those of the options, and the trace they belong to."""

import re
import sys
from typing import Any

from inferd.client.errors import InvalidTarget
from inferd.client.settings import ClientSettings, Headers

# token (RFC 9110, section 5.6.2).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# No CR, LF or NUL (RFC 9110, section 5.5): a value from elsewhere must not add a header or a
# request.
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

# What tells where a message ends and for whom it is: a second one would contradict it.
_FRAMING = frozenset(
    (
        *("connection", "content-length", "content-type", "host"),
        *("inference-header-content-length", "te", "transfer-encoding", "upgrade"),
    )
)

PRODUCT = "inferd-client"


class HeaderLines:
    """Makes header lines, as HTTP/1.1 has them, for each call.

    A header of the call replaces that of the client's options, whatever the case of their names.
    """

    def __init__(self, settings: ClientSettings) -> None:
        own = {"User-Agent": PRODUCT}
        if settings.api_key:
            own["Authorization"] = f"Bearer {settings.api_key}"
        self._own = _fields(own)
        self._more = None
        # A function is asked for each call: tokens expire.
        if callable(settings.headers):
            self._more = settings.headers
        elif settings.headers:
            self._own |= _fields(settings.headers)
        self._own_lines = "".join(self._own.values())

    def lines(self, headers: Headers | None) -> str:
        """Return the lines of a call that has `headers` of its own. Raises InvalidTarget."""
        lines = self._own_lines
        if self._more is not None or headers:
            more = {} if self._more is None else _fields(self._more())
            lines = "".join((self._own | more | _fields(headers or {})).values())
        # Looked for, never imported: a program that traces has it loaded, the others need not
        # install it. A context that the caller gives comes before that of the current span.
        if "opentelemetry.trace" in sys.modules and not _has_trace(lines):
            lines += _trace_lines(sys.modules["opentelemetry.trace"])
        return lines


def _fields(headers: Headers) -> dict[str, str]:
    """Return lines by their names in lower case. Raises InvalidTarget for what cannot be one."""
    lines = {}
    for name, value in headers.items():
        is_text = isinstance(name, str) and isinstance(value, str)
        if not (is_text and _NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            msg = f"header {name!r} cannot be sent: a name or a value has characters it must not"
            raise InvalidTarget(msg if is_text else f"header {name!r} is no pair of texts")
        if name.lower() in _FRAMING:
            # That of the options is a part of the target: see settings.py.
            where = ", or say it in the options" if name.lower() == "host" else ""
            raise InvalidTarget(f"header {name!r} is the client's own: leave it out{where}")
        lines[name.lower()] = f"{name}: {value}\r\n"
    return lines


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
