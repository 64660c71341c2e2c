"""An overloaded server over real sockets: who is refused, when, how, and who is answered still."""

import asyncio
import gzip
import json
import random
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import msgspec
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from inferd.api.metrics import MetricsRoutes
from inferd.api.trtis.mount import TrtisMount
from inferd.api.v2.calls import Apis
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.options.metrics import MetricsSettings
from inferd.config.server import ServerConfig
from inferd.engine.serving.served import Served
from inferd.errors import Overloaded
from inferd.http.message import HttpRequest
from inferd.http.overload import TAKEN_BYTES
from inferd.memory.capacity import Capacity
from inferd.observe.devices import Devices
from inferd.server.options import grpc_options
from inferd.tensor.dtype import DataType
from inferd.transport.grpc_server import AioCall, GrpcServer
from inferd.transport.http2_server import Http2Server
from inferd.wire.proto import message_class

LIKE_T = (DataType.FP32, (-1,))
TRANSPORTS = {"own": Http2Server, "grpcio": GrpcServer}


def infer_body(count):
    tensor = {"name": "T", "datatype": "FP32", "shape": [count], "data": [0.5] * count}
    return json.dumps({"inputs": [tensor]}).encode()


def post(body, *headers, model="held", length=None):
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: h", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def filled(site):
    """Let one request wait in a model, which is all the server may have; return its client."""
    site.engine.capacity.max_requests = 1
    client = await site.connect()
    await client.send(post(infer_body(1)))
    await site.held.started.acquire()
    return client


def is_refused(answer):
    return answer.status == 503 and answer.headers["retry-after"] == "1"


# --- HTTP ---


async def test_one_request_too_many_is_told_to_come_back_on_the_same_connection(serving):
    async with serving() as site:
        waiting = await filled(site)
        client = await site.connect()
        answer = await client.ask(post(infer_body(1), model="id"))
        assert is_refused(answer) and "--max-inflight-requests" in answer.error
        site.held.release.set()
        assert (await waiting.answer()).status == 200
        assert (await client.ask(post(infer_body(1), model="id"))).status == 200
        assert site.engine.capacity.request_count == 0


async def test_all_but_inference_is_answered_under_overload(serving):
    async with serving() as site:
        await filled(site)
        client = await site.connect()
        for path in ("/v2/health/ready", "/v2", "/v2/models/id", "/v2/models/stats"):
            request = f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()
            assert (await client.ask(request)).status == 200
        index = b"POST /v2/repository/index HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n"
        await client.send(index)
        assert (await client.ask(b"{}")).status == 200


@pytest.mark.parametrize("headers", [(), ("Expect: 100-continue",)])
async def test_a_large_body_is_refused_from_its_head(serving, headers):
    async with serving() as site:
        await filled(site)
        client = await site.connect()
        answer = await client.ask(post(b"", *headers, model="id", length=TAKEN_BYTES + 1))
        assert is_refused(answer) and answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_a_body_without_length_is_refused_from_its_head(serving):
    async with serving() as site:
        await filled(site)
        client = await site.connect()
        head = b"POST /v2/models/id/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert is_refused(await client.ask(head))


async def test_a_small_body_is_taken_so_that_its_connection_lives(serving):
    async with serving() as site:
        await filled(site)
        client = await site.connect()
        body = infer_body(1)
        await client.send(post(body[:-1], model="id", length=len(body)))
        assert is_refused(await client.ask(body[-1:]))
        assert (await client.ask(b"GET /v2 HTTP/1.1\r\nHost: h\r\n\r\n")).status == 200


async def test_a_body_that_there_is_no_room_for_is_refused_from_its_head(serving):
    async with serving(max_inflight_bytes=100_000) as site:
        site.engine.capacity.hold(50_000)
        answer = await site.ask(post(b"", model="id", length=50_001))
        site.engine.capacity.hold(-50_000)
        assert is_refused(answer) and "100000 bytes (--max-inflight-bytes)" in answer.error
        assert site.engine.capacity.refused_for_bytes == 1


