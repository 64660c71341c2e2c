"""EventSender: sends events to a receiver over HTTP, one POST for each, as KServe's logger does."""

import http.client
import ssl
from typing import Final
from urllib.parse import urlsplit

from inferd.config.options.log import PayloadSettings
from inferd.errors import InvalidConfig
from inferd.observe.payloads.event import PayloadEvent, as_headers

TIMEOUT_S: Final = 5.0
"""For so long, a receiver may be silent."""

# An answer must be read to keep the connection, but a receiver may not fill memory.
_MOST_ANSWER_BYTES = 1 << 20


_DEFAULT: Final = PayloadSettings()


class NotTaken(Exception):
    """A receiver answered that it did not take an event."""


class EventSender:
    """Sends events to `url`, over one connection that is kept alive.

    Raises InvalidConfig for a URL, or files for TLS, that cannot be used.
    """

    def __init__(
        self, url: str, settings: PayloadSettings = _DEFAULT, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in ("http", "https"):
            raise InvalidConfig(f"--payload-log: '{url}' is no URL that events can be sent to")
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=timeout_s, context=_context(settings)
            )
        elif settings.has_tls_files:
            msg = f"--payload-log: ca-file and cert-file are for a URL with https, not for '{url}'"
            raise InvalidConfig(msg)
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)

    def open(self) -> None:
        """See PayloadSink; the receiver may come later."""

    def write(self, event: PayloadEvent, attributes: dict[str, str]) -> None:
        """See PayloadSink. Raises NotTaken, too."""
        headers = as_headers(attributes)
        is_fresh = self._connection.sock is None
        try:
            status = self._sent(event, headers)
        except ConnectionError:  # an idle connection may be closed at any time
            # On a new connection the receiver itself fails: trying again at once is no use. Sent
            # twice, an event has the same id, so receivers can tell (CloudEvents, id).
            if is_fresh:
                raise
            status = self._sent(event, headers)
        if not status.startswith("2"):
            raise NotTaken(f"the receiver answers {status}")

    def _sent(self, event: PayloadEvent, headers: dict[str, str]) -> str:
        """Return the status of the answer, with its text."""
        try:
            self._connection.request("POST", self._target, event.data, headers)
            answer = self._connection.getresponse()
            answer.read(_MOST_ANSWER_BYTES)
        except BaseException:
            self._connection.close()
            raise
        if not answer.isclosed():  # what it says is longer than anybody wants to know
            self._connection.close()
        return f"{answer.status} {answer.reason}"

    def close(self) -> None:
        """See PayloadSink."""
        self._connection.close()


def _context(settings: PayloadSettings) -> ssl.SSLContext:
    """Return how to speak TLS. Raises InvalidConfig."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file or None, _no_password)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        names = ("ca_file", "cert_file", "key_file")
        files = ", ".join(name for one in names if (name := getattr(settings, one)))
        msg = f"--payload-log: cannot use the files for TLS ({files}): {error}"
        raise InvalidConfig(msg) from error
    return context


def _no_password() -> str:
    """Return no password; without this, OpenSSL would ask for one on the terminal."""
    return ""
