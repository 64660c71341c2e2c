"""The gRPC port over real sockets: grpcio's channels and Triton's clients against it.

Every test runs on both transports; where they differ, the test says so.
"""

import asyncio
import functools
import gc
import logging
import socket
import subprocess
import time
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import msgspec
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from inferd.aio.event_loop import new_event_loop
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.engine.readiness import ServerReadiness
from inferd.engine.serving.served import Served
from inferd.errors import BackendFailed, Code, InferdError, InvalidConfig
from inferd.http.grpc.handler import Stream, Unary
from inferd.http.grpc.status import GRPC_STATUS, status_of
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.transport.grpc_options import GrpcOptions
from inferd.transport.grpc_server import GrpcServer
from inferd.transport.http2_server import Http2Server

OPTIONS = GrpcOptions(
    typed_answers=False,
    reuse_port=False,
    max_message_bytes=2**31 - 1,
    max_send_bytes=2**31 - 1,
    compression_level="none",
    keepalive_time_ms=7_200_000,
    keepalive_timeout_ms=20_000,
    keepalive_permit_without_calls=False,
    http2_max_pings_without_data=2,
    http2_min_recv_ping_interval_without_data_ms=300_000,
    http2_max_ping_strikes=2,
    max_connection_age_ms=None,
    max_connection_age_grace_ms=None,
    use_ssl=False,
    use_ssl_mutual=False,
    server_cert=None,
    server_key=None,
    root_cert=None,
    max_connections=10_000,
    max_concurrent_streams=1000,
    max_metadata_bytes=16384,
    max_inflated_bytes=2**26,
    write_timeout_s=60.0,
    message_timeout_s=60.0,
    handshake_timeout_s=20.0,
    max_connection_idle_ms=None,
    drain_window_s=1.0,
)


PATIENCE_S = 60
TRANSPORTS = {"own": Http2Server, "grpcio": GrpcServer}
current = {}


@pytest.fixture(params=TRANSPORTS, autouse=True)
def transport(request):
    """The name of the transport a test runs on."""
    current["server"] = TRANSPORTS[request.param]
    return request.param


def new_server(engine, more_methods=None, **changes):
    """A server of the transport under test, not started."""
    options = msgspec.structs.replace(OPTIONS, **changes)
    return current["server"](engine, options, more_methods)


class Identity:
    """A scheduler whose model gives back each input T as output OUT_T."""

    async def run(self, request):
        outputs = [
            Tensor(f"OUT_{tensor.name}", tensor.datatype, tensor.shape, tensor.data)
            for tensor in request.inputs
        ]
        return InferResponse("", "", outputs=outputs, parameters=request.parameters)

    async def close(self):
        pass


class Failing(Identity):
    """A scheduler that raises `error`."""

    def __init__(self, error):
        self.error = error

    async def run(self, request):
        raise self.error


class Hanging(Identity):
    """A scheduler that never answers, and tells when it started and when it was cancelled."""

    def __init__(self):
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def run(self, request):
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class Held(Identity):
    """A scheduler that answers when it is released, and tells when it started."""

    def __init__(self):
        self.started = asyncio.Event()
        self.release = asyncio.Event()

    async def run(self, request):
        self.started.set()
        await self.release.wait()
        return await super().run(request)


def served(name, scheduler, datatype=DataType.FP32, **settings):
    config = ModelConfig(
        name=name,
        input=(ModelInput("T", datatype, (-1,)),),
        output=(ModelOutput("OUT_T", datatype, (-1,)),),
        **settings,
    )
    return Served(config, 1, "onnx_onnxv1", scheduler)


def engine_with(*models):
    engine = Engine()
    for model in models:
        engine.catalog.add(model)
    engine.readiness.finish_loading()
    return engine


