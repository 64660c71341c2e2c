"""One port for HTTP/1.1 and HTTP/2: the first bytes of a connection tell which it is.

An HTTP/2 client on plain text begins with the preface (RFC 9113, section 3.3, prior knowledge).
Over TLS, ALPN has already selected HTTP/2; the preface is sent all the same.
"""

from typing import TYPE_CHECKING, Protocol, cast

from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.h2.frames import PREFACE
from inferd.http.http2_connection import Http2Connection
from inferd.transport.http2_server import Http2Server
from inferd.transport.http_server import AsyncioConnection, HttpServer

if TYPE_CHECKING:
    import asyncio

_PREFACE_HEAD = PREFACE[: PREFACE.index(b"\r\n\r\n") + 4]


def share_port(http: HttpServer, http2: Http2Server) -> None:
    """Have the sockets that `http` will listen on also carry HTTP/2, and with it gRPC."""
    http2.endpoint.turns = http.endpoint.turns
    http.connect = lambda: OnePortConnection(http.endpoint, http2)
    http2.keep_sweeping()


class Http2Connector(Protocol):
    """What makes the protocols of new connections over HTTP/2."""

    def connect(self) -> Http2Connection:
        """Return the protocol of a new connection."""
        ...


class OnePortConnection(AsyncioConnection):
    """An HTTP/1.1 connection, unless its first head is the beginning of HTTP/2's preface.

    The preface is designed to look like an HTTP/1.1 head, so the check costs HTTP/1.1 requests
    nothing.
    """

    def __init__(self, http: HttpEndpoint, http2: Http2Connector) -> None:
        super().__init__(http)
        self._http2 = http2

    def _read_head(self) -> int:
        received = self._view[self._start : self._end]
        if self._heads.head or received[: len(_PREFACE_HEAD)] != _PREFACE_HEAD:
            return super()._read_head()
        self._switch(bytes(received))
        return 0

    def _switch(self, received: bytes) -> None:
        self._is_closing = True
        self._endpoint.forget(self)
        connection = self._http2.connect()
        self._transport.set_protocol(cast("asyncio.BaseProtocol", connection))
        connection.connection_made(self._transport)
        connection.take(received)
