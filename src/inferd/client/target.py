"""ServerTarget: which server a URL names, and how it is spoken to."""

from typing import NamedTuple
from urllib.parse import urlsplit

from inferd.client.errors import InvalidTarget

PORTS = {"http": 8000, "https": 8000, "grpc": 8001, "grpcs": 8001}
"""The schemes, and the port of each if a URL has none: those of inferd and Triton."""


class ServerTarget(NamedTuple):
    """A server: `path` comes before those of the calls, "" for most.

    `virtual_host` is what calls say that they want of a gateway that serves many, as those of
    KServe do; "" for host and port.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    virtual_host: str = ""

    @property
    def is_grpc(self) -> bool:
        """Whether calls go over gRPC."""
        return self.scheme.startswith("grpc")

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        # Neither "http" nor "grpc" does.
        return self.scheme.endswith("s")

    @property
    def authority(self) -> str:
        """What Host says, over gRPC :authority."""
        return self.virtual_host or self.address

    @property
    def address(self) -> str:
        """Host and port as URLs have them."""
        # An IPv6 address is in brackets in a URL and in Host (RFC 3986, section 3.2.2).
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        """Return the URL."""
        return f"{self.scheme}://{self.address}{self.path}"


def parse_target(url: str) -> ServerTarget:
    """Return the server that `url` names. Raises InvalidTarget."""
    expected = "expected http://HOST:PORT, https://..., grpc://HOST:PORT or grpcs://..."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidTarget(f"'{url}' is no URL of a server: {error}; {expected}") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise InvalidTarget(f"'{url}' is no URL of a server, {expected}")
    # Secrets in URLs end in logs; keys have an option.
    if parts.username is not None or parts.query or parts.fragment:
        msg = f"the URL of {parts.hostname} has a user, a query or a fragment; {expected}"
        raise InvalidTarget(msg)
    path = parts.path.rstrip("/")
    # urlsplit drops some control characters and lets others pass into the request line.
    if not url.isascii() or any(ord(char) <= 32 for char in url):
        raise InvalidTarget(f"{url!r} has characters that no URL has; {expected}")
    if path and parts.scheme.startswith("grpc"):
        raise InvalidTarget(f"'{url}' has a path, which gRPC has not; {expected}")
    port = PORTS[parts.scheme] if port is None else port
    return ServerTarget(parts.scheme, parts.hostname, port, path)
