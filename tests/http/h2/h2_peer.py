"""A connection without a socket for tests of HTTP/2, and an application that notes its calls."""

import struct

from inferd.http.h2.connection import H2Connection
from inferd.http.h2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    encode_frame,
)
from inferd.http.h2.hpack import encode_fields
from inferd.http.h2.stream import StreamHandler

REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a.Service/Method"),
    (b":authority", b"here"),
    (b"content-type", b"application/grpc"),
]
BLOCK = encode_fields(REQUEST)


def head(stream_id=1, flags=0, block=BLOCK):
    return encode_frame(HEADERS, END_HEADERS | flags, stream_id, block)


def data(stream_id=1, payload=b"x", flags=0):
    return encode_frame(DATA, flags, stream_id, payload)


def request(stream_id=1, payload=b"hello"):
    return head(stream_id) + data(stream_id, payload, END_STREAM)


class Noting(StreamHandler):
    """A handler that notes what it is told, and credits what it takes."""

    def __init__(self, stream, sender):
        super().__init__(stream)
        self.sender = sender
        self.data = b""
        self.events = []

    def on_open(self):
        self.events.append("open")

    def on_data(self, data, start, stop, *, ends):
        self.data += bytes(data[start:stop])
        self.sender.credit(self.stream, stop - start)
        if ends:
            self.on_end()

    def on_end(self):
        self.events.append("end")

    def on_reset(self):
        self.events.append("reset")

    def on_drained(self):
        self.events.append("drained")


class Peer:
    """The client's side: what it sends, what it has got."""

    def __init__(self, *, ready=True, handler=Noting, **options):
        self.seen = {}
        self.pings = 0
        self.handler = handler
        limits = {"max_streams": 100, "max_header_bytes": 16384} | options
        self.connection = H2Connection(self.open, on_ping=self.on_ping, **limits)
        self.sender = self.connection.sender
        if ready:
            self.send(PREFACE, encode_frame(SETTINGS, 0, 0))
            self.got()

    def open(self, stream):
        self.seen[stream.id] = handler = self.handler(stream, self.connection.sender)
        return handler

    def on_ping(self):
        self.pings += 1

    def send(self, *frames):
        self.connection.receive(b"".join(frames))

    def got(self):
        """The frames sent since the last look: (type, flags, stream, payload)."""
        data = b"".join(bytes(one) for one in self.sender.out)
        self.sender.out.clear()
        self.sender.out_bytes = 0
        return frames_in(data)

    def error(self):
        """(last stream, error code) of the GOAWAY that ends what was sent."""
        kind, _, stream_id, payload = self.got()[-1]
        assert (kind, stream_id) == (7, 0) and self.sender.is_failed
        return struct.unpack(">LL", payload[:8])


def frames_in(data):
    frames, at = [], 0
    while at < len(data):
        high, low, kind, flags, stream_id = struct.unpack_from(">HBBBL", data, at)
        length = high << 8 | low
        payload = data[at + 9 : at + 9 + length]
        assert len(payload) == length and stream_id < 2**31
        frames.append((kind, flags, stream_id, payload))
        at += 9 + length
    return frames
