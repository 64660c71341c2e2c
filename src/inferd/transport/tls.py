"""The TLS side of one port, whose files can be read again while it runs."""

import ssl
from collections.abc import Callable


class LiveTls:
    """Gives every new connection what the files held when they were last read.

    `build` makes a context of the files. Who listens keeps the context it is given, and a context
    cannot forget: what it trusts only grows. So `context` stays the first one, and sends each
    handshake to the latest. Raises as `build` does.
    """

    def __init__(self, build: Callable[[], ssl.SSLContext]) -> None:
        self._build = build
        self._latest = self.context = build()
        self.context.sni_callback = self._choose

    def read(self) -> None:
        """Read the files again. Raises as `build` does; what was read before stays then."""
        self._latest = self._build()

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        """Have a handshake go on with the latest context; called with and without a name."""
        connection.context = self._latest
