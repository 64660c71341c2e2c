"""Options of a client, and the ClientSettings that they become."""

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from inferd.client.errors import InvalidTarget
from inferd.client.target import ServerTarget, parse_target

Headers = Mapping[str, str]
"""Headers of HTTP, metadata of gRPC."""

GIBIBYTE: Final = 1 << 30


class ClientOptions(TypedDict, total=False):
    """The options of a client, all of which may be left out.

    api_key: the key of a server that asks for one.
    headers: further headers (gRPC: metadata) of all calls, or a function that gives those of each.
    timeout_s: how long a call may take, with all that is tried again; 60.
    connect_timeout_s: how long a connection may take to be made; 10.
    retries: how often a call is tried again that the server did not take; 2.
    resend: also try again what may have been executed: inferences whose connection was lost.
    connections: the most connections at a time; 100. Each has one call at a time.
    max_answer_bytes: a larger answer is an error; 1 GiB.
    binary: send tensors over REST as binary data, or as JSON; by default as the server can.
    tls: an SSLContext for all that the next three do not say.
    ca_file: the certificates to trust, in place of the system's.
    cert_file, key_file: the client's own certificate and its key.
    """

    api_key: str
    headers: Headers | Callable[[], Headers]
    timeout_s: float
    connect_timeout_s: float
    retries: int
    resend: bool
    connections: int
    max_answer_bytes: int
    binary: bool
    tls: ssl.SSLContext
    ca_file: str
    cert_file: str
    key_file: str


@dataclass(frozen=True)
class ClientSettings:
    """The options of a client in force; `tls` is None for connections in the clear."""

    target: ServerTarget
    api_key: str = ""
    headers: Headers | Callable[[], Headers] | None = None
    timeout_s: float = 60.0
    connect_timeout_s: float = 10.0
    retries: int = 2
    resend: bool = False
    connections: int = 100
    max_answer_bytes: int = GIBIBYTE
    binary: bool | None = None
    tls: ssl.SSLContext | None = None


_FILES = ("tls", "ca_file", "cert_file", "key_file")


def read_settings(url: str, options: ClientOptions) -> ClientSettings:
    """Return the settings of a client of `url`. Raises InvalidTarget."""
    target = parse_target(url)
    unknown = options.keys() - ClientOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a client has no option {', '.join(sorted(unknown))}")
    plain = {name: value for name, value in options.items() if name not in _FILES}
    # mypy cannot follow a TypedDict through a comprehension; its keys were compared above.
    settings = ClientSettings(target, tls=_context(target, options), **plain)  # type: ignore[arg-type]
    for name in ("timeout_s", "connect_timeout_s", "connections", "max_answer_bytes"):
        # Written so that NaN is refused as well.
        if not getattr(settings, name) > 0:
            raise InvalidTarget(f"{name} is {getattr(settings, name)}, expected more than 0")
    return _with_host(settings)


def _with_host(settings: ClientSettings) -> ClientSettings:
    """Return `settings` whose target has the Host among the headers, which is sent once."""
    headers = settings.headers
    if headers is None or callable(headers):
        return settings
    hosts = [
        value
        for name, value in headers.items()
        # What is no text is refused with the other headers.
        if isinstance(name, str) and isinstance(value, str) and name.lower() == "host"
    ]
    if not hosts:
        return settings
    # A blank or a line break would end the line, and begin a header of someone else's.
    if len(hosts) > 1 or not re.fullmatch(r"[\x21-\x7e]+", hosts[0]):
        raise InvalidTarget(f"header 'Host' is {', '.join(map(repr, hosts))}, expected one name")
    others = {name: value for name, value in headers.items() if name.lower() != "host"}
    return replace(settings, target=settings.target._replace(virtual_host=hosts[0]), headers=others)


def _context(target: ServerTarget, options: ClientOptions) -> ssl.SSLContext | None:
    given = [name for name in _FILES if options.get(name)]
    if not target.is_tls:
        if given:
            msg = f"{target} is not encrypted, so {given[0]} has no use; write {target.scheme}s://"
            raise InvalidTarget(msg)
        # Options of TLS without TLS are an error above: a secret would go out in the clear.
        return None
    try:
        context = options.get("tls")
        if context is None:
            context = ssl.create_default_context(cafile=options.get("ca_file") or None)
            # gRPC needs "h2" by ALPN (RFC 9113, section 3.2); a server with both must not choose it
            # for REST.
            context.set_alpn_protocols(["h2"] if target.is_grpc else ["http/1.1"])
        if certificate := options.get("cert_file"):
            context.load_cert_chain(certificate, options.get("key_file") or None)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidTarget(f"the certificates cannot be read: {error}") from error
    return context
