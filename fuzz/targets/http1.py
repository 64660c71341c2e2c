"""HTTP/1.1: heads, chunks and bodies on one connection, in pieces of the size of the first byte.

However they are cut, the answers are the same, and never that the server failed. What is said of
something that is no HTTP may depend on how much of it had come.
"""

import asyncio
import atexit

from http_site import Held, infer_bytes, models_for_tests, post_bytes
from http_wire import Wire

WRONG, FAILED = 400, 500
NO_HTTP = (WRONG, 414, 431, 501, 505)
LOOP = asyncio.new_event_loop()
"""It never runs: what would have to wait is left waiting."""
ENGINE = models_for_tests(Held())

_REQUESTS = [
    b"GET /v2/health/live HTTP/1.1\r\n\r\n",
    b"GET /v2 HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nX: y\r\n\r\n",
    infer_bytes([1.5, 2.5]) + infer_bytes([2.5]),
    infer_bytes([1.5], "Expect: 100-continue"),
    infer_bytes([0.5] * 9, as_chunks=50),
    post_bytes("/v2/models/id/infer", bytes(8), "Inference-Header-Content-Length: 0"),
    b"POST /v2/models/id/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
    b"Inference-Header-Content-Length: 0\r\n\r\n4;a=b\r\nabcd\r\n0\r\nT: r\r\n\r\n",
    b"GET /v2/models/a%2Fb%20c/versions/1/ready HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n",
]
SEEDS = [bytes([size]) + one for one in _REQUESTS for size in (1, 255)]

atexit.register(LOOP.close)


def target(data: bytes) -> bool:
    """Send in one piece and in several; return whether the connection is still open."""
    asyncio.set_event_loop(LOOP)
    size, sent = data[:1], data[1:].replace(b"HEAD", b"HEAL")  # its answers have no body to count
    whole, is_open = _answers(sent, len(sent) + 1)
    cut, _ = _answers(sent, max(size[0] if size else 1, 1))
    assert whole == cut, (whole, cut)
    return is_open


def _answers(sent: bytes, size: int) -> tuple[list[tuple[int, bytes]], bool]:
    wire = Wire(ENGINE)
    for at in range(0, len(sent), size):
        wire.send(sent[at : at + size])
    answers, is_open = wire.answers(), not wire.transport.is_closed
    wire.end()
    assert all(status != FAILED for status, _ in answers), answers
    answers = [(WRONG, b"") if status in NO_HTTP else (status, body) for status, body in answers]
    return answers, is_open
