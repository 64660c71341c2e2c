"""One HTTP/1.1 connection without a socket, and what a loop would do to it."""

import asyncio
import re

import msgspec

from inferd.http.h1.connection import HttpConnection
from inferd.http.turns import Turns
from inferd.memory.capacity import Capacity
from inferd.transport.http_server import HttpOptions, HttpServer

OPTIONS = HttpOptions(
    max_header_bytes=300,
    max_body_bytes=3000,
    max_input_bytes=3000,
    max_connections=10,
    idle_timeout_s=10.0,
    header_timeout_s=10.0,
    body_timeout_s=10.0,
    write_timeout_s=10.0,
    max_connection_age_ms=None,
    max_connection_requests=None,
    drain_window_s=1.0,
    half_floats_in_json=True,
    non_finite="tokens",
    not_ready_status=400,
    ssl_context=None,
)
HEAD = re.compile(
    rb"HTTP/1\.1 (\d{3}) [A-Za-z ]+\r\n"
    rb"Content-Type: application/(?:json|octet-stream)\r\nContent-Length: (\d+)\r\n"
    rb"(?:[A-Za-z-]+: [^\r\n]*\r\n)*\r\n"
)
INTERIM = re.compile(rb"HTTP/1\.1 (?:100 Continue|102 Processing)\r\n\r\n")


class FakeTransport(asyncio.Transport):
    """Keeps what is written; strict about calls after its end."""

    def __init__(self):
        super().__init__()
        self.written = []
        self.is_reading = True
        self.is_ended = False
        self.is_closed = False
        self.is_misused = False  # written to after its end

    def write(self, data):
        self.is_misused |= self.is_closed or self.is_ended
        self.written.append(bytes(data))

    def writelines(self, buffers):
        self.write(b"".join(buffers))

    def can_write_eof(self):
        return True

    def write_eof(self):
        self.is_ended = True

    def close(self):
        self.is_closed = True
        self.is_reading = False

    def abort(self):
        self.close()

    def pause_reading(self):
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self):
        assert not self.is_reading and not self.is_closed
        self.is_reading = True

    def get_write_buffer_size(self):
        return 0


class AtOnce(Turns):
    """Turns without a loop: who has read answers and writes at once."""

    def answer_soon(self, connection):
        connection.take_turn()

    answer_read = answer_soon

    def write_soon(self, connection):
        connection.write_pending()


class Wire:
    """One connection of its own server, and what a loop would do to it."""

    def __init__(self, engine, max_inflight_bytes=4000, **changes):
        options = msgspec.structs.replace(OPTIONS, **changes)
        self.now = 0.0
        self.server = HttpServer(
            engine,
            options,
            capacity=Capacity(max_bytes=max_inflight_bytes),
            clock=lambda: self.now,
        )
        self.server.endpoint.turns = AtOnce()
        self.transport = FakeTransport()
        self.connection = HttpConnection(self.server.endpoint)
        self.connection.connection_made(self.transport)
        self.unread = b""

    def send(self, data):
        """Deliver `data` and what could not be delivered before."""
        self.unread += data
        transport, connection = self.transport, self.connection
        while self.unread and transport.is_reading and not transport.is_closed:
            buffer = connection.get_buffer(65536)
            size = min(len(buffer), len(self.unread))
            assert size > 0
            buffer[:size] = self.unread[:size]
            self.unread = self.unread[size:]
            connection.buffer_updated(size)

    def end(self):
        """Lose the connection; nothing may be held after that."""
        self.connection.connection_lost(None)
        assert not self.transport.is_misused
        assert self.server.endpoint.capacity.buffered_bytes == 0
        assert not self.server.endpoint.connections

    def answers(self):
        """Return (status, body) of all that was written, which is nothing but answers."""
        data, found = b"".join(self.transport.written), []
        while data:
            if interim := INTERIM.match(data):
                data = data[interim.end() :]
                continue
            match = HEAD.match(data)
            assert match, data[:200]
            end = match.end() + int(match[2])
            assert end <= len(data)
            found.append((int(match[1]), data[match.end() : end]))
            data = data[end:]
        return found
