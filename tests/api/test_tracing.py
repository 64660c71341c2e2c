"""Requests over real sockets whose traces a test keeps, over HTTP/1.1 and both gRPC transports."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import asynccontextmanager

import grpc.aio
import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import service_pb2 as pb

from inferd.api.trtis.grpc_calls import TrtisMethods
from inferd.api.trtis.http_infer import TrtisInference
from inferd.api.trtis.trtis import Trtis
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.options.trace import TraceSettings
from inferd.config.server import ServerConfig
from inferd.core.interfaces import Opened
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.http.access import OPEN
from inferd.http.failure import FailureLog
from inferd.http.message import HttpRequest
from inferd.observe.tracing.tracer import Tracer
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.execution.execution import Execution
from inferd.server.options import grpc_options, http_options
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.transport.grpc_server import GrpcServer
from inferd.transport.http2_server import Http2Server
from inferd.transport.http_server import HttpServer
from inferd.wire.proto import message_class

SERVICE = "/inference.GRPCInferenceService"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01"
FP32 = DataType.FP32
INSIDE = [
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "INFER_RESPONSE_COMPLETE",
    "REQUEST_END",
]
OVER_HTTP = ["HTTP_RECV_START", "HTTP_RECV_END", *INSIDE, "HTTP_SEND_START", "HTTP_SEND_END"]
OVER_GRPC = [
    "GRPC_WAITREAD_START",
    "GRPC_WAITREAD_END",
    *INSIDE,
    "GRPC_SEND_START",
    "GRPC_SEND_END",
]


class Kept:
    """A sink whose traces can be waited for."""

    def __init__(self):
        self.queue = asyncio.Queue()

    def open(self):
        pass

    def take(self, trace):
        self.queue.put_nowait(trace)

    async def next(self):
        return await asyncio.wait_for(self.queue.get(), 10)


class Twice:
    """Gives back its input, or if it is decoupled twice so."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def stream(self, request):
        yield self.answer(request)
        yield self.answer(request)

    def answer(self, request):
        outputs = [Tensor("Y", FP32, one.shape, one.data) for one in request.inputs]
        return InferResponse("", "", "", outputs)

    def close(self):
        pass


class SlowLabels(Sequence):
    """Labels that are waited for: `asked` tells that somebody does."""

    def __init__(self):
        self.asked, self.given = threading.Event(), threading.Event()

    def __len__(self):
        self.asked.set()
        self.given.wait(10)
        return 0

    def __getitem__(self, index):
        raise IndexError


def served(name, *, decoupled=False, labels=()):
    config = ModelConfig(
        name,
        input=(ModelInput("X", FP32, (-1,)),),
        output=(ModelOutput("Y", FP32, (-1,)),),
        decoupled=decoupled,
    )
    instance = Twice()
    execution = Execution(name, [Opened(instance, instance)], may_run_inline=False)
    return Served(config, 1, "identity", DirectScheduler(execution), labels={"Y": labels})


@asynccontextmanager
async def engine_of(**settings):
    """Yield an engine with models m, and twice, that traces every request, and its sink."""
    sink = Kept()
    settings = {"levels": ("TIMESTAMPS",), "rate": 1, "mode": "opentelemetry"} | settings
    engine = Engine(tracer=Tracer(TraceSettings(**settings), sink))
    engine.catalog.add(served("m"))
    engine.catalog.add(served("twice", decoupled=True))
    engine.readiness.finish_loading()
    try:
        yield engine, sink
    finally:
        await engine.close(10)


