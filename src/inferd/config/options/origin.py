"""Origins of web pages, as --http-cors-origin spells them (RFC 6454, section 6.2)."""

import re
from collections.abc import Sequence

from inferd.errors import InvalidConfig

ANY = "*"

_FLAG = "--http-cors-origin"
# A browser's Origin has no path and no user (RFC 6454, section 7): such a text would never match.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@,\x00-\x20\x7f-\U0010ffff]+")
# Browsers leave out a scheme's own port (section 6.2).
_USUAL_PORTS = (("http://", ":80"), ("https://", ":443"))


def read_origins(texts: Sequence[str]) -> frozenset[str]:
    """Return the origins as browsers send them: in lower case, without default ports; or ANY alone.

    Raises InvalidConfig. "null" is refused: any page can give itself that origin.
    """
    origins = frozenset(_read(text.lower()) for text in texts)
    if ANY in origins and len(origins) > 1:
        msg = f"{_FLAG}: * means any origin, name it alone"
        raise InvalidConfig(msg)
    return origins


def _read(text: str) -> str:
    # Origins are compared as texts, so what is no origin is refused rather than never matched.
    if text != ANY and not _ORIGIN.fullmatch(text):
        msg = f"{_FLAG}: {text[:200]!r} is none, expected SCHEME://HOST, SCHEME://HOST:PORT or *"
        raise InvalidConfig(msg)
    for scheme, port in _USUAL_PORTS:
        if text.startswith(scheme):
            text = text.removesuffix(port)
    return text