@asynccontextmanager
async def serving(engine, more_methods=None, **changes):
    """Run a server on a port the system chooses; gives its address."""
    server = new_server(engine, more_methods, **changes)
    port = await server.start("127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def in_loop(test):
    """Let a test that is a coroutine run, on the loop the server uses."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return run


def identity_engine(datatype=DataType.FP32):
    return engine_with(served("id", Identity(), datatype))


def infer_request(model="id", data=b"\0\0\x80?", **fields):
    tensor = {"name": "T", "datatype": "FP32", "shape": [len(data) // 4]}
    return pb.ModelInferRequest(
        model_name=model, inputs=[tensor], raw_input_contents=[data], **fields
    )


@asynccontextmanager
async def connected(address, **options):
    """Give the stub of an ordinary grpcio channel to `address`."""
    limits = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=limits, **options) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


async def failure(call):
    with pytest.raises(grpc.RpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


# --- calls ---


@in_loop
async def test_a_raw_call_is_answered():
    async with serving(identity_engine()) as address, connected(address) as stub:
        answer = await stub.ModelInfer(infer_request(id="42"))
    assert (answer.model_name, answer.model_version, answer.id) == ("id", "1", "42")
    assert list(answer.raw_output_contents) == [b"\0\0\x80?"]


@pytest.mark.parametrize("datatype", [d for d in DataType if d is not DataType.BF16])
@in_loop
async def test_tritons_client_carries_every_datatype(datatype):
    values = {
        DataType.BYTES: np.array([b"a", b"", b"\xff"], dtype=object),
        DataType.BOOL: np.array([True, False, True]),
    }.get(datatype, np.array([0, 1, 2]).astype(datatype.numpy))
    async with serving(identity_engine(datatype)) as address:
        client = triton_aio.InferenceServerClient(address)
        tensor = triton.InferInput("T", [3], datatype.value)
        tensor.set_data_from_numpy(values)
        result = await client.infer("id", [tensor])
        await client.close()
    assert result.as_numpy("OUT_T").tolist() == values.tolist()


@in_loop
async def test_bf16_is_carried_bit_by_bit():
    tensor = {"name": "T", "datatype": "BF16", "shape": [1]}
    request = pb.ModelInferRequest(model_name="id", inputs=[tensor], raw_input_contents=[b"\x80?"])
    engine = identity_engine(DataType.BF16)
    async with serving(engine) as address, connected(address) as stub:
        answer = await stub.ModelInfer(request)
    assert list(answer.raw_output_contents) == [b"\x80?"]


@in_loop
async def test_tritons_blocking_client_finds_all_it_asks():
    def ask(address):
        with triton.InferenceServerClient(address) as client:
            assert client.is_server_live() and client.is_server_ready()
            assert client.is_model_ready("id") and not client.is_model_ready("nope")
            assert client.get_server_metadata().name == "inferd"
            assert client.get_model_metadata("id").versions == ["1"]
            tensor = triton.InferInput("T", [2], "FP32")
            tensor.set_data_from_numpy(np.array([1, 2], "f4"))
            result = client.infer("id", [tensor], parameters={"p": 1.5}, priority=2, timeout=7)
            assert result.as_numpy("OUT_T").tolist() == [1, 2]
            assert result.get_response().parameters["p"].double_param == 1.5

    async with serving(identity_engine()) as address:
        await asyncio.to_thread(ask, address)


@in_loop
async def test_typed_answers_are_an_option():
    contents = {"fp32_contents": [1, 2]}
    tensor = {"name": "T", "datatype": "FP32", "shape": [2], "contents": contents}
    request = pb.ModelInferRequest(model_name="id", inputs=[tensor])
    async with (
        serving(identity_engine(), typed_answers=True) as address,
        connected(address) as stub,
    ):
        answer = await stub.ModelInfer(request)
    assert list(answer.outputs[0].contents.fp32_contents) == [1, 2]


FORWARDED = {"x-user": "Ann, Bob"}
METADATA = (("x-user", "Ann"), ("x-user", "Bob"), ("x-data-bin", b"\0"), ("other", "c"))


def texts(answer):
    return {name: choice.string_param for name, choice in answer.parameters.items()}


@in_loop
async def test_metadata_that_match_the_pattern_become_parameters():
    async with (
        serving(identity_engine(), header_forward_pattern="^X-") as address,
        connected(address) as stub,
    ):
        own = pb.InferParameter(string_param="mine")
        answer = await stub.ModelInfer(infer_request(parameters={"p": own}), metadata=METADATA)
        assert texts(answer) == {"p": "mine", **FORWARDED}
        again = await stub.ModelInfer(infer_request(parameters={"p": own}))
        assert texts(again) == {"p": "mine"}


@in_loop
async def test_metadata_become_parameters_of_each_request_of_a_stream():
    metadata = (*METADATA, ("triton_grpc_error", "true"))
    async with (
        serving(identity_engine(), header_forward_pattern="^x-|triton") as address,
        connected(address) as stub,
    ):
        call = stub.ModelStreamInfer(iter([infer_request()] * 2), metadata=metadata)
        found = [texts(answer.infer_response) async for answer in call]
    assert [{k: v for k, v in one.items() if v} for one in found] == [FORWARDED] * 2


@in_loop
async def test_metadata_whose_key_is_reserved_are_refused():
    async with (
        serving(identity_engine(), header_forward_pattern="time") as address,
        connected(address) as stub,
    ):
        call = stub.ModelInfer(infer_request(), metadata=(("timeout", "5"),))
        code, details = await failure(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("header 'timeout' cannot become a parameter")


@in_loop
async def test_six_mebibytes_go_both_ways():
    data = bytes(6 * 2**20)
    async with serving(identity_engine()) as address, connected(address) as stub:
        answer = await stub.ModelInfer(infer_request(data=data))
    assert list(answer.raw_output_contents) == [data]


@pytest.mark.slow
@in_loop
async def test_a_message_over_the_limit_is_refused():
    async with (
        serving(identity_engine(), max_message_bytes=1000) as address,
        connected(address) as stub,
    ):
        code, _ = await failure(stub.ModelInfer(infer_request(data=bytes(4000))))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


@in_loop
async def test_a_small_answer_over_the_limit_is_refused_too():
    async with (
        serving(identity_engine(), max_send_bytes=100) as address,
        connected(address) as stub,
    ):
        code, _ = await failure(stub.ModelInfer(infer_request(data=bytes(400))))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("level", ["none", "low", "medium", "high"])
@in_loop
async def test_compression_works_in_both_directions(compression, level):
    request = infer_request(data=bytes(100_000))
    async with (
        serving(identity_engine(), compression_level=level) as address,
        connected(address, compression=compression) as stub,
    ):
        answer = await stub.ModelInfer(request)
    assert answer.raw_output_contents[0] == bytes(100_000)


@pytest.mark.parametrize(("level", "is_small"), [("none", False), ("low", True), ("high", True)])
@in_loop
async def test_answers_are_compressed_by_option_only(level, is_small):
    request = infer_request(data=bytes(100_000))
    async with serving(identity_engine(), compression_level=level) as address:
        answered = await asyncio.to_thread(bytes_answered, address, request.SerializeToString())
    assert (answered < 10_000) is is_small


def bytes_answered(address, message):
    """Return how many bytes travel from the server in one call, counted by a relay between."""
    host, port = address.split(":")
    counted = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channel = grpc.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}")
        method = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", lambda data: data, lambda data: data
        )
        pending = method.future(message)
        client, _ = listener.accept()
        with client, socket.create_connection((host, int(port))) as server:
            client.setblocking(False)
            server.setblocking(False)
            while not pending.done():
                counted += relay(server, client)
                relay(client, server)
        pending.result()
        channel.close()
    return counted


def relay(source, target):
    try:
        data = source.recv(65536)
    except BlockingIOError:
        return 0
    target.setblocking(True)
    target.sendall(data)
    target.setblocking(False)
    return len(data)


# --- errors ---


@pytest.mark.parametrize("code", Code)
@in_loop
async def test_every_reason_reaches_the_client_as_its_status(code):
    error = InferdError("weil's näht\n")
    error.code = code
    engine = engine_with(served("bad", Failing(error)))
    async with serving(engine) as address, connected(address) as stub:
        status, details = await failure(stub.ModelInfer(infer_request("bad")))
    assert (status.value[0], details) == (GRPC_STATUS[code], "weil's näht\n")


@in_loop
async def test_unknown_models_and_malformed_requests_have_their_status():
    async with serving(identity_engine()) as address, connected(address) as stub:
        unknown, _ = await failure(stub.ModelInfer(infer_request("nope")))
        wrong, text = await failure(stub.ModelInfer(pb.ModelInferRequest(model_name="id")))
    assert unknown is grpc.StatusCode.NOT_FOUND
    assert wrong is grpc.StatusCode.INVALID_ARGUMENT and "'T'" in text


@in_loop
async def test_a_decoupled_model_is_not_for_model_infer():
    engine = engine_with(served("gen", Identity(), decoupled=True))
    async with serving(engine) as address, connected(address) as stub:
        code, _ = await failure(stub.ModelInfer(infer_request("gen")))
    assert code is grpc.StatusCode.UNIMPLEMENTED


@in_loop
@pytest.mark.parametrize("version", ["", "1"])
async def test_a_decoupled_model_is_not_for_model_infer_whatever_the_message(version):
    engine = engine_with(served("gen", Identity(), decoupled=True))
    empty = pb.ModelInferRequest.InferInputTensor(name="T", datatype="FP32", shape=[-1])
    request = pb.ModelInferRequest(model_name="gen", model_version=version, inputs=[empty])
    async with (
        serving(engine) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        call = raw_call(channel, "/inference.GRPCInferenceService/ModelInfer")
        for garbage in (b"", b"\x3a\xff"):
            code, text = await failure(call(request.SerializeToString() + garbage))
            assert code is grpc.StatusCode.UNIMPLEMENTED
            assert "decoupled transaction policy: model 'gen' is decoupled" in text


@in_loop
async def test_what_is_not_raised_on_purpose_is_logged_and_stays_here(caplog):
    engine = engine_with(served("bad", Failing(ZeroDivisionError("secret"))))
    with caplog.at_level(logging.ERROR, "inferd.grpc"):
        async with serving(engine) as address, connected(address) as stub:
            code, details = await failure(stub.ModelInfer(infer_request("bad")))
    assert code is grpc.StatusCode.INTERNAL
    assert "secret" not in details
    assert "ZeroDivisionError: secret" in caplog.text


@pytest.mark.slow
@in_loop
async def test_the_message_of_a_refused_call_is_not_kept():
    def is_kept():
        return any(
            isinstance(value, bytes) and len(value) > 10**6
            for tracked in gc.get_objects()
            if type(tracked).__name__ == "frame"
            for value in gc.get_referents(tracked)
        )

    engine = engine_with(served("id", Identity()))
    async with serving(engine) as address, grpc.aio.insecure_channel(address) as channel:
        gc.collect()
        gc.disable()
        try:
            # T * 10^6 is a name, which no model has.
            await failure(
                raw_call(channel, "/inference.GRPCInferenceService/ModelInfer")(
                    pb.ModelInferRequest(model_name="T" * 10**6).SerializeToString()
                )
            )
            assert not is_kept()
        finally:
            gc.enable()


def raw_call(channel, path):
    return channel.unary_unary(path, lambda data: data, lambda data: data)


@in_loop
async def test_garbage_is_an_invalid_argument():
    async with (
        serving(identity_engine()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        call = raw_call(channel, "/inference.GRPCInferenceService/ModelInfer")
        code, details = await failure(call(b"\xff\xff\xff"))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "cannot be read" in details


@pytest.mark.parametrize(
    "path",
    [
        "/inference.GRPCInferenceService/Nope",
        "/no.Service/Nope",
    ],
)
@in_loop
async def test_an_unknown_method_is_unimplemented(path):
    async with (
        serving(identity_engine()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        code, _ = await failure(raw_call(channel, path)(b""))
    assert code is grpc.StatusCode.UNIMPLEMENTED


@in_loop
async def test_a_long_error_still_reaches_the_client():
    engine = engine_with(served("bad", Failing(BackendFailed("ä" * 100_000))))
    async with serving(engine) as address, connected(address) as stub:
        code, details = await failure(stub.ModelInfer(infer_request("bad")))
    assert code is grpc.StatusCode.INTERNAL
    assert set(details) == {"ä"}


def test_a_text_is_cut_between_characters():
    assert status_of(InferdError("x" + "ä" * 1000)) == (13, "x" + "ä" * 749)


# --- time ---


@in_loop
async def test_a_deadline_cancels_the_running_handler():
    hanging = Hanging()
    engine = engine_with(served("slow", hanging))
    async with serving(engine) as address, connected(address) as stub:
        timeout_s = 0.1
        while not hanging.started.is_set():  # or the deadline came before the request
            code, _ = await failure(stub.ModelInfer(infer_request("slow"), timeout=timeout_s))
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            timeout_s *= 2
        await hanging.cancelled.wait()


@in_loop
async def test_a_client_that_cancels_cancels_the_running_handler():
    hanging = Hanging()
    engine = engine_with(served("slow", hanging))
    async with serving(engine) as address, connected(address) as stub:
        call = stub.ModelInfer(infer_request("slow"))
        await hanging.started.wait()
        call.cancel()
        await hanging.cancelled.wait()


@in_loop
async def test_stopping_cancels_calls_that_outlast_the_grace():
    hanging = Hanging()
    server = new_server(engine_with(served("slow", hanging)))
    port = await server.start("127.0.0.1", 0)
    async with connected(f"127.0.0.1:{port}") as stub:
        call = asyncio.ensure_future(failure(stub.ModelInfer(infer_request("slow"))))
        await hanging.started.wait()
        await server.stop(0.05)
        await hanging.cancelled.wait()
        await call


@in_loop
async def test_stopping_lets_running_calls_finish():
    held = Held()
    server = new_server(engine_with(served("held", held)))
    port = await server.start("127.0.0.1", 0)
    async with connected(f"127.0.0.1:{port}") as stub:
        call = asyncio.ensure_future(stub.ModelInfer(infer_request("held")))
        await held.started.wait()
        stopping = asyncio.ensure_future(server.stop(60))
        held.release.set()
        assert (await call).model_name == "held"
        await stopping


@in_loop
async def test_a_watch_hears_of_a_stop_and_does_not_hold_it_up():
    engine = identity_engine()
    server = new_server(engine)
    port = await server.start("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        engine.drain()
        stopping = asyncio.ensure_future(server.stop(60))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await asyncio.wait_for(stopping, 30)
        assert await watch.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.slow
@in_loop
async def test_a_watch_hears_of_a_change():
    engine = identity_engine()
    async with serving(engine) as address, grpc.aio.insecure_channel(address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        engine.drain()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING


@in_loop
async def test_a_stream_ends_with_the_status_of_its_error():
    async with (
        serving(identity_engine()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"\xff")
        code, _ = await failure(watch.read())
    assert code is grpc.StatusCode.INVALID_ARGUMENT


@in_loop
async def test_what_fails_a_stream_unexpectedly_stays_here(caplog):
    class Broken(ServerReadiness):
        def is_ready(self):
            return 1 // 0 > 0

    engine = Engine()
    engine.readiness = Broken(engine.catalog, is_strict=True, may_be_empty=True)
    async with (
        serving(engine) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        code, details = await failure(watch.read())
    assert code is grpc.StatusCode.INTERNAL
    assert "zero" not in details and "ZeroDivisionError" in caplog.text


@in_loop
async def test_a_call_knows_its_metadata_deadline_and_peer():
    calls = []

    async def note(data, call):
        calls.append((call.metadata, call.deadline_s, call.cancelled, call.peer))
        return [b""]

    async with (
        serving(identity_engine(), {"/a.Test/Note": Unary(note)}) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        method = channel.unary_unary("/a.Test/Note")
        await method(b"", metadata=(("k", "v"), ("k", "w"), ("b-bin", b"\0")), timeout=60)
        await method(b"")
    (metadata, deadline_s, cancelled, peer), (_, forever, _, _) = calls
    assert [pair for pair in metadata if pair[0] in ("k", "b-bin")] == [
        ("k", "v"),
        ("k", "w"),
        ("b-bin", b"\0"),
    ]
    assert 0 < deadline_s - time.monotonic() < 62 and forever is None
    assert not cancelled and peer.startswith("ipv4:127.0.0.1:")


# --- the port ---


@in_loop
async def test_a_taken_port_is_an_os_error_that_names_it():
    async with serving(identity_engine()) as address:
        server = new_server(identity_engine())
        with pytest.raises(OSError, match=address):
            await server.start("127.0.0.1", int(address.split(":")[1]))


@in_loop
async def test_a_server_that_never_started_can_be_stopped():
    await new_server(identity_engine()).stop(0)


@in_loop
async def test_two_servers_live_in_one_process():
    async with (
        serving(identity_engine()) as one,
        serving(engine_with()) as other,
        connected(one) as first,
        connected(other) as second,
    ):
        assert (await first.ModelReady(pb.ModelReadyRequest(name="id"))).ready
        assert not (await second.ModelReady(pb.ModelReadyRequest(name="id"))).ready


# --- health and reflection ---


@in_loop
async def test_the_official_health_client_is_answered():
    engine = identity_engine()
    async with serving(engine) as address, grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        serving_now = await stub.Check(health_pb2.HealthCheckRequest())
        engine.drain()
        draining = await stub.Check(health_pb2.HealthCheckRequest())
        code, _ = await failure(stub.Check(health_pb2.HealthCheckRequest(service="nope")))
    assert (serving_now.status, draining.status) == (1, 2)
    assert code is grpc.StatusCode.NOT_FOUND


@in_loop
async def test_the_official_reflection_client_finds_the_service():
    def ask(address):
        with grpc.insecure_channel(address) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            assert set(database.get_services()) == {
                "inference.GRPCInferenceService",
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
            }
            file = database.FindFileContainingSymbol("inference.GRPCInferenceService")
            assert len(file.service[0].method) == 20
            assert database.FindFileByName("model_config.proto").package == "inference"

    async with serving(identity_engine()) as address:
        await asyncio.to_thread(ask, address)


# --- TLS ---


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with an authority (ca), a certificate for 127.0.0.1 and one for a client."""
    folder = tmp_path_factory.mktemp("tls")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]

    def openssl(*arguments):
        subprocess.run(["openssl", "req", "-x509", *key, *arguments], cwd=folder, check=True)

    openssl("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in ("server", "client"):
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", f"/CN={name}"]
        openssl("-keyout", f"{name}.key", "-out", f"{name}.pem", *signed, *names)
    return folder


def tls_options(folder, **changes):
    files = {"server_cert": "server.pem", "server_key": "server.key", "root_cert": "ca.pem"}
    return {name: str(folder / file) for name, file in files.items()} | changes


async def call_over_tls(address, folder, with_certificate):
    files = [(folder / name).read_bytes() for name in ("ca.pem", "client.key", "client.pem")]
    credentials = grpc.ssl_channel_credentials(*(files if with_certificate else files[:1]))
    async with grpc.aio.secure_channel(address, credentials) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        return await stub.ServerLive(pb.ServerLiveRequest(), timeout=20)


@pytest.mark.parametrize("changes", [{}, {"root_cert": None}])
@in_loop
async def test_tls_carries_calls(certificates, changes):
    options = tls_options(certificates, use_ssl=True, **changes)
    async with serving(identity_engine(), **options) as address:
        assert (await call_over_tls(address, certificates, with_certificate=False)).live


@in_loop
async def test_mutual_tls_asks_for_a_certificate(certificates):
    async with serving(
        identity_engine(), **tls_options(certificates, use_ssl_mutual=True)
    ) as address:
        assert (await call_over_tls(address, certificates, with_certificate=True)).live
        code, _ = await failure(call_over_tls(address, certificates, with_certificate=False))
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"use_ssl": True, "server_cert": None}, "needs a server certificate"),
        ({"use_ssl_mutual": True, "root_cert": None}, "needs the root certificate"),
        ({"use_ssl": True, "server_key": "ca.key"}, "cannot be used"),
        ({"use_ssl": True, "server_key": "nope.key"}, "cannot be used"),
    ],
)
@in_loop
async def test_tls_files_that_cannot_be_used_are_a_configuration_error(certificates, changes, text):
    for name, file in changes.items():
        if isinstance(file, str):
            changes = changes | {name: str(certificates / file)}
    server = new_server(identity_engine(), **tls_options(certificates, **changes))
    with pytest.raises(InvalidConfig, match=text):
        await server.start("127.0.0.1", 0)