@pytest.fixture
def over_http():
    """over_http(**settings) yields an open connection and the sink."""

    @asynccontextmanager
    async def serve(**settings):
        async with engine_of(**settings) as (engine, sink):
            server = HttpServer(engine, http_options(ServerConfig()))
            port = await server.start("127.0.0.1", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                yield reader, writer, sink
            finally:
                writer.close()
                server.close()
                assert await server.endpoint.wait_until_empty(10)

    return serve


@pytest.fixture(params=[Http2Server, GrpcServer], ids=["own", "grpcio"])
def over_grpc(request):
    """over_grpc(**settings) yields a channel and the sink."""

    @asynccontextmanager
    async def serve(**settings):
        async with engine_of(**settings) as (engine, sink):
            server = request.param(engine, grpc_options(ServerConfig()))
            port = await server.start("127.0.0.1", 0)
            try:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    yield channel, sink
            finally:
                await server.stop(0)

    return serve


def http_bytes(size=4, model="m", *lines):
    head = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: there", f"Content-Length: {size}"]
    head += ["Inference-Header-Content-Length: 0", *lines]
    return "\r\n".join([*head, "", ""]).encode(), bytes(size)


async def http_status(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
    return int(head.split()[1])


def infer_request(model="m", **fields):
    request = pb.ModelInferRequest(model_name=model, **fields)
    request.inputs.add(name="X", datatype="FP32").shape.extend([1])
    request.raw_input_contents.append(np.float32(1).tobytes())
    return request.SerializeToString()


def names(trace):
    stamps = [(ns, index, name) for index, (name, ns) in enumerate(trace.stamps)]
    return [name for _, _, name in sorted(stamps)]


async def test_an_http_request_has_all_moments_in_order(over_http):
    async with over_http() as (reader, writer, sink):
        writer.write(b"".join(http_bytes()))
        assert await http_status(reader) == 200
        trace = await sink.next()
    assert sorted(names(trace)) == sorted(OVER_HTTP)
    times = dict(trace.stamps)
    assert [times[name] for name in OVER_HTTP] == sorted(times.values())
    assert (trace.model, trace.version, trace.error, trace.parent) == ("m", "1", "", None)


async def test_a_body_that_comes_in_pieces_has_a_time_of_its_own_each_time(over_http):
    async with over_http() as (reader, writer, sink):
        for _ in range(2):  # the second head is known already
            head, body = http_bytes(100_000)
            writer.write(head + body[:50_000])
            await writer.drain()
            writer.write(body[50_000:])
            assert await http_status(reader) == 200
        first, second = dict((await sink.next()).stamps), dict((await sink.next()).stamps)
    assert first["HTTP_RECV_START"] < first["HTTP_RECV_END"] < first["HTTP_SEND_END"]
    assert first["HTTP_SEND_START"] < second["HTTP_RECV_START"] < second["HTTP_RECV_END"]


@pytest.mark.parametrize(
    ("model", "size", "status", "error", "version"),
    [("nope", 4, 404, "not found", ""), ("m", 3, 400, "invalid argument", "1")],
)
async def test_an_http_request_that_fails_is_traced_with_its_reason(
    over_http, model, size, status, error, version
):
    async with over_http() as (reader, writer, sink):
        writer.write(b"".join(http_bytes(size, model)))
        assert await http_status(reader) == status
        trace = await sink.next()
    assert (trace.error, trace.version) == (error, version)
    assert names(trace)[-2:] == ["HTTP_SEND_START", "HTTP_SEND_END"]


def generate_bytes(model, call, body=b'{"X":1}'):
    head = f"POST /v2/models/{model}/{call} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize("model", ["m", "twice"])
async def test_generate_has_all_moments_in_order(over_http, model):
    async with over_http() as (reader, writer, sink):
        writer.write(generate_bytes(model, "generate"))
        assert await http_status(reader) == 200
        trace = await sink.next()
    assert sorted(names(trace)) == sorted(OVER_HTTP)
    assert (trace.model, trace.version, trace.error) == (model, "1", "")


async def test_each_event_of_generate_stream_is_a_moment(over_http):
    async with over_http() as (reader, writer, sink):
        writer.write(generate_bytes("twice", "generate_stream"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"0\r\n\r\n")
        trace = await sink.next()
    assert names(trace).count("HTTP_SEND_END") == names(trace).count("INFER_RESPONSE_COMPLETE") == 2
    assert trace.error == ""


@pytest.mark.parametrize("call", ["generate", "generate_stream"])
async def test_generate_that_fails_is_traced_with_its_reason(over_http, call):
    async with over_http() as (reader, writer, sink):
        writer.write(generate_bytes("m", call, b"{}"))
        assert await http_status(reader) == 400
        trace = await sink.next()
    assert (trace.error, names(trace)[-1]) == ("invalid argument", "REQUEST_END")


async def test_the_clients_own_span_comes_in_a_header(over_http):
    async with over_http(rate=0) as (reader, writer, sink):
        writer.write(b"".join(http_bytes(4, "m", f"traceparent: {TRACEPARENT}")))
        assert await http_status(reader) == 200
        assert (await sink.next()).parent.span_id == 0xB7AD6B7169242424
        writer.write(b"".join(http_bytes(4, "m", "traceparent: nonsense")))
        assert await http_status(reader) == 200
        assert sink.queue.empty()


async def test_in_mode_triton_what_the_client_traces_does_not_matter(over_http, tmp_path):
    async with over_http(rate=2, mode="triton", file=tmp_path) as (reader, writer, sink):
        for _ in range(2):
            writer.write(b"".join(http_bytes(4, "m", f"traceparent: {TRACEPARENT}")))
            assert await http_status(reader) == 200
        assert (await sink.next()).parent is None
        assert sink.queue.empty()


async def test_a_grpc_call_has_all_moments_in_order(over_grpc):
    async with over_grpc() as (channel, sink):
        await channel.unary_unary(f"{SERVICE}/ModelInfer")(infer_request(id="q"))
        trace = await sink.next()
    assert sorted(names(trace)) == sorted(OVER_GRPC)
    times = dict(trace.stamps)
    assert [times[name] for name in OVER_GRPC] == sorted(times.values())
    assert (trace.request_id, trace.version) == ("q", "1")


async def test_a_grpc_call_that_fails_is_traced_with_its_reason(over_grpc):
    async with over_grpc() as (channel, sink):
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(f"{SERVICE}/ModelInfer")(infer_request("nope"))
        assert (await sink.next()).error == "not found"


async def test_the_clients_own_span_comes_in_the_metadata(over_grpc):
    async with over_grpc(rate=0) as (channel, sink):
        call = channel.unary_unary(f"{SERVICE}/ModelInfer")
        await call(infer_request(), metadata=[("traceparent", TRACEPARENT)])
        trace = await sink.next()
        assert trace.parent.trace_id == 0x0AF7651916CD43DD8448EB211C12666C
        await call(infer_request())
        assert sink.queue.empty()


async def test_each_request_of_a_stream_is_a_trace(over_grpc):
    async with over_grpc() as (channel, sink):
        call = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(
            iter([infer_request(), infer_request("nope", id="q"), infer_request("twice")])
        )
        assert len([answer async for answer in call]) == 4
        traces = [await sink.next() for _ in range(3)]
        one, failed, twice = sorted(traces, key=lambda trace: trace.id)
    assert sorted(names(one)) == sorted(OVER_GRPC)
    assert (failed.error, failed.request_id) == ("not found", "q")
    assert {"REQUEST_START", "REQUEST_END", "GRPC_SEND_END"} <= set(names(failed))
    assert names(twice).count("GRPC_SEND_END") == names(twice).count("INFER_RESPONSE_COMPLETE") == 2
    assert [trace.id for trace in (one, failed, twice)] == [1, 2, 3]


async def test_a_stream_its_client_leaves_is_a_trace_that_was_cancelled(over_grpc):
    async with over_grpc() as (channel, sink):
        call = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(iter([infer_request("twice")]))
        async for _ in call:
            call.cancel()
            break
        trace = await sink.next()
    assert trace.error in ("", "cancelled")  # the second answer may have been quicker
    assert names(trace)[0] == "GRPC_WAITREAD_START"


class Alone:
    """A call without metadata."""

    metadata = ()


OLD = 'batch_size: 1 input { name: "X" dims: 200000 } output { name: "Y" cls { count: 1 } }'


def old_http(engine):
    headers, body = {b"nv-inferrequest": OLD.encode()}, memoryview(bytes(800_000))
    request = HttpRequest(b"POST", b"/api/infer/slow", headers, True, False, body)
    failures = FailureLog(logging.getLogger())
    return TrtisInference(Trtis(engine, "me"), failures, forwards=False).infer(request, "slow")


def old_grpc(engine):
    request = message_class("nvidia.inferenceserver.InferRequest")(
        model_name="slow", model_version=-1
    )
    text_format.Parse(OLD, request.meta_data)
    request.raw_input.append(bytes(800_000))
    methods = TrtisMethods(Trtis(engine, "me"), None, OPEN)
    return methods.infer(request.SerializeToString(), Alone())


@pytest.mark.parametrize("infer", [old_http, old_grpc])
async def test_in_the_old_api_an_answer_that_is_given_up_is_a_trace_that_was_cancelled(infer):
    labels = SlowLabels()
    async with engine_of() as (engine, sink):
        engine.catalog.add(served("slow", labels=labels))
        answering = asyncio.create_task(infer(engine))
        await asyncio.to_thread(labels.asked.wait, 10)
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        labels.given.set()
        trace = await sink.next()
    assert (trace.error, names(trace)[-1][5:]) == ("cancelled", "SEND_END")