async def test_what_could_never_be_held_need_not_be_sent_again(serving):
    chunks = b"POST /v2/models/id/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    packed = gzip.compress(infer_body(1) + b" " * 1_500_000)
    # Each number has two bytes as text, four when it has been read.
    text = b'{"inputs":[{"name":"T","datatype":"FP32","shape":[600000],"data":[%b0]}]}'
    text %= b"0," * 599_999
    # What has arrived and what it inflates to, or what is read from it, are in memory at once.
    packed_little = gzip.compress(
        infer_body(1) + random.Random(1).randbytes(600_000).hex().encode()
    )
    some = b'{"inputs":[{"name":"T","datatype":"FP32","shape":[250000],"data":[%b0]}]}'
    some %= b"0.0," * 249_999
    assert len(packed_little) < 1_000_000 and len(some) < 1_100_000
    async with serving(max_inflight_bytes=1_500_000) as site:
        for request in (
            post(b"", model="id", length=1_500_001),
            chunks + b"16e361\r\n" + bytes(1_500_001),
            post(packed, "Content-Encoding: gzip", model="id"),
            post(text, model="id"),
            post(packed_little, "Content-Encoding: gzip", model="id"),
            post(some, model="id"),
        ):
            answer = await site.ask(request)
            assert answer.status == 413 and "--max-inflight-bytes" in answer.error
            assert "retry-after" not in answer.headers
        assert site.engine.capacity.refused_for_bytes == 0


async def test_what_would_take_a_thread_to_read_is_refused_unread(serving):
    async with serving() as site:
        await filled(site)
        site.engine.capacity.max_requests = 2
        client, other = await site.connect(), await site.connect()
        long = post(b"[" * 1_000_000, model="id")  # neither this nor the next could be read
        await client.send(long[:100_000])
        await other.send(post(infer_body(1)))
        await site.held.started.acquire()
        assert is_refused(await client.ask(long[100_000:]))
        assert is_refused(await client.ask(post(b"no", "Content-Encoding: gzip", model="id")))


async def test_what_is_read_from_text_counts_beside_the_text(serving):
    body = infer_body(200_000)  # too long for the event loop
    async with serving() as site:
        client = await site.connect()
        await client.send(post(body))
        await site.held.started.acquire()
        assert site.engine.capacity.buffered_bytes == len(body) + 4 * 200_000
        site.engine.capacity.max_bytes = 2 * len(body) + 8 * 200_000 - 1
        answer = await site.ask(post(body, model="id"))
        assert is_refused(answer) and "--max-inflight-bytes" in answer.error
        site.held.release.set()
        assert (await client.answer()).status == 200
        assert (await site.ask(post(body, model="id"))).status == 200
        assert site.engine.capacity.buffered_bytes == 0


async def test_a_client_that_leaves_gives_its_place_back(serving):
    async with serving() as site:
        waiting = await filled(site)
        waiting.reset()
        await site.held.cancelled.acquire()
        assert (await site.ask(post(infer_body(1), model="id"))).status == 200


class Full:
    """A scheduler with no room in its queue."""

    pending_count = 0

    async def run(self, request):
        msg = "the queue is full"
        raise Overloaded(msg)


async def test_a_stream_of_events_that_is_refused_at_its_first_says_when_to_come_back(serving):
    async with serving() as site:
        tensor = ModelInput("T", *LIKE_T)
        config = ModelConfig("full", input=(tensor,), output=(ModelOutput("T", *LIKE_T),))
        site.engine.catalog.add(Served(config, 1, "onnx_onnxv1", Full()))
        client = await site.connect()
        request = post(b'{"T": [1.5]}', "Connection: close", model="full")
        await client.send(request.replace(b"/infer", b"/generate_stream"))
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ") and b"\r\nRetry-After: 1" in head
        assert b"the queue is full" in body


