"""HTTP/1.1 connections over real sockets: framing, order, limits, timeouts, ends of all kinds."""

import asyncio
import gc
import gzip
import os
import ssl
import weakref

import pytest

from inferd.errors import BackendFailed
from inferd.http.h1.state import CLOSED

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: there\r\n\r\n"
LARGE = os.urandom(1_000_000)


def connections_of(site):
    return site.server.endpoint.connections


def get(path, *lines, version="1.1"):
    return "\r\n".join([f"GET {path} HTTP/{version}", *lines, "", ""]).encode()


async def until_idle():
    """Let the loop run until the server has acted on what it was sent."""
    for _ in range(20):
        await asyncio.sleep(0)


async def until(is_so):
    """Let the loop run until `is_so()`."""
    while not is_so():  # noqa: ASYNC110  what is awaited is the server's state, which tells nobody
        await asyncio.sleep(0.001)


def is_paused(site):
    return any(one._writer.is_stalled for one in connections_of(site))


def head_bytes(site):
    """Return how much the one connection there is has of a head that is not whole."""
    [one] = connections_of(site)
    return one._reader.end - one._reader.start


def body_bytes(site):
    """Return how much of a body it has, and of the one before if no other has begun."""
    [one] = connections_of(site)
    return one._reader.body.filled


# --- one request after the other ---


async def test_a_connection_is_kept_alive(serving, infer):
    async with serving() as site:
        client = await site.connect()
        for _ in range(3):
            answer = await client.ask(infer([1.5, -2.0]))
            assert answer.status == 200
            assert answer.json["outputs"][0]["data"] == [1.5, -2.0]
            assert "connection" not in answer.headers
            assert (await client.ask(LIVE)).json == {"live": True}


@pytest.mark.parametrize("lines", [["Connection: close"], ["connection: Foo, CLOSE"]])
@pytest.mark.parametrize("body", [True, False])
async def test_connection_close_is_honoured(serving, infer, lines, body):
    async with serving() as site:
        client = await site.connect()
        request = infer([1.5], *lines) if body else get("/v2", *lines)
        answer = await client.ask(request)
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_http_10_closes_after_its_answer(serving):
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(get("/v2", version="1.0"))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.rest() == b""


async def test_http_10_is_kept_alive_when_asked(serving, infer):
    async with serving() as site:
        client = await site.connect()
        for request in (
            get("/v2", "Connection: Keep-Alive", version="1.0"),
            infer([1.5], "Connection: keep-alive", version="1.0"),
        ):
            answer = await client.ask(request)
            assert (answer.status, answer.headers["connection"]) == (200, "keep-alive")


async def test_head_gives_the_head_of_get(serving):
    async with serving() as site:
        client = await site.connect()
        wanted = await client.ask(get("/v2"))
        await client.send(get("/v2").replace(b"GET", b"HEAD"))
        answer = await client.answer(has_body=False)
        assert answer.headers == wanted.headers
        assert (await client.ask(LIVE)).status == 200


async def test_a_head_repeated_with_other_bodies_gets_other_answers(serving, infer):
    async with serving() as site:
        client = await site.connect()
        for value in (1.5, 2.5, 3.5):
            answer = await client.ask(infer([value]))
            assert answer.json["outputs"][0]["data"] == [value]


async def test_requests_of_other_lengths_to_other_models_by_turns_get_their_own_answers(
    serving, infer, binary
):
    async with serving() as site:
        client = await site.connect()
        for length in (4, 80, 40_000, 8, 20_000, 12):
            data = os.urandom(length)
            answer = await client.ask(binary(data))
            assert answer.body.endswith(data) and answer.status == 200
            answer = await client.ask(infer([0.5] * length))
            assert answer.json["outputs"][0]["data"] == [0.5] * length
            answer = await client.ask(infer([0.5] * length, model="none"))
            assert (answer.status, "'none'" in answer.error) == (404, True)


