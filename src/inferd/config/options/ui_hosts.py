"""Names of this server in browsers, as --ui-hosts gives them."""

import re
from collections.abc import Sequence

from inferd.errors import InvalidConfig

_FLAG = "--ui-hosts"
# RFC 1123, section 2.1, with the underscore, which names in Docker's networks have.
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*\.?")


def read_ui_hosts(texts: Sequence[str]) -> frozenset[str]:
    """Return the names in lower case; *.NAME is any name that ends in .NAME.

    A text has several names, separated by commas. Raises InvalidConfig.
    """
    names = [name.strip().lower() for text in texts for name in text.split(",")]
    for name in names:
        # RFC 1035, section 2.3.4, without the root's byte and the first length.
        if len(name) > 253 or not _NAME.fullmatch(name):
            msg = (
                f"{_FLAG}: {name[:200]!r} is no name of a host, expected one like gpu.example.org "
                "or *.example.org, without scheme and port"
            )
            raise InvalidConfig(msg)
    # A name with the root's dot is the same one, and browsers send both.
    return frozenset(name.removesuffix(".") for name in names)
