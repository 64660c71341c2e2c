"""Access control: a guard in front of each call that is not open to everybody.

Guards are assigned when the tables of routes and methods are built, so open calls cost nothing.
"""

import hmac
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from inferd.config.options.api_keys import ApiKey, hash_key
from inferd.errors import Forbidden, Restricted, Unauthenticated

Headers = Mapping[bytes, bytes]
"""Names in lower case; the values of a repeated header are joined with a comma."""


_BEARER, _API_KEY = b"authorization", b"x-api-key"


class Secret(NamedTuple):
    """A header, its name in lower case, and the value it must have."""

    name: bytes
    value: bytes


class KeyRing:
    """The valid API keys by their hashes; `keys` is replaced as a whole while the server runs."""

    def __init__(self, keys: Mapping[bytes, ApiKey]) -> None:
        self.keys = keys

    def check(self, api: str, headers: Headers) -> None:
        """Raise Unauthenticated or Forbidden unless `headers` have a key for the group `api`."""
        given = _given_key(headers)
        if not given:
            msg = "an API key is needed here: Authorization: Bearer KEY, or x-api-key: KEY"
            raise Unauthenticated(msg)
        # The time this takes may reveal something about a hash, but nothing about a key: nobody can
        # choose what their guess hashes to.
        key = self.keys.get(hash_key(given))
        if key is None:
            msg = "the API key is not known here"
            raise Unauthenticated(msg)
        if api not in key.groups:
            msg = f"the API key is not good for the {api} calls"
            raise Forbidden(msg)


class Guard:
    """Guards the calls of one API group."""

    def __init__(self, api: str, secret: Secret | None, ring: KeyRing | None) -> None:
        self._api = api
        self._secret = secret
        self._ring = ring

    def check(self, headers: Headers) -> None:
        """Raise Unauthenticated, Forbidden or Restricted if a request with `headers` has no access.

        The API key is checked first.
        """
        if self._ring is not None:
            self._ring.check(self._api, headers)
        if self._secret is not None:
            name, value = self._secret
            if not hmac.compare_digest(headers.get(name, b""), value):
                what = "protocol" if name.startswith(b"triton-grpc-protocol-") else "API"
                msg = (
                    f"This {what} is restricted, expecting header '{name.decode()}': "
                    f"the {self._api} calls need it with the right value"
                )
                raise Restricted(msg)


class Access:
    """What the calls of one protocol require of clients.

    `secrets` are by API group. With a `ring` the calls of all groups need a key, except those of
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
        """The names of headers with credentials, in lower case; models need not see them."""
        names = {secret.name for secret in self._secrets.values()}
        if self._ring is not None:
            names |= {_BEARER, _API_KEY}
        return frozenset(name.decode() for name in names)

    def guard(self, api: str) -> Guard | None:
        """Return the guard of the calls of the group `api`, None if they are open."""
        secret = self._secrets.get(api)
        ring = None if api in self._keyless else self._ring
        return Guard(api, secret, ring) if secret or ring else None


OPEN = Access()
"""No restrictions."""


def joined(fields: Iterable[tuple[bytes, ...]]) -> dict[bytes, bytes]:
    """Return `fields` by name; repeated ones form one list (RFC 9110, section 5.3)."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        found[name] = found[name] + b", " + value if name in found else value
    return found


def _given_key(headers: Headers) -> bytes:
    scheme, _, token = headers.get(_BEARER, b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return token.strip()
    return headers.get(_API_KEY, b"").strip()