@pytest.mark.parametrize("size", [4, 8000, 16384, 16388, 200_000, 3_000_000])
async def test_bodies_of_every_size_come_back(serving, binary, size):
    data = os.urandom(size)
    async with serving() as site:
        client = await site.connect()
        for as_chunks in (0, max(1, size // 100)):
            answer = await client.ask(binary(data, as_chunks=as_chunks))
            json_size = int(answer.headers["inference-header-content-length"])
            assert answer.body[json_size:] == data
            assert site.server.endpoint.capacity.buffered_bytes == 0


# --- pipelining ---


def mixed_requests(infer, binary):
    """Return requests and, for each, what its answer must hold."""
    return [
        (LIVE, b'{"live":true}'),
        (infer([1.25]), b"1.25"),
        (binary(LARGE), LARGE),
        (get("/nothing"), b"nothing"),
        (infer([2.25], as_chunks=7), b"2.25"),
        (binary(LARGE[:50_000], as_chunks=3000), LARGE[:50_000]),
        (infer([3.25], model="none"), b"none"),
        (LIVE, b'{"live":true}'),
        (b"\r\n\r\n" + LIVE, b'{"live":true}'),
    ]


@pytest.mark.parametrize("piece", [0, 1000, 8192, 65537])
async def test_pipelined_requests_are_answered_in_order(serving, infer, binary, piece):
    requests, wanted = zip(*mixed_requests(infer, binary), strict=True)
    stream = b"".join(requests)
    pieces = [stream[at : at + piece] for at in range(0, len(stream), piece)] if piece else [stream]
    async with serving() as site:
        client = await site.connect()
        sending = asyncio.ensure_future(client.send(*pieces))
        for part in wanted:
            assert part in (await client.answer()).body
        await sending


async def test_small_requests_split_at_every_byte_are_answered_in_order(serving, infer):
    stream = infer([1.25]) + LIVE + infer([2.25], as_chunks=9) + get("/nothing")
    async with serving() as site:
        for cut in range(1, len(stream)):
            client = await site.connect()
            await client.send(stream[:cut])
            await until_idle()
            await client.send(stream[cut:])
            statuses = [(await client.answer()).status for _ in range(4)]
            assert statuses == [200, 200, 200, 404]
            client.close()


async def test_a_stream_of_single_bytes_is_answered(serving, infer):
    stream = infer([1.25]) + infer([2.25], as_chunks=9) + LIVE
    async with serving() as site:
        client = await site.connect()
        for at in range(len(stream)):
            await client.send(stream[at : at + 1])
            await asyncio.sleep(0)
        answers = [await client.answer() for _ in range(3)]
        assert b"1.25" in answers[0].body and b"2.25" in answers[1].body
        assert answers[2].json == {"live": True}


async def test_fast_requests_wait_for_the_slow_one_before_them(serving, infer, binary):
    many = 400  # more than a connection's buffer holds: reading stops meanwhile
    async with serving() as site:
        client = await site.connect()
        await client.send(infer([7.5], model="held"))
        await site.held.started.acquire()
        sending = asyncio.ensure_future(client.send(LIVE * many, binary(LARGE)))
        await until_idle()
        assert client.received == b""
        site.held.release.set()
        assert b"7.5" in (await client.answer()).body
        for _ in range(many):
            assert (await client.answer()).json == {"live": True}
        assert (await client.answer()).body.endswith(LARGE)
        await sending


async def test_a_small_body_is_not_changed_by_what_comes_behind_it(serving, binary):
    async with serving() as site:
        client = await site.connect()
        await client.send(binary(b"abcdefgh", model="held"))
        await site.held.started.acquire()
        await client.send(LIVE * 10)
        await until_idle()
        site.held.release.set()
        assert (await client.answer()).body.endswith(b"abcdefgh")
        for _ in range(10):
            assert (await client.answer()).status == 200


async def test_slow_requests_in_a_row_are_answered_one_by_one(serving, infer):
    async with serving() as site:
        client = await site.connect()
        await client.send(infer([1.25], model="held") + infer([2.25], model="held") + LIVE)
        await site.held.started.acquire()
        await until_idle()
        assert site.held.started.locked()  # the second has not begun
        site.held.release.set()
        bodies = [(await client.answer()).body for _ in range(3)]
        assert b"1.25" in bodies[0] and b"2.25" in bodies[1] and b"live" in bodies[2]


async def test_what_follows_connection_close_is_not_answered(serving):
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(get("/v2", "Connection: close") + LIVE)
        assert answer.status == 200
        assert await client.rest() == b""


# --- what HTTP forbids ---

BAD_HEADS = {
    "garbage": (b"GARBAGE\r\n\r\n", 400),
    "lower case method": (b"get / HTTP/1.1\r\n\r\n", 501),
    "unknown method": (b"FETCH / HTTP/1.1\r\n\r\n", 501),
    "no version": (b"GET /\r\n\r\n", 505),
    "version 0.9": (b"GET / HTTP/0.9\r\n\r\n", 505),
    "version 2": (b"GET / HTTP/2.0\r\n\r\n", 505),
    "version 1.2": (b"GET / HTTP/1.2\r\n\r\n", 400),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 505),
    "space in the target": (b"GET /a b HTTP/1.1\r\n\r\n", 400),
    "folded header": (b"GET /v2 HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400),
    "space before the colon": (b"GET /v2 HTTP/1.1\r\nA : b\r\n\r\n", 400),
    "space before the name": (b"GET /v2 HTTP/1.1\r\n A: b\r\n\r\n", 400),
    "no colon": (b"GET /v2 HTTP/1.1\r\nfoo\r\n\r\n", 400),
    "empty name": (b"GET /v2 HTTP/1.1\r\n: b\r\n\r\n", 400),
    "NUL in a value": (b"GET /v2 HTTP/1.1\r\nA: \0\r\n\r\n", 400),
    "bare LF between headers": (b"GET /v2 HTTP/1.1\r\nA: b\nC: d\r\n\r\n", 400),
    "bare LF after the request line": (b"GET /v2 HTTP/1.1\nA: b\r\n\r\n", 400),
    "only bare LF": (b"GET /v2 HTTP/1.1\nHost: there\n\n", 400),
    "bare LF before the empty line": (b"GET /v2 HTTP/1.1\r\nHost: there\n\r\n", 400),
    "bare CR": (b"GET /v2 HTTP/1.1\r\nA: b\rC: d\r\n\r\n", 400),
    "negative length": (b"POST /v2 HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
    "signed length": (b"POST /v2 HTTP/1.1\r\nContent-Length: +5\r\n\r\nhello", 400),
    "hexadecimal length": (b"POST /v2 HTTP/1.1\r\nContent-Length: 0x5\r\n\r\nhello", 400),
    "empty length": (b"POST /v2 HTTP/1.1\r\nContent-Length:\r\n\r\n", 400),
    "list of lengths": (b"POST /v2 HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\nhello", 400),
    "same length twice": (
        b"POST /v2 HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        400,
    ),
    "two lengths": (
        b"POST /v2 HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        400,
    ),
    "length of 24 digits": (
        b"POST /v2 HTTP/1.1\r\nContent-Length: " + b"9" * 24 + b"\r\n\r\n",
        413,
    ),
    "length of 19 digits": (
        b"POST /v2 HTTP/1.1\r\nContent-Length: " + b"9" * 19 + b"\r\n\r\n",
        413,
    ),
    "length and chunks": (
        b"POST /v2 HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "chunks and length": (
        b"POST /v2 HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        400,
    ),
    "empty transfer coding": (
        b"POST /v2 HTTP/1.1\r\nTransfer-Encoding:\r\nContent-Length: 5\r\n\r\nhello",
        400,
    ),
    "chunked twice": (
        b"POST /v2 HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "chunked not last": (
        b"POST /v2 HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        400,
    ),
    "another transfer coding": (
        b"POST /v2 HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    "hidden transfer coding": (
        b"POST /v2 HTTP/1.1\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "chunks in HTTP/1.0": (
        b"POST /v2 HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "two hosts": (b"GET /v2 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "another expectation": (b"GET /v2 HTTP/1.1\r\nExpect: a miracle\r\n\r\n", 417),
    "another expectation, body there": (
        b"POST /v2 HTTP/1.1\r\nExpect: 200-ok\r\nContent-Length: 2\r\n\r\nhi",
        417,
    ),
    "TLS": (bytes.fromhex("16030100ff010000fb0303"), 400),
    "binary": (b"\x80\x01\x02", 400),
}


@pytest.mark.parametrize(("sent", "status"), BAD_HEADS.values(), ids=BAD_HEADS)
async def test_what_http_forbids_is_refused_and_ends_the_connection(serving, sent, status):
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(sent, LIVE)  # which is never answered: no smuggling
        assert answer.status == status
        assert answer.error
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\n", b"\n\r\n"])
async def test_a_head_that_ends_in_bare_lf_is_refused_at_once(serving, end):
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(b"GET /v2 HTTP/1.1\r\nHost: there" + end)
        assert (answer.status, answer.error) == (
            400,
            "the lines of a request head must end in CR LF",
        )


async def test_one_connections_fault_does_not_touch_another(serving, infer):
    async with serving() as site:
        good = await site.connect()
        await good.send(infer([1.5])[:-10])
        bad = await site.connect()
        assert (await bad.ask(b"GARBAGE\r\n\r\n")).status == 400
        assert (await good.ask(infer([1.5])[-10:])).status == 200


@pytest.mark.parametrize(
    "head",
    [
        get("/v2"),  # no Host
        get("/v2", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAA"),
        get("/v2", "Connection: Upgrade", "Upgrade: websocket"),
        get("/v2", "X-Empty:", "X-Bytes: \xe9"),
        get("/v2", "Expect: 100-Continue"),
        get("/v2", "Expect: a miracle", version="1.0"),
        b"\r\n\n\r\n" + get("/v2"),
    ],
)
async def test_what_http_allows_is_answered(serving, head):
    async with serving() as site:
        client = await site.connect()
        assert (await client.ask(head)).json["name"] == "inferd"


async def test_a_body_with_an_upgrade_offer_is_read(serving, infer):
    request = infer([1.5], "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")
    async with serving() as site:
        client = await site.connect()
        for _ in range(2):
            assert (await client.ask(request)).status == 200


@pytest.mark.parametrize("whole", [True, False])
async def test_a_head_that_is_too_large_is_refused(serving, whole):
    head = get("/v2", "X-Long: " + "x" * 1000)
    async with serving(max_header_bytes=1000) as site:
        client = await site.connect()
        answer = await client.ask(head if whole else head[:-4])
        assert (answer.status, answer.error) == (431, "the request head is larger than 1000 bytes")
        assert await client.rest() == b""


@pytest.mark.parametrize("end", [" HTTP/1.1\r\n\r\n", " HTTP/1.1\r\nA: b\r\n", ""])
async def test_a_url_that_is_too_long_is_refused(serving, end):
    async with serving(max_header_bytes=1000) as site:
        client = await site.connect()
        answer = await client.ask(b"GET /" + b"x" * 1000 + end.encode())
        assert (answer.status, answer.error) == (414, "the URL is too long")


@pytest.mark.parametrize("size", [8192, 12000, 16384])
async def test_a_head_up_to_the_limit_is_taken(serving, size):
    head = get("/v2", "X-Long: ")
    head = head[:-4] + b"x" * (size - len(head)) + b"\r\n\r\n"
    async with serving() as site:
        client = await site.connect()
        for _ in range(2):
            assert (await client.ask(head)).status == 200
            assert (await client.ask(head[:9000], head[9000:])).status == 200


# --- Expect ---


async def test_a_client_that_waits_to_send_its_body_is_told_to(serving, infer):
    request = infer([1.5], "Expect: 100-continue")
    head, body = request.split(b"\r\n\r\n", 1)
    async with serving() as site:
        client = await site.connect()
        for _ in range(2):
            assert (await client.ask(head + b"\r\n\r\n")).status == 100
            assert (await client.ask(body)).status == 200


async def test_a_client_whose_body_is_there_is_not_told_to_send_it(serving, infer):
    async with serving() as site:
        client = await site.connect()
        assert (await client.ask(infer([1.5], "Expect: 100-continue"))).status == 200


async def test_a_body_that_would_be_too_large_is_not_asked_for(serving, post):
    request = post("/v2", b"", "Expect: 100-continue", length=101)
    async with serving(max_body_bytes=100) as site:
        client = await site.connect()
        assert (await client.ask(request)).status == 413
        assert await client.rest() == b""


async def test_a_body_there_is_no_memory_for_is_not_asked_for(serving, post):
    async with serving(max_body_bytes=2**62) as site:
        client = await site.connect()
        answer = await client.ask(post("/v2", b"", "Expect: 100-continue", length=2**61))
        assert answer.status == 503
        assert "memory" in answer.error
        assert await client.rest() == b""


# --- limits of bodies ---


async def test_a_body_larger_than_allowed_is_refused_though_it_is_sent(serving, binary):
    async with serving(max_body_bytes=500_000) as site:
        client = await site.connect()
        sending = asyncio.ensure_future(client.send(binary(LARGE)))
        answer = await client.answer()
        assert answer.status == 413
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""
        await sending  # what comes after the refusal is still read
        client.close()


async def test_an_endless_chunked_body_is_refused(serving, binary):
    async with serving(max_body_bytes=500_000) as site:
        client = await site.connect()
        sending = asyncio.ensure_future(client.send(binary(LARGE, as_chunks=10_000)))
        assert (await client.answer()).status == 413
        assert await client.rest() == b""
        await sending


@pytest.mark.parametrize("as_chunks", [0, 5000])
async def test_bodies_together_larger_than_allowed_are_refused(serving, binary, as_chunks):
    async with serving(max_inflight_bytes=300_000) as site:
        waiting = await site.connect()
        await waiting.send(binary(LARGE[:200_000])[:-1])
        await until(lambda: site.server.endpoint.capacity.buffered_bytes > 199_000)
        client = await site.connect()
        answer = await client.ask(binary(LARGE[:120_000], as_chunks=as_chunks))
        assert answer.status == 503
        assert "as much request data as it may" in answer.error
        assert await client.rest() == b""
        assert (await waiting.ask(LARGE[199_999:200_000])).status == 200
        again = await site.connect()
        assert (await again.ask(binary(LARGE[:120_000], as_chunks=as_chunks))).status == 200
        assert site.server.endpoint.capacity.buffered_bytes == 0


async def test_what_came_with_the_head_may_already_be_too_much(serving, binary):
    async with serving(max_inflight_bytes=1000) as site:
        client = await site.connect()
        request = binary(LARGE[:20_000], "Expect: 100-continue")
        answer = await client.ask(request)
        assert answer.status == 413 and "retry-after" not in answer.headers
        assert await client.rest() == b""


async def test_a_body_counts_until_its_answer_and_is_let_go_then(serving, binary):
    async with serving() as site:
        client = await site.connect()
        await client.send(binary(LARGE, model="held"))
        await site.held.started.acquire()
        assert site.server.endpoint.capacity.buffered_bytes == len(LARGE)
        site.held.release.set()
        assert (await client.answer()).status == 200
        assert site.server.endpoint.capacity.buffered_bytes == 0
        [connection] = connections_of(site)
        assert len(connection._reader.heads.request.body) == 0


# --- bad chunks ---

CHUNKS = b"POST /v2/models/nothing/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("framing", "status"),
    [
        (b"hello\r\n", 400),
        (b"-1\r\n", 400),
        (b"5 hello\r\n", 400),
        (b"5\nhello\r\n0\r\n\r\n", 400),
        (b"5\r\nhello0\r\n\r\n", 400),
        (b"5\r\nhello\n0\r\n\r\n", 400),
        (b"1" * 1025, 400),
        (b"0\r\n" + (b"T: " + b"x" * 1000 + b"\r\n") * 9, 431),
    ],
)
async def test_bad_chunks_are_refused(serving, framing, status):
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(CHUNKS + framing)
        assert answer.status == status
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


@pytest.mark.slow
async def test_a_body_in_too_many_chunks_is_refused(serving):
    async with serving() as site:
        client = await site.connect()
        sending = asyncio.ensure_future(client.send(CHUNKS + b"1\r\nx\r\n" * 65537))
        assert (await client.answer()).status == 400
        await sending
        again = await site.connect()
        stream = CHUNKS + b"1\r\nx\r\n" * 65536 + b"0\r\n\r\n"
        assert (await again.ask(stream)).status == 404


async def test_extensions_and_trailers_of_chunks_are_passed_over(serving):
    body = b"5;name=value;other\r\nhello\r\n00;last\r\nTrailer: x\r\nOther: y\r\n\r\n"
    async with serving() as site:
        client = await site.connect()
        assert (await client.ask(CHUNKS + body)).status == 404
        assert (await client.ask(LIVE)).status == 200


# --- timeouts ---


async def test_an_idle_connection_is_closed(serving):
    async with serving(idle_timeout_s=10.0) as site:
        client = await site.connect()
        assert (await client.ask(LIVE)).status == 200
        site.pass_time(9)
        assert (await client.ask(LIVE)).status == 200
        site.pass_time(9)
        assert (await client.ask(LIVE)).status == 200
        site.pass_time(11)
        assert await client.rest() == b""


async def test_a_connection_that_never_asks_is_closed(serving):
    async with serving(idle_timeout_s=10.0) as site:
        client = await site.connect()
        await until(lambda: connections_of(site))
        site.pass_time(11)
        assert await client.rest() == b""


async def test_empty_lines_do_not_keep_an_idle_connection(serving):
    async with serving(idle_timeout_s=10.0) as site:
        client = await site.connect()
        for _ in range(2):
            # Some clients send one after each body, which is ignored (RFC 9112, section 2.2).
            await client.send(b"\r\n")
            site.pass_time(6)
            assert (await client.ask(LIVE)).status == 200
        for _ in range(2):
            await client.send(b"\r\n")
            await until_idle()
            site.pass_time(6)
        assert await client.rest() == b""


async def test_a_head_that_trickles_in_is_refused(serving):
    async with serving(header_timeout_s=5.0) as site:
        client = await site.connect()
        assert (await client.ask(LIVE)).status == 200
        for at in range(6):
            await client.send(LIVE[at : at + 1])
            await until(lambda size=at + 1: head_bytes(site) == size)
            site.pass_time(1)
        answer = await client.answer()
        assert (answer.status, answer.error) == (408, "no whole request head within 5 s")
        assert await client.rest() == b""


async def test_half_a_head_behind_a_whole_request_has_its_own_time(serving):
    async with serving(header_timeout_s=5.0) as site:
        client = await site.connect()
        assert (await client.ask(LIVE + LIVE[:10])).status == 200
        site.pass_time(4)
        assert (await client.ask(LIVE[10:])).status == 200
        await client.send(LIVE + LIVE[:10])
        assert (await client.answer()).status == 200
        site.pass_time(6)
        assert (await client.answer()).status == 408


@pytest.mark.parametrize("as_chunks", [0, 10])
async def test_a_body_that_trickles_in_is_refused(serving, infer, as_chunks):
    stream = infer([0.5] * 100, as_chunks=as_chunks)
    async with serving(body_timeout_s=5.0) as site:
        client = await site.connect()
        await client.send(stream[:300])
        await until(lambda: connections_of(site) and body_bytes(site))
        come = body_bytes(site)
        site.pass_time(5)
        await client.send(stream[300:330])
        await until(lambda: body_bytes(site) > come)
        site.pass_time(5)
        answer = await client.answer()
        assert answer.status == 408
        assert "too slowly" in answer.error
        assert await client.rest() == b""
        assert site.server.endpoint.capacity.buffered_bytes == 0


async def test_a_body_has_its_time_from_the_end_of_its_head(serving, infer):
    head, body = infer([1.5]).split(b"\r\n\r\n")
    async with serving() as site:
        client = await site.connect()
        await client.send(head)
        await until(lambda: connections_of(site) and head_bytes(site) == len(head))
        site.pass_time(50)
        await client.send(b"\r\n\r\n")
        await until(lambda: head_bytes(site) == 0)
        site.pass_time(50)
        assert (await client.ask(body)).status == 200


async def test_a_body_that_comes_fast_enough_may_take_long(serving, binary):
    head, _, body = binary(LARGE).partition(b"\r\n\r\n")
    async with serving(body_timeout_s=5.0) as site:
        client = await site.connect()
        await client.send(head, b"\r\n\r\n")
        for at in range(0, len(body), 50_000):
            part = body[at : at + 50_000]
            await client.send(part)
            come = at + len(part)
            await until(lambda come=come: connections_of(site) and body_bytes(site) == come)
            site.pass_time(5)
        assert (await client.answer()).body.endswith(LARGE)


async def test_a_slow_model_is_no_timeout(serving, infer):
    async with serving() as site:
        client = await site.connect()
        await client.send(infer([1.5], model="held") + LIVE)
        await site.held.started.acquire()
        for _ in range(5):
            site.pass_time(1000)
        site.held.release.set()
        assert (await client.answer()).status == 200
        assert (await client.answer()).json == {"live": True}


async def test_a_refused_client_that_goes_on_is_cut(serving):
    async with serving() as site:
        client = await site.connect()
        assert (await client.ask(b"GARBAGE\r\n\r\n")).status == 400
        await client.send(b"x" * 1000)
        await until_idle()
        assert len(connections_of(site)) == 1
        site.pass_time(6)
        assert await site.server.endpoint.wait_until_empty(30)


async def test_a_refusal_while_reading_had_stopped_goes_on_reading(serving, infer):
    async with serving() as site:
        client = await site.connect()
        await client.send(infer([1.5], model="held"))
        await site.held.started.acquire()
        sending = asyncio.ensure_future(client.send(b"GARBAGE\r\n\r\n", bytes(10_000_000)))
        await until_idle()
        site.held.release.set()
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 400
        assert await client.rest() == b""
        await sending
        client.close()
        assert await site.server.endpoint.wait_until_empty(30)


# --- clients that do not read ---


async def test_a_client_that_never_reads_is_cut_and_memory_is_bounded(serving, binary):
    async with serving(write_timeout_s=10.0) as site:
        client = await site.connect(SO_RCVBUF=4096)
        sending = asyncio.ensure_future(client.send(binary(LARGE) * 40))
        await until(lambda: is_paused(site))
        await until_idle()
        [connection] = connections_of(site)
        assert connection._transport.get_write_buffer_size() < 2 * len(LARGE)
        assert site.server.endpoint.capacity.buffered_bytes <= len(LARGE)
        site.pass_time(0)
        site.pass_time(9)
        assert connection._state is not CLOSED
        site.pass_time(2)
        with pytest.raises(ConnectionError):
            await sending
        assert await site.server.endpoint.wait_until_empty(30)


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["answered", "failed", "left"])
async def test_a_body_is_freed_without_the_garbage_collector(serving, binary, ends):
    bodies = []

    def fails_soon():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_soon(future.set_exception, BackendFailed("the model broke"))
        return future

    async with serving() as site:
        held = site.held
        run = held.run

        async def run_and_watch(request):
            bodies.append(weakref.ref(request.inputs[0].data.obj))
            answer = await run(request)
            if ends == "failed":
                await fails_soon()
            return answer

        held.run = run_and_watch
        gc.collect()
        gc.disable()
        try:
            client = await site.connect()
            await client.send(binary(LARGE, model="held"))
            await held.started.acquire()
            if ends == "left":
                client.reset()
                await held.cancelled.acquire()
            else:
                held.release.set()
                assert (await client.answer()).status == {"answered": 200}.get(ends, 500)
            await until(lambda: bodies[0]() is None)
        finally:
            gc.enable()


@pytest.mark.slow
async def test_a_client_that_reads_slowly_is_waited_for(serving, binary):
    data = bytes(6_000_000)
    async with serving(write_timeout_s=10.0) as site:
        client = await site.connect(SO_RCVBUF=4096)
        sending = asyncio.ensure_future(client.send(binary(data)))
        await until(lambda: is_paused(site))
        [connection] = connections_of(site)
        while is_paused(site):
            left = connection._transport.get_write_buffer_size()
            while connection._transport.get_write_buffer_size() == left:
                await client._more()
            site.pass_time(9)
        assert (await client.answer()).body.endswith(data)
        await sending


@pytest.mark.slow
async def test_pipelined_large_answers_wait_for_their_reader(serving, binary):
    many = 30
    async with serving(write_timeout_s=10.0) as site:
        client = await site.connect(SO_RCVBUF=4096)
        sending = asyncio.ensure_future(client.send(binary(LARGE) * many))
        await until_idle()
        for _ in range(many):
            site.pass_time(1)
            assert (await client.answer()).body.endswith(LARGE)
        await sending


async def test_small_requests_for_large_answers_wait_for_their_reader(serving):
    long_name = "x" * 4000
    many = 2000
    async with serving() as site:
        client = await site.connect(SO_RCVBUF=4096)
        request = get(f"/v2/models/{long_name}")
        sending = asyncio.ensure_future(client.send(request * many))
        for _ in range(many):
            assert (await client.answer()).status == 404
        await sending


async def test_a_half_closed_client_gets_all_pipelined_answers(serving, binary):
    zeros = bytes(2_500_000)
    request = binary(gzip.compress(zeros), "Content-Encoding: gzip")
    async with serving() as site:
        client = await site.connect(SO_RCVBUF=4096)
        await client.send(request * 3)  # fits the connection's buffer, the answers fit nowhere
        client.end()
        await until(
            lambda: any(
                one._reader.has_ended and one._writer.is_stalled for one in connections_of(site)
            )
        )
        for _ in range(3):
            while (answer := await client.answer()).status == 102:
                pass  # the server asks whether the client is still there
            assert answer.body.endswith(zeros)
        assert await client.rest() == b""


async def test_answers_that_are_views_are_not_changed_by_later_requests(serving, binary):
    bodies = [os.urandom(400_000) for _ in range(8)]
    async with serving() as site:
        slow = [await site.connect(SO_RCVBUF=4096) for _ in range(2)]
        sendings = [
            asyncio.ensure_future(client.send(*(binary(body) for body in bodies)))
            for client in slow
        ]
        other = await site.connect()
        for filler in range(8):  # take the memory that a body let go too early would leave
            data = bytes([filler]) * 400_000
            assert (await other.ask(binary(data))).body.endswith(data)
        for body in bodies:
            for client in slow:
                assert (await client.answer()).body.endswith(body)
        await asyncio.gather(*sendings)


# --- ends of all kinds ---


async def test_a_half_closed_client_gets_its_answer(serving, infer):
    async with serving() as site:
        client = await site.connect()
        await client.send(infer([1.5]) + LIVE)
        client.end()
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 200
        assert await client.rest() == b""


async def test_a_half_closed_client_is_probed_while_its_model_runs(serving, infer):
    async with serving() as site:
        client = await site.connect()
        await client.send(infer([1.5], model="held") + LIVE)
        await site.held.started.acquire()
        client.end()
        assert (await client.answer()).status == 102
        assert (await client.answer()).status == 102
        site.held.release.set()
        while (answer := await client.answer()).status == 102:
            pass
        assert b"1.5" in answer.body
        assert (await client.answer()).json == {"live": True}
        assert await client.rest() == b""


async def test_http_10_clients_are_not_probed(serving, infer):
    async with serving() as site:
        client = await site.connect()
        await client.send(infer([1.5], model="held", version="1.0"))
        await site.held.started.acquire()
        client.end()
        [connection] = connections_of(site)
        await until(lambda: connection._reader.has_ended)
        site.held.release.set()
        assert (await client.answer()).status == 200
        assert await client.rest() == b""


async def test_a_request_whose_client_has_gone_is_cancelled(serving, binary):
    async with serving() as site:
        client = await site.connect()
        await client.send(binary(LARGE, model="held"))
        await site.held.started.acquire()
        client.close()
        await site.held.cancelled.acquire()
        await site.has_no_connections()


async def test_a_request_whose_client_resets_is_cancelled(serving, binary):
    async with serving() as site:
        client = await site.connect()
        await client.send(binary(LARGE, model="held"))
        await site.held.started.acquire()
        client.reset()
        await site.held.cancelled.acquire()
        await site.has_no_connections()


@pytest.mark.parametrize("how", ["end", "close", "reset"])
@pytest.mark.parametrize("as_chunks", [0, 5000])
@pytest.mark.parametrize("share", [0.0001, 0.5])
async def test_a_truncated_body_ends_the_connection_alone(serving, binary, how, as_chunks, share):
    stream = binary(LARGE, as_chunks=as_chunks)
    async with serving() as site:
        client = await site.connect()
        await client.send(stream[: int(len(stream) * share)])
        await until(lambda: connections_of(site))
        await until_idle()
        getattr(client, how)()
        await site.has_no_connections()
        if how == "end":
            assert await client.rest() == b""
        assert (await site.ask(LIVE)).status == 200


async def test_half_a_head_and_the_end_is_a_clean_close(serving):
    async with serving() as site:
        client = await site.connect()
        await client.send(LIVE[:20])
        client.end()
        assert await client.rest() == b""


async def test_a_reset_while_large_answers_are_written_is_survived(serving, binary):
    async with serving() as site:
        client = await site.connect(SO_RCVBUF=4096)
        sending = asyncio.ensure_future(client.send(binary(LARGE) * 20))
        await until(lambda: is_paused(site))
        sending.cancel()
        client.reset()
        await site.has_no_connections()
        assert (await site.ask(LIVE)).status == 200


async def test_the_server_may_close_while_a_model_runs(serving, binary):
    async with serving() as site:
        client = await site.connect()
        await client.send(binary(LARGE, model="held"))
        await site.held.started.acquire()
        site.server.close()
        await site.held.cancelled.acquire()
        await site.has_no_connections()
        assert await client.rest() == b""


# --- faults behind the wall ---


async def test_an_unexpected_failure_is_neutral_and_logged(serving, infer, caplog):
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(infer([1.5], model="crashing"))
        assert answer.status == 500
        assert "a secret" not in answer.error
        assert "a secret" in caplog.text
        assert (await client.ask(LIVE)).status == 200


async def test_a_failing_model_is_500_and_logged(serving, infer, caplog):
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(infer([1.5], model="failing"))
        assert (answer.status, answer.error) == (500, "the model broke")
        assert "the model broke" in caplog.text
        assert (await client.ask(LIVE)).status == 200


# --- the number of connections ---


async def test_connections_beyond_the_limit_are_refused_until_one_leaves(serving):
    async with serving(max_connections=2) as site:
        first, second = await site.connect(), await site.connect()
        for client in (first, second):
            assert (await client.ask(LIVE)).status == 200
        for _ in range(3):  # refused clients that stay do not count
            refused = await site.connect()
            answer = await refused.ask(LIVE)
            assert answer.status == 503
            assert "as many connections as it may" in answer.error
            assert await refused.rest() == b""
        assert (await second.ask(LIVE)).status == 200
        first.close()
        while (client := await site.connect()) and (await client.ask(LIVE)).status == 503:
            client.close()
        assert (await second.ask(LIVE)).status == 200


# --- TLS ---


@pytest.fixture
def client_context(certificate):
    return ssl.create_default_context(cafile=certificate[0])


async def test_tls_carries_bodies_of_all_sizes(serving, binary, tls_context, client_context):
    async with serving(ssl_context=tls_context) as site:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", site.port, ssl=client_context, limit=2 * len(LARGE)
        )
        writer.write(binary(LARGE) + LIVE + binary(b"abcd"))
        assert LARGE[-1000:] in await reader.readuntil(LARGE[-1000:])
        assert b"200 OK" in await reader.readuntil(b'{"live":true}')
        assert b"200 OK" in await reader.readuntil(b"abcd")
        writer.write(b"GARBAGE\r\n\r\n")
        assert b"HTTP/1.1 400" in await reader.read()
        writer.close()


async def test_a_tls_client_that_leaves_ends_its_request(
    serving, infer, tls_context, client_context, caplog
):
    async with serving(ssl_context=tls_context) as site:
        _, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=client_context)
        writer.write(infer([1.5], model="held"))
        await site.held.started.acquire()
        writer.close()
        await site.held.cancelled.acquire()
        await site.has_no_connections()
        assert caplog.text == ""


async def test_plain_http_on_a_tls_port_is_closed(serving, tls_context, caplog):
    async with serving(ssl_context=tls_context) as site:
        client = await site.connect()
        await client.send(LIVE)
        assert b"HTTP/" not in await client.rest()
        assert caplog.text == ""


async def test_clients_may_come_over_a_unix_socket(serving, tmp_path):
    path = str(tmp_path / "socket")
    async with serving() as site:
        await site.server.start_unix(path)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(LIVE)
        assert b"200 OK" in await reader.readuntil(b'{"live":true}')
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
