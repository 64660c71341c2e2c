"""Listening sockets: bound by the supervisor, which alone accepts connections."""

import errno
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

BACKLOG = 1024
_MOST_AT_ONCE = 64
"""Connections accepted in one go: other work of the loop has its turn between."""

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""What accept() says when the system has no room for another connection."""


class BoundPort(NamedTuple):
    """The sockets of one port: `name` is its protocol's, `number` the port; 0: a Unix socket."""

    name: str
    number: int
    sockets: Sequence[socket.socket]

    @property
    def paths(self) -> list[str]:
        """The paths of Unix sockets."""
        return [str(one.getsockname()) for one in self.sockets if one.family == socket.AF_UNIX]


def bound(name: str, address: str, number: int, *, reuse: bool = False) -> BoundPort:
    """Return the sockets bound to every address that `address` means, on the same port.

    The system chooses it if `number` is 0. Raises OSError.
    """
    found = socket.getaddrinfo(
        address or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        # getaddrinfo names an address twice where /etc/hosts does; the second bind would fail.
        for family, kind, protocol, _, place in dict.fromkeys(found):
            one = _socket(family, kind, protocol)
            if one is None:
                continue
            sockets.append(one)
            # Otherwise a server that is started again could not bind for a minute, while
            # connections of the one before are in TIME_WAIT.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                # Linux lets an IPv6 socket take IPv4 as well, and then the
                # bind of the IPv4 address fails.
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # `number` and not the port in `place`: if the system chose one for the first address,
            # all the others get the same.
            one.bind((place[0], number, *place[2:]))
            one.listen(BACKLOG)
            number = one.getsockname()[1]
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return BoundPort(name, number, sockets)


def _socket(family: int, kind: int, protocol: int) -> socket.socket | None:
    """Return a socket that does not block, None where the system lacks the family."""
    try:
        one = socket.socket(family, kind, protocol)
    except OSError:
        return None
    one.setblocking(False)
    return one


def accepted(listening: socket.socket) -> list[socket.socket]:
    """Return connections that wait at a socket, at most some. Raises OSError: see EXHAUSTED."""
    found: list[socket.socket] = []
    with suppress(BlockingIOError):
        while len(found) < _MOST_AT_ONCE:
            try:
                connection, _ = listening.accept()
            except (ConnectionAbortedError, InterruptedError):  # the client has gone meanwhile
                continue
            except OSError:
                if found:
                    break
                raise
            # On Linux, accept's sockets do not take over O_NONBLOCK from the one that listens.
            connection.setblocking(False)
            found.append(connection)
    return found
