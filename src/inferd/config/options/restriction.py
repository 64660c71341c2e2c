"""The API groups that can be restricted, and the restrictions in --http-restricted-api."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from inferd.errors import InvalidConfig

API_GROUPS = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
"""Every call belongs to one of these; the names are Triton's."""

_KEY = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # a header's name, RFC 9110, section 5.1
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")  # every client can send it unchanged


class Restriction(NamedTuple):
    """What a call must carry: the header `key`, in lower case, with exactly this value."""

    key: str
    value: str


def read_restrictions(flag: str, texts: Sequence[str]) -> Mapping[str, Restriction]:
    """Return the restrictions in `texts`, the values of `flag`, by API group.

    A text is GROUP,GROUP:KEY=VALUE. Raises InvalidConfig, which never quotes a value.
    """
    found: dict[str, Restriction] = {}
    for text in texts:
        names, _, pair = text.partition(":")
        key, equals, value = pair.partition("=")
        if not (equals and _KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            msg = (
                f"{flag}: expected GROUPS:KEY=VALUE, where GROUPS are separated by commas, KEY is "
                "the name of a header and VALUE is printable ASCII"
            )
            raise InvalidConfig(msg)
        for group in read_groups(flag, names):
            # Which of two secrets opens it would depend on the order.
            if group in found:
                msg = f"{flag}: the group {group} is restricted twice"
                raise InvalidConfig(msg)
            # Header names are stored in lower case, as HTTP/2 sends them.
            found[group] = Restriction(key.lower(), value)
    return found


def read_groups(where: str, names: str) -> list[str]:
    """Return the groups in `names`, separated by commas. Raises InvalidConfig."""
    groups = [name.strip() for name in names.split(",")]
    for group in groups:
        if group not in API_GROUPS:
            msg = f"{where}: {group[:40]!r} is none of the groups {', '.join(API_GROUPS)}"
            raise InvalidConfig(msg)
    return groups
