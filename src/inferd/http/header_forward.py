"""The choice of headers and metadata that are forwarded to the calls."""

from collections.abc import Callable, Iterable

MAX_NAME_BYTES = 256
"""Longer names are skipped: a pattern can take long to find that it does not match."""


class HeaderForward:
    """Chooses the headers in whose name `matches`, the `search` of a pattern, finds something.

    Those in `never`, in lower case, are not chosen.
    """

    def __init__(self, matches: Callable[[str], object], never: frozenset[str]) -> None:
        self._matches = matches
        self._never = never

    def chosen(self, fields: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
        """Return the chosen `fields`, names as they were sent; binary metadata are left out.

        Repeated ones form one list, as always in HTTP (RFC 9110, section 5.3), under the name that
        was sent first. Cookies, which browsers send apart over HTTP/2, are joined as one header's
        (RFC 9113, section 8.2.3).
        """
        found: dict[str, str] = {}
        names: dict[str, str] = {}
        for name, value in fields:
            if not isinstance(value, str) or len(name) > MAX_NAME_BYTES:
                continue
            if self._matches(name) and name.lower() not in self._never:
                first = names.setdefault(name.lower(), name)
                if first in found:
                    between = "; " if first.lower() == "cookie" else ", "
                    value = f"{found[first]}{between}{value}"
                found[first] = value
        return found

    def chosen_fields(self, fields: Iterable[tuple[bytes, ...]]) -> dict[str, str] | None:
        """Return the chosen `fields`, None if there are none."""
        return self.chosen((text_of(name), text_of(value)) for name, value in fields) or None


def text_of(value: bytes) -> str:
    """Return a header's bytes as text: decoded as UTF-8 if valid, else as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
