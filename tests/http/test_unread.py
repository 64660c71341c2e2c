"""What a client has sent and nobody has read."""

import asyncio
import socket

from inferd.http.unread import has_unread


class Transport(asyncio.BaseTransport):
    """A transport that knows its socket, or none."""

    def __init__(self, found):
        super().__init__({"socket": found})


def test_bytes_that_have_arrived_are_seen_without_being_read():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not has_unread(Transport(ours))
        theirs.sendall(b"x")
        assert has_unread(Transport(ours))
        assert ours.recv(10) == b"x"
        assert not has_unread(Transport(ours))


def test_the_end_of_a_client_is_nothing_to_read():
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert not has_unread(Transport(ours))


def test_without_a_socket_there_is_nothing_to_read():
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.close()
    assert not has_unread(Transport(ours))
    assert not has_unread(Transport(None))
