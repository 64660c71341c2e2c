"""The TLS context of one port, whose files can be reloaded while it runs."""

import ssl
import time
from collections.abc import Callable
from pathlib import Path


class LiveTls:
    """Gives every new connection a context made from the files as they were last read.

    `build` makes a context from the files; `authorities` is the one whose certificates clients'
    have to be signed by, if they are asked for any. A listening socket keeps the context it is
    given, and a context cannot forget: the set of certificates it trusts only grows. So `context`
    stays the first one and passes each handshake on to the latest. Raises as `build` does.
    """

    def __init__(self, build: Callable[[], ssl.SSLContext], authorities: str | None = None) -> None:
        self._build = build
        self._authorities = authorities
        self._latest = self.context = build()
        self._trusted = self._read_authorities()
        self._sessions_since_s = 0
        """Sessions made before this second have a client that others may have vouched for."""
        self.context.sni_callback = self._choose

    def read(self) -> None:
        """Reload the files. Raises as `build` does; the previous context then stays in use."""
        latest, trusted = self._build(), self._read_authorities()
        self._latest = latest
        if trusted != self._trusted:
            self._trusted = trusted
            # Sessions count whole seconds: those of this one are taken for old.
            self._sessions_since_s = int(time.time()) + 1

    def _read_authorities(self) -> bytes:
        return Path(self._authorities).read_bytes() if self._authorities else b""

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> int | None:
        """Continue a handshake with the latest context; called with or without a server name.

        A session that is resumed shows no certificate again. OpenSSL lets nobody ask for one here,
        so the handshake ends, on which clients forget the session (RFC 5077, section 3.2).
        """
        if self._sessions_since_s and connection.session_reused:
            session = connection.session
            if session is None or session.time < self._sessions_since_s:
                return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE
        connection.context = self._latest
        return None
