"""Permission: which clients may read which topics, and change what."""

from inferd.errors import Forbidden, Unauthenticated
from inferd.http.access import Access, Guard, Headers
from inferd.ui.acts import GROUPS as ACT_GROUPS
from inferd.ui.acts import Act
from inferd.ui.tokens import Tokens
from inferd.ui.topics import GROUPS as TOPIC_GROUPS

SESSION = b"x-inferd-ui-session"
"""The header with a session, in lower case."""


class Permission:
    """What the guards of `access` allow; with `tokens`, those who have a session change things.

    A session takes the place of an API key, but not that of the secret of a restricted API.
    """

    def __init__(self, access: Access, tokens: Tokens | None) -> None:
        self._tokens = tokens
        self._keys = access.keys
        self._topics = {
            topic: _guards(*(access.guard(group) for group in groups))
            for topic, groups in TOPIC_GROUPS.items()
        }
        self._secrets = {
            group: _guards(access.guard(group, with_keys=False))
            for group in set(ACT_GROUPS.values())
        }

    @property
    def needs_keys(self) -> bool:
        """Whether calls need an API key."""
        return self._keys is not None

    @property
    def key_headers(self) -> list[str]:
        """The headers that may carry an API key, in lower case."""
        names = self._keys.header_names if self._keys is not None else ()
        return sorted(name.decode() for name in names)

    def tokens(self) -> Tokens:
        """Return the tokens. Raises Forbidden where the dashboard changes nothing."""
        if self._tokens is None:
            msg = "the dashboard of this server only shows; with --ui=full it may change things too"
            raise Forbidden(msg)
        return self._tokens

    def check_topic(self, topic: str, headers: Headers) -> None:
        """Raise as Guard.check does unless the client may read `topic`."""
        for guard in self._topics[topic]:
            guard.check(headers)

    def check_act(self, act: Act, headers: Headers) -> None:
        """Raise Unauthenticated, Forbidden or Restricted unless the client may do that."""
        group = ACT_GROUPS[type(act)]
        session = headers.get(SESSION, b"")
        if not self.tokens().is_session(session.decode("latin-1")):
            # Without keys, a session is the only way.
            if self._keys is None:
                what = "the session is over" if session else "this needs a session"
                raise Unauthenticated(f"{what}: open the link that the server has printed last")
            self._keys.check(group, headers)
        # Who restricted an API wants its header, whoever asks (docs/decisions/0044-dashboard.md).
        for guard in self._secrets[group]:
            guard.check(headers)


def _guards(*guards: Guard | None) -> list[Guard]:
    return [guard for guard in guards if guard is not None]
