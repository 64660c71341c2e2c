"""Calls on a connection without a socket: what a client sends, and what it is sent."""

import asyncio

from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.http.grpc.call import prepare
from inferd.http.grpc.endpoint import Carrier
from inferd.http.grpc.messages import PREFIX
from inferd.http.h2.connection import H2Connection
from inferd.http.h2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    Setting,
    encode_frame,
    encode_settings,
    encode_window_update,
)
from inferd.http.h2.hpack import HeaderDecoder, encode_fields
from inferd.server.options import grpc_options
from inferd.transport.http2_server import Http2Server

HEAD = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/t.T/Do"),
    (b"content-type", b"application/grpc"),
]


def message(data):
    return PREFIX.pack(0, len(data)) + data


class CallSite:
    """One connection whose client has the windows `window`; its calls are of `kind`."""

    def __init__(self, kind, method, window=2**20):
        server = Http2Server(Engine(), grpc_options(ServerConfig()), {"/t.T/Do": method})
        self.endpoint = server.endpoint
        self.capacity = server.endpoint.capacity
        self.calls = {}
        self._kind = kind
        self._h2 = H2Connection(self._handle, max_streams=10, max_header_bytes=8192)
        self._decoder = HeaderDecoder(8192)
        self.sender = self._h2.sender
        self._resumed = asyncio.Event()
        self._carrier = Carrier(
            self.endpoint, self.sender, lambda: None, self._resumed.set, log=None
        )
        self._h2.receive(PREFACE + encode_settings({Setting.INITIAL_WINDOW_SIZE: window}))
        self.got()

    def _handle(self, stream):
        stream.head.use = prepare(stream.head, self.endpoint.methods, 8192)
        self.calls[stream.id] = call = self._kind(stream, self._carrier)
        return call

    def head(self, stream_id=1, flags=0):
        block = encode_fields(HEAD)
        self._h2.receive(encode_frame(HEADERS, END_HEADERS | flags, stream_id, block))

    def data(self, payload, flags=0, stream_id=1):
        self._h2.receive(encode_frame(DATA, flags, stream_id, payload))

    def end(self, payload=b"", stream_id=1):
        self.data(payload, END_STREAM, stream_id)

    def widen(self, count, stream_id=1):
        self._h2.receive(encode_window_update(stream_id, count))

    async def resume(self):
        """Wait until a call's handler can go on, and let it."""
        await self._resumed.wait()
        self._resumed.clear()
        resumed, self._carrier.resumed = self._carrier.resumed, []
        for call in resumed:
            call.go_on()

    def got(self):
        """Return the DATA and the fields sent since the last look."""
        sent = b"".join(map(bytes, self.sender.out))
        self.sender.out.clear()
        self.sender.out_bytes = 0
        body, fields = b"", {}
        while sent:
            size, kind = int.from_bytes(sent[:3], "big"), sent[3]
            payload, sent = sent[9 : 9 + size], sent[9 + size :]
            if kind == DATA:
                body += payload
            elif kind == HEADERS:
                fields |= dict(self._decoder.decode(payload)[0])
        return body, fields
