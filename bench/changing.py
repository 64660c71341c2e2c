"""Sends gRPC calls with heads that all differ: deadlines and metadata change.

    python bench/changing.py PORT CONNECTIONS SECONDS BODY_FILE PATH

h2load always repeats one head, which a server may remember. Here each call has its own deadline, id
and trace, and its head is packed as in gRPC's C library, and thus Triton's client: with HPACK's
table, without its Huffman code. Prints the figures as one JSON line. The heads are packed
beforehand, so that the load itself costs little.
"""

import asyncio
import json
import secrets
import struct
import sys
import time
from pathlib import Path
from typing import cast

import hpack
import numpy as np
import uvloop

HOST = "127.0.0.1"
HEADS = 1000
"""How many heads are packed; then they are repeated, from the first, which empties the table."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS = 4
FRAME_HEADER = struct.Struct(">BHBBL")
WIDEST = (1 << 31) - 1 - 65535


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return one HTTP/2 frame."""
    length = len(payload)
    return FRAME_HEADER.pack(length >> 16, length & 0xFFFF, kind, flags, stream) + payload


def pack_heads(path: str) -> list[bytes]:
    """Return header blocks to be sent in order, repeatedly."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0  # the first block begins with this: forget the last round
    encoder.header_table_size = 4096
    blocks = []
    for _ in range(HEADS):
        trace = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", HOST),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("grpc-timeout", f"{1000 + secrets.randbelow(60_000)}m"),
            ("x-request-id", secrets.token_hex(16)),
            ("traceparent", trace),
        ]
        blocks.append(encoder.encode(fields, huffman=False))
    return blocks


class Caller(asyncio.Protocol):
    """One connection, one call at a time."""

    def __init__(self, heads: list[bytes], body: bytes, ends_at: float) -> None:
        self._heads, self._body, self._ends_at = heads, body, ends_at
        self._transport = cast("asyncio.Transport", None)
        self._received = b""
        self._stream = -1
        self._data_bytes = 0
        self._sent_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.took_us: list[float] = []
        self.bad = 0
        self.bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        window = frame(WINDOW_UPDATE, 0, 0, struct.pack(">L", WIDEST))
        self._transport.write(PREFACE + frame(SETTINGS, 0, 0, b"") + window)
        self._ask()

    def connection_lost(self, _exc: Exception | None) -> None:
        """End, and count an unanswered call as bad."""
        if not self.done.done():
            self.bad += 1
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Handle every complete frame."""
        received = self._received + data
        at = 0
        while at + FRAME_HEADER.size <= len(received):
            high, low, kind, flags, stream = FRAME_HEADER.unpack_from(received, at)
            stop = at + FRAME_HEADER.size + (high << 16 | low)
            if stop > len(received):
                break
            self._take(kind, flags, stream, received[at + FRAME_HEADER.size : stop])
            at = stop
        self._received = received[at:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            self._data_bytes += len(payload)
        elif kind in (SETTINGS, PING) and not flags & ACK:
            self._transport.write(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind in (RST_STREAM, GOAWAY):
            self._transport.close()
        if kind in (DATA, HEADERS) and flags & END_STREAM and stream == self._stream:
            self._answered()

    def _answered(self) -> None:
        self.took_us.append((time.perf_counter() - self._sent_at) * 1e6)
        self.bad += not self._data_bytes  # a status alone: an error
        self.bytes += self._data_bytes
        if time.monotonic() < self._ends_at:
            self._ask()
        else:
            self.done.set_result(None)

    def _ask(self) -> None:
        self._stream += 2
        self._data_bytes = 0
        self._sent_at = time.perf_counter()
        head = self._heads[self._stream // 2 % HEADS]
        self._transport.write(
            frame(HEADERS, END_HEADERS, self._stream, head)
            + frame(DATA, END_STREAM, self._stream, self._body)
        )


async def run(port: int, connections: int, seconds: float, body: bytes, path: str) -> None:
    """Send calls and print the figures."""
    loop, heads = asyncio.get_running_loop(), pack_heads(path)
    ends_at = time.monotonic() + seconds
    callers = []
    for _ in range(connections):
        _, caller = await loop.create_connection(lambda: Caller(heads, body, ends_at), HOST, port)
        callers.append(caller)
    await asyncio.gather(*(caller.done for caller in callers))
    took_us = np.concatenate([caller.took_us for caller in callers])
    bad = sum(caller.bad for caller in callers)
    p50_us, p99_us = np.percentile(took_us, [50, 99])
    found = {
        "requests": len(took_us) - bad,
        "bad": bad,
        "bytes": sum(caller.bytes for caller in callers),
        "seconds": seconds,
        "p50_us": float(p50_us),
        "p99_us": float(p99_us),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit("usage: changing.py PORT CONNECTIONS SECONDS BODY_FILE PATH")
    port, connections, seconds, body, path = sys.argv[1:]
    uvloop.run(run(int(port), int(connections), float(seconds), Path(body).read_bytes(), path))
