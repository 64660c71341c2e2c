"""A client of HTTP/2 that sends frames as told."""

import struct

import hpack

from inferd.http.h2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, encode_frame
from inferd.http.h2.hpack import encode_fields


class Client:
    """An HTTP/2 client that sends frames as told and reads whole answers."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.decoder = hpack.Decoder()
        self.next_id = 1

    def send(self, *frames):
        self.writer.write(b"".join(frames))

    async def frame(self, stream_id, *kinds):
        """Read up to the next frame of these kinds on a stream: its kind, flags and payload."""
        while True:
            high, low, kind, flags, stream = struct.unpack(
                ">HBBBL", await self.reader.readexactly(9)
            )
            payload = await self.reader.readexactly(high << 8 | low)
            if stream == stream_id and kind in kinds:
                return kind, flags, payload

    def ask(self, method, path, body=None, *, pieces=1, fields=()):
        """Send a request; return its stream."""
        stream_id, self.next_id = self.next_id, self.next_id + 2
        head = [(b":method", method), (b":scheme", b"http"), (b":path", path), *fields]
        flags = END_HEADERS | (END_STREAM if body is None else 0)
        self.send(encode_frame(HEADERS, flags, stream_id, encode_fields(head)))
        if body is not None:
            size = max(1, -(-len(body) // pieces))
            for at in range(0, len(body) or 1, size):
                ends = END_STREAM if at + size >= len(body) else 0
                self.send(encode_frame(DATA, ends, stream_id, body[at : at + size]))
        return stream_id

    async def answer(self, stream_id):
        """The answer on a stream: status, fields, body. None: it was reset."""
        fields, body = {}, b""
        while True:
            high, low, kind, flags, stream = struct.unpack(
                ">HBBBL", await self.reader.readexactly(9)
            )
            payload = await self.reader.readexactly(high << 8 | low)
            if stream != stream_id:
                continue
            if kind == RST_STREAM:
                return None
            if kind == HEADERS:
                fields |= dict(self.decoder.decode(payload))
            elif kind == DATA:
                body += payload
            if flags & END_STREAM:
                return int(fields.pop(":status")), fields, body
