"""V2 Inference over HTTP, over real sockets: bodies, what needs a thread, content codings."""

import gzip
import json
import sys
import zlib

import pytest

from inferd.aio.inline import INLINE_JSON_BYTES
from inferd.aio.promise import resumed
from inferd.api.routes import HttpRoutes
from inferd.engine.engine import Engine
from inferd.http.message import HttpRequest
from inferd.wire.v2.rest.codec import JsonRules

FLOATS = bytes(range(1, 9)) * 4000  # 32,000 bytes that compress well


def request(method, path, *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


@pytest.mark.parametrize("version", ["", "/versions/1", "/versions/v3", "/versions/003"])
async def test_json_is_answered_with_json(serving, infer, version):
    async with serving() as site:
        answer = await site.ask(infer([1.5, -2.5], model=f"id{version}"))
        assert answer.status == 200
        assert answer.json["model_name"] == "id"
        assert answer.json["model_version"] == ("1" if version.endswith("1") else "3")
        [output] = answer.json["outputs"]
        assert output == {"name": "T", "datatype": "FP32", "shape": [2], "data": [1.5, -2.5]}
        assert "inference-header-content-length" not in answer.headers


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 100_000])
async def test_json_that_needs_a_slower_reader_is_read(serving, post, count):
    data = b"1.5," * (count - 2) + b"NaN,-Infinity"
    body = b'{"inputs":[{"name":"T","datatype":"FP32","shape":[%d],"data":[%b]}]}' % (count, data)
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(post("/v2/models/id/infer", body))
        assert answer.status == 200
        assert data in answer.body.replace(b" ", b"")
        assert (await client.ask(post("/v2/models/none/infer", body))).status == 404


@pytest.mark.parametrize("body", [b"{", b"", b'{"inputs":[{"name":"X"}]}'])
async def test_a_decoupled_model_is_not_for_infer_whatever_the_body(
    serving, add_model, scripted, post, body
):
    async with serving() as site:
        add_model(site.engine, "s", scripted, decoupled=True)
        answer = await site.ask(post("/v2/models/s/infer", body))
        assert answer.status == 501
        assert "decoupled transaction policy: model 's' is decoupled" in answer.error


@pytest.mark.parametrize("line", ["Content-Type: text/plain", "Authorization: Basic x", "X: y"])
async def test_other_headers_do_not_matter(serving, infer, line):
    async with serving() as site:
        assert (await site.ask(infer([1.5], line))).status == 200


def packed(data):
    """The same bytes at any time of day, as the names of tests have to be."""
    return gzip.compress(data, mtime=0)


def binary_request(post, data, *lines, extra=b""):
    parameters = {"binary_data_size": len(data)}
    tensor = {"name": "T", "datatype": "FP32", "shape": [len(data) // 4], "parameters": parameters}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = (f"inference-header-content-length: {len(text)}", *lines)
    return post("/v2/models/id/infer", text + data + extra, *lines)


async def test_binary_tensors_are_answered_with_binary_tensors(serving, post):
    async with serving() as site:
        answer = await site.ask(binary_request(post, FLOATS))
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/octet-stream"
        json_size = int(answer.headers["inference-header-content-length"])
        [output] = json.loads(answer.body[:json_size])["outputs"]
        assert output["parameters"] == {"binary_data_size": len(FLOATS)}
        assert answer.body[json_size:] == FLOATS


@pytest.mark.parametrize("size", ["", "-1", "+5", "x", "99999", "9" * 30, "1, 2", "٣"])
async def test_a_bad_inference_header_length_is_invalid(serving, post, size):
    line = f"Inference-Header-Content-Length: {size}"
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(post("/v2/models/id/infer", b"{}", line))
        assert answer.status == 400
        assert answer.error
        assert (await client.ask(request("GET", "/v2"))).status == 200


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b"\xff\xfe", b'{"inputs": []}'])
async def test_a_bad_body_is_400_and_the_connection_goes_on(serving, post, body):
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(post("/v2/models/id/infer", body))
        assert answer.status == 400
        assert answer.error
        assert (await client.ask(request("GET", "/v2"))).status == 200


