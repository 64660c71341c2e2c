"""Access control: a guard in front of each call that is not open to everybody.

Guards are assigned when the tables of routes and methods are built, so open calls cost nothing.
"""

import hmac
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from inferd.errors import Restricted

Headers = Mapping[bytes, bytes]
"""Names in lower case; the values of a repeated header are joined with a comma."""


NO_GROUP = ""
"""The API group of calls that are open to everybody, or check themselves who may make them."""


class Secret(NamedTuple):
    """A header, its name in lower case, and the value it must have."""

    name: bytes
    value: bytes


class Keys:
    """The API keys that are valid; `header_names` are the headers that carry one, in lower case."""

    header_names: frozenset[bytes] = frozenset()

    def check(self, api: str, headers: Headers) -> None:
        """Raise Unauthenticated or Forbidden unless `headers` have a key for the group `api`."""
        raise NotImplementedError


class Guard:
    """Guards the calls of one API group."""

    def __init__(self, api: str, secret: Secret | None, keys: Keys | None) -> None:
        self._api = api
        self._secret = secret
        self._keys = keys

    def check(self, headers: Headers) -> None:
        """Raise Unauthenticated, Forbidden or Restricted if a request with `headers` has no access.

        The API key is checked first.
        """
        if self._keys is not None:
            self._keys.check(self._api, headers)
        if self._secret is not None:
            name, value = self._secret
            # In constant time: an operator chooses this secret, so guessing it byte by byte has to
            # be impossible.
            if not hmac.compare_digest(headers.get(name, b""), value):
                what = "protocol" if name.startswith(b"triton-grpc-protocol-") else "API"
                raise Restricted(
                    f"This {what} is restricted, expecting header '{name.decode()}': "
                    f"the {self._api} calls need it with the right value"
                )


class Access:
    """What the calls of one protocol require of clients.

    `secrets` are by API group. With `keys` the calls of all groups need a key, except those of
    the groups in `keyless`.
    """

    def __init__(
        self,
        secrets: Mapping[str, Secret] | None = None,
        keys: Keys | None = None,
        keyless: frozenset[str] = frozenset(),
    ) -> None:
        self._secrets = secrets or {}
        self.keys = keys
        self._keyless = keyless

    @property
    def secret_names(self) -> frozenset[str]:
        """The names of headers with credentials, in lower case; calls need not see them."""
        names = {secret.name for secret in self._secrets.values()}
        if self.keys is not None:
            names |= self.keys.header_names
        return frozenset(name.decode() for name in names)

    def guard(self, api: str, *, with_keys: bool = True) -> Guard | None:
        """Return the guard of the calls of the group `api`, None if they are open.

        Without `with_keys` it asks for no API key.
        """
        if api == NO_GROUP:
            return None
        secret = self._secrets.get(api)
        keys = None if api in self._keyless or not with_keys else self.keys
        return Guard(api, secret, keys) if secret or keys else None


OPEN = Access()
"""No restrictions."""


def joined(fields: Iterable[tuple[bytes, ...]]) -> dict[bytes, bytes]:
    """Return `fields` by name; repeated ones form one list (RFC 9110, section 5.3)."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        # A comma is right for all of them but Set-Cookie, which only answers have.
        found[name] = found[name] + b", " + value if name in found else value
    return found
