"""The API keys that give access, by their hashes."""

from collections.abc import Mapping

from inferd.config.options.access import ApiKey, hash_key
from inferd.errors import Forbidden, Unauthenticated
from inferd.http.access import Headers, Keys

_BEARER, _API_KEY = b"authorization", b"x-api-key"


class KeyRing(Keys):
    """The valid API keys by their hashes; `keys` is replaced as a whole while the server runs."""

    # Answers that are remembered by a request's headers have to look at these.
    header_names = frozenset((_BEARER, _API_KEY))

    def __init__(self, keys: Mapping[bytes, ApiKey]) -> None:
        self.keys = keys

    def check(self, api: str, headers: Headers) -> None:
        """See Keys."""
        given = _given_key(headers)
        # An unknown key and none are told apart: who sends a wrong one is helped most by hearing
        # so.
        if not given:
            msg = "an API key is needed here: Authorization: Bearer KEY, or x-api-key: KEY"
            raise Unauthenticated(msg)
        # The time this takes may reveal something about a hash, but nothing about a key: nobody can
        # choose what their guess hashes to.
        key = self.keys.get(hash_key(given))
        if key is None:
            raise Unauthenticated("the API key is not known here")
        if api not in key.groups:
            raise Forbidden(f"the API key is not good for the {api} calls")

    # For the log, which names also the owner of a key that this call did not need.
    def name_of(self, headers: Headers) -> str:
        """Return the name of the key in `headers`, "" if there is none, or an unknown one."""
        given = _given_key(headers)
        key = self.keys.get(hash_key(given)) if given else None
        return "" if key is None else key.name


def _given_key(headers: Headers) -> bytes:
    scheme, _, token = headers.get(_BEARER, b"").partition(b" ")
    # Schemes have no case (RFC 9110, section 11.1).
    if scheme.lower() == b"bearer":
        return token.strip()
    return headers.get(_API_KEY, b"").strip()