NO_BODY = {
    "of length 0": ("Content-Length: 0",),
    "of no length": (),
    "in no chunks": ("Transfer-Encoding: chunked",),
    "of coding identity": ("Content-Length: 0", "Content-Encoding: identity"),
    "compressed": ("Content-Encoding: gzip",),
}


@pytest.mark.parametrize("version", ["", "/versions/3"])
@pytest.mark.parametrize("lines", NO_BODY.values(), ids=NO_BODY)
async def test_a_request_whose_body_got_lost_is_400(serving, lines, version):
    """Though the model has one input with a free dim, which no bytes would fill."""
    content = {"Transfer-Encoding: chunked": b"0\r\n\r\n", "Content-Encoding: gzip": packed(b"")}
    body = content.get(lines[-1] if lines else "", b"")
    if lines == NO_BODY["compressed"]:
        lines = (*lines, f"Content-Length: {len(body)}")
    head = "\r\n".join([f"POST /v2/models/id{version}/infer HTTP/1.1", "Host: there", *lines])
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(head.encode() + b"\r\n\r\n" + body)
        assert answer.status == 400
        assert answer.error.startswith("the request has no body, expected an inference request")
        assert (await client.ask(request("GET", "/v2"))).status == 200


async def test_a_model_that_is_not_there_is_404_without_a_body(serving, post):
    async with serving() as site:
        assert (await site.ask(post("/v2/models/none/infer"))).status == 404


async def test_a_raw_request_may_have_no_bytes(serving, binary):
    async with serving() as site:
        answer = await site.ask(binary(b""))
        assert answer.status == 200
        assert b'"shape":[0]' in answer.body


async def test_what_is_read_in_a_thread_leaves_no_error_behind():
    rules = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**26)
    routes = HttpRoutes(Engine(), rules, not_ready_status=400)
    one = {"name": "a", "datatype": "FP32", "shape": [INLINE_JSON_BYTES]}
    one["data"] = [1] * INLINE_JSON_BYTES
    body = memoryview(json.dumps({"inputs": [one]}).encode())
    answering = routes.answer(HttpRequest(b"POST", b"/v2/models/none/infer", {}, True, False, body))
    waits_for = answering.send(None)
    assert sys.exc_info()[1] is None
    assert (await resumed(answering, waits_for)).status == 404


# --- content codings ---


def coded(post, infer_request, coding, compress):
    body = compress(infer_request.split(b"\r\n\r\n", 1)[1])
    return post("/v2/models/id/infer", body, f"Content-Encoding: {coding}")


@pytest.mark.parametrize(
    ("coding", "compress"),
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("x-gzip", gzip.compress),
        ("X-Gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("Deflate", zlib.compress),
        ("identity", bytes),
        ("Identity", bytes),
        ("", bytes),
    ],
)
@pytest.mark.parametrize("count", [1, 20_000])
async def test_compressed_requests_are_read(serving, infer, post, coding, compress, count):
    values = [one + 0.5 for one in range(count)]
    async with serving() as site:
        answer = await site.ask(coded(post, infer(values), coding, compress))
        assert answer.json["outputs"][0]["data"] == values


async def test_a_compressed_body_holds_json_and_binary(serving, post):
    plain = binary_request(post, FLOATS)
    head, body = plain.split(b"\r\n\r\n", 1)
    [line] = [line for line in head.decode().split("\r\n") if line.startswith("inference")]
    async with serving() as site:
        lines = (line, "Content-Encoding: gzip")
        answer = await site.ask(post("/v2/models/id/infer", gzip.compress(body), *lines))
        assert answer.body.endswith(FLOATS)