async def test_metrics_tell_what_is_under_way_and_what_was_refused(serving):
    async with serving() as site:
        await filled(site)
        client = await site.connect()
        assert is_refused(await client.ask(post(infer_body(1), model="id")))
        routes = MetricsRoutes(site.engine, MetricsSettings(), Devices(None, None, 0.0))
        answer = await routes.answer(HttpRequest(b"GET", b"/metrics", {}, True, False))
        text = b"".join(answer.buffers).decode()
        assert "\ninferd_inflight_requests 1\n" in text
        assert '\ninferd_overload_refused_total{reason="requests"} 1\n' in text


# --- gRPC ---


@pytest.fixture(params=TRANSPORTS)
def calling(request, serving):
    """`async with calling(option=value) as (site, stub, channel)`: gRPC beside HTTP, one engine."""

    @asynccontextmanager
    async def call(**changes):
        has_old = changes.pop("trtis", False)
        options = msgspec.structs.replace(grpc_options(ServerConfig()), **changes)
        async with serving() as site:
            if has_old:
                options = msgspec.structs.replace(
                    options, apis=Apis(mounts=(TrtisMount(site.engine, "me"),))
                )
            server = TRANSPORTS[request.param](site.engine, options)
            port = await server.start("127.0.0.1", 0)
            try:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    yield site, service_pb2_grpc.GRPCInferenceServiceStub(channel), channel
            finally:
                await server.stop(0)

    return call


def infer_request(count=1, model="id"):
    tensor = {"name": "T", "datatype": "FP32", "shape": [count]}
    data = np.zeros(count, "f4").tobytes()
    return pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[data])


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caught.value
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert dict(error.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
    return error.details()


@pytest.mark.parametrize("count", [1, 100_000])
async def test_one_call_too_many_is_told_to_come_back(calling, count):
    async with calling() as (site, stub, _):
        waiting = await filled(site)
        assert "--max-inflight-requests" in await refused(stub.ModelInfer(infer_request(count)))
        assert site.engine.capacity.refused_for_requests == 1
        site.held.release.set()
        assert (await waiting.answer()).status == 200
        assert (await stub.ModelInfer(infer_request(count))).model_name == "id"
        assert site.engine.capacity.request_count == site.engine.capacity.buffered_bytes == 0


async def test_health_and_metadata_are_answered_under_overload(calling):
    async with calling() as (site, stub, channel):
        await filled(site)
        site.engine.capacity.buffered_bytes += 1
        site.engine.capacity.max_bytes = 0
        try:
            health = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service="")
            assert (await health.Check(request)).status == 1
            assert (await stub.ServerMetadata(pb.ServerMetadataRequest())).name == "inferd"
            watching = health.Watch(request)
            assert (await watching.read()).status == 1
            watching.cancel()
        finally:
            site.engine.capacity.buffered_bytes -= 1


async def test_a_stream_lives_on_when_one_of_its_requests_is_refused(calling):
    async with calling() as (site, stub, _):
        waiting = await filled(site)
        stream = stub.ModelStreamInfer()
        await stream.write(infer_request())
        assert "--max-inflight-requests" in (await stream.read()).error_message
        site.held.release.set()
        await waiting.answer()
        await stream.write(infer_request())
        assert (await stream.read()).infer_response.model_name == "id"
        await stream.done_writing()


async def test_a_message_that_there_is_no_room_for_is_refused(calling):
    async with calling() as (site, stub, _):
        site.engine.capacity.max_bytes = 600_000
        site.engine.capacity.hold(300_000)
        details = await refused(stub.ModelInfer(infer_request(100_000)))
        assert "--max-inflight-bytes" in details
        assert site.engine.capacity.buffered_bytes == 300_000
        assert (await stub.ModelInfer(infer_request(50_000))).model_name == "id"
        site.engine.capacity.hold(-300_000)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_that_could_never_be_held_is_not_to_come_again(calling, compression):
    async with calling() as (site, stub, _):
        site.engine.capacity.max_bytes = 300_000
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ModelInfer(infer_request(100_000), compression=compression)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "--max-inflight-bytes" in caught.value.details()
        assert "grpc-retry-pushback-ms" not in dict(caught.value.trailing_metadata())
        assert site.engine.capacity.buffered_bytes == site.engine.capacity.refused_for_bytes == 0


