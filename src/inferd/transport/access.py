"""Who may call what: a guard before each call that is not open to everybody.

Whether a call has a guard is settled when the tables of routes and methods are built: what is open
to everybody pays nothing.
"""

import hmac
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from inferd.errors import Restricted

Headers = Mapping[bytes, bytes]
"""Names in lower case; a header that came twice has both values, with a comma between."""


class Secret(NamedTuple):
    """A header, its name in lower case, and the one value it must have."""

    name: bytes
    value: bytes


class Guard:
    """Stands before the calls of one API group."""

    def __init__(self, api: str, secret: Secret) -> None:
        self._api = api
        self._secret = secret

    def check(self, headers: Headers) -> None:
        """Raise Restricted unless a request with `headers` may be answered."""
        name, value = self._secret
        if not hmac.compare_digest(headers.get(name, b""), value):
            msg = (
                f"the {self._api} calls are restricted here: they need the header "
                f"'{name.decode()}' with the right value"
            )
            raise Restricted(msg)


class Access:
    """Which calls of one protocol ask for what; `secrets` are by API group."""

    def __init__(self, secrets: Mapping[str, Secret] | None = None) -> None:
        self._secrets = secrets or {}

    def guard(self, api: str) -> Guard | None:
        """Return what stands before the calls of the group `api`, None for nothing."""
        secret = self._secrets.get(api)
        return Guard(api, secret) if secret else None


OPEN = Access()
"""Everybody may call everything."""


def joined(fields: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return `fields` by name; those sent twice mean the list of both (RFC 9110, section 5.3)."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        found[name] = found[name] + b", " + value if name in found else value
    return found