# --- the four kinds of calls, by a small service ---


async def double(data, call):
    call.add_initial([("asked", "once")])
    call.add_trailing([("told", "twice"), ("raw-bin", b"\0\xff")])
    return [data, memoryview(data)]


async def count_up(messages, call):
    """One message in, as many out as it says."""
    async for data in messages:
        for number in range(int(data)):
            yield [b"%d" % number]


async def total(messages, call):
    """Many in, one out."""
    numbers = [int(data) async for data in messages]
    yield [b"%d" % sum(numbers)]


async def echo(messages, call):
    """Each is answered before the next one is read."""
    call.add_trailing([("end", "reached")])
    async for data in messages:
        if data == b"fail":
            msg = "as asked"
            raise InferdError(msg)
        yield [b"<", data, b">"]


KINDS = {
    "/k.Kinds/Double": Unary(double),
    "/k.Kinds/CountUp": Stream(count_up),
    "/k.Kinds/Total": Stream(total),
    "/k.Kinds/Echo": Stream(echo),
}


@asynccontextmanager
async def kinds(**changes):
    async with (
        serving(identity_engine(), KINDS, **changes) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield channel


@in_loop
async def test_a_unary_call_sends_metadata_before_and_behind():
    async with kinds() as channel:
        call = channel.unary_unary("/k.Kinds/Double")(b"ab")
        assert await call == b"abab"
        assert ("asked", "once") in list(await call.initial_metadata())
        trailing = list(await call.trailing_metadata())
    assert ("told", "twice") in trailing and ("raw-bin", b"\0\xff") in trailing


@in_loop
async def test_one_message_is_answered_by_many():
    async with kinds() as channel:
        call = channel.unary_stream("/k.Kinds/CountUp")(b"300")
        assert [int(data) async for data in call] == list(range(300))


@in_loop
async def test_many_messages_are_answered_by_one():
    async with kinds() as channel:
        method = channel.stream_unary("/k.Kinds/Total")
        assert await method(iter([b"%d" % n for n in range(500)])) == b"124750"
        assert await method(iter([])) == b"0"


@pytest.mark.parametrize("level", ["none", "low"])
@in_loop
async def test_a_conversation_goes_back_and_forth(level):
    async with kinds(compression_level=level) as channel:
        method = channel.stream_stream("/k.Kinds/Echo")
        call = method(compression=grpc.Compression.Gzip)
        for size in (0, 1, 5000, 3_000_000):
            await call.write(b"x" * size)
            assert await call.read() == b"<" + b"x" * size + b">"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        assert ("end", "reached") in list(await call.trailing_metadata())


@in_loop
async def test_an_error_in_a_conversation_is_its_status():
    async with kinds() as channel:
        call = channel.stream_stream("/k.Kinds/Echo")()
        await call.write(b"a")
        assert await call.read() == b"<a>"
        await call.write(b"fail")
        with pytest.raises(grpc.aio.AioRpcError, match="as asked"):
            await call.read()
        assert await call.code() is grpc.StatusCode.INTERNAL


@pytest.mark.slow
@in_loop
async def test_a_slow_reader_holds_up_its_own_stream_alone():
    async with kinds() as channel:
        slow = channel.unary_stream("/k.Kinds/CountUp")(b"30000")
        assert await slow.read() == b"0"
        assert await channel.unary_unary("/k.Kinds/Double")(b"x") == b"xx"
        seen = 1
        while await slow.read() is not grpc.aio.EOF:
            seen += 1
    assert seen == 30_000
