"""One port for HTTP/1.1 and HTTP/2: the first bytes of a connection tell which it is.

An HTTP/2 client on plain text begins with the preface (RFC 9113, section 3.3, prior knowledge).
Over TLS, ALPN has already selected HTTP/2; the preface is sent all the same.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from inferd.http.h1.endpoint import HttpEndpoint
from inferd.http.h2.frames import PREFACE
from inferd.http.http2_connection import Http2Connection
from inferd.transport.http2_server import Http2Server
from inferd.transport.http_server import HttpServer

if TYPE_CHECKING:
    import asyncio

# Its first part; the second, "SM", may come in another packet.
_PREFACE_HEAD = PREFACE[: PREFACE.index(b"\r\n\r\n") + 4]


def share_port(http: HttpServer, http2: Http2Server) -> None:
    """Have the sockets that `http` will listen on also carry HTTP/2, and with it gRPC."""
    # One order of turns for both, or one protocol's requests would wait for the other's round.
    http2.endpoint.turns = http.endpoint.turns
    hand_over(http.endpoint, http2.connect)
    http2.keep_sweeping()


def hand_over(http: HttpEndpoint, connect: Callable[[], Http2Connection]) -> None:
    """Have the connections of `http` that begin as HTTP/2 go on as what `connect` returns.

    The preface is designed to look like an HTTP/1.1 head of another version, which is refused: only
    then it is looked for, so the check costs HTTP/1.1 requests nothing.
    """

    def take_over(transport: "asyncio.Transport", received: bytes) -> bool:
        if not received.startswith(_PREFACE_HEAD):
            return False
        connection = connect()
        transport.set_protocol(cast("asyncio.BaseProtocol", connection))
        # set_protocol does not call it.
        connection.connection_made(transport)
        # What was read already is not read again.
        connection.take(received)
        return True

    http.take_over = take_over