@pytest.mark.parametrize("coding", ["br", "gzip, deflate", "zstd", "x-deflate", "x" * 100])
async def test_other_codings_are_501_with_those_there_are(serving, infer, post, coding):
    async with serving() as site:
        answer = await site.ask(coded(post, infer([1.5]), coding, bytes))
        assert answer.status == 501
        assert answer.headers["accept-encoding"] == "gzip, deflate"
        assert "gzip, deflate" in answer.error


async def test_bad_compressed_bytes_are_400(serving, infer, post):
    async with serving() as site:
        answer = await site.ask(coded(post, infer([1.5]), "gzip", bytes))
        assert answer.status == 400
        assert "cannot be decoded" in answer.error


async def test_a_bomb_is_refused_by_the_size_it_would_have(serving, binary):
    bomb = gzip.compress(bytes(1 << 24))
    async with serving(max_input_bytes=1 << 20) as site:
        answer = await site.ask(binary(bomb, "Content-Encoding: gzip"))
        assert answer.status == 400
        assert "inflates to more than 1048576 bytes" in answer.error


async def test_what_is_inflated_counts_as_request_data_until_its_answer(serving, binary):
    async with serving(max_inflight_bytes=1 << 20) as site:
        body = gzip.compress(bytes(600_000))
        client = await site.connect()
        await client.send(binary(body, "Content-Encoding: gzip", model="held"))
        await site.held.started.acquire()
        assert site.server.endpoint.capacity.buffered_bytes >= 600_000
        answer = await site.ask(binary(body, "Content-Encoding: gzip"))
        assert answer.status == 503
        assert "as much request data as it may" in answer.error
        site.held.release.set()
        assert (await client.answer()).body.endswith(bytes(600_000))
        assert site.server.endpoint.capacity.buffered_bytes == 0
        assert (await site.ask(binary(body, "Content-Encoding: gzip"))).status == 200


async def test_a_client_that_leaves_takes_its_inflated_body_along(serving, binary):
    async with serving() as site:
        client = await site.connect()
        body = gzip.compress(bytes(600_000))
        await client.send(binary(body, "Content-Encoding: gzip", model="held"))
        await site.held.started.acquire()
        client.close()
        await site.held.cancelled.acquire()
        await site.has_no_connections()


@pytest.mark.parametrize(
    ("accept", "coding", "decompress"),
    [
        ("gzip", "gzip", gzip.decompress),
        ("GZIP", "gzip", gzip.decompress),
        ("x-gzip", "gzip", gzip.decompress),
        ("deflate", "deflate", zlib.decompress),
        ("gzip;q=0.5, deflate;q=0.8", "deflate", zlib.decompress),
        ("gzip;q=0, identity;q=0.1", None, bytes),
        ("br", None, bytes),
    ],
)
async def test_large_answers_are_compressed_as_wished(serving, post, accept, coding, decompress):
    async with serving() as site:
        client = await site.connect()
        answer = await client.ask(binary_request(post, FLOATS, f"Accept-Encoding: {accept}"))
        assert answer.headers.get("content-encoding") == coding
        assert (len(answer.body) < len(FLOATS)) == (coding is not None)
        body = decompress(answer.body)
        json_size = int(answer.headers["inference-header-content-length"])
        assert json.loads(body[:json_size])["model_name"] == "id"
        assert body[json_size:] == FLOATS
        assert (await client.ask(request("GET", "/v2"))).status == 200


async def test_small_answers_and_all_but_inference_stay_as_they_are(serving, infer):
    wish = "Accept-Encoding: gzip, deflate"
    async with serving() as site:
        client = await site.connect()
        for sent in (
            infer([1.5], wish),
            infer([1.5], wish, model="n" * 2000),
            request("GET", "/v2", wish),
            request("GET", "/v2/models/id", wish),
        ):
            answer = await client.ask(sent)
            assert "content-encoding" not in answer.headers
            assert answer.json
