"""Connections of the load, without a socket: what they send, and bytes given to them."""

import pytest

from inferd.bench.plan import Address, Message, Plan


class FakeTransport:
    """Keeps what is written."""

    def __init__(self):
        self.sent = b""
        self.is_closed = False

    def write(self, data):
        self.sent += bytes(data)

    def writelines(self, buffers):
        self.sent += b"".join(map(bytes, buffers))

    def close(self):
        self.is_closed = True

    abort = close

    def take(self):
        """Return what was written since the last look."""
        sent, self.sent = self.sent, b""
        return sent


class Ends(list):
    """The ends of requests: "" or an error each."""

    def __call__(self, _connection, error):
        self.append(error)


@pytest.fixture
def opened():
    """opened(kind, **plan) returns a connection, its transport, and the ends of its requests."""

    def open_(kind, **more):
        ends = Ends()
        plan = Plan(Address("h", 1, is_grpc="Grpc" in kind.__name__), [Message(b"")], **more)
        connection = kind(plan, ends)
        transport = FakeTransport()
        connection.connection_made(transport)
        return connection, transport, ends

    return open_


@pytest.fixture
def receive():
    """receive(connection, data, size) gives it `data` in pieces of a size, as a loop would."""

    def give(connection, data, size=1 << 16):
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))

    return give
