"""What browsers may be: origins of web pages (RFC 6454, section 6.2), names of this server."""

import re
from collections.abc import Sequence

from inferd.errors import InvalidConfig

ANY = "*"

_CORS_ORIGIN = "--http-cors-origin"
# A browser's Origin has no path and no user (RFC 6454, section 7): such a text would never match.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@,\x00-\x20\x7f-\U0010ffff]+")
# Browsers leave out a scheme's own port (section 6.2).
_USUAL_PORTS = (("http://", ":80"), ("https://", ":443"))


def read_origins(texts: Sequence[str]) -> frozenset[str]:
    """Return the origins as browsers send them: in lower case, without default ports; or ANY alone.

    Raises InvalidConfig. "null" is refused: any page can give itself that origin.
    """
    origins = frozenset(_origin(text.lower()) for text in texts)
    if ANY in origins and len(origins) > 1:
        raise InvalidConfig(f"{_CORS_ORIGIN}: * means any origin, name it alone")
    return origins


def _origin(text: str) -> str:
    # Origins are compared as texts, so what is no origin is refused rather than never matched.
    if text != ANY and not _ORIGIN.fullmatch(text):
        shown = f"{_CORS_ORIGIN}: {text[:200]!r}"
        raise InvalidConfig(f"{shown} is none, expected SCHEME://HOST, SCHEME://HOST:PORT or *")
    for scheme, port in _USUAL_PORTS:
        if text.startswith(scheme):
            text = text.removesuffix(port)
    return text


_UI_HOSTS = "--ui-hosts"
# RFC 1123, section 2.1, with the underscore, which names in Docker's networks have.
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*\.?")


def read_ui_hosts(texts: Sequence[str]) -> frozenset[str]:
    """Return the names in lower case; *.NAME is any name that ends in .NAME.

    A text has several names, separated by commas. Raises InvalidConfig.
    """
    names = [name.strip().lower() for text in texts for name in text.split(",")]
    for name in names:
        # RFC 1035, section 2.3.4, without the root's byte and the first length.
        if len(name) > 253 or not _HOST.fullmatch(name):
            raise InvalidConfig(
                f"{_UI_HOSTS}: {name[:200]!r} is no name of a host, expected one like "
                "gpu.example.org or *.example.org, without scheme and port"
            )
    # A name with the root's dot is the same one, and browsers send both.
    return frozenset(name.removesuffix(".") for name in names)
