"""What a connection refuses by itself, asked in the old API: NV-Status says so there, too."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from google.protobuf import text_format

from inferd.api.access import KeyRing
from inferd.api.trtis.mount import TrtisMount
from inferd.api.v2.calls import Apis
from inferd.errors import Overloaded, Unavailable
from inferd.http.access import Access
from inferd.http.overload import TAKEN_BYTES
from inferd.wire.proto import message_class

INTERNAL, INVALID_ARG, UNAVAILABLE, UNSUPPORTED = 3, 5, 6, 7
HEADER = 'NV-InferRequest: batch_size: 1 input { name: "T" dims: 4 } output { name: "T" } id: 3'


@pytest.fixture
def old(serving, models):
    """`async with old(option=value) as site`: a server that has the old API, too."""

    @asynccontextmanager
    async def serve(**options):
        engine, held = models()
        engine.capacity.max_requests = options.pop("max_inflight_requests", 20_000)
        async with serving(
            engine=engine, apis=Apis(mounts=(TrtisMount(engine, "me"),)), **options
        ) as site:
            site.held = held
            yield site

    return serve


def post(*lines, path="/api/infer/id", body=b""):
    return "\r\n".join([f"POST {path} HTTP/1.1", HEADER, *lines, "", ""]).encode() + body


def status_of(answer):
    assert answer.headers["nv-status"].isascii()
    status = message_class("nvidia.inferenceserver.RequestStatus")()
    text_format.Parse(answer.headers["nv-status"], status)
    assert status.server_id == "me" and status.request_id > 0 and status.msg
    return status.code


def check(answer, code, reason):
    """The connection has refused it, in the words of the old API."""
    assert (answer.status, status_of(answer), answer.body) == (code, reason, b"")
    assert answer.headers["connection"] == "close"


REFUSED = {
    "a head above the limit": (post("X: " + "x" * 20_000), 431, INVALID_ARG),
    "a head above the limit that never ends": (
        post("X: " + "x" * 30_000)[:-2],
        431,
        INVALID_ARG,
    ),
    "a URL above the limit": (post(path="/api/infer/" + "x" * 20_000), 414, INVALID_ARG),
    "a header without colon": (post("what"), 400, INVALID_ARG),
    "lines without CR": (post("A: b").replace(b"\r\n", b"\n"), 400, INVALID_ARG),
    "a space in the target": (post(path="/api/infer/a b"), 400, INVALID_ARG),
    "another version": (post().replace(b"HTTP/1.1", b"HTTP/2.0"), 505, UNSUPPORTED),
    "a length that is no number": (post("Content-Length: many"), 400, INVALID_ARG),
    "a length and chunks": (
        post("Content-Length: 1", "Transfer-Encoding: chunked"),
        400,
        INVALID_ARG,
    ),
    "another coding than chunks": (post("Transfer-Encoding: gzip, chunked"), 501, UNSUPPORTED),
    "a body above the limit": (post("Content-Length: 1000001"), 413, INVALID_ARG),
    "a length of too many digits": (post(f"Content-Length: {'9' * 30}"), 413, INVALID_ARG),
    "another expectation": (post("Expect: luck", "Content-Length: 1"), 417, INVALID_ARG),
    "bad chunks": (
        post("Transfer-Encoding: chunked", body=b"no number\r\n"),
        400,
        INVALID_ARG,
    ),
    "chunks above the limit": (
        post("Transfer-Encoding: chunked", body=b"fffff\r\n"),
        413,
        INVALID_ARG,
    ),
}


@pytest.mark.parametrize(("request_", "code", "reason"), REFUSED.values(), ids=REFUSED)
async def test_what_http_forbids_has_its_status_and_nv_status(old, request_, code, reason):
    async with old(max_body_bytes=1_000_000) as site:
        client = await site.connect()
        check(await client.ask(request_), code, reason)
        assert await client.rest() == b""
        answer = await site.ask(post("Content-Length: 16", body=bytes(16)))
        assert (answer.status, status_of_success(answer)) == (200, 1)


def status_of_success(answer):
    status = message_class("nvidia.inferenceserver.RequestStatus")()
    text_format.Parse(answer.headers["nv-status"], status)
    return status.code


@pytest.mark.parametrize("path", ["/api/health/live", "/api/none", "/%61pi/x", "http://h/api/x"])
async def test_any_path_of_the_old_api_is_told(old, path):
    async with old() as site:
        check(await site.ask(post("what", path=path)), 400, INVALID_ARG)


@pytest.mark.parametrize("path", ["/v2", "/apis", "*", "//api/x"])
async def test_any_other_path_is_v2_s(old, path):
    async with old() as site:
        answer = await site.ask(post("what", path=path))
        assert "valid HTTP/1.1" in answer.error and "nv-status" not in answer.headers


@pytest.mark.parametrize("data", [b"\r\n\r\nWHAT\r\n\r\n", b"\x16\3\1", b"POST\n\n"])
async def test_without_a_target_the_answer_is_v2_s(old, data):
    async with old() as site:
        answer = await site.ask(data)
        assert answer.status == 400 and answer.error and "nv-status" not in answer.headers


async def test_an_absolute_target_that_is_not_there_is_an_invalid_argument(old):
    async with old() as site:
        answer = await site.ask(b"GET http://h/api/none HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (answer.status, status_of(answer)) == (400, INVALID_ARG)
        answer = await site.ask(b"PUT http://h/api/status HTTP/1.1\r\nHost: h\r\n\r\n")
        assert answer.status == 405 and "nv-status" not in answer.headers


@pytest.mark.parametrize(
    ("error", "comes_back"),
    [(Overloaded("it is full"), True), (Unavailable("it timed out"), False)],
)
async def test_a_queue_that_is_full_or_too_slow_is_unavailable(old, add_model, error, comes_back):
    class Queue:
        """A scheduler that lets nobody run."""

        pending_count = 0
        seen = None

        async def run(self, request):
            self.seen = request
            raise error

    queue = Queue()
    async with old() as site:
        add_model(site.engine, "queued", queue)
        request = post("Content-Length: 16", path="/api/infer/queued", body=bytes(16))
        request = request.replace(b" id: 3", b" id: 3 priority: 2 timeout_microseconds: 70")
        answer = await site.ask(request)
    assert (answer.status, status_of(answer), answer.body) == (400, UNAVAILABLE, b"")
    assert answer.headers["nv-inferresponse"] == "id: 3"
    assert ("retry-after" in answer.headers) == comes_back
    assert (queue.seen.priority, queue.seen.timeout_us) == (2, 70)


async def test_what_breaks_the_server_is_an_internal_error_that_tells_nothing(old):
    async with old() as site:
        answer = await site.ask(
            post("Content-Length: 16", path="/api/infer/crashing", body=bytes(16))
        )
    assert (answer.status, status_of(answer), answer.body) == (400, INTERNAL, b"")
    assert "secret" not in answer.headers["nv-status"]


@pytest.mark.parametrize(
    "length", [f"Content-Length: {TAKEN_BYTES + 1}", "Transfer-Encoding: chunked"]
)
async def test_one_request_too_many_is_unavailable_from_its_head(old, length):
    async with old(max_inflight_requests=1) as site:
        waiting = await site.connect()
        await waiting.send(post("Content-Length: 16", path="/api/infer/held", body=bytes(16)))
        await site.held.started.acquire()
        answer = await site.ask(post(length))
        check(answer, 400, UNAVAILABLE)
        assert answer.headers["retry-after"] == "1"
        small = await site.ask(post("Content-Length: 16", body=bytes(16)))  # as its call says it
        assert (small.status, status_of(small)) == (400, UNAVAILABLE)
        assert small.headers["retry-after"] == "1"
        site.held.release.set()
        assert (await waiting.answer()).status == 200


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_too_many_bytes_are_unavailable(old, is_chunked):
    async with old(max_inflight_bytes=300_000) as site:
        waiting = await site.connect()
        await waiting.send(post("Content-Length: 200000", body=bytes(199_999)))
        while site.server.endpoint.capacity.buffered_bytes < 199_999:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.001)
        if is_chunked:
            asked = post("Transfer-Encoding: chunked", body=b"1d4c0\r\n" + bytes(120_000))
        else:
            asked = post("Content-Length: 120000", body=bytes(100_000))
        answer = await site.ask(asked)
        check(answer, 400, UNAVAILABLE)
        assert answer.headers["retry-after"] == "1"


async def test_a_body_larger_than_all_that_may_be_held_need_not_come_again(old):
    async with old(max_inflight_bytes=100_000) as site:
        answer = await site.ask(post("Content-Length: 100001"))
        check(answer, 413, INVALID_ARG)
        assert "retry-after" not in answer.headers


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (post("A: b")[:-2], "no whole request head"),
        (post("Content-Length: 100", body=b"x"), "too slowly"),
        (post("Transfer-Encoding: chunked", body=b"5\r\nx"), "too slowly"),
    ],
)
async def test_what_does_not_come_in_time_is_told(old, data, words):
    async with old(header_timeout_s=5.0, body_timeout_s=5.0) as site:
        client = await site.connect()
        await client.send(data)
        await began(site)
        site.pass_time(6)
        answer = await client.answer()
        check(answer, 408, INVALID_ARG)
        assert words in answer.headers["nv-status"]


async def began(site):
    """Wait until the server has read something."""
    while not any(c._reader.end or c._reader.request for c in site.server.endpoint.connections):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_who_may_not_call_is_told_before_a_large_body_has_come(old):
    async with old(access=Access(keys=KeyRing({}))) as site:
        answer = await site.ask(post("Content-Length: 1000000"))
        check(answer, 401, UNAVAILABLE)
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_one_connection_too_many_is_v2_s_as_nobody_has_asked(old):
    async with old(max_connections=0) as site:
        client = await site.connect()
        answer = await client.answer()
        assert answer.status == 503 and answer.error and answer.headers["retry-after"] == "1"


PAGE = "https://page.example"
WITH_PAGES = {"cors_origins": frozenset((PAGE,))}


def preflight(path, origin=PAGE):
    asked = (f"Origin: {origin}", "Access-Control-Request-Method: POST")
    return "\r\n".join([f"OPTIONS {path} HTTP/1.1", *asked, "", ""]).encode()


async def test_a_page_may_read_what_the_old_api_says_in_headers(old):
    async with old(**WITH_PAGES) as site:
        answer = await site.ask(f"GET /api/status HTTP/1.1\r\nOrigin: {PAGE}\r\n\r\n".encode())
        assert answer.headers["access-control-allow-origin"] == PAGE
        names = answer.headers["access-control-expose-headers"]
        assert names == "Inference-Header-Content-Length, Retry-After, NV-Status, NV-InferResponse"


async def test_a_preflight_has_a_status_as_any_answer(old):
    async with old(**WITH_PAGES) as site:
        answer = await site.ask(preflight("/api/infer/id"))
        assert (answer.status, answer.headers["access-control-allow-methods"]) == (200, "POST")
        assert answer.headers["nv-status"].startswith("code: SUCCESS ")
        assert "nv-status" not in (await site.ask(preflight("/v2"))).headers
        assert status_of(await site.ask(preflight("/api/nothing"))) == INVALID_ARG


async def test_a_page_of_another_origin_is_refused_in_the_old_words(old):
    async with old(**WITH_PAGES) as site:
        answer = await site.ask(preflight("/api/infer/id", "https://other.example"))
        assert (answer.status, status_of(answer)) == (403, UNAVAILABLE)
