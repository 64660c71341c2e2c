"""Compressed bodies of every POST but inference, which test_http_routes.py has."""

import gzip
import json
import zlib

import pytest

STREAM = "/v2/models/id/generate_stream"
CALLS = {
    "/v2/models/id/generate": ({"T": 1.5}, lambda body: json.loads(body)["T"] == 1.5),
    "/v2/repository/index": ({"ready": True}, lambda body: "id" in str(json.loads(body))),
    "/v2/trace/setting": ({"trace_rate": "7"}, lambda body: json.loads(body)["trace_rate"] == "7"),
    "/v2/models/id/trace/setting": (
        {"trace_rate": "7"},
        lambda body: json.loads(body)["trace_rate"] == "7",
    ),
}


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize(
    ("coding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
async def test_a_compressed_body_is_read_and_the_answer_is_plain(
    serving, post, path, coding, compress
):
    document, is_right = CALLS[path]
    lines = (f"Content-Encoding: {coding}", "Accept-Encoding: gzip")
    async with serving() as site:
        body = compress(json.dumps(document).encode())
        answer = await site.ask(post(path, body, *lines))
        assert (answer.status, is_right(answer.body)) == (200, True)
        assert "content-encoding" not in answer.headers


async def test_a_stream_is_asked_for_with_a_compressed_body(serving, post):
    async with serving() as site:
        client = await site.connect()
        body = gzip.compress(b'{"T": 1.5}')
        await client.send(post(STREAM, body, "Content-Encoding: gzip"))
        assert b'"T":1.5' in await client._until(b"}\n\n")


@pytest.mark.parametrize("path", [*CALLS, STREAM])
async def test_what_is_not_in_its_coding_is_refused(serving, post, path):
    async with serving() as site:
        answer = await site.ask(post(path, b'{"T": 1.5}', "Content-Encoding: gzip"))
        assert answer.status == 400
        assert "the compressed body cannot be decoded" in answer.error


@pytest.mark.parametrize("path", CALLS)
async def test_other_codings_are_501_with_those_there_are(serving, post, path):
    async with serving() as site:
        answer = await site.ask(post(path, b"{}", "Content-Encoding: br"))
        assert (answer.status, answer.headers["accept-encoding"]) == (501, "gzip, deflate")
        assert "'br' is not one of gzip, deflate" in answer.error


@pytest.mark.parametrize("path", CALLS)
async def test_a_bomb_is_refused_by_the_size_it_would_have(serving, post, path):
    bomb = gzip.compress(bytes(1 << 24))
    async with serving(max_input_bytes=1 << 20) as site:
        answer = await site.ask(post(path, bomb, "Content-Encoding: gzip"))
        assert answer.status == 400
        assert "inflates to more than 1048576 bytes" in answer.error


async def test_what_is_inflated_counts_as_request_data(serving, post):
    async with serving(max_inflight_bytes=1 << 16) as site:
        body = gzip.compress(b'{"ready": true}'.ljust(100_000))
        answer = await site.ask(post("/v2/repository/index", body, "Content-Encoding: gzip"))
        assert (answer.status, "65536" in answer.error) == (413, True)
        assert site.server.endpoint.capacity.buffered_bytes == 0


async def test_identity_is_no_coding(serving, post):
    async with serving() as site:
        body = b'{"trace_rate": "7"}'
        answer = await site.ask(post("/v2/trace/setting", body, "Content-Encoding: identity"))
        assert answer.json["trace_rate"] == "7"
