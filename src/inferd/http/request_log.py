"""RequestLog: where each request leaves a line, whatever protocol it came by.

What is noted, and how it looks, is for whoever makes one; connections only tell what happened.
"""

from typing import Any

from inferd.compiled import mypyc_attr
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.record import Record


class Notes(Record):
    """What a call notes of a request for its line: `about`, and the `version` that answered it."""

    def __init__(self, about: Any = None, version: str = "") -> None:
        self.about = about
        self.version = version


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientLog:
    """The lines of one connection. Sizes are those of bodies and messages, in bytes.

    `began_ns` is when a request was there, by time.time_ns.
    """

    def answered(
        self, request: HttpRequest, notes: Notes, answer: HttpAnswer, taken: int, began_ns: int
    ) -> None:
        """Note that `request`, of `taken` bytes, has its whole answer."""
        raise NotImplementedError

    def streamed(
        self,
        request: HttpRequest,
        notes: Notes,
        status: int,
        taken: int,
        sent: int,
        began_ns: int,
    ) -> None:
        """Note that the answer to `request` ended after `sent` bytes, of unknown length before."""
        raise NotImplementedError

    def called(
        self, head: Any, notes: Notes, status: int, taken: int, sent: int, began_ns: int
    ) -> None:
        """Note that a call of gRPC, or one request of a stream, ended with the code `status`.

        `head` is its RequestHead.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestLog:
    """Makes the ClientLogs of connections."""

    def client(self, address: str, protocol: str) -> ClientLog:
        """Return the log of a new connection from `address` that speaks `protocol`."""
        raise NotImplementedError


def address_of(name: object) -> str:
    """Return a socket's peer name as text, "unix" for that of a Unix socket."""
    if not isinstance(name, tuple):
        return "unix"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
