"""Who may call what: a guard before each call that is not open to everybody.

Whether a call has a guard is settled when the tables of routes and methods are built: what is open
to everybody pays nothing.
"""

import hmac
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from inferd.config.api_keys import ApiKey, hash_key
from inferd.errors import Forbidden, Restricted, Unauthenticated

Headers = Mapping[bytes, bytes]
"""Names in lower case; a header that came twice has both values, with a comma between."""


_BEARER, _API_KEY = b"authorization", b"x-api-key"


class Secret(NamedTuple):
    """A header, its name in lower case, and the one value it must have."""

    name: bytes
    value: bytes


class KeyRing:
    """The API keys that are good, by their hashes; exchanged as a whole while the server runs."""

    def __init__(self, keys: Mapping[bytes, ApiKey]) -> None:
        self.keys = keys

    def check(self, api: str, headers: Headers) -> None:
        """Raise Unauthenticated or Forbidden unless `headers` have a key for the group `api`."""
        given = _given_key(headers)
        if not given:
            msg = "an API key is needed here: Authorization: Bearer KEY, or x-api-key: KEY"
            raise Unauthenticated(msg)
        # How long this takes may tell something of a hash, but nothing of a key: nobody can choose
        # what their guess is hashed to.
        key = self.keys.get(hash_key(given))
        if key is None:
            msg = "the API key is not known here"
            raise Unauthenticated(msg)
        if api not in key.groups:
            msg = f"the API key is not good for the {api} calls"
            raise Forbidden(msg)


class Guard:
    """Stands before the calls of one API group."""

    def __init__(self, api: str, secret: Secret | None, ring: KeyRing | None) -> None:
        self._api = api
        self._secret = secret
        self._ring = ring

    def check(self, headers: Headers) -> None:
        """Raise Unauthenticated, Forbidden or Restricted if a request with `headers` may not call.

        An API key is asked for first.
        """
        if self._ring is not None:
            self._ring.check(self._api, headers)
        if self._secret is not None:
            name, value = self._secret
            if not hmac.compare_digest(headers.get(name, b""), value):
                msg = (
                    f"the {self._api} calls are restricted here: they need the header "
                    f"'{name.decode()}' with the right value"
                )
                raise Restricted(msg)


class Access:
    """Which calls of one protocol ask for what.

    `secrets` are by API group. With a `ring` the calls of all groups need a key, but those of
    the groups in `keyless`.
    """

    def __init__(
        self,
        secrets: Mapping[str, Secret] | None = None,
        ring: KeyRing | None = None,
        keyless: frozenset[str] = frozenset(),
    ) -> None:
        self._secrets = secrets or {}
        self._ring = ring
        self._keyless = keyless

    @property
    def secret_names(self) -> frozenset[str]:
        """The headers that open something here, in lower case; models need not see them."""
        names = {secret.name for secret in self._secrets.values()}
        if self._ring is not None:
            names |= {_BEARER, _API_KEY}
        return frozenset(name.decode() for name in names)

    def guard(self, api: str) -> Guard | None:
        """Return what stands before the calls of the group `api`, None for nothing."""
        secret = self._secrets.get(api)
        ring = None if api in self._keyless else self._ring
        return Guard(api, secret, ring) if secret or ring else None


OPEN = Access()
"""Everybody may call everything."""


def joined(fields: Iterable[tuple[bytes, ...]]) -> dict[bytes, bytes]:
    """Return `fields` by name; those sent twice mean the list of both (RFC 9110, section 5.3)."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        found[name] = found[name] + b", " + value if name in found else value
    return found


def _given_key(headers: Headers) -> bytes:
    scheme, _, token = headers.get(_BEARER, b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return token.strip()
    return headers.get(_API_KEY, b"").strip()
