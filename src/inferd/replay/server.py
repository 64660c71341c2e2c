"""ReplayTarget: the server that gets logged requests again, over V2's REST."""

import http.client
import select
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from inferd.errors import InvalidConfig
from inferd.replay.entries import LoggedBody, LoggedRequest

_LENGTH = "Inference-Header-Content-Length"
_SHOWN = 300


class Unreachable(Exception):
    """The server cannot be reached, or is none of V2; the text says what to do."""


class ReplayAnswer(NamedTuple):
    """What a server answered."""

    status: int
    body: LoggedBody

    def text(self) -> str:
        """Return the status and the beginning of the body, which is that of an error."""
        shown = self.body.data[:_SHOWN].decode(errors="replace")
        return f"{self.status} {shown}"


class ReplayTarget:
    """Sends requests to `url` over one connection, with `headers` of the caller's.

    Raises InvalidConfig for a URL that cannot be used.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
            # What http.client sends must be ASCII, and a name that DNS can have.
            is_known = bool(host and host.encode("idna") and parts.path.isascii())
        except ValueError:  # UnicodeError is one
            is_known = False
        if not is_known or not host or parts.scheme not in ("http", "https"):
            raise InvalidConfig(f"--url {url} is no address of a server, expected http://HOST:PORT")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._prefix = parts.path.rstrip("/")
        self._headers = dict(headers)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        # Connects with the first request, not here.
        self._connection = kind(host, port, timeout=timeout_s)

    def check(self) -> None:
        """Raise Unreachable unless this is a server of V2 that is ready."""
        status = self._ask("GET", "/v2/health/ready", None, {}).status
        # Every V2 server knows this path; 404 means that something else listens there.
        if status == 404:
            raise Unreachable(f"{self.url} is no server of V2: it does not know /v2/health/ready")
        if status != 200:
            raise Unreachable(f"the server at {self.url} is not ready: it answers {status}")

    def send(self, request: LoggedRequest) -> ReplayAnswer:
        """Send `request` and return the reply. Raises Unreachable."""
        # safe='': names of models may have slashes.
        path = f"/v2/models/{quote(request.model, safe='')}"
        if request.version:
            path += f"/versions/{quote(request.version, safe='')}"
        headers = {"Content-Type": "application/json"}
        if request.body.json_size is not None:
            headers = {
                "Content-Type": "application/octet-stream",
                _LENGTH: str(request.body.json_size),
            }
        return self._ask("POST", f"{path}/infer", request.body.data, headers)

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> ReplayAnswer:
        # A server may close an idle connection at any time (RFC 9112, 9.5). What it closes later is
        # not sent a second time: it may have been executed.
        if self._has_ended():
            self._connection.close()
        try:
            return self._asked(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _has_ended(self) -> bool:
        """Tell whether the server has said anything since its last answer: that is the end."""
        connected = self._connection.sock
        return connected is not None and bool(select.select([connected], [], [], 0)[0])

    def _asked(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> ReplayAnswer:
        connection = self._connection
        try:
            connection.request(method, self._prefix + path, body, {**self._headers, **headers})
            answer = connection.getresponse()
            data = answer.read()
        # http.client refuses further requests after one that was interrupted, until it is closed.
        except BaseException:
            connection.close()
            raise
        size = answer.headers.get(_LENGTH)
        # isdigit() is true of other scripts' digits, too, and int() reads only some.
        is_number = size is not None and size.isascii() and size.isdigit()
        return ReplayAnswer(
            answer.status, LoggedBody(data, int(size or 0) if is_number else None, False)
        )

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted here ({error.verify_message})"
        elif isinstance(error, ssl.SSLError):
            why = "it does not speak TLS; try http://"
        elif isinstance(error, TimeoutError):
            why = "it does not answer in time; --timeout makes it longer"
        elif isinstance(error, ConnectionRefusedError):
            why = "nothing listens there; is the server started, and is this its HTTP port?"
        elif isinstance(error, http.client.RemoteDisconnected):
            why = "it ended the connection before it answered; it may have executed the request"
        elif isinstance(error, http.client.BadStatusLine):
            why = "it does not speak HTTP/1.1; is this its HTTP port, and not that of gRPC or TLS?"
        else:
            why = str(getattr(error, "strerror", None) or error or type(error).__name__)
        return Unreachable(f"cannot use the server at {self.url}: {why}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