OLD = "/nvidia.inferenceserver.GRPCService"


def old_request(count=1):
    """An InferRequest of the old API to "id"."""
    kind = message_class("nvidia.inferenceserver.InferRequest")
    request = kind(model_name="id", model_version=-1, raw_input=[bytes(4 * count)])
    request.meta_data.batch_size, request.meta_data.id = 1, 9
    request.meta_data.input.add(name="T", dims=[count])
    request.meta_data.output.add(name="T")
    return request.SerializeToString()


async def old_status(channel, data, rpc="Infer"):
    """The code in request_status, and the trailing metadata."""
    call = channel.unary_unary(f"{OLD}/{rpc}")(data)
    answer = message_class(f"nvidia.inferenceserver.{rpc}Response").FromString(await call)
    assert await call.code() is grpc.StatusCode.OK
    return answer.request_status.code, dict(await call.trailing_metadata())


@pytest.mark.parametrize("count", [1, 100_000, 1_000_000])
async def test_the_old_api_tells_of_overload_inside_its_answer(calling, count):
    success, invalid, unavailable = 1, 5, 6
    async with calling(trtis=True) as (site, _, channel):
        waiting = await filled(site)
        code, metadata = await old_status(channel, old_request(count))
        assert (code, metadata) == (unavailable, {})  # for gRPC there is nothing to try again
        code, _ = await old_status(channel, b"", "Status")
        assert code == success
        site.held.release.set()
        await waiting.answer()
        assert (await old_status(channel, old_request(count)))[0] == success
        site.engine.capacity.max_bytes = 3 * count
        if count > 1:
            code, metadata = await old_status(channel, old_request(count))
            assert (code, metadata) == (invalid, {})
        assert site.engine.capacity.buffered_bytes == 0


async def test_messages_count_until_they_are_answered(calling):
    async with calling() as (site, stub, _):
        asked = asyncio.ensure_future(stub.ModelInfer(infer_request(100_000, "held")))
        await site.held.started.acquire()
        assert 400_000 < site.engine.capacity.buffered_bytes < 400_200
        site.held.release.set()
        await asked
        assert site.engine.capacity.buffered_bytes == 0


def test_what_is_released_after_the_end_of_a_call_is_not_released_twice():
    capacity = Capacity()
    call = AioCall(None, capacity)
    call.hold(5)
    call.end()
    call.release(5)
    assert capacity.buffered_bytes == 0


async def test_typed_contents_count_beside_their_message(calling):
    count = 100_000
    tensor = {"name": "T", "datatype": "FP32", "shape": [count]}
    tensor["contents"] = {"fp32_contents": [0.5] * count}
    async with calling() as (site, stub, _):
        request = pb.ModelInferRequest(model_name="held", inputs=[tensor])
        asked = asyncio.ensure_future(stub.ModelInfer(request))
        await site.held.started.acquire()
        assert 800_000 < site.engine.capacity.buffered_bytes < 800_200
        site.held.release.set()
        await asked
        assert site.engine.capacity.buffered_bytes == 0


async def test_a_message_is_refused_before_the_rest_of_it_has_come(serving):
    """On our own transport; grpcio takes what fits in its windows."""
    options = grpc_options(ServerConfig())
    async with serving() as site:
        await filled(site)
        server = Http2Server(site.engine, options)
        port = await server.start("127.0.0.1", 0)
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                await refused(stub.ModelInfer(infer_request(1_000_000)))
                assert site.engine.capacity.buffered_bytes == 0
        finally:
            await server.stop(0)
