"""One port for HTTP/1.1 and HTTP/2: a connection's first bytes say which it is.

A client that speaks HTTP/2 over plain text says so by its preface (RFC 9113, section 3.3, prior
knowledge). Over TLS, ALPN has agreed on it before; the preface comes all the same.
"""

from inferd.transport.http2_connection import Http2Connection
from inferd.transport.http2_server import Http2Server
from inferd.transport.http_connection import HttpConnection
from inferd.transport.http_server import HttpServer
from inferd.wire.h2_frames import PREFACE


def share_port(http: HttpServer, http2: Http2Server) -> None:
    """Let the sockets `http` will listen on carry HTTP/2, and with it gRPC, as well."""
    http2.turns = http.turns
    http.connect = lambda: OnePortConnection(http, http2)
    http2.keep_sweeping()


class OnePortConnection(HttpConnection):
    """An HTTP/1.1 connection, until its first bytes are the preface of HTTP/2."""

    def __init__(self, server: HttpServer, http2: Http2Server) -> None:
        super().__init__(server)
        self._http2 = http2
        self._is_decided = False

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        if self._is_decided or self._is_closing:
            super().buffer_updated(nbytes)
            return
        came = bytes(self._buffer[: self._end + nbytes])
        if came.startswith(PREFACE):
            self._switch(came)
        elif PREFACE.startswith(came):
            if self._end == 0:
                self._since = self._server.now
            self._end += nbytes
        else:
            self._is_decided = True
            super().buffer_updated(nbytes)

    def _switch(self, came: bytes) -> None:
        self._is_decided = self._is_closing = True
        self._server.forget(self)
        connection = Http2Connection(self._http2)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        connection.take(came)
