"""The TLS context of one port, whose files can be reloaded while it runs."""

import ssl
from collections.abc import Callable


class LiveTls:
    """Gives every new connection a context made from the files as they were last read.

    `build` makes a context from the files. A listening socket keeps the context it is given, and a
    context cannot forget: the set of certificates it trusts only grows. So `context` stays the
    first one and passes each handshake on to the latest. Raises as `build` does.
    """

    def __init__(self, build: Callable[[], ssl.SSLContext]) -> None:
        self._build = build
        self._latest = self.context = build()
        self.context.sni_callback = self._choose

    def read(self) -> None:
        """Reload the files. Raises as `build` does; the previous context then stays in use."""
        self._latest = self._build()

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        """Continue a handshake with the latest context; called with or without a server name."""
        connection.context = self._latest
